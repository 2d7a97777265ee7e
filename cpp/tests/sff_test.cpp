// Engine `sff` against `naive`, and its counters against the cost formula of its page.
#include "comparisons.hpp"

namespace tamis {
namespace {

using namespace against_naive;

TEST(sff_answers_as_naive_does_for_every_kind_of_constraint) { check_every_kind("sff", {{}}); }

TEST(sff_is_right_at_the_edges) { check_edges_of_counting("sff", {{}}); }

TEST(sff_counters_fit_the_cost_formula) {
  for (const std::size_t k : {3, 9, 40}) {
    const Comparisons w = comparisons(20000, 3, 100, 10, k, 100);
    const Answer answer = answer_of("sff", w.table, w.events);
    CHECK(answer.filters == answer_of("naive", w.table, w.events).filters);
    const double per_name = w.n * w.c / w.m;
    const double different = 4 * w.v * (1 - std::pow(1 - 1 / (4 * w.v), per_name));
    CHECK(fits(answer.counters.filters, w.n_events, w.k * per_name * w.share()));
    CHECK(fits(answer.counters.constraints, w.n_events, w.k * different * w.share()));
    CHECK_EQ(answer.counters.cells, w.n_events * k * 4);  // a list for each operator
  }
}

TEST(sff_stores_equal_constraints_once) {
  const std::vector<std::string> predicates(1000, "a0 < 7 AND a1 IN (1, 3, 5, 7)");
  const auto table = table_of(predicates, 2);
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.add(1, EventValue::of(std::int64_t{5}));
  events.end_event();
  const Answer answer = answer_of("sff", table, events);
  CHECK_EQ(answer.filters[0].size(), 1000u);
  CHECK_EQ(answer.counters.constraints, 2u);
  CHECK_EQ(answer.counters.filters, 2000u);
}

TEST(sff_stops_when_every_subscriber_is_matched) {
  const Comparisons w = comparisons(20000, 1, 10, 10, 5, 50);
  const Counters all = answer_of("sff", w.table, w.events).counters;
  const Counters stopped = counters_with_one_target("sff", w.table, w.events);
  CHECK_EQ(stopped.candidates, w.n_events);
  CHECK(10 * stopped.filters < all.filters);
}

TEST(sff_knows_its_size) {
  const Comparisons w = comparisons(20000, 3, 100, 10, 3, 1);
  const std::size_t n_bytes = built("sff", w.table)->n_bytes();
  CHECK(n_bytes > 4 * w.table->n_constraints());
  CHECK(n_bytes < 16 * w.table->n_constraints());
}

}  // namespace
}  // namespace tamis
