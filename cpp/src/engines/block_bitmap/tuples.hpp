// Filters put in order so that those that match the same events lie in the same block.
//
// A few tuples of up to three attributes are chosen so that nearly every filter constrains all of
// some tuple. The filters of a tuple are boxes in its attributes, and a k-d split by the centres of
// the boxes divides them into blocks.
#pragma once

#include <vector>

#include "ranked_filter.hpp"

namespace tamis::block_bitmap {

inline constexpr std::size_t kMaxTupleSize = 3;

struct Tuple {
  AttributeId attributes[kMaxTupleSize] = {};
  std::uint32_t n_attributes = 0;  // 0: the filters that no tuple covers
  std::uint32_t first_block = 0, n_blocks = 0;
  std::uint64_t first_summary = 0;  // in the words of the summaries
  std::uint64_t first_line = 0;     // of its blocks
  std::uint32_t first_column = 0, n_columns = 0;
};

struct Arrangement {
  std::vector<Tuple> tuples;
  std::vector<FilterIdx> filter_of;         // [n_blocks * kLineBits] block after block
  std::vector<std::uint16_t> n_filters_of;  // [n_blocks]; the rest of the block is empty
};

Arrangement arrange(const FilterTable& table, const Ranks& ranks, std::size_t tuple_size);

}  // namespace tamis::block_bitmap
