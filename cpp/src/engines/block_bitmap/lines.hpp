// The layout of `block-bitmap` for filters of which few match: lines of filters that may match.
#pragma once

#include "tamis/engine.hpp"
#include "tuples.hpp"

namespace tamis::block_bitmap {

inline constexpr std::size_t kSummaryCells = 128;  // of an attribute, and one for "absent"
inline constexpr std::size_t kLineCells = kSummaryCells / 4;  // likewise
inline constexpr std::size_t kMaxColumns = 32;                // attributes with lines in a block

std::unique_ptr<Index> build_lines(std::shared_ptr<const FilterTable> table, Ranks ranks,
                                   std::size_t tuple_size);
std::unique_ptr<Index> open_lines(std::shared_ptr<const FilterTable> table, Ranks ranks,
                                  const SectionReader& sections);

}  // namespace tamis::block_bitmap
