// What kernels do with an event: its numbers, their ranks, and records of lanes that these satisfy.
//
// What belongs to an event lies in registers: no index into it depends on data, and an attribute
// that is not there leaves its place empty.
#pragma once

#include "engines/tuple_key/items.hpp"
#include "launch.hpp"
#include "pairs_launch.hpp"
#include "ranked_launch.hpp"

namespace tamis::cuda {

// The attributes and numbers of an event; of more than kMost, the first.
template <bool kPacked, std::uint32_t kMost>
struct EventCells {
  std::uint32_t attributes[kMost];
  double values[kMost];
  std::uint32_t n_cells;

  TAMIS_DEVICE EventCells(const NumberEvents& events, std::uint32_t event) {
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      attributes[at] = RankedValue::kNone;
      values[at] = 0;
    }
    if constexpr (kPacked) {
      constexpr std::uint32_t kCells = PackedCells::kCells;
      static_assert(kMost % kCells == 0);
      n_cells = events.n_packed * kCells;
      TAMIS_UNROLL for (std::uint32_t first = 0; first < kMost; first += kCells) {
        if (first >= n_cells) continue;
        const PackedCells packed =
            events.packed[std::size_t{event} * events.n_packed + first / kCells];
        TAMIS_UNROLL for (std::uint32_t at = 0; at < kCells; ++at) {
          const std::uint32_t cell = packed.cell(at);
          const std::uint32_t attribute = PackedCells::attribute_of(cell);
          if (attribute != PackedCells::kNone) attributes[first + at] = attribute;
          values[first + at] = PackedCells::value_of(cell);
        }
      }
    } else {
      const std::uint32_t begin = events.offsets[event];
      n_cells = events.offsets[event + 1] - begin;
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {  // all on their way at once
        if (at >= n_cells) continue;
        attributes[at] = events.attributes[begin + at];
        values[at] = events.values[begin + at];
      }
    }
  }
};

// A record, of which the first words are read at once: most have no more. Those behind a short one
// are others', or kRecordPad.
struct RecordWords {
  const std::uint64_t* from;
  std::uint64_t head, first, second, third;  // no array, which would lie in memory
  static_assert(kRecordPad == 3);

  TAMIS_DEVICE explicit RecordWords(const std::uint64_t* record)
      : from(record), head(record[0]), first(record[1]), second(record[2]), third(record[3]) {}
  TAMIS_DEVICE std::uint32_t filter() const { return static_cast<std::uint32_t>(head); }
  TAMIS_DEVICE static std::uint32_t n_lanes_of(std::uint64_t head) {
    return static_cast<std::uint32_t>(head >> 32) & 0xFFFF;
  }
  TAMIS_DEVICE std::uint32_t n_lanes() const { return n_lanes_of(head); }
  // In words.
  template <typename Lane>
  TAMIS_DEVICE static std::uint32_t size_of(std::uint64_t head) {
    return 1 + (n_lanes_of(head) * 3 * static_cast<std::uint32_t>(sizeof(Lane)) + 7) / 8;
  }
  TAMIS_DEVICE std::uint64_t flags() const { return head >> 48; }
  TAMIS_DEVICE MatchPair pair_of(std::uint32_t event) const {
    return {event | ((flags() & tuple_key::kVerify) != 0 ? MatchPair::kVerify : 0), filter()};
  }
  // Eight bytes of its lanes from the one `at`, which are many lanes at once.
  TAMIS_DEVICE std::uint64_t bytes_from(std::uint32_t at) const {
    const std::uint32_t shift = 8 * (at % 8);
    std::uint64_t low = at < 8 ? first : at < 16 ? second : third;
    std::uint64_t high = at < 8 ? second : third;
    if (at >= 16) high = from[2 + at / 8];
    if (at >= 24) low = from[1 + at / 8];
    return shift == 0 ? low : low >> shift | high << (64 - shift);
  }
};

// The ranks of an event.
template <std::uint32_t kMost>
struct EventRanks {
  RankedValue values[kMost] = {};

  TAMIS_DEVICE EventRanks() {}
  TAMIS_DEVICE explicit EventRanks(const RankedValue* from) {
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) values[at] = from[at];
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
  TAMIS_DEVICE bool holds(const RankedSlot* slots, const RecordWords& record) const {
    constexpr std::uint32_t kNegated = std::uint32_t{1} << (8 * sizeof(Lane) - 1);
    constexpr std::uint32_t kStep = sizeof(Lane) == 4 ? 2 : 4;  // in eight bytes
    const std::uint32_t n_lanes = record.n_lanes();
    for (std::uint32_t first = 0; first < n_lanes; first += kStep) {
      const auto lanes = [&](std::uint32_t lane) {
        return record.bytes_from(static_cast<std::uint32_t>(sizeof(Lane)) * (lane + first));
      };
      const auto lane_of = [](std::uint64_t some, std::uint32_t at) {
        return std::uint32_t{static_cast<Lane>(some >> (8 * sizeof(Lane) * at))};
      };
      const std::uint64_t of = lanes(0), lows = lanes(n_lanes), widths = lanes(2 * n_lanes);
      RankedSlot read[kStep];  // all on their way at once
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) {
        read[at] = {};
        if (first + at < n_lanes) read[at] = slots[lane_of(of, at) & (kNegated - 1)];
      }
      bool all_hold = true;
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) {
        all_hold &= first + at >= n_lanes ||
                    tuple_key::lane_holds(rank_of(read[at]), lane_of(lows, at), lane_of(widths, at),
                                          (lane_of(of, at) & kNegated) != 0);
      }
      if (!all_hold) return false;
    }
    return true;
  }
};

}  // namespace tamis::cuda
