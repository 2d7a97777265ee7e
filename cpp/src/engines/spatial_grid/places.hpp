// What stands in the grid: a circle with the filters that share it.
//
// The filters of a subscription that have one area in common are one place: it is looked at once
// for all of them, and it moves in one piece. A filter without an area that it must lie in is a
// place without a circle.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engines/spatial_grid/buckets.hpp"
#include "engines/spatial_grid/cells.hpp"
#include "tamis/filter_table.hpp"

namespace tamis::spatial_grid {

struct alignas(64) Place {  // a line of the cache: most are read alone
  Point centre;
  double limit = 0;             // infinite: everywhere
  FilterIdx first = 0;          // of its filters, which follow one another
  std::uint32_t n_filters = 0;  // at least 1
  std::uint32_t level = 0;
  std::uint32_t term = kAnyTerm;  // what its bucket has besides the cell
  std::uint32_t has_circle = 0;   // else: needs no position
  std::uint32_t owner = 0;        // the slot whose filters they are
};
static_assert(sizeof(Place) == 64);

enum TermKind : std::uint8_t { kNameTerm = 1, kValueTerm = 2 };

inline constexpr AttributeId kNoPivot = ~AttributeId{0};

struct Places {
  std::vector<Level> levels;  // the last is that of places without a cell
  std::vector<Place> places;
  // [n_levels * n_attributes] what an event looks up for an attribute of its own, of TermKind
  std::vector<std::uint8_t> terms;
  std::vector<AttributeId> pivots;  // [n_places] the attribute of its term, or kNoPivot
  std::uint32_t everywhere() const { return static_cast<std::uint32_t>(levels.size()) - 1; }
};

// `owners` [n_filters] or empty: then every filter is a place of its own.
Places make_places(const FilterTable& table, std::span<const std::uint32_t> owners, bool is_flat,
                   const GridCosts& costs = {});

// Where a place with its centre there stands.
Entry make_entry(const Level& level, const Place& place, const Point& centre, PlaceIdx idx);

// The terms of the level without cells that an event has, besides kAnyTerm.
inline std::uint32_t name_term(AttributeId attribute) {
  return static_cast<std::uint32_t>(hash_attribute(attribute) >> 32) | 1;
}
inline std::uint32_t value_term(AttributeId attribute, std::uint64_t hash_of_value) {
  return static_cast<std::uint32_t>(mix_terms(hash_attribute(attribute), hash_of_value) >> 32) | 1;
}

}  // namespace tamis::spatial_grid
