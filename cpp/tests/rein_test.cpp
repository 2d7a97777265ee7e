// Engines `rein` and `ada-rein` against `naive`: one the same, the other never less, and by how
// much more.
#include "engines/rein.hpp"

#include "intervals.hpp"

namespace tamis {
namespace {

using namespace against_naive;

TEST(rein_answers_as_naive_does_for_every_kind_of_constraint) {
  check_every_kind("rein", {{}, {{"c", 1}}, {{"c", 7}}});
}

TEST(rein_answers_for_empty_tables) {
  EventBatch events;
  events.end_event();
  for (const char* engine : {"rein", "ada-rein"}) {
    CHECK(answer_of(engine, table_of({}, 0), events).filters ==
          std::vector<std::vector<std::uint32_t>>(1));
  }
}

TEST(rein_counters_fit_the_cost_formula) {
  for (const std::size_t psi_e : {10, 4}) {
    for (const double w : {0.1, 0.3, 0.7}) {
      const Intervals all = intervals(20000, 10, 5, w, psi_e, 100);
      const double pairs = 20000.0 * 5 / 10;
      const Counters counters = answer_of("rein", all.table, all.events).counters;
      const double violated = psi_e * (1 - w) + (10.0 - psi_e);
      CHECK(fits(counters.filters, 100, pairs * violated));
      CHECK(fits(counters.constraints, 100, psi_e * 2 * pairs / 1000));
      CHECK(fits(counters.bits, 100, 20000.0 / 64));
    }
  }
}

TEST(rein_inserts_and_erases) {
  const Intervals all = intervals(3000, 10, 5, 0.5, 10, 30);
  const auto index =
      build_updatable_rein(all.table, complete_parameters(find_engine("rein"), {}), 2000);
  const auto scratch = index->make_scratch();
  const UpdateTimes times = measure_updates(*index, 2000, 3000);
  CHECK(times.insert_ns > 0 && times.erase_ns > 0);
  for (FilterIdx filter = 2000; filter < 3000; ++filter) index->insert(filter);
  CHECK(answer_of(*index, 3000, all.events, *scratch).filters ==
        answer_of("naive", all.table, all.events).filters);
}

// Of the filters that ada-rein reports, the share that does not match. It misses none.
double false_rate(const Intervals& all, double rate, Counters& counters) {
  const Answer exact = answer_of("naive", all.table, all.events);
  const Answer found = answer_of("ada-rein", all.table, all.events, {{"rate", rate}});
  std::size_t n_reported = 0, n_false = 0;
  for (std::size_t event = 0; event < all.n_events; ++event) {
    CHECK(std::includes(found.filters[event].begin(), found.filters[event].end(),
                        exact.filters[event].begin(), exact.filters[event].end()));
    n_reported += found.filters[event].size();
    n_false += found.filters[event].size() - exact.filters[event].size();
  }
  counters = found.counters;
  return n_reported == 0 ? 0 : static_cast<double>(n_false) / static_cast<double>(n_reported);
}

TEST(ada_rein_keeps_its_rate_where_values_are_uniform_and_never_misses) {
  Counters exact, approximate;
  // Skewed attributes, as in 002 Fig. 10, and all attributes in the events.
  const Intervals skewed = intervals(20000, 20, 3, 0.5, 20, 200, 100000, 1.5);
  CHECK_EQ(false_rate(skewed, 0, exact), 0.0);
  for (const double rate : {0.05, 0.2, 0.5}) {
    const double measured = false_rate(skewed, rate, approximate);
    CHECK(measured > 0);
    CHECK(measured < rate);
    CHECK(approximate.filters < exact.filters);
  }
  // Wide intervals: little is ruled out, and leaving it out costs little.
  const Intervals wide = intervals(10000, 10, 4, 0.95, 10, 50);
  CHECK_EQ(false_rate(wide, 0, exact), 0.0);
  const double measured = false_rate(wide, 0.05, approximate);
  CHECK(measured > 0.01 && measured < 0.05);
  CHECK(approximate.filters < 0.9 * static_cast<double>(exact.filters));
}

TEST(ada_rein_skips_nothing_where_any_attribute_would_cost_too_much) {
  // As on hem-default: each attribute holds a twentieth of the intervals, and each of them rules
  // out more than twice what it lets through.
  Counters exact, approximate;
  const Intervals all = intervals(5000, 20, 5, 0.3, 20, 50);
  CHECK_EQ(false_rate(all, 0.05, approximate), 0.0);
  CHECK_EQ(false_rate(all, 0, exact), 0.0);
  CHECK_EQ(approximate.filters, exact.filters);
}

TEST(ada_rein_marks_what_lacks_an_attribute_and_verifies_the_rest) {
  const auto table = table_of({"a0 >= 0 AND a1 BETWEEN 0 AND 100", "a1 BETWEEN 5 AND 100",
                               "a0 BETWEEN 0 AND 99 AND a2 LIKE '%x'"},
                              3);
  EventBatch events;
  events.n_known = 3;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.add(2, EventValue::of(std::string_view("y")));
  events.end_event();
  CHECK(answer_of("ada-rein", table, events, {{"rate", 1}}).filters ==
        std::vector<std::vector<std::uint32_t>>(1));
}

TEST(rein_says_what_its_parameters_must_be) {
  const auto table = table_of({"a0 = 1"}, 1);
  CHECK_THROWS(built("rein", table, {{"c", 2.5}}), ArgumentError, "a whole number");
  CHECK_THROWS(built("ada-rein", table, {{"c", 2.5}}), ArgumentError, "a whole number");
  CHECK_THROWS(built("ada-rein", table, {{"rate", 2}}), ArgumentError, "between 0 and 1");
}

}  // namespace
}  // namespace tamis
