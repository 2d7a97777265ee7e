// Engine `opindex` against `naive`, and its counters against the cost formula of its page.
#include "comparisons.hpp"

namespace tamis {
namespace {

using namespace against_naive;

TEST(opindex_answers_as_naive_does_for_every_kind_of_constraint) {
  check_every_kind("opindex", {{}});
}

TEST(opindex_is_right_at_the_edges) { check_edges_of_counting("opindex", {{}}); }

TEST(opindex_counters_fit_the_cost_formula) {
  for (const std::size_t k : {3, 9, 40}) {
    const Comparisons w = comparisons(20000, 3, 100, 10, k, 200);
    const Answer answer = answer_of("opindex", w.table, w.events);
    CHECK(answer.filters == answer_of("naive", w.table, w.events).filters);
    const double in_partitions = w.n * w.k / w.m;
    const double others = (w.c - 1) * (w.k - 1) / (w.m - 1);
    CHECK(fits(answer.counters.filters, w.n_events, in_partitions));
    CHECK(fits(answer.counters.constraints, w.n_events, in_partitions * (1 + others) * w.share()));
    CHECK(answer.counters.cells <= w.n_events * k * k * 4);
  }
}

TEST(opindex_takes_the_rarest_attribute_for_the_pivot) {
  std::vector<std::string> predicates(100, "a0 > 0");
  for (int value = 0; value < 20; ++value) {
    predicates.push_back("a0 > 0 AND a1 = " + std::to_string(value));
  }
  const auto table = table_of(predicates, 2);
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();
  const Answer answer = answer_of("opindex", table, events);
  CHECK_EQ(answer.filters[0].size(), 100u);
  CHECK_EQ(answer.counters.filters, 100u);  // those with a1 are not looked at
  CHECK_EQ(answer.counters.constraints, 100u);
}

TEST(opindex_leaves_a_partition_whose_pivot_nobody_accepts) {
  const auto table = table_of({"a0 = 1 AND a1 > 0", "a1 > 0", "a1 > 1"}, 2);
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{2}));
  events.add(1, EventValue::of(std::int64_t{1}));
  events.end_event();
  const Answer answer = answer_of("opindex", table, events);
  CHECK(answer.filters[0] == std::vector<std::uint32_t>({1}));
  CHECK_EQ(answer.counters.constraints, 1u);
}

TEST(opindex_stops_when_every_subscriber_is_matched) {
  const Comparisons w = comparisons(20000, 1, 10, 10, 5, 50);
  const Counters all = answer_of("opindex", w.table, w.events).counters;
  const Counters stopped = counters_with_one_target("opindex", w.table, w.events);
  CHECK_EQ(stopped.candidates, w.n_events);
  CHECK(10 * stopped.constraints < all.constraints);
}

TEST(opindex_knows_its_size) {
  const Comparisons w = comparisons(20000, 3, 100, 10, 3, 1);
  const std::size_t n_bytes = built("opindex", w.table)->n_bytes();
  CHECK(n_bytes > 4 * w.table->n_constraints());
  CHECK(n_bytes < 40 * w.table->n_constraints());
}

}  // namespace
}  // namespace tamis
