// Engine `tama` against `naive` with coarse and fine cells, and its counters against the cost
// formula of its page.
#include "engines/tama.hpp"

#include "comparisons.hpp"
#include "intervals.hpp"
#include "updates.hpp"

namespace tamis {
namespace {

using namespace against_naive;

const std::vector<Parameters> kVariants = {
    {}, {{"level", 1}}, {{"level", 2}}, {{"level", 4}}, {{"level", 24}}};

TEST(tama_answers_as_naive_does_for_every_kind_of_constraint) {
  check_every_kind("tama", kVariants);
}

TEST(tama_is_right_at_the_edges) { check_edges_of_counting("tama", kVariants); }

TEST(tama_inserts_and_erases) {
  for (const double level : {2, 13}) {
    check_updates(build_updatable_tama,
                  complete_parameters(find_engine("tama"), {{"level", level}}));
  }
}

TEST(tama_updates_can_be_timed) {
  const Intervals all = intervals(3000, 10, 5, 0.3, 10, 1);
  const auto index =
      build_updatable_tama(all.table, complete_parameters(find_engine("tama"), {}), 2000);
  const UpdateTimes times = measure_updates(*index, 2000, 3000);
  CHECK(times.insert_ns > 0);
  CHECK(times.erase_ns > 0);
}

TEST(tama_counters_fit_the_cost_formula) {
  for (const std::size_t k : {3, 9, 40}) {
    const Comparisons w = comparisons(20000, 3, 100, 10, k, 100);
    const Answer answer = answer_of("tama", w.table, w.events);
    CHECK(answer.filters == answer_of("naive", w.table, w.events).filters);
    CHECK(fits(answer.counters.filters, w.n_events, w.k * w.n * w.c / w.m * w.share()));
    // 10 values make 20 cuts at most and 26 ranks: 5 layers below the whole domain.
    CHECK_EQ(answer.counters.cells, w.n_events * k * 6);
  }
}

TEST(tama_verifies_more_with_coarse_cells_and_nothing_with_fine_ones) {
  constexpr std::size_t n = 3000;
  Random random(3);
  std::vector<std::string> predicates(n);
  for (std::string& text : predicates) {
    for (int name = 0; name < 3; ++name) {
      const std::size_t low = below(random, 700);
      text += (name == 0 ? "a" : " AND a") + std::to_string(name) + " BETWEEN " +
              std::to_string(low) + " AND " + std::to_string(low + 300);
    }
  }
  EventBatch events;
  events.n_known = 3;
  for (int event = 0; event < 50; ++event) {
    for (AttributeId name = 0; name < 3; ++name) {
      events.add(name, EventValue::of(static_cast<std::int64_t>(below(random, 1000))));
    }
    events.end_event();
  }
  const auto table = table_of(predicates, 3);
  const Answer expected = answer_of("naive", table, events);
  std::uint64_t n_matches = 0;
  for (const auto& each : expected.filters) n_matches += each.size();
  std::uint64_t before = std::numeric_limits<std::uint64_t>::max();
  for (const double level : {2, 4, 6, 13}) {
    const Answer answer = answer_of("tama", table, events, {{"level", level}});
    CHECK(answer.filters == expected.filters);
    CHECK(answer.counters.candidates < before);
    before = answer.counters.candidates;
  }
  CHECK_EQ(before, n_matches);  // every leaf is one rank: the count is exact
}

TEST(tama_stops_when_every_subscriber_is_matched) {
  const Comparisons w = comparisons(20000, 1, 10, 10, 5, 50);
  const Counters all = answer_of("tama", w.table, w.events).counters;
  const Counters stopped = counters_with_one_target("tama", w.table, w.events);
  CHECK_EQ(stopped.candidates, w.n_events);
  CHECK(10 * stopped.filters < all.filters);
}

TEST(tama_puts_an_interval_into_two_cells_of_a_layer_at_most) {
  constexpr std::size_t n = 2000;
  Random random(9);
  std::vector<std::string> predicates(n);
  for (std::string& text : predicates) {
    const std::size_t low = below(random, 1000000);
    text = "a0 BETWEEN " + std::to_string(low) + " AND " +
           std::to_string(low + below(random, 1000000));
  }
  const auto table = table_of(predicates, 1);
  for (const double level : {6, 11}) {
    const std::size_t n_bytes = built("tama", table, {{"level", level}})->n_bytes();
    const double n_cells = 2 * std::pow(2, level);
    // The ranks take up to 100 bytes for a boundary, two for each interval.
    CHECK(static_cast<double>(n_bytes) < n * (2 * 100 + 8 + 4 * 2 * level) + 8 * n_cells + 4096);
  }
}

TEST(tama_says_what_its_parameters_must_be) {
  const auto table = table_of({"a0 = 1"}, 1);
  CHECK_THROWS(built("tama", table, {{"level", 0}}), ArgumentError, "between 1 and 24");
  CHECK_THROWS(built("tama", table, {{"level", 2.5}}), ArgumentError, "a whole number");
}

}  // namespace
}  // namespace tamis
