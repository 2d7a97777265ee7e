// The set of values that a constraint accepts: what all operators on one attribute come down to.
//
//     numbers    disjoint intervals in order, none touching the next     x > 5 : [5+, highest)
//     strings    the same over UTF-8 bytes                               s < 'b': ["", 'b')
//     booleans   bit 0: FALSE, bit 1: TRUE
//     nan        NaN is accepted (EXISTS only)
//     absent     no value is accepted (IS NULL)
//
// NOT never leaves a type: the complement of x > 5 is the numbers up to 5, because a missing or
// odd-typed x is unknown, and NOT unknown does not match.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tamis/value.hpp"

namespace tamis {

struct NumberInterval {
  Cut low = kLowest;
  Cut high = kHighest;
  bool contains(Number value) const {
    const Cut cut = value.before();
    return !(cut < low) && cut < high;
  }
  friend bool operator==(const NumberInterval&, const NumberInterval&) = default;
};

// A place among strings, before or after one of them; `unbounded` lies after all.
struct StringCut {
  std::string text;
  bool is_after = false;
  bool is_unbounded = false;

  friend bool operator==(const StringCut&, const StringCut&) = default;
  friend bool operator<(const StringCut& a, const StringCut& b) {
    if (a.is_unbounded || b.is_unbounded) return !a.is_unbounded;
    const int order = a.text.compare(b.text);
    return order < 0 || (order == 0 && !a.is_after && b.is_after);
  }
};

struct StringInterval {
  StringCut low;  // "" : from the first string
  StringCut high{.text = {}, .is_after = false, .is_unbounded = true};

  bool contains(std::string_view text) const {
    const int above = text.compare(low.text);
    if (above < 0 || (above == 0 && low.is_after)) return false;
    if (high.is_unbounded) return true;
    const int below = text.compare(high.text);
    return below < 0 || (below == 0 && high.is_after);
  }
  friend bool operator==(const StringInterval&, const StringInterval&) = default;
};

struct ValueSet {
  std::vector<NumberInterval> numbers;
  std::vector<StringInterval> strings;
  std::uint8_t booleans = 0;
  bool nan = false;
  bool absent = false;

  static ValueSet all_numbers() { return {.numbers = {NumberInterval{}}, .strings = {}}; }
  static ValueSet all_strings() { return {.numbers = {}, .strings = {StringInterval{}}}; }

  bool is_empty() const {
    return numbers.empty() && strings.empty() && booleans == 0 && !nan && !absent;
  }
  bool contains(const EventValue& value) const;  // absent values too

  friend bool operator==(const ValueSet&, const ValueSet&) = default;
};

ValueSet set_union(const ValueSet& a, const ValueSet& b);
ValueSet set_intersection(const ValueSet& a, const ValueSet& b);
// Brings intervals from any order, overlapping or empty, into the form above.
void normalise(ValueSet& set);
// The values of one type that are not in `set` (for NOT).
ValueSet complement_within_type(const ValueSet& set, Kind kind);

}  // namespace tamis
