// Engine `r-tree` against `naive`, and its counters against the cost formula of its page.
#include "common/simd.hpp"
#include "places.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

using namespace testing;

const std::vector<Parameters> kVariants = {
    {},
    {{"bulk_load", 0}},
    {{"bulk_load", 1}},
    {{"bulk_load", 0}, {"node_capacity", 4}},
    {{"bulk_load", 1}, {"node_capacity", 4}},
    {{"bulk_load", 0}, {"node_capacity", 5}, {"min_fill_percent", 50}, {"reinsertion_percent", 50}},
    {{"bulk_load", 0}, {"node_capacity", 17}, {"reinsertion_percent", 0}},
    {{"bulk_load", 0}, {"node_capacity", 256}, {"min_fill_percent", 10}},
    {{"bulk_load", 0}, {"share_areas", 0}},
    {{"bulk_load", 1}, {"share_areas", 0}},
    {{"bulk_load", 0}, {"node_capacity", 4}, {"min_fill_percent", 10}, {"share_areas", 0}},
};

TEST(r_tree_answers_as_naive_does_for_every_kind_of_filter) {
  check_against_naive("r-tree", kVariants, 1500, 19);
}

TEST(r_tree_knows_on_which_side_of_a_border_a_point_is) {
  const SimdLevel before = simd_level();
  for (const SimdLevel level : {SimdLevel::v2, SimdLevel::avx2, SimdLevel::avx512}) {
    if (!has_simd_level(level)) continue;
    set_simd_level(level);
    for (const double bulk_load : {0, 1}) check_borders("r-tree", {{"bulk_load", bulk_load}});
  }
  set_simd_level(before);
}

TEST(r_tree_answers_for_trees_of_every_height) {
  Random random(29);
  for (const std::size_t n_filters : {0, 1, 2, 4, 5, 16, 17, 33, 64, 65, 257, 1100}) {
    PlacedWorkload workload;
    workload.n_filters = n_filters;
    workload.c = 0;
    workload.m = 1;
    workload.k = 0;
    workload.radius = 0.2;
    workload.n_events = 20;
    const auto table = workload.table(random);
    const EventBatch events = workload.events(random);
    const Answer expected = answer_of("naive", table, events);
    for (const Parameters& parameters : kVariants) {
      CHECK(answer_of("r-tree", table, events, parameters).filters == expected.filters);
    }
  }
}

TEST(r_tree_holds_circles_at_one_place_and_of_no_size) {
  std::vector<std::string> predicates;
  for (int each = 0; each < 500; ++each) {
    predicates.push_back("NEAR(3, 4, 5) AND a0 >= " + std::to_string(each));
    predicates.push_back("NEAR(0, 0, 0)");
    predicates.push_back(near(1e-200, 0, 0));  // its distance to (0, 0) underflows to 0
    predicates.push_back(near(std::ldexp(each, -30), 0, 0));
  }
  const auto table = table_of(Space::plane, predicates, 1);
  EventBatch events;
  events.n_known = 1;
  for (const double x : {0.0, 1e-200, 6.0, 6.0000001, std::ldexp(7, -30), 1e-100}) {
    events.add(0, EventValue::of(std::int64_t{250}));
    events.add_position(x, 0);
    events.end_event();
  }
  const Answer expected = answer_of("naive", table, events);
  CHECK(n_matches(expected) > 2000);
  for (const Parameters& parameters : kVariants) {
    CHECK(answer_of("r-tree", table, events, parameters).filters == expected.filters);
  }
}

TEST(r_tree_needs_no_position_for_filters_without_a_circle) {
  const auto table = table_of(Space::earth,
                              {"NEAR(0, 0, 1)", "NOT NEAR(0, 0, 1)", "a0 > 0", "a0 IS NULL", "TRUE",
                               "NEAR(0, 0, 1) AND a0 > 0"},
                              1);
  EventBatch events;
  events.n_known = 1;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();  // no batch position at all
  const Answer answer = answer_of("r-tree", table, events);
  CHECK(answer.filters == std::vector<std::vector<std::uint32_t>>({{2, 4}}));
  CHECK_EQ(answer.counters.nodes, 0u);
  CHECK_EQ(answer.counters.filters, 4u);
  CHECK_EQ(answer.counters.candidates, 3u);  // not "a0 IS NULL"
}

TEST(r_tree_shares_equal_areas) {
  PlacedWorkload workload;
  workload.n_filters = 5000;
  workload.n_per_circle = 10;
  Random random(31);
  const auto table = workload.table(random);
  const EventBatch events = workload.events(random);
  const Counters shared = answer_of("r-tree", table, events).counters;
  const Counters apart = answer_of("r-tree", table, events, {{"share_areas", 0}}).counters;
  CHECK_EQ(shared.filters, apart.filters);
  CHECK_EQ(shared.constraints, apart.constraints);
  CHECK_EQ(shared.cells * 10, apart.cells);
  CHECK(shared.nodes < apart.nodes);
}

// docs/engines/r-tree.md: nodes of all levels, if each holds `fill` entries on average.
double nodes_visited(double n_circles, double fill, double radius) {
  double total = 1;  // the root
  for (double n_nodes = n_circles / fill; n_nodes > 1; n_nodes /= fill) {
    total += std::pow(1 + 2 * radius * std::sqrt(n_nodes), 2);
  }
  return total;
}

TEST(r_tree_counters_fit_the_cost_formula) {
  for (const double radius : {0.00178, 0.00564, 0.0178, 0.0564}) {
    PlacedWorkload workload;
    workload.n_filters = 20000;
    workload.c = 1;
    workload.n_per_circle = 2;
    workload.radius = radius;
    Random random(37);
    const auto table = workload.table(random);
    const EventBatch events = workload.events(random);
    for (const double capacity : {8, 32, 64}) {
      for (const double bulk_load : {0, 1}) {
        const Counters counters = answer_of("r-tree", table, events,
                                            {{"node_capacity", capacity}, {"bulk_load", bulk_load}})
                                      .counters;
        const double fill = capacity * (bulk_load == 0 ? 0.7 : 1);
        const double area = std::numbers::pi * radius * radius;
        CHECK(fits(counters.nodes, workload.n_events, nodes_visited(10000, fill, radius)));
        CHECK(fits(counters.cells, workload.n_events, 10000 * 4 * radius * radius));
        CHECK(fits(counters.filters, workload.n_events, 20000 * area));
        CHECK_EQ(counters.constraints, counters.filters);
        CHECK(counters.candidates < counters.filters / 5);  // 9 of 100 names, half of the values
      }
    }
  }
}

TEST(r_tree_stays_selective_where_places_are_skewed) {
  PlacedWorkload workload;
  workload.n_filters = 20000;
  workload.c = 0;
  workload.m = 1;
  workload.k = 0;
  workload.radius = 0.002;
  workload.is_skewed = true;
  Random random(41);
  const auto table = workload.table(random);
  const EventBatch events = workload.events(random);
  const Answer expected = answer_of("naive", table, events);
  for (const double bulk_load : {0, 1}) {
    const Answer answer = answer_of("r-tree", table, events, {{"bulk_load", bulk_load}});
    CHECK(answer.filters == expected.filters);
    CHECK(answer.counters.cells < 2 * answer.counters.filters);
    // Besides the path from the root, little more than the leaves that hold the answer.
    CHECK(answer.counters.nodes < workload.n_events * 12 + answer.counters.filters / 4);
  }
}

TEST(r_tree_finds_little_around_the_whole_earth) {
  Random random(43);
  std::vector<std::string> predicates;
  for (int each = 0; each < 5000; ++each) {
    const double x = static_cast<double>(random() % 360000) / 1000 - 180;
    const double y = std::asin(static_cast<double>(random() % 2001) / 1000 - 1) * 180 / 3.14159266;
    predicates.push_back(near(x, y, 100000));
  }
  EventBatch events;
  for (int each = 0; each < 300; ++each) {
    // A third of them along the date line, a third at the poles.
    const double x = each % 3 == 0 ? (each % 2 == 0 ? 180 : -179.99) : each % 360 - 180.0;
    const double y = each % 3 == 1 ? (each % 2 == 0 ? 89.9 : -89.9) : each % 160 - 80.0;
    events.add_position(x, y);
    events.end_event();
  }
  const auto table = table_of(Space::earth, predicates, 0);
  const Answer expected = answer_of("naive", table, events);
  for (const double bulk_load : {0, 1}) {
    const Answer answer = answer_of("r-tree", table, events, {{"bulk_load", bulk_load}});
    CHECK(answer.filters == expected.filters);
    CHECK(answer.counters.nodes < events.size() * 12);
    CHECK(answer.counters.cells < events.size() * 3);
  }
}

TEST(r_tree_says_what_its_parameters_must_be) {
  const auto table = table_of(Space::plane, {"a0 = 1"}, 1);
  CHECK_THROWS(built("r-tree", table, {{"node_capacity", 3}}), ArgumentError, "between 4 and 256");
  CHECK_THROWS(built("r-tree", table, {{"node_capacity", 4.5}}), ArgumentError, "a whole number");
}

TEST(r_tree_grows_in_width_where_all_boxes_are_equal) {
  const auto table = table_of(Space::plane, std::vector<std::string>(3000, "NEAR(1, 2, 3)"), 0);
  const Parameters parameters = {
      {"bulk_load", 0}, {"node_capacity", 4}, {"min_fill_percent", 10}, {"share_areas", 0}};
  EventBatch events;
  events.add_position(1, 2);
  events.end_event();
  const Answer answer = answer_of("r-tree", table, events, parameters);
  CHECK_EQ(answer.filters[0].size(), 3000u);
  CHECK(answer.counters.nodes < 3000);  // two entries a node at least: 1500 + 750 + …
}

TEST(r_tree_knows_its_size) {
  PlacedWorkload workload;
  workload.n_filters = 10000;
  Random random(3);
  const auto table = workload.table(random);
  for (const double bulk_load : {0, 1}) {
    const std::size_t n_bytes = built("r-tree", table, {{"bulk_load", bulk_load}})->n_bytes();
    // A box of 16 bytes in a node that is nearly full to half full, a circle, and its filter.
    CHECK(n_bytes > 10000 * (16 + 32 + 8));
    CHECK(n_bytes < 10000 * (48 + 32 + 8) + 100000);
  }
}

}  // namespace
}  // namespace tamis
