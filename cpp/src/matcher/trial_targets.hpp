// Whom a trial of an index delivers to: every filter by itself, or subscribers as a match would.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "tamis/collector.hpp"

namespace tamis {

class TrialTargets {
 public:
  // `has_runs`: words of bits are added at once, as where subscriptions follow one another.
  static TrialTargets own(std::size_t n_filters, bool has_runs = false) {
    TrialTargets targets;
    targets.of_.resize(n_filters);
    std::iota(targets.of_.begin(), targets.of_.end(), 0u);
    targets.n_all_ = n_filters;
    if (has_runs) targets.runs_ = find_runs(targets.of_);
    return targets;
  }
  // Are most words of these filters such?
  static bool are_runs(std::span<const std::uint32_t> slot_of) {
    std::size_t n_runs = 0;
    for (const std::uint64_t word : find_runs(slot_of)) {
      n_runs += static_cast<std::size_t>(std::popcount(word));
    }
    return 2 * 64 * n_runs > slot_of.size();
  }
  // Numbers of subscribers are those of all that ever were, and few filters may have large ones:
  // they get others, so that what is kept for each number stays within that of the filters.
  static TrialTargets subscribers(std::span<const std::uint32_t> subscriber_of) {
    TrialTargets targets;
    targets.of_.assign(subscriber_of.begin(), subscriber_of.end());
    targets.can_repeat_ = true;
    std::vector<std::uint32_t> known = targets.of_;
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    for (std::uint32_t& each : targets.of_) {
      each = static_cast<std::uint32_t>(std::lower_bound(known.begin(), known.end(), each) -
                                        known.begin());
    }
    targets.n_all_ = known.size();
    return targets;
  }

  const std::vector<std::uint32_t>& of() const { return of_; }  // [n_filters]
  std::size_t n_all() const { return n_all_; }                  // above all of them
  Collector::Setup setup() const {
    Collector::Setup setup;
    setup.slot_of = setup.target_of = of_.data();
    setup.can_repeat = can_repeat_;
    setup.n_targets = n_all_;
    setup.runs = runs_.empty() ? nullptr : runs_.data();
    return setup;
  }

 private:
  std::vector<std::uint32_t> of_;
  std::vector<std::uint64_t> runs_;
  std::size_t n_all_ = 0;
  bool can_repeat_ = false;
};

}  // namespace tamis
