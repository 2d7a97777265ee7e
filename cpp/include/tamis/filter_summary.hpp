// What the filters of a matcher ask of events, in a few numbers: whoever spreads subscriptions over
// several matchers leaves out columns that none mentions, and matchers that cannot match.
//
// It is conservative. An event that a filter accepts has every attribute that all filters need,
// with a value of an accepted kind and, where that is a number, within `low` and `high`; and if all
// filters have an area, it lies within `box`.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "tamis/matcher.hpp"

namespace tamis {

struct AttributeSummary {
  std::string name;
  bool accepts_numbers = false, accepts_strings = false, accepts_booleans = false;
  std::size_t n_needing = 0;  // filters that no event without the attribute satisfies
  // The numbers that those filters accept, rounded to doubles.
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
};

struct FilterSummary {
  std::size_t n_filters = 0;
  std::vector<AttributeSummary> attributes;  // by their ids
  std::size_t n_with_area = 0;               // filters that need a position inside a circle
  // Around the circles of those, as subscribed: of (x, y) in the plane, of centres alone on earth.
  double min_x = std::numeric_limits<double>::infinity(), min_y = min_x;
  double max_x = -std::numeric_limits<double>::infinity(), max_y = max_x;
  double max_radius = 0;
};

// Of what `flush` has made segments.
FilterSummary summarize(const View& view);

}  // namespace tamis
