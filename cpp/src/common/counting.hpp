// Counting engines: how many constraints of each filter hold, without clearing counters.
//
// Filters are divided into partitions (one, or one for each pivot) and numbered within theirs by
// size, the number of their counted constraints. Lists hold these numbers.
//
//     partition p:   size 1 │ size 2        │ size 3      │ …        numbers 0, 1, 2, …
//     limits of p:          ▲ limits[1]     ▲ limits[2]   ▲ limits[3]
//     states         u16 for each number of the largest partition: epoch << 8 | count
//
// A filter whose count reaches its size is complete. Its size need not be looked up: because of the
// order, it is complete if and only if number < limits[count]. A partition begins a new epoch, and
// a state of an older one counts as zero, so clearing is free; when 255 epochs are used up all
// states are cleared at once, less than a byte for each 100 filters and epoch.
//
// Counted is a constraint that needs its attribute: one that accepts a missing value has no
// attribute to look for. It, patterns, areas and residuals are verified when the count is complete,
// and so are constraints beyond 255. Filters without a counted constraint are in always().
//
// Invariants: a constraint is counted at most once for an event; a complete filter is met once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "common/ranks.hpp"
#include "tamis/filter_table.hpp"

namespace tamis {

inline constexpr std::uint32_t kMaxCounted = 255;  // of a filter, so that a count is a byte

// Calls visit(constraint) for the constraints of the filter that are counted.
template <typename Visitor>
void for_each_counted(const FilterTable& table, FilterIdx filter, Visitor visit) {
  const Range& range = table.filter(filter).constraints;
  std::uint32_t n_counted = 0;
  for (std::uint32_t at = 0; at < range.count && n_counted < kMaxCounted; ++at) {
    const Constraint& constraint = table.constraint(range.first + at);
    if (!constraint.needs_attribute()) continue;
    visit(constraint);
    ++n_counted;
  }
}

class CountedFilters {
 public:
  static constexpr std::uint32_t kUncounted = std::numeric_limits<std::uint32_t>::max();

  struct Filter {
    FilterIdx idx : 31;
    FilterIdx has_rest : 1;  // something is not counted and must be verified
  };

  // partition_of [n_filters], of those with a counted constraint.
  CountedFilters(const FilterTable& table, std::span<const std::uint32_t> partition_of,
                 std::uint32_t n_partitions);
  // All in one partition.
  explicit CountedFilters(const FilterTable& table)
      : CountedFilters(table, std::vector<std::uint32_t>(table.size()), 1) {}

  // The number of each filter within its partition, or kUncounted: for building, then to be
  // dropped.
  std::vector<std::uint32_t> take_numbers() { return std::move(numbers_); }
  void must_verify(std::uint32_t partition, std::uint32_t number) {
    filters_[filter_begins_[partition] + number].has_rest = 1;
  }

  std::uint32_t n_filters(std::uint32_t partition) const {
    return filter_begins_[partition + 1] - filter_begins_[partition];
  }
  const Filter* filters(std::uint32_t partition) const {
    return filters_.data() + filter_begins_[partition];
  }
  const std::uint32_t* limits(std::uint32_t partition) const {
    return limits_.data() + limit_begins_[partition];
  }
  const std::vector<FilterIdx>& always() const { return always_; }
  std::uint32_t largest_partition() const { return largest_partition_; }
  std::size_t n_bytes() const;

 private:
  std::vector<std::uint32_t> numbers_;        // [n_filters]
  std::vector<std::uint32_t> filter_begins_;  // [n_partitions + 1]
  std::vector<Filter> filters_;               // partition after partition, by number
  std::vector<std::uint32_t> limit_begins_;   // [n_partitions]
  std::vector<std::uint32_t> limits_;         // limits[c]: filters of size c or less, c from 0
  std::vector<FilterIdx> always_;
  std::uint32_t largest_partition_ = 0;
};

class Counts {
 public:
  explicit Counts(std::uint32_t largest_partition) : states_(largest_partition) {}

  void begin(const std::uint32_t* limits) {
    limits_ = limits;
    epoch_ += 256;
    if (epoch_ > 0xFF00) {
      std::fill(states_.begin(), states_.end(), std::uint16_t{0});
      epoch_ = 256;
    }
  }

  // Counts a constraint for each of these filters. Calls complete(number) for those that are;
  // stops and gives back false as soon as that does.
  template <typename Complete>
  bool add(const std::uint32_t* begin, const std::uint32_t* end, Complete&& complete) {
    std::uint16_t* const states = states_.data();
    const std::uint32_t* const limits = limits_;
    const std::uint32_t epoch = epoch_;
    for (const std::uint32_t* at = begin; at != end; ++at) {
      const std::uint32_t number = *at;
      const std::uint32_t state = std::max<std::uint32_t>(states[number], epoch) + 1;
      states[number] = static_cast<std::uint16_t>(state);
      if (number < limits[state - epoch]) [[unlikely]] {
        if (!complete(number)) return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::uint16_t> states_;
  const std::uint32_t* limits_ = nullptr;
  std::uint32_t epoch_ = 0;
};

}  // namespace tamis
