#include "common/interval_lists.hpp"

#include <cmath>
#include <limits>

namespace tamis {

// Numbers begin at 0, and the greatest of them is infinity; the last four ranks are false, true,
// NaN and absent.
RankTypes::RankTypes(const Ranks& ranks, AttributeId attribute) {
  const double infinity = std::numeric_limits<double>::infinity();
  ends[0] = ranks.rank(attribute, EventValue::of(infinity)) + 1;
  ends[1] = ranks.rank(attribute, EventValue::of(false));
  ends[2] = ranks.n_ranks(attribute);
}

void IntervalLists::add(std::uint32_t domain, RankInterval bounds,
                        std::span<const RankInterval> intervals, std::uint32_t item) {
  const std::uint32_t lists = domain * kOperators;
  if (intervals.size() == 2 && intervals[0].low == bounds.low && intervals[1].high == bounds.high &&
      intervals[0].high + 1 == intervals[1].low) {
    entries_.push_back({lists + kAllBut, intervals[0].high, item});
    return;
  }
  for (const RankInterval& each : intervals) {
    if (each == bounds) {
      entries_.push_back({lists + kAll, 0, item});
    } else if (each.low + 1 == each.high) {
      entries_.push_back({lists + kEqual, each.low, item});
    } else if (each.low == bounds.low) {
      entries_.push_back({lists + kBelow, each.high, item});
    } else if (each.high == bounds.high) {
      entries_.push_back({lists + kAbove, each.low, item});
    } else {
      intervals_.push_back({domain, each.low, each.high, item});
    }
  }
}

// Lists come in order, and keys within a list.
void IntervalLists::append(std::uint32_t list, std::uint32_t key, std::uint32_t item) {
  while (lists_.size() <= list) lists_.push_back(static_cast<std::uint32_t>(keys_.size()));
  if (lists_.back() == keys_.size() || keys_.back() != key) {
    keys_.push_back(key);
    begins_.push_back(static_cast<std::uint32_t>(items_.size()));
  }
  items_.push_back(item);
}

void IntervalLists::finish(std::uint32_t n_domains) {
  std::sort(entries_.begin(), entries_.end());
  items_.reserve(entries_.size() + 2 * intervals_.size());
  lists_.reserve(std::size_t{n_domains} * kOperators + 1);
  for (const Entry& entry : entries_) append(entry.list, entry.key, entry.item);
  entries_ = {};
  while (lists_.size() < std::size_t{n_domains} * kOperators) {
    lists_.push_back(static_cast<std::uint32_t>(keys_.size()));
  }

  std::sort(intervals_.begin(), intervals_.end(),
            [](const Interval& a, const Interval& b) { return a.domain < b.domain; });
  if (!intervals_.empty()) roots_.assign(n_domains, kNone);
  for (std::size_t begin = 0; begin < intervals_.size();) {
    std::size_t end = begin;
    while (end < intervals_.size() && intervals_[end].domain == intervals_[begin].domain) ++end;
    roots_[intervals_[begin].domain] =
        build_node(std::span(intervals_).subspan(begin, end - begin));
    begin = end;
  }
  intervals_ = {};
  lists_.push_back(static_cast<std::uint32_t>(keys_.size()));
  begins_.push_back(static_cast<std::uint32_t>(items_.size()));
  keys_.shrink_to_fit();
  begins_.shrink_to_fit();
  lists_.shrink_to_fit();
}

// Depth is at most log2 of the intervals: a part has at most half of them.
std::uint32_t IntervalLists::build_node(std::span<Interval> intervals) {
  if (intervals.empty()) return kNone;
  std::vector<std::uint32_t> ends;
  ends.reserve(2 * intervals.size());
  for (const Interval& each : intervals) {
    ends.push_back(each.low);
    ends.push_back(each.high);
  }
  const auto median = ends.begin() + static_cast<std::ptrdiff_t>(intervals.size());
  std::nth_element(ends.begin(), median, ends.end());
  const std::uint32_t middle = *median;
  ends = {};

  const auto here = std::partition(intervals.begin(), intervals.end(),
                                   [&](const Interval& each) { return each.high < middle; });
  const auto right = std::partition(here, intervals.end(),
                                    [&](const Interval& each) { return each.low <= middle; });
  const auto at = static_cast<std::uint32_t>(nodes_.size());
  const auto list = static_cast<std::uint32_t>(lists_.size());
  nodes_.push_back({.middle = middle, .left = kNone, .right = kNone, .list = list});
  std::sort(here, right, [](const Interval& a, const Interval& b) {
    return a.low != b.low ? a.low < b.low : a.item < b.item;
  });
  for (auto each = here; each != right; ++each) append(list, each->low, each->item);
  std::sort(here, right, [](const Interval& a, const Interval& b) {
    return a.high != b.high ? a.high < b.high : a.item < b.item;
  });
  for (auto each = here; each != right; ++each) append(list + 1, each->high, each->item);

  const std::uint32_t left_part = build_node({intervals.begin(), here});
  const std::uint32_t right_part = build_node({right, intervals.end()});
  nodes_[at].left = left_part;
  nodes_[at].right = right_part;
  return at;
}

std::size_t IntervalLists::n_bytes() const {
  const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  return bytes(lists_) + bytes(keys_) + bytes(begins_) + bytes(items_) + bytes(roots_) +
         bytes(nodes_);
}

}  // namespace tamis
