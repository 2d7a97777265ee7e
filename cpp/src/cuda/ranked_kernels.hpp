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
  TAMIS_DEVICE std::uint32_t n_lanes() const {
    return static_cast<std::uint32_t>(head >> 32) & 0xFFFF;
  }
  TAMIS_DEVICE std::uint64_t flags() const { return head >> 48; }
  TAMIS_DEVICE MatchPair pair_of(std::uint32_t event) const {
    return {event | ((flags() & tuple_key::kVerify) != 0 ? MatchPair::kVerify : 0), filter()};
  }
  template <typename Lane>
  TAMIS_DEVICE std::uint32_t lane(std::uint32_t at) const {
    constexpr std::uint32_t kInWord = 8 / sizeof(Lane);
    std::uint64_t word = at < kInWord ? first : at < 2 * kInWord ? second : third;
    if (at >= 3 * kInWord) word = from[1 + at / kInWord];
    return static_cast<Lane>(word >> (8 * sizeof(Lane) * (at % kInWord)));
  }
};

// The ranks of an event, out of values [kMost][stride].
template <std::uint32_t kMost>
struct EventRanks {
  RankedValue values[kMost] = {};

  TAMIS_DEVICE EventRanks() {}
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
  TAMIS_DEVICE bool holds(const RankedSlot* slots, const RecordWords& record) const {
    constexpr std::uint32_t kNegated = std::uint32_t{1} << (8 * sizeof(Lane) - 1);
    constexpr std::uint32_t kStep = 4;
    const std::uint32_t n_lanes = record.n_lanes();
    for (std::uint32_t first = 0; first < n_lanes; first += kStep) {
      RankedSlot of[kStep];  // all on their way at once
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) {
        of[at] = {};
        if (first + at < n_lanes) {
          of[at] = slots[record.template lane<Lane>(first + at) & (kNegated - 1)];
        }
      }
      bool all_hold = true;
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) {
        const std::uint32_t lane = first + at;
        if (lane < n_lanes) {
          all_hold &=
              tuple_key::lane_holds(rank_of(of[at]), record.template lane<Lane>(n_lanes + lane),
                                    record.template lane<Lane>(2 * n_lanes + lane),
                                    (record.template lane<Lane>(lane) & kNegated) != 0);
        }
      }
      if (!all_hold) return false;
    }
    return true;
  }
};

}  // namespace tamis::cuda
