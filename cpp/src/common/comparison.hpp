// Constraints that are one comparison with one value, as the papers have them; and the values of
// events as these comparisons need them.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "tamis/filter_table.hpp"
#include "tamis/order.hpp"

namespace tamis {

struct Comparison {
  std::uint8_t orders = 0;  // 0: the constraint is none
  bool is_string = false;
  double number = 0;  // a number without residue
  std::string_view text;
};

Comparison comparison_of(const FilterTable& table, const Constraint& constraint);

// The first eight bytes, so that different keys are ordered as the strings are.
std::uint64_t string_key(std::string_view text);

// A number of an event; nothing compares with it where the value is of another kind.
struct NumberKey {
  double nearest = std::numeric_limits<double>::quiet_NaN();
  std::uint8_t tie = 0;

  static NumberKey of(const EventValue& value) {
    if (value.kind != Kind::number) return {};
    return {value.nearest, order_by_residue(value.residue)};
  }
};

}  // namespace tamis
