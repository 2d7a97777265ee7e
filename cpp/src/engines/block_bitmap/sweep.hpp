// The layout of `block-bitmap` for filters of which many match: exact lines, nothing to verify.
#pragma once

#include "ranked_filter.hpp"
#include "tamis/engine.hpp"

namespace tamis::block_bitmap {

std::unique_ptr<Index> build_sweep(std::shared_ptr<const FilterTable> table, Ranks ranks);
std::unique_ptr<Index> open_sweep(std::shared_ptr<const FilterTable> table, Ranks ranks,
                                  const SectionReader& sections);

}  // namespace tamis::block_bitmap
