#pragma once

#include "tamis/engine.hpp"

namespace tamis {

extern const std::span<const Parameter> kTamaParameters;
std::unique_ptr<Index> build_tama(std::shared_ptr<const FilterTable> table, const Parameters&);

}  // namespace tamis
