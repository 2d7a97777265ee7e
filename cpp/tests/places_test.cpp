// The engines that look at areas, all against `naive`.
#include "places.hpp"

namespace tamis {
namespace {

using namespace testing;

constexpr const char* kEngines[] = {"clcb", "r-tree"};

TEST(engines_of_places_answer_as_naive_does_for_10000_mixed_filters) {
  for (const Space space : {Space::plane, Space::earth}) {
    Random random(101);
    std::vector<std::string> predicates(10000);
    for (std::string& each : predicates) each = random_placed_predicate(random, space, 10);
    const auto table = table_of(space, predicates, 10);
    const EventBatch events = random_placed_events(random, space, 150, 12);
    const Answer expected = answer_of("naive", table, events);
    CHECK(n_matches(expected) > 10000);
    for (const char* engine : kEngines) {
      CHECK(answer_of(engine, table, events).filters == expected.filters);
    }
  }
}

TEST(engines_of_places_answer_for_areas_of_every_size_and_skewed_places) {
  for (const bool is_skewed : {false, true}) {
    for (const double share : {1e-5, 1e-4, 1e-3, 1e-2}) {
      PlacedWorkload workload;
      workload.n_filters = 10000;
      workload.c = 1;
      workload.m = 5;
      workload.k = 3;
      workload.radius = std::sqrt(share / std::numbers::pi);
      workload.n_per_circle = 10;
      workload.is_skewed = is_skewed;
      Random random(103);
      const auto table = workload.table(random);
      const EventBatch events = workload.events(random);
      const Answer expected = answer_of("naive", table, events);
      CHECK(share < 1e-3 || n_matches(expected) > 100);
      for (const char* engine : kEngines) {
        CHECK(answer_of(engine, table, events).filters == expected.filters);
      }
    }
  }
}

// Some filters see some events, so that the others are left out for a reason.
TEST(engines_of_places_leave_most_filters_alone) {
  PlacedWorkload workload;
  workload.n_filters = 10000;
  Random random(107);
  const auto table = workload.table(random);
  const EventBatch events = workload.events(random);
  const Counters naive = answer_of("naive", table, events).counters;
  for (const char* engine : kEngines) {
    const Counters counters = answer_of(engine, table, events).counters;
    CHECK(counters.constraints * 100 < naive.constraints);
    CHECK(counters.filters * 10 < naive.filters);
  }
}

}  // namespace
}  // namespace tamis
