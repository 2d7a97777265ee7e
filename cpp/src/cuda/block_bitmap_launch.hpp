// How the host starts the kernels of `block-bitmap-cuda`, and what they read and write.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engines/block_bitmap/cells.hpp"
#include "pairs_launch.hpp"
#include "ranked_launch.hpp"

namespace tamis::cuda {

inline constexpr std::uint32_t kBlockFilters = 512;
inline constexpr std::uint32_t kBlockTupleSize = 3;
inline constexpr std::uint32_t kBlockRows = block_bitmap::kSummaryCells + 1;
inline constexpr std::uint32_t kBlockCells = block_bitmap::kLineCells + 1;
inline constexpr std::uint32_t kBlockEventsPerThread = 16;  // whose rows are read together
inline constexpr std::uint32_t kBlockMostEvents = std::uint32_t{1} << 22;  // of a launch

// A quarter of a line: what a thread ANDs at once.
struct alignas(16) LinePart {
  std::uint32_t words[4];
};
inline constexpr std::uint32_t kLineParts = kBlockFilters / 8 / sizeof(LinePart);

// The cells of an event, a byte each, in the order of a tuple's columns; 0 behind the last.
struct alignas(16) ColumnCells {
  std::uint32_t words[block_bitmap::kMaxColumns / 4];
};

struct BlockTuple {
  std::uint32_t attributes[kBlockTupleSize];
  std::uint32_t n_attributes, first_column, n_columns;
};

struct FilterBlock {
  std::uint64_t first_line;
  std::uint32_t tuple, n_filters;
  std::uint32_t first_record, record_stride;  // in units of kPlaceWords
};

// Which words of a block may have a filter for a row of each of its tuple's attributes. Without so
// many attributes, the other rows are ones.
struct BlockSummary {
  std::uint8_t words[kBlockTupleSize][kBlockRows];
};

struct BlockBitmapIndexView {  // on the device
  const RankedAttribute* attributes;
  const block_bitmap::Scale* scales;
  const BlockTuple* tuples;
  const std::uint32_t* columns;
  const FilterBlock* blocks;
  const BlockSummary* summaries;  // [n_blocks]
  const LinePart* lines;
  const std::uint32_t* records;
  std::uint32_t n_attributes, n_tuples, n_blocks;
  std::uint32_t most_columns;  // of a tuple
};

struct BlockCandidate {
  std::uint32_t event;  // of the launch
  std::uint32_t place;  // block * kBlockFilters + its place there
};

TAMIS_HOST_DEVICE constexpr std::uint32_t block_events_padded(std::uint32_t n_events) {
  return (n_events + kBlockEventsPerThread - 1) / kBlockEventsPerThread * kBlockEventsPerThread;
}

// From kernel to kernel.
struct BlockBitmapWork {
  std::uint32_t* ranks;         // [most_events][n_attributes]
  std::uint8_t* rows;           // [n_attributes][most_events] of the summaries
  std::uint32_t* is_left;       // [most_events] the host must match it
  ColumnCells* columns;         // [n_tuples][most_events]
  BlockCandidate* candidates;   // [most_candidates]; those beyond are verified where they are found
  std::uint64_t* n_candidates;  // in: 0
  std::uint64_t most_candidates;
  std::uint32_t most_events;  // padded
};

// The events are by offsets, not packed. Three steps, one after another.
void launch_block_bitmap_rank(const BlockBitmapIndexView& index, const NumberEvents& events,
                              const BlockBitmapWork& work, const MatchResults& results,
                              void* stream);
void launch_block_bitmap_find(const BlockBitmapIndexView& index, const NumberEvents& events,
                              const BlockBitmapWork& work, const MatchResults& results,
                              void* stream);
void launch_block_bitmap_verify(const BlockBitmapIndexView& index, const NumberEvents& events,
                                const BlockBitmapWork& work, const MatchResults& results,
                                void* stream);

}  // namespace tamis::cuda
