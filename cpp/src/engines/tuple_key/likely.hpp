// The filters of a `tuple-key` index that accept most events.
//
// Where an event is delivered to few subscribers, some tens of matches settle them all, and it does
// not matter which these are. An event then goes through these filters first, and looks up keys
// only if subscribers are left.
//
//     tiers    the likeliest, those that come next, ...; in each tier a list for each bucket
//     bucket   of its rarest attribute; several attributes may share one
//     starts   [n_tiers * n_buckets + 1] where the lists begin
//     chunks   [(n + 31) / 32] the guards: two more names of each filter, as in kernels.hpp
//     places   [n] of its record; those are copies in this order
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engines/tuple_key/kernels.hpp"
#include "engines/tuple_key/planner.hpp"
#include "tamis/column.hpp"
#include "tamis/sections.hpp"

namespace tamis::tuple_key {

class LikelyFilters {
 public:
  static constexpr std::size_t kMostTargets = 64;  // that a few matches may settle

  LikelyFilters() = default;
  // None where there are few filters anyway.
  LikelyFilters(const Planner& planner, const FilterTerms& filters, std::size_t n_attributes);
  explicit LikelyFilters(const SectionReader& sections);
  void save(SectionWriter& sections) const;

  // While building: which they are, in the order of their records, and then where those lie.
  const std::vector<std::uint32_t>& filters() const { return filters_; }
  void place_records(std::vector<std::uint32_t> places);

  std::size_t size() const { return places_.size(); }
  std::size_t n_tiers() const { return (starts_.size() - 1) / n_buckets_; }
  Run list(std::size_t tier, AttributeId attribute) const {
    const std::size_t at = tier * n_buckets_ + attribute % n_buckets_;
    return {starts_[at], starts_[at + 1]};
  }
  const GuardChunk* chunks() const { return chunks_.data(); }
  std::uint32_t place(std::size_t at) const { return places_[at]; }
  std::size_t n_bytes() const { return starts_.n_bytes() + chunks_.n_bytes() + places_.n_bytes(); }

 private:
  std::size_t n_buckets_ = 1;
  Column<std::uint32_t> starts_;
  Column<GuardChunk> chunks_;
  Column<std::uint32_t> places_;
  std::vector<std::uint32_t> filters_;
};

// Are they worth a look? Both ways are tried on a few events now and then, by the work they count,
// and the better one serves the next ones: longer each time that it was so before.
class LikelyOrNot {
 public:
  bool is_trial() const { return phase_ != kSettled; }
  bool takes_likely() const { return phase_ == kSettled ? is_better_ : phase_ == kTryLikely; }
  // An event was matched in the way that takes_likely() said; its work counts in trials only.
  void done(double cost) {
    if (phase_ == kSettled) {
      if (--n_left_ == 0) begin_trial();
      return;
    }
    costs_[phase_] += cost;
    if (--n_left_ > 0) return;
    n_left_ = kTrialEvents;
    if (phase_ == kTryUsual) {
      phase_ = kTryLikely;
      return;
    }
    const bool is_better = costs_[kTryLikely] < costs_[kTryUsual];
    n_settled_ = is_better == is_better_ ? std::min(2 * n_settled_, kMostSettled) : kLeastSettled;
    is_better_ = is_better;
    phase_ = kSettled;
    n_left_ = n_settled_;
  }

 private:
  enum Phase : std::uint8_t { kTryUsual, kTryLikely, kSettled };
  static constexpr std::size_t kTrialEvents = 4, kLeastSettled = 256, kMostSettled = 1 << 16;
  void begin_trial() {
    phase_ = kTryUsual;
    n_left_ = kTrialEvents;
    costs_[kTryUsual] = costs_[kTryLikely] = 0;
  }
  Phase phase_ = kTryUsual;
  bool is_better_ = false;
  std::size_t n_left_ = kTrialEvents, n_settled_ = kLeastSettled / 2;
  double costs_[2] = {0, 0};
};

}  // namespace tamis::tuple_key
