// Filters and events at places, and answers of engines, for the tests of engines that look at
// areas. Random places are drawn from few, so that circles meet, and borders are hit exactly.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "tamis/ast.hpp"
#include "tamis/collector.hpp"
#include "tamis/engine.hpp"
#include "tamis/normal_form.hpp"

namespace tamis::testing {

using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t limit) { return random() % limit; }
template <typename Items>
const auto& one_of(Random& random, const Items& items) {
  return items[below(random, std::size(items))];
}

// Shortest text that reads back as the same double.
inline std::string exact_text(double value) {
  std::ostringstream out;
  out.precision(17);
  out << value;
  return out.str();
}

inline std::string near(double x, double y, double radius) {
  return "NEAR(" + exact_text(x) + ", " + exact_text(y) + ", " + exact_text(radius) + ")";
}

struct Place {
  double x = 0, y = 0;
};

inline Place random_place(Random& random, Space space) {
  if (space == Space::plane) {
    if (below(random, 40) == 0) {
      const double odd[] = {1e9, -1e9, 1e-9, 1e160, -1e160, 1e300, 0.1};
      return {one_of(random, odd), one_of(random, odd)};
    }
    if (below(random, 2) == 0) {
      return {static_cast<double>(below(random, 21)) - 10, static_cast<double>(below(random, 21))};
    }
    return {static_cast<double>(random() % 20000) / 1000 - 10,
            static_cast<double>(random() % 20000) / 1000};
  }
  // Poles, the date line in both ways of writing it, and anywhere.
  const double longitudes[] = {-180, 180, 179.999, -179.999, 181, 360, 0, 9.19};
  const double latitudes[] = {-90, 90, 89.999, -89.999, 0, 45.46};
  const double x = below(random, 3) == 0 ? one_of(random, longitudes)
                                         : static_cast<double>(random() % 360000) / 1000 - 180;
  const double y = below(random, 3) == 0 ? one_of(random, latitudes)
                                         : static_cast<double>(random() % 180000) / 1000 - 90;
  return {x, y};
}

inline double random_radius(Random& random, Space space) {
  if (space == Space::plane) {
    // Whole ones and those of Pythagoras: points of the grid lie on their borders.
    const double radii[] = {0, 1, 2, 3, 5, 10, 0.5, 0.001, 1.4142135623730951, 1e8, 1e155, 1e200};
    return one_of(random, radii);
  }
  const double radii[] = {0, 0.001, 1, 1000, 100000, 1e6, 5e6, 1.0007557e7, 1.5e7, 2.0015e7, 3e7};
  return one_of(random, radii);
}

inline std::string random_area(Random& random, Space space) {
  const Place place = random_place(random, space);
  return near(place.x, place.y, random_radius(random, space));
}

inline std::string random_content(Random& random, std::size_t n_names) {
  const std::string name = "a" + std::to_string(below(random, n_names));
  const std::string number = std::to_string(below(random, 4));
  switch (below(random, 12)) {
    case 0:
      return name + " IS NULL";
    case 1:
      return "(" + name + " IS NULL OR " + name + " > " + number + ")";
    case 2:
      return name + " IN (1, 3, 9007199254740993)";
    case 3:
      return name + " LIKE 'a%b'";
    case 4:
      return name + " = TRUE";
    case 5:
      return name + " != 'ab'";
    case 6:
      return name + " BETWEEN 1 AND " + number;
    default:
      return name + (below(random, 2) == 0 ? " != " : " >= ") + number;
  }
}

// Areas, negations, several of them, none; with and without content; now and then a residual.
inline std::string random_placed_predicate(Random& random, Space space, std::size_t n_names) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " AND ") + part; };
  for (std::size_t each = below(random, 5) == 0 ? 0 : 1 + below(random, 4) / 3; each > 0; --each) {
    add(random_area(random, space));
  }
  if (below(random, 5) == 0) add("NOT " + random_area(random, space));
  for (std::size_t each = below(random, 4); each > 0; --each) add(random_content(random, n_names));
  if (below(random, 40) == 0) {
    // Too many products to multiply out.
    for (int part = 0; part < 10; ++part) {
      add("(" + random_content(random, n_names) + " OR " + random_area(random, space) + ")");
    }
  }
  return text.empty() ? "TRUE" : text;
}

inline EventValue random_event_value(Random& random) {
  switch (below(random, 10)) {
    case 0:
      return EventValue::of(std::string_view(below(random, 2) == 0 ? "ab" : "axb"));
    case 1:
      return EventValue::of(below(random, 2) == 0);
    case 2:
      return EventValue::of(std::nan(""));
    case 3:
      return EventValue::of(std::int64_t{9007199254740993} - static_cast<int>(below(random, 2)));
    default:
      return EventValue::of(static_cast<std::int64_t>(below(random, 5)));
  }
}

inline EventBatch random_placed_events(Random& random, Space space, std::size_t n_events,
                                       std::size_t n_names) {
  EventBatch events;
  events.n_known = n_names;
  for (std::size_t event = 0; event < n_events; ++event) {
    const std::size_t share = one_of(random, std::vector<std::size_t>{3, 8, 10});
    for (AttributeId attribute = 0; attribute < n_names; ++attribute) {
      if (below(random, 10) < share) events.add(attribute, random_event_value(random));
    }
    const Place place = random_place(random, space);
    events.add_position(below(random, 12) == 0 ? std::nan("") : place.x, place.y);
    events.end_event();
  }
  return events;
}

inline std::shared_ptr<FilterTable> table_of(Space space,
                                             const std::vector<std::string>& predicates,
                                             std::size_t n_names) {
  auto table = std::make_shared<FilterTable>(space);
  Catalogue names;
  for (std::size_t name = 0; name < n_names; ++name) names.intern("a" + std::to_string(name));
  Ast ast;
  for (const std::string& predicate : predicates) {
    parse(predicate, ast);
    table->append(to_normal_form(ast), names);
  }
  return table;
}

// Circles of one size, uniformly in a square of side 1, each with c "a >= number" constraints on
// names drawn from m; and events there that have k of the names.
struct PlacedWorkload {
  std::size_t n_filters = 0, c = 3, m = 100, k = 9, n_events = 200;
  double radius = 0.01;
  std::size_t n_per_circle = 1;  // filters that share a circle
  bool is_skewed = false;        // most of them in a corner

  std::shared_ptr<FilterTable> table(Random& random) const {
    std::vector<std::size_t> names(m);
    std::iota(names.begin(), names.end(), std::size_t{0});
    std::vector<std::string> predicates(n_filters);
    Place place;
    for (std::size_t each = 0; each < n_filters; ++each) {
      if (each % n_per_circle == 0) place = draw(random);
      std::string& text = predicates[each];
      text = near(place.x, place.y, radius);
      std::shuffle(names.begin(), names.end(), random);
      for (std::size_t at = 0; at < c; ++at) {
        text += " AND a" + std::to_string(names[at]) + " >= " + std::to_string(below(random, 10));
      }
    }
    return table_of(Space::plane, predicates, m);
  }

  EventBatch events(Random& random) const {
    std::vector<AttributeId> names(m);
    std::iota(names.begin(), names.end(), AttributeId{0});
    EventBatch batch;
    batch.n_known = m;
    for (std::size_t event = 0; event < n_events; ++event) {
      std::shuffle(names.begin(), names.end(), random);
      for (std::size_t at = 0; at < k; ++at) {
        batch.add(names[at], EventValue::of(static_cast<std::int64_t>(below(random, 10))));
      }
      const Place place = draw(random);
      batch.add_position(place.x, place.y);
      batch.end_event();
    }
    return batch;
  }

 private:
  Place draw(Random& random) const {
    std::uniform_real_distribution<double> uniform(0, 1);
    const double power = is_skewed ? 4 : 1;
    const double x = std::pow(uniform(random), power);
    return {x, std::pow(uniform(random), power)};
  }
};

struct Answer {
  std::vector<std::vector<std::uint32_t>> filters;  // of each event, in order
  Counters counters;
};

// Every filter is a target of its own.
inline Answer answer_of(const Index& index, std::size_t n_filters, const EventBatch& events,
                        Scratch& scratch) {
  std::vector<std::uint32_t> targets(n_filters);
  std::iota(targets.begin(), targets.end(), 0u);
  Collector::Setup setup;
  setup.slot_of = setup.target_of = targets.data();
  setup.n_targets = n_filters;
  Stamps stamps;
  CollectorBuffers buffers;
  Collector out(setup, stamps, buffers);
  index.match(events, 0, events.size(), scratch, out);
  Answer answer;
  CHECK_EQ(out.n_events(), events.size());
  for (std::size_t event = 0; event < events.size(); ++event) {
    auto& found = answer.filters.emplace_back(out.targets().begin() + out.begin(event),
                                              out.targets().begin() + out.end(event));
    std::sort(found.begin(), found.end());
  }
  answer.counters = out.counters;
  return answer;
}

inline std::unique_ptr<Index> built(const char* engine_name,
                                    const std::shared_ptr<FilterTable>& table,
                                    const Parameters& given = {}) {
  const Engine& engine = find_engine(engine_name);
  return engine.build(table, complete_parameters(engine, given));
}

inline Answer answer_of(const char* engine, const std::shared_ptr<FilterTable>& table,
                        const EventBatch& events, const Parameters& given = {}) {
  const std::unique_ptr<Index> index = built(engine, table, given);
  const std::unique_ptr<Scratch> scratch = index->make_scratch();
  // Twice with one scratch: nothing of the first call may show in the second.
  const Answer first = answer_of(*index, table->size(), events, *scratch);
  const Answer second = answer_of(*index, table->size(), events, *scratch);
  CHECK(first.filters == second.filters);
  CHECK_EQ(first.counters.constraints, second.counters.constraints);
  CHECK_EQ(first.counters.candidates, second.counters.candidates);
  return second;
}

inline std::size_t n_matches(const Answer& answer) {
  std::size_t n = 0;
  for (const auto& each : answer.filters) n += each.size();
  return n;
}

// Within a factor of 2 of the formula, an event on average.
inline bool fits(std::uint64_t counted, std::size_t n_events, double expected) {
  const double measured = static_cast<double>(counted) / static_cast<double>(n_events);
  return measured <= 2 * expected && expected <= 2 * measured;
}

// Does the engine answer as naive does: every kind of filter, both spaces, in each variant?
inline void check_against_naive(const char* engine, const std::vector<Parameters>& variants,
                                std::size_t n_predicates, std::uint64_t seed) {
  for (const Space space : {Space::plane, Space::earth}) {
    Random random(seed);
    for (const std::size_t n_names : {1, 6, 60}) {
      std::vector<std::string> predicates(n_predicates);
      for (std::string& each : predicates) each = random_placed_predicate(random, space, n_names);
      const std::shared_ptr<FilterTable> table = table_of(space, predicates, n_names);
      const EventBatch events = random_placed_events(random, space, 60, n_names + 2);
      const Answer expected = answer_of("naive", table, events);
      CHECK(n_matches(expected) > n_predicates / 20);
      for (const Parameters& parameters : variants) {
        CHECK(answer_of(engine, table, events, parameters).filters == expected.filters);
      }
    }
  }
}

// Points on borders, just inside and just outside them, as exactly as doubles can say it.
inline void check_borders(const char* engine, const Parameters& parameters = {}) {
  for (const Space space : {Space::plane, Space::earth}) {
    Random random(5);
    std::vector<std::string> predicates;
    EventBatch events;
    for (std::size_t each = 0; each < 300; ++each) {
      const Place centre = {static_cast<double>(random() % 100000) / 997,
                            static_cast<double>(random() % 80000) / 997};
      const double radius = space == Space::plane ? std::ldexp(1 + below(random, 7), -8)
                                                  : static_cast<double>(1 + below(random, 4000000));
      predicates.push_back(near(centre.x, centre.y, radius));
      // Along a meridian a metre is the same everywhere; in the plane take the four directions.
      const double step =
          space == Space::plane ? radius : radius / kEarthRadius_m * 180 / std::numbers::pi;
      for (const double sign : {-1.0, 1.0}) {
        double y = centre.y + sign * step;
        if (space == Space::earth && std::abs(y) > 90) continue;
        for (int away = -2; away <= 2; ++away) {
          double moved = y;
          for (int ulp = 0; ulp < std::abs(away); ++ulp) {
            moved = std::nextafter(moved, away < 0 ? -1e9 : 1e9);
          }
          events.add_position(centre.x, moved);
          events.end_event();
          if (space == Space::earth) continue;
          events.add_position(centre.x + (moved - centre.y), centre.y);
          events.end_event();
        }
      }
    }
    const auto table = table_of(space, predicates, 0);
    const Answer expected = answer_of("naive", table, events);
    CHECK(n_matches(expected) > 300);
    CHECK(answer_of(engine, table, events, parameters).filters == expected.filters);
  }
}

}  // namespace tamis::testing
