// A filter at a place: the circle that stands for it in an index, and the test of all the rest.
#pragma once

#include <cstdint>
#include <limits>

#include "tamis/filter_table.hpp"

namespace tamis {

inline constexpr std::uint32_t kNoArea = std::numeric_limits<std::uint32_t>::max();

// The smallest area of the filter that is not negated, or kNoArea. An event that matches lies in
// it, whatever the filter's other areas say.
inline std::uint32_t smallest_area(const FilterTable& table, const FilterTable::Filter& filter) {
  std::uint32_t best = kNoArea;
  for (std::uint32_t at = 0; at < filter.areas.count; ++at) {
    const std::uint32_t area = filter.areas.first + at;
    if (table.area(area).is_negated) continue;
    if (best == kNoArea || table.area(area).limit < table.area(best).limit) best = area;
  }
  return best;
}

// Does the filter accept the event, if its first `n_held` constraints are known to hold, and
// `n_areas_held` of its areas (0 or 1)? Adds the constraints that were evaluated.
inline bool accepts_content(const FilterTable& table, const FilterTable::Filter& filter,
                            const ValueByAttribute& event, std::uint32_t n_held,
                            std::uint32_t n_areas_held, std::uint64_t& n_evaluated) {
  for (std::uint32_t at = n_held; at < filter.constraints.count; ++at) {
    const Constraint& constraint = table.constraint(filter.constraints.first + at);
    ++n_evaluated;
    if (!table.accepts(constraint, event[constraint.attribute])) return false;
  }
  return (filter.areas.count == n_areas_held && filter.residuals.count == 0) ||
         table.verify_rest(filter, event);
}

}  // namespace tamis
