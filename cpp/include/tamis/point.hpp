// A position as it is tested, and the one distance test of all engines and devices. Nothing of the
// standard library but integers: device code reads this.
#pragma once

#include "tamis/host_device.hpp"

namespace tamis {

struct Point {
  double x = 0, y = 0, z = 0;
  friend bool operator==(const Point&, const Point&) = default;
};

// All in doubles and in this order of operations, never contracted into FMA: the build sets
// -ffp-contract=off and -fmad=false, or machines would disagree about points on a border.
TAMIS_HOST_DEVICE inline bool is_within(const Point& point, const Point& centre, double limit) {
  const double dx = point.x - centre.x;
  const double dy = point.y - centre.y;
  const double dz = point.z - centre.z;
  return (dx * dx + dy * dy) + dz * dz <= limit;
}

}  // namespace tamis
