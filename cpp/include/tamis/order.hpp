// How values lie to one another: the comparisons that CPU and devices share. Of the standard
// library nothing but integers: device code reads this.
#pragma once

#include <cstdint>

#include "tamis/point.hpp"

namespace tamis {

// An operator is the set of orders of the event's value to the constraint's that it accepts.
enum Order : std::uint8_t { kLess = 1, kEqual = 2, kGreater = 4, kAnyOrder = 7 };

// The order where the doubles next to two numbers are the same and only the first has a residue.
TAMIS_HOST_DEVICE constexpr std::uint8_t order_by_residue(std::int16_t residue) {
  return residue < 0 ? kLess : residue > 0 ? kGreater : kEqual;
}

// The order of a number to one without residue; `tie` is the order where the doubles are the same.
TAMIS_HOST_DEVICE constexpr std::uint8_t order_to(double nearest, std::uint8_t tie, double other) {
  if (nearest < other) return kLess;
  return nearest > other ? static_cast<std::uint8_t>(kGreater) : tie;
}

// The order of cuts (value.hpp).
TAMIS_HOST_DEVICE constexpr bool is_cut_below(double nearest, std::int16_t fine,
                                              double other_nearest, std::int16_t other_fine) {
  return nearest < other_nearest || (nearest == other_nearest && fine < other_fine);
}

}  // namespace tamis
