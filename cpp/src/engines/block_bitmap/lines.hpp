// The layout of `block-bitmap` for filters of which few match: lines of filters that may match.
#pragma once

#include "cells.hpp"
#include "tamis/engine.hpp"
#include "tuples.hpp"

namespace tamis::block_bitmap {

struct alignas(64) RecordLine {
  std::uint32_t words[16] = {};
};

struct BlockRecords {
  std::uint32_t first = 0;   // in lines
  std::uint32_t stride = 0;  // in units of kPlaceWords
  std::uint32_t place_of(std::size_t filter) const {
    return static_cast<std::uint32_t>(first * (std::size(RecordLine{}.words) / kPlaceWords) +
                                      filter * stride);
  }
};

// The parts of an index, as lines_index.hpp describes them, for a device that has them too.
struct LinesView {
  const Ranks& ranks;
  std::span<const Scale> scales;                // [n_attributes]
  std::span<const Tuple> tuples;                // in the order of their blocks
  std::span<const std::uint64_t> summaries;     // of each tuple: [n_attributes][rows][words]
  std::span<const AttributeId> columns;         // of each tuple
  std::span<const std::uint16_t> n_filters_of;  // [n_blocks]
  std::span<const Line> lines;                  // of each block: [columns of its tuple][cells]
  std::span<const BlockRecords> block_records;  // [n_blocks]
  std::span<const RecordLine> records;          // of each block: [filters]

  static constexpr std::size_t kCells = kLineCells + 1;    // lines of a column
  static constexpr std::size_t kRows = kSummaryCells + 1;  // of an attribute
  // Of a row: a bit for each word of the lines of its blocks.
  static std::size_t words_of(const Tuple& tuple) { return (tuple.n_blocks + 7) / 8; }
};

std::unique_ptr<Index> build_lines(std::shared_ptr<const FilterTable> table, Ranks ranks,
                                   std::size_t tuple_size);
std::unique_ptr<Index> open_lines(std::shared_ptr<const FilterTable> table, Ranks ranks,
                                  const SectionReader& sections);
// Of an index that one of these two made, as long as it is there.
LinesView view_of(const Index& lines);

}  // namespace tamis::block_bitmap
