// Filters as records of lanes, and the slots of ranks that lanes read.
//
// A lane reads the rank of an attribute in one of three views, each a slot that an event fills:
//
//     all       the rank, also of a missing value
//     numbers   the rank of a number, else kNoRank
//     strings   the rank of a string, else kNoRank
//
// In the last two, "not in this interval" is one lane: != stays within a type. A set of several
// intervals is the one that covers it and a negated lane for each gap. What has more gaps, a
// pattern, an area or a residual is kVerify: the filter table decides.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ranks.hpp"
#include "engines/tuple_key/kernels.hpp"
#include "engines/tuple_key/planner.hpp"
#include "tamis/column.hpp"

namespace tamis::tuple_key {

inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

struct AttributeSlots {
  std::uint32_t all = kNoSlot, numbers = kNoSlot, strings = kNoSlot;
  bool is_used() const { return (all & numbers & strings) != kNoSlot; }
};

class RecordEncoder {
 public:
  // `n_areas_tested`: a filter with so many areas need not be verified because of them.
  RecordEncoder(const FilterTable& table, const Ranks& ranks, std::uint32_t n_areas_tested = 0);

  const FilterTerms& terms() const { return terms_; }
  bool is_impossible(FilterIdx filter) const { return n_lanes_[filter] == kImpossible; }
  std::uint32_t lane_bytes() const { return lane_bytes_; }  // 1, 2 or 4
  // In units of 8 bytes.
  std::uint32_t size_of(FilterIdx filter) const {
    return 1 + (n_lanes_[filter] * 3 * lane_bytes_ + 7) / 8;
  }
  void write(FilterIdx filter, std::uint64_t* record);

  std::vector<AttributeSlots> slots;    // [n_attributes]
  std::vector<std::uint32_t> defaults;  // [n_slots] ranks where the event has no such attribute

 private:
  static constexpr std::uint16_t kImpossible = 0xFFFF;
  struct Lane {
    std::uint32_t slot, low, width;
    bool is_negated;
  };
  // False: the filter accepts nothing. Appends the filter's terms where `terms` is not null.
  bool encode(FilterIdx filter, FilterTerms* terms);
  std::uint32_t slot_of(std::uint32_t& slot, std::uint32_t rank_of_absent);

  const FilterTable& table_;
  const Ranks& ranks_;
  std::uint32_t n_areas_tested_;
  FilterTerms terms_;
  std::vector<std::uint16_t> n_lanes_;  // [n_filters]
  std::uint32_t lane_bytes_ = 1;
  // Of the filter that was encoded last.
  std::vector<Lane> lanes_;
  bool needs_verify_ = false;
  float share_ = 1;  // as FilterTerms::shares
  std::vector<RankInterval> intervals_;
};

}  // namespace tamis::tuple_key
