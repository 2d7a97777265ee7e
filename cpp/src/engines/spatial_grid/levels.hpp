// Cells of space: a lattice of cubes for each level of radii, in the coordinates of the distance
// test.
//
//     plane   squares (z is 0 everywhere)
//     earth   cubes around the unit sphere: no pole, no antimeridian
//
//     ├─ side ─┤      a centre lies in one cell; within it on a lattice of kLattice^3 points
//     ┌────────┬───   an event looks at all cells that its ball of the level's radius touches
//     │   c ·  │      beyond kMostCell sides from 0 the last cell takes everything, and there
//     └────────┴───   the lattice says nothing
//
// Invariant: if is_within(event, centre, limit) for an area of the level, then the centre's cell is
// among the event's, and the lattice distance is at most the level's limit. All functions of a
// coordinate here are monotone, so rounding cannot part them.
#pragma once

#include <cstdint>

#include "tamis/point.hpp"

namespace tamis::spatial_grid {

inline constexpr std::int32_t kMostCell = 1 << 30;
inline constexpr std::int32_t kLattice = 8192;

struct Cell {
  std::int32_t x = 0, y = 0, z = 0;
  friend bool operator==(const Cell&, const Cell&) = default;
  TAMIS_HOST_DEVICE bool is_last() const {
    const auto is_end = [](std::int32_t at) { return at <= -kMostCell || at >= kMostCell; };
    return is_end(x) || is_end(y) || is_end(z);
  }
};

struct Level {
  double reach = 0;         // of its largest area
  double side = 0;          // at least half of that
  double per_side = 0;      // 1 / side
  std::int32_t limit = 0;   // of squared distances on the lattice
  std::uint32_t names = 0;  // are its buckets divided by names?

  static Level make(double reach, double side) {
    const double on_lattice = reach / side * kLattice + 2;
    return {reach, side, 1 / side, static_cast<std::int32_t>(on_lattice * on_lattice) + 1, 0};
  }
  TAMIS_HOST_DEVICE std::int32_t cell_of(double at) const {
    const double cell = __builtin_floor(at * per_side);
    if (!(cell > -kMostCell)) return -kMostCell;
    return cell < kMostCell ? static_cast<std::int32_t>(cell) : kMostCell;
  }
  TAMIS_HOST_DEVICE Cell cell_of(const Point& point) const {
    return {cell_of(point.x), cell_of(point.y), cell_of(point.z)};
  }
  // The place on a cell's lattice, which is 0 .. kLattice - 1 within the cell, and up to two sides
  // outside of it for an event: int16, as are differences.
  TAMIS_HOST_DEVICE std::int32_t lattice_of(double at, std::int32_t cell) const {
    const double place = __builtin_floor((at * per_side - cell) * kLattice);
    if (!(place > -2 * kLattice)) return -2 * kLattice;
    return place < 3 * kLattice - 1 ? static_cast<std::int32_t>(place) : 3 * kLattice - 1;
  }
  TAMIS_HOST_DEVICE static std::uint32_t pack(std::int32_t x, std::int32_t y) {
    return static_cast<std::uint16_t>(x) | static_cast<std::uint32_t>(static_cast<std::uint16_t>(y))
                                               << 16;
  }
  // Of a centre: within its cell, whatever rounding says.
  TAMIS_HOST_DEVICE static std::int32_t within(std::int32_t place) {
    return place < 0 ? 0 : place >= kLattice ? kLattice - 1 : place;
  }
};

}  // namespace tamis::spatial_grid
