// What kernels do with an event: its numbers, their ranks, and records of lanes that these satisfy.
//
// What belongs to an event lies in registers: no index into it depends on data, and an attribute
// that is not there leaves its place empty.
#pragma once

#include "engines/tuple_key/items.hpp"
#include "launch.hpp"
#include "ranked_launch.hpp"

namespace tamis::cuda {

// The attributes and numbers of an event; of more than kMost, the first.
template <bool kPacked, std::uint32_t kMost>
struct EventCells {
  std::uint32_t attributes[kMost];
  double values[kMost];
  std::uint32_t n_cells;

  TAMIS_DEVICE EventCells(const NumberEvents& events, std::uint32_t event) {
    const std::uint32_t begin = kPacked ? 0 : events.offsets[event];
    n_cells = kPacked ? events.n_cells : events.offsets[event + 1] - begin;
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {  // all on their way at once
      attributes[at] = RankedValue::kNone;
      values[at] = 0;
      if (at >= n_cells) continue;
      if constexpr (kPacked) {
        const std::uint32_t cell = events.cells[std::size_t{at} * events.stride + event];
        if (cell != NumberEvents::kNoCell) attributes[at] = cell >> 16;
        values[at] = static_cast<std::int16_t>(cell & 0xFFFF);
      } else {
        attributes[at] = events.attributes[begin + at];
        values[at] = events.values[begin + at];
      }
    }
  }
};

// The ranks of an event, which a kernel before has written: values [kMost][stride].
template <std::uint32_t kMost>
struct EventRanks {
  RankedValue values[kMost];

  TAMIS_DEVICE EventRanks(const RankedValue* from, std::uint32_t stride, std::uint32_t event) {
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      values[at] = from[std::size_t{at} * stride + event];
    }
  }

  TAMIS_DEVICE std::uint32_t rank_of(const RankedSlot& slot) const {
    std::uint32_t rank = slot.preset;
    const std::uint32_t attribute = slot.attribute & ~RankedSlot::kStrings;
    const bool is_string = attribute != slot.attribute;
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      if (values[at].attribute == attribute)
        rank = is_string ? tuple_key::kNoRank : values[at].rank;
    }
    return rank;
  }

  // Do all lanes of the record hold?
  template <typename Lane>
  TAMIS_DEVICE bool holds(const RankedSlot* slots, const std::uint64_t* record,
                          std::uint32_t n_lanes) const {
    constexpr std::uint32_t kNegated = std::uint32_t{1} << (8 * sizeof(Lane) - 1);
    const Lane* const lanes = reinterpret_cast<const Lane*>(record + 1);
    for (std::uint32_t lane = 0; lane < n_lanes; ++lane) {
      const std::uint32_t rank = rank_of(slots[lanes[lane] & (kNegated - 1)]);
      if (!tuple_key::lane_holds(rank, lanes[n_lanes + lane], lanes[2 * n_lanes + lane],
                                 (lanes[lane] & kNegated) != 0)) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace tamis::cuda
