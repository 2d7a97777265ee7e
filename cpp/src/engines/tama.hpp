#pragma once

#include "common/updatable_index.hpp"
#include "tamis/engine.hpp"

namespace tamis {

extern const std::span<const Parameter> kTamaParameters;
std::unique_ptr<Index> build_tama(std::shared_ptr<const FilterTable> table, const Parameters&);

// With the first `n_first` filters only: the others are there to be inserted.
std::unique_ptr<UpdatableIndex> build_updatable_tama(std::shared_ptr<const FilterTable> table,
                                                     const Parameters&, FilterIdx n_first);

}  // namespace tamis
