// The cells of levels (levels.hpp): how far a level reaches, which cells an event looks at, and how
// large they are.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "common/terms.hpp"
#include "engines/spatial_grid/levels.hpp"
#include "tamis/space.hpp"

namespace tamis::spatial_grid {

// How far a point within the limit can be from the centre on an axis: more than enough for the
// rounding of the distance test, also where squares are too small for doubles.
inline double reach_of(double limit) { return std::sqrt(limit) * (1 + 1e-9) + 1e-140; }

inline std::uint64_t hash_cell(std::uint32_t level, const Cell& cell) {
  return mix_terms(static_cast<std::uint64_t>(static_cast<std::uint32_t>(cell.x)) << 32 |
                       static_cast<std::uint32_t>(cell.y),
                   static_cast<std::uint64_t>(static_cast<std::uint32_t>(cell.z)) << 32 | level);
}

// Calls visit(cell) for the cells that the ball around the point touches.
template <typename Visit>
void for_each_cell(const Level& level, const Point& point, bool is_flat, Visit visit) {
  const auto low = [&](double at) { return level.cell_of(at - level.reach); };
  const auto high = [&](double at) { return level.cell_of(at + level.reach); };
  const std::int32_t z_low = is_flat ? 0 : low(point.z), z_high = is_flat ? 0 : high(point.z);
  const std::int32_t x_low = low(point.x), x_high = high(point.x);
  const std::int32_t y_low = low(point.y), y_high = high(point.y);
  for (std::int32_t z = z_low; z <= z_high; ++z) {
    for (std::int32_t y = y_low; y <= y_high; ++y) {
      for (std::int32_t x = x_low; x <= x_high; ++x) visit(Cell{x, y, z});
    }
  }
}

// What an event pays, for a cell that it looks up and for an area that it finds there.
struct GridCosts {
  double probe = 15, area = 0.5;  // ns, measured on clcb-default
  // For a cell, against an area, where cells are crowded and buckets divided by names: an event
  // looks up more of them, and finds fewer areas there.
  double crowded_probe = 15;
  bool is_by_row = false;  // a probe is for a row of cells along x
};

// The side for which events at the places of `centres` cost least, and what they look at with it.
struct SideChoice {
  double side = 0;
  double n_looked_at = 0;  // areas, an event
};
SideChoice choose_side(std::span<const Point> centres, double reach, bool is_flat,
                       double probe_cost, const GridCosts& costs);

}  // namespace tamis::spatial_grid
