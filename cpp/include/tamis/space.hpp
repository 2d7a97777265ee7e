// Positions and areas: one distance test for every engine, device and space.
//
//     plane   point = (x, y, 0)                       limit = radius²
//     earth   point = unit vector of (lon, lat)       limit = chord² of the radius
//     inside  (dx² + dy²) + dz² <= limit              the border belongs to the area
//
// point.hpp has the test, which runs on devices too.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "tamis/point.hpp"

namespace tamis {

enum class Space : std::uint8_t { plane, earth };

inline constexpr double kEarthRadius_m = 6371008.8;  // the mean radius of the earth (IUGG)

inline Point to_point(Space space, double x, double y) {
  if (space == Space::plane) return {x, y, 0};
  constexpr double kRadians = std::numbers::pi / 180.0;
  const double lat = y * kRadians;
  const double lon = x * kRadians;
  const double cos_lat = std::cos(lat);
  return {cos_lat * std::cos(lon), cos_lat * std::sin(lon), std::sin(lat)};
}

inline double to_limit(Space space, double radius) {
  if (space == Space::plane) return radius * radius;
  if (radius >= std::numbers::pi * kEarthRadius_m) return std::numeric_limits<double>::infinity();
  const double chord = 2.0 * std::sin(radius / (2.0 * kEarthRadius_m));
  return chord * chord;
}

// A circle as subscribed, and as it is tested.
struct Area {
  double x = 0, y = 0, radius = 0;
  Point centre;
  double limit = 0;
  bool is_negated = false;
  bool is_only = false;  // its predicate has no other NEAR; copies of it may be in several filters

  static Area make(Space space, double x, double y, double radius, bool is_negated,
                   bool is_only = false) {
    return {x, y, radius, to_point(space, x, y), to_limit(space, radius), is_negated, is_only};
  }
  // For an event that has a position.
  bool holds(const Point& point) const { return is_within(point, centre, limit) != is_negated; }
};

// Is (x, y) a place? Longitudes may be given from -180 to 180 or from 0 to 360.
inline bool is_place(Space space, double x, double y) {
  return space == Space::plane || (x >= -180 && x <= 360 && y >= -90 && y <= 90);
}

}  // namespace tamis
