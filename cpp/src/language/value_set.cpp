#include "tamis/value_set.hpp"

#include <algorithm>

namespace tamis {
namespace {

template <typename Interval>
void normalise(std::vector<Interval>& intervals) {
  std::erase_if(intervals, [](const Interval& each) { return !(each.low < each.high); });
  if (intervals.size() < 2) return;
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.low < b.low; });
  std::size_t last = 0;
  for (std::size_t next = 1; next < intervals.size(); ++next) {
    if (intervals[last].high < intervals[next].low) {
      if (++last != next) intervals[last] = std::move(intervals[next]);
    } else if (intervals[last].high < intervals[next].high) {
      intervals[last].high = std::move(intervals[next].high);
    }
  }
  intervals.resize(last + 1);
}

template <typename Interval>
std::vector<Interval> intersection(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::vector<Interval> both;
  for (std::size_t at_a = 0, at_b = 0; at_a < a.size() && at_b < b.size();) {
    const auto& low = std::max(a[at_a].low, b[at_b].low);
    const bool a_ends_first = a[at_a].high < b[at_b].high;
    const auto& high = a_ends_first ? a[at_a].high : b[at_b].high;
    if (low < high) both.push_back({low, high});
    ++(a_ends_first ? at_a : at_b);
  }
  return both;
}

template <typename Interval>
std::vector<Interval> complement(const std::vector<Interval>& intervals) {
  std::vector<Interval> gaps;
  Interval gap;  // everything
  for (const Interval& each : intervals) {
    gap.high = each.low;
    if (gap.low < gap.high) gaps.push_back(gap);
    gap.low = each.high;
  }
  gap.high = Interval{}.high;
  if (gap.low < gap.high) gaps.push_back(gap);
  return gaps;
}

template <typename Interval>
std::vector<Interval> joined(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::vector<Interval> all;
  all.reserve(a.size() + b.size());
  all.insert(all.end(), a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  normalise(all);
  return all;
}

template <typename Interval, typename Value>
bool contains_any(const std::vector<Interval>& intervals, const Value& value) {
  return std::any_of(intervals.begin(), intervals.end(),
                     [&](const Interval& each) { return each.contains(value); });
}

}  // namespace

void normalise(ValueSet& set) {
  normalise(set.numbers);
  normalise(set.strings);
}

ValueSet set_union(const ValueSet& a, const ValueSet& b) {
  return {.numbers = joined(a.numbers, b.numbers),
          .strings = joined(a.strings, b.strings),
          .booleans = static_cast<std::uint8_t>(a.booleans | b.booleans),
          .nan = a.nan || b.nan,
          .absent = a.absent || b.absent};
}

ValueSet set_intersection(const ValueSet& a, const ValueSet& b) {
  return {.numbers = intersection(a.numbers, b.numbers),
          .strings = intersection(a.strings, b.strings),
          .booleans = static_cast<std::uint8_t>(a.booleans & b.booleans),
          .nan = a.nan && b.nan,
          .absent = a.absent && b.absent};
}

ValueSet complement_within_type(const ValueSet& set, Kind kind) {
  ValueSet rest;
  if (kind == Kind::number) rest.numbers = complement(set.numbers);
  if (kind == Kind::string) rest.strings = complement(set.strings);
  if (kind == Kind::boolean) rest.booleans = static_cast<std::uint8_t>(~set.booleans & 3);
  return rest;
}

bool ValueSet::contains(const EventValue& value) const {
  switch (value.kind) {
    case Kind::absent:
      return absent;
    case Kind::number:
      return contains_any(numbers, value.number());
    case Kind::string:
      return contains_any(strings, value.string());
    case Kind::boolean:
      return (booleans >> (value.boolean ? 1 : 0)) & 1;
    case Kind::nan:
      return nan;
  }
  return false;
}

}  // namespace tamis
