// Cells of ranks and records of filters, as the CPU and the kernels of a GPU read them.
#pragma once

#include <cstddef>

#include "tamis/host_device.hpp"

namespace tamis::block_bitmap {

inline constexpr std::size_t kSummaryCells = 128;  // of an attribute, and one for "absent"
inline constexpr std::size_t kLineCells = kSummaryCells / 4;  // likewise
inline constexpr std::size_t kMaxColumns = 32;                // attributes with lines in a block

struct Scale {  // of one attribute
  std::uint64_t factor = 0;
  std::uint32_t absent = 0;  // the rank of a missing value

  // Cells of the summary, in order; "absent" has the last one to itself.
  TAMIS_HOST_DEVICE std::uint32_t row_of(std::uint32_t rank) const {
    return rank == absent ? kSummaryCells : static_cast<std::uint32_t>((rank * factor) >> 32);
  }
};
TAMIS_HOST_DEVICE inline std::uint32_t cell_of(std::uint32_t row) { return row / 4; }

// A record, in words of 4 bytes; padding after the slots if n_lanes is odd:
//
//     filter   n_lanes u16, flags u16   slots u16[n_lanes]   lows [n_lanes]   widths [n_lanes]
//
// A lane holds if ranks[slot] - low <= width, unsigned; the slot is an attribute. With kNeedsTable
// the filter table has the last word.
inline constexpr std::size_t kPlaceWords = 4;  // records begin at multiples of these
inline constexpr std::uint64_t kNeedsTable = std::uint64_t{1} << 48;  // of the first two words

}  // namespace tamis::block_bitmap
