// Engine `be-tree` against `naive`, and its counters against the cost formula of its page.
#include "against_naive.hpp"

namespace tamis {
namespace {

using namespace against_naive;

TEST(be_tree_answers_as_naive_does_for_every_kind_of_constraint) {
  check_every_kind("be-tree", {{},
                               {{"max_cap", 1}},
                               {{"max_cap", 2}},
                               {{"max_cap", 3}, {"bloom", 0}},
                               {{"max_cap", 100000}}});
}

TEST(be_tree_answers_for_empty_tables_and_filters_without_names) {
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();
  events.end_event();
  CHECK(answer_of("be-tree", table_of({}, 0), events).filters ==
        std::vector<std::vector<std::uint32_t>>(2));
  CHECK(answer_of("be-tree", table_of({"TRUE", "TRUE"}, 0), events).filters ==
        std::vector<std::vector<std::uint32_t>>(2, {0, 1}));
  const auto table = table_of({"TRUE", "a0 IS NULL", "NEAR(0, 0, 1)", "a1 IS NULL", "a0 > 0"}, 2);
  for (const double max_cap : {1, 32}) {
    const Answer answer = answer_of("be-tree", table, events, {{"max_cap", max_cap}});
    CHECK(answer.filters == answer_of("naive", table, events).filters);
    CHECK(answer.filters[0] == std::vector<std::uint32_t>({0, 3, 4}));
  }
}

TEST(be_tree_tells_values_apart_that_a_double_does_not) {
  std::vector<std::string> predicates;
  for (std::int64_t value = 9007199254740980; value < 9007199254741020; ++value) {
    for (const char* comparison : {"=", "!=", "<=", ">"}) {
      predicates.push_back(std::string("a0 ") + comparison + " " + std::to_string(value));
    }
  }
  const auto table = table_of(predicates, 1);
  EventBatch events;
  events.n_known = 1;
  for (std::int64_t value = 9007199254740978; value < 9007199254741022; ++value) {
    events.add(0, EventValue::of(value));
    events.end_event();
  }
  const Answer expected = answer_of("naive", table, events);
  for (const double max_cap : {1, 5}) {
    CHECK(answer_of("be-tree", table, events, {{"max_cap", max_cap}}).filters == expected.filters);
  }
}

TEST(be_tree_keeps_filters_that_cannot_be_told_apart_in_one_leaf) {
  // The same 60 constraints, more than a path has attributes, and sets of many intervals.
  std::string text = "a0 IN (1, 3, 5, 7)";
  for (int name = 1; name < 60; ++name) text += " AND a" + std::to_string(name) + " != 3";
  const auto table = table_of(std::vector<std::string>(300, text), 60);
  EventBatch events;
  events.n_known = 60;
  for (const std::int64_t last : {1, 3}) {
    for (const std::int64_t first : {5, 6}) {
      events.add(0, EventValue::of(first));
      for (AttributeId name = 1; name < 60; ++name) {
        events.add(name, EventValue::of(name == 59 ? last : std::int64_t{1}));
      }
      events.end_event();
    }
  }
  for (const double max_cap : {1, 32, 1000}) {
    const Answer answer = answer_of("be-tree", table, events, {{"max_cap", max_cap}});
    CHECK_EQ(answer.filters[0].size(), 300u);
    CHECK(answer.filters[1].empty() && answer.filters[2].empty() && answer.filters[3].empty());
  }
}

TEST(be_tree_divides_filters_that_only_exclude_a_value_by_name) {
  std::vector<std::string> predicates;
  for (int each = 0; each < 4000; ++each) {
    predicates.push_back("a" + std::to_string(each % 40) + " != " + std::to_string(each) +
                         " AND a" + std::to_string(40 + each / 100) + " != 7");
  }
  const auto table = table_of(predicates, 80);
  EventBatch events;
  events.n_known = 80;
  events.add(3, EventValue::of(std::int64_t{43}));
  events.add(45, EventValue::of(std::int64_t{8}));
  events.end_event();
  const Answer answer = answer_of("be-tree", table, events);
  CHECK(answer.filters == answer_of("naive", table, events).filters);
  CHECK(!answer.filters[0].empty());
  CHECK(answer.counters.filters < 400);
}

// The formula of docs/engines/be-tree.md: filters in the leaves that an event visits, for n filters
// of c equalities on m names, of which the event has k.
double cost_of(double n, double c, double m, double v, double k, double max_cap) {
  if (n <= max_cap || c == 0) return n;
  double cost = 0, left = n;
  for (double n_names = m; left > max_cap && n_names > 0; --n_names) {
    double part = left * std::min(1.0, c / n_names);
    left -= part;
    double n_values = v;
    for (; part > max_cap && n_values > 1; n_values /= 2) part /= 2;
    if (n_values <= 1) {
      part = cost_of(part, c - 1, n_names - 1, v, (k - 1) * (n_names - 1) / (m - 1), max_cap);
    }
    cost += k / m * part;
  }
  return cost + left;
}

TEST(be_tree_counters_fit_the_cost_formula) {
  struct Case {
    std::size_t n, c, m, v, k;
  };
  for (const Case& each : {Case{20000, 4, 20, 64, 5}, Case{40000, 3, 40, 16, 10},
                           Case{60000, 5, 20, 8, 20}, Case{30000, 4, 100, 4, 10}}) {
    const Equalities all = equalities(each.n, each.c, each.m, each.v, each.k, 200);
    const Answer expected = answer_of("naive", all.table, all.events);
    for (const double max_cap : {4, 32}) {
      const double cost = cost_of(static_cast<double>(each.n), static_cast<double>(each.c),
                                  static_cast<double>(each.m), static_cast<double>(each.v),
                                  static_cast<double>(each.k), max_cap);
      CHECK(cost < static_cast<double>(each.n) / 10);
      const Answer answer = answer_of("be-tree", all.table, all.events, {{"max_cap", max_cap}});
      CHECK(answer.filters == expected.filters);
      CHECK(fits(answer.counters.filters, all.n_events, cost));
      CHECK(answer.counters.candidates <= answer.counters.filters);
      CHECK(answer.counters.constraints < 2 * answer.counters.filters);
      // A bucket is visited for its leaf or on the way to one: at most log2(v) + 1 for each value.
      CHECK(answer.counters.nodes < answer.counters.filters * 8);
      const Answer plain =
          answer_of("be-tree", all.table, all.events, {{"max_cap", max_cap}, {"bloom", 0}});
      CHECK(plain.filters == expected.filters);
      CHECK_EQ(plain.counters.filters, answer.counters.filters);
      CHECK_EQ(plain.counters.candidates, plain.counters.filters);
    }
  }
}

TEST(be_tree_says_what_its_parameters_must_be) {
  const auto table = table_of({"a0 = 1"}, 1);
  CHECK_THROWS(built("be-tree", table, {{"max_cap", 0}}), ArgumentError, "between 1 and");
  CHECK_THROWS(built("be-tree", table, {{"max_cap", 2.5}}), ArgumentError, "a whole number");
  CHECK_THROWS(built("be-tree", table, {{"cap", 2}}), ArgumentError, "max_cap");
}

TEST(be_tree_knows_its_size) {
  const Equalities all = equalities(20000, 5, 100, 15, 5, 1);
  const std::size_t n_bytes = built("be-tree", all.table)->n_bytes();
  CHECK(n_bytes > all.n * 44);
  CHECK(n_bytes < all.n * (44 + 12 * 5 + 16));
}

}  // namespace
}  // namespace tamis
