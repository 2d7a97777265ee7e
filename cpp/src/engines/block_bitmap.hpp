#pragma once

#include <span>

#include "tamis/engine.hpp"

namespace tamis {

extern const std::span<const Parameter> kBlockBitmapParameters;

// Both throw ArgumentError for a parameter that is no whole number.
std::unique_ptr<Index> build_block_bitmap(std::shared_ptr<const FilterTable> table,
                                          const Parameters&);
std::unique_ptr<Index> open_block_bitmap(std::shared_ptr<const FilterTable> table,
                                         const Parameters&, const SectionReader&);

}  // namespace tamis
