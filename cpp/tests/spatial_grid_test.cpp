// Engines `spatial-grid` and `spatial-grid-cuda` (on the shim, or on a GPU where this is
// tamis_gpu_tests) against `naive`, and the counters of the first against the cost formula of its
// page.
#include <limits>

#include "common/simd.hpp"
#include "engines/spatial_grid/cells.hpp"
#include "places.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

using namespace testing;

TEST(spatial_grid_answers_as_naive_does_for_every_kind_of_filter) {
  check_against_naive("spatial-grid", {{}}, 1500, 31);
}

TEST(spatial_grid_answers_as_naive_does_with_crowded_cells) {
  check_against_naive("spatial-grid", {{}}, 12000, 32);
}

TEST(spatial_grid_knows_on_which_side_of_a_border_a_point_is) {
  const SimdLevel before = simd_level();
  for (const SimdLevel level : {SimdLevel::v2, SimdLevel::avx2, SimdLevel::avx512}) {
    if (!has_simd_level(level)) continue;
    set_simd_level(level);
    check_borders("spatial-grid");
  }
  set_simd_level(before);
}

// Circles at these places, events there and around them: the same answers.
void check_places(Space space, const std::vector<std::string>& predicates,
                  const std::vector<Place>& places) {
  EventBatch events;
  events.n_known = 2;
  for (const Place& place : places) {
    events.add(0, EventValue::of(std::int64_t{1}));
    events.add_position(place.x, place.y);
    events.end_event();
  }
  const auto table = table_of(space, predicates, 2);
  const Answer expected = answer_of("naive", table, events);
  CHECK(n_matches(expected) > 0);
  for (const char* engine : {"spatial-grid", "spatial-grid-cuda"}) {
    CHECK(answer_of(engine, table, events).filters == expected.filters);
  }
}

TEST(spatial_grid_takes_radii_and_places_of_every_size) {
  std::vector<std::string> predicates;
  std::vector<Place> places;
  const double sizes[] = {0,   5e-324, 1e-200, 1e-160, 1e-140, 1e-20, 1e-3,  1,
                          1e3, 1e9,    1e18,   1e100,  1e150,  1e160, 1e300, 1.7e308};
  for (const double at : sizes) {
    for (const double sign : {-1.0, 1.0}) {
      const Place place{sign * at, at / 3};
      places.push_back(place);
      places.push_back({std::nextafter(place.x, 0), place.y});
      for (const double radius : sizes) {
        predicates.push_back(near(place.x, place.y, radius));
        places.push_back({place.x + radius, place.y});
        places.push_back({place.x, place.y - std::nextafter(radius, 0)});
      }
    }
  }
  std::erase_if(places, [](const Place& place) {
    return !std::isfinite(place.x) || !std::isfinite(place.y);
  });
  check_places(Space::plane, predicates, places);
}

TEST(spatial_grid_knows_no_edge_of_the_earth) {
  std::vector<std::string> predicates;
  std::vector<Place> places;
  for (const double latitude : {-90.0, -89.9999, -45.0, 0.0, 60.0, 89.9999, 90.0}) {
    for (const double longitude : {-180.0, -179.9999, 0.0, 179.9999, 180.0, 359.9999, 360.0}) {
      places.push_back({longitude, latitude});
      for (const double radius : {0.0, 1.0, 30.0, 20000.0, 5e6, 2.0015e7, 2.1e7}) {
        predicates.push_back(near(longitude, latitude, radius));
      }
    }
  }
  check_places(Space::earth, predicates, places);
}

TEST(spatial_grid_follows_crowds_and_outliers) {
  // A thousand circles in a corner, one at the end of the world, all of the same size.
  std::vector<std::string> predicates = {near(1e12, -1e12, 1)};
  std::vector<Place> places = {{1e12, -1e12}};
  Random random(7);
  for (int each = 0; each < 1000; ++each) {
    const Place place{static_cast<double>(below(random, 4000)) / 16,
                      static_cast<double>(below(random, 4000)) / 16};
    predicates.push_back(near(place.x, place.y, 1));
    places.push_back({place.x + 0.5, place.y});
  }
  check_places(Space::plane, predicates, places);
  const auto table = table_of(Space::plane, predicates, 0);
  EventBatch events;
  events.add_position(100, 100);
  events.end_event();
  CHECK(answer_of("spatial-grid", table, events).counters.filters < 100);
}

TEST(spatial_grid_needs_no_position_for_filters_without_a_circle) {
  const auto table = table_of(
      Space::plane,
      {"NEAR(0, 0, 1)", "NOT NEAR(0, 0, 1)", "a0 > 0", "a0 IS NULL", "TRUE",
       "NEAR(0, 0, 1) AND a0 > 0", "a0 = 1", "a0 = 2", "a1 = 1", "NEAR(0, 0, 1e200) AND a0 = 1"},
      2);
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();  // no batch position at all
  for (const char* engine : {"spatial-grid", "spatial-grid-cuda"}) {
    const Answer answer = answer_of(engine, table, events);
    CHECK(answer.filters == std::vector<std::vector<std::uint32_t>>({{2, 4, 6}}));
  }
}

TEST(spatial_grid_looks_at_few_of_the_filters_without_an_area) {
  std::vector<std::string> predicates;
  for (int each = 0; each < 3000; ++each) {
    predicates.push_back("a0 = " + std::to_string(each) + " AND a1 > 3");
  }
  const auto table = table_of(Space::plane, predicates, 2);
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{17}));
  events.add(1, EventValue::of(std::int64_t{17}));
  events.end_event();
  const Answer answer = answer_of("spatial-grid", table, events);
  CHECK(answer.filters == std::vector<std::vector<std::uint32_t>>({{17}}));
  CHECK(answer.counters.candidates < 5);
}

TEST(spatial_grid_leaves_content_out_where_the_target_is_settled) {
  const auto table =
      table_of(Space::plane, {"NEAR(0, 0, 1) AND a0 > 0", "NEAR(0, 0, 1) AND a0 > 1"}, 1);
  const std::unique_ptr<Index> index = built("spatial-grid", table);
  const std::uint32_t slot_of[] = {0, 1};
  const std::uint32_t target_of[] = {0, 0};
  Collector::Setup setup;
  setup.slot_of = slot_of;
  setup.target_of = target_of;
  setup.n_targets = 1;
  Stamps stamps;
  CollectorBuffers buffers;
  Collector out(setup, stamps, buffers);
  EventBatch events;
  events.n_known = 1;
  events.add(0, EventValue::of(std::int64_t{2}));
  events.add_position(0, 0);
  events.end_event();
  const auto scratch = index->make_scratch();
  index->match(events, 0, 1, *scratch, out);
  CHECK(out.targets() == std::vector<std::uint32_t>({0}));
  CHECK_EQ(out.counters.constraints, 1u);
}

// docs/engines/spatial-grid.md: what an event looks at depends on circles around it, not on all.
TEST(spatial_grid_counters_fit_the_cost_formula) {
  for (const double radius : {0.0178, 0.0564, 0.178}) {
    PlacedWorkload workload;
    workload.n_filters = 20000;
    workload.c = 2;
    workload.radius = radius;
    Random random(11);
    const auto table = workload.table(random);
    const EventBatch events = workload.events(random);
    const Counters counters = answer_of("spatial-grid", table, events).counters;
    // Circles of which a quarter may reach over the border of the square.
    const double within = 20000 * std::numbers::pi * radius * radius;
    // Two names of 100 that the event has, or that the Bloom filter of its nine covers.
    const double covered = std::pow(1 - std::pow(1 - 2.0 / 32, 9), 2);
    const double present = 9.0 / 100;
    const double names = std::pow(present + (1 - present) * covered, 2);
    const auto n_events = static_cast<double>(workload.n_events);
    CHECK(static_cast<double>(counters.filters) < 12 * within * n_events + 100 * n_events);
    CHECK(static_cast<double>(counters.candidates) < 2 * within * names * n_events + n_events);
    CHECK(counters.constraints >= counters.candidates);
    CHECK(counters.constraints <= 2 * counters.candidates);
  }
}

}  // namespace
}  // namespace tamis
