// Engine `clcb` against `naive`, and its counters against the cost formula of its page.
#include "common/simd.hpp"
#include "places.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

using namespace testing;

TEST(clcb_answers_as_naive_does_for_every_kind_of_filter) {
  check_against_naive("clcb",
                      {{},
                       {{"name_bits", 1}},
                       {{"name_bits", 8}},
                       {{"events_per_pass", 1}},
                       {{"events_per_pass", 64}, {"name_bits", 3}},
                       {{"filter_threads", 3}},
                       {{"filter_threads", 2}, {"events_per_pass", 7}}},
                      1500, 17);
}

TEST(clcb_knows_on_which_side_of_a_border_a_point_is) {
  const SimdLevel before = simd_level();
  for (const SimdLevel level : {SimdLevel::v2, SimdLevel::avx2, SimdLevel::avx512}) {
    if (!has_simd_level(level)) continue;
    set_simd_level(level);
    check_borders("clcb");
  }
  set_simd_level(before);
}

TEST(clcb_answers_where_tiles_are_not_full) {
  Random random(23);
  for (const std::size_t n_filters : {0, 1, 2, 15, 16, 17, 63, 64, 65, 4095, 4096, 4097, 8200}) {
    PlacedWorkload workload;
    workload.n_filters = n_filters;
    workload.c = 1;
    workload.m = 12;
    workload.radius = 0.2;
    workload.n_events = 9;
    const auto table = workload.table(random);
    const EventBatch events = workload.events(random);
    const Answer expected = answer_of("naive", table, events);
    CHECK(answer_of("clcb", table, events).filters == expected.filters);
    CHECK(answer_of("clcb", table, events, {{"filter_threads", 5}}).filters == expected.filters);
  }
}

TEST(clcb_needs_no_position_for_filters_without_a_circle) {
  const auto table = table_of(Space::plane,
                              {"NEAR(0, 0, 1)", "NOT NEAR(0, 0, 1)", "a0 > 0", "a0 IS NULL", "TRUE",
                               "NEAR(0, 0, 1) AND a0 > 0"},
                              1);
  EventBatch events;
  events.n_known = 1;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();  // no batch position at all
  const Answer answer = answer_of("clcb", table, events);
  CHECK(answer.filters == std::vector<std::vector<std::uint32_t>>({{2, 4}}));
  CHECK_EQ(answer.counters.bits, 4u);  // the placed filters are not even looked at
}

TEST(clcb_has_no_limit_on_the_constraints_of_a_filter) {
  std::string text = "NEAR(0, 0, 1)";
  for (int name = 0; name < 400; ++name) text += " AND a" + std::to_string(name) + " = 1";
  const auto table = table_of(Space::plane, {text}, 400);
  EventBatch events;
  events.n_known = 400;
  for (const bool is_last_right : {true, false}) {
    for (AttributeId attribute = 0; attribute < 400; ++attribute) {
      events.add(attribute, EventValue::of(std::int64_t{attribute != 399 || is_last_right}));
    }
    events.add_position(0, 1);
    events.end_event();
  }
  const Answer answer = answer_of("clcb", table, events);
  CHECK(answer.filters == std::vector<std::vector<std::uint32_t>>({{0}, {}}));
  CHECK(answer.counters.constraints > 400);
}

TEST(clcb_leaves_content_out_where_the_target_is_settled) {
  const auto table =
      table_of(Space::plane, {"NEAR(0, 0, 1) AND a0 > 0", "NEAR(0, 0, 1) AND a0 > 1"}, 1);
  const std::unique_ptr<Index> index = built("clcb", table);
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

// docs/engines/clcb.md: the share of filters whose Bloom filter is included in the event's.
double named_share(int c, double m, double k, double name_bits) {
  const double covered = std::pow(1 - std::pow(1 - name_bits / 32, k), name_bits);
  double share = 1;
  for (int at = 0; at < c; ++at) {
    const double present = (k - at) / (m - at);
    share *= present + (1 - present) * covered;
  }
  return share;
}

TEST(clcb_counters_fit_the_cost_formula) {
  for (const double radius : {0.0178, 0.0564, 0.178}) {
    PlacedWorkload workload;
    workload.n_filters = 20000;
    workload.c = 2;
    workload.k = 20;
    workload.radius = radius;
    Random random(11);
    const auto table = workload.table(random);
    const EventBatch events = workload.events(random);
    for (const double name_bits : {1, 2, 3}) {
      const Counters counters =
          answer_of("clcb", table, events, {{"name_bits", name_bits}}).counters;
      const double named = 20000 * named_share(2, 100, 20, name_bits);
      const double located = named * std::numbers::pi * radius * radius;
      CHECK_EQ(counters.bits, workload.n_events * 20000);
      CHECK(fits(counters.filters, workload.n_events, named));
      CHECK(fits(counters.candidates, workload.n_events, located));
      CHECK(counters.constraints >= counters.candidates);
      CHECK(counters.constraints <= 2 * counters.candidates);
    }
  }
}

TEST(clcb_says_what_its_parameters_must_be) {
  const auto table = table_of(Space::plane, {"a0 = 1"}, 1);
  CHECK_THROWS(built("clcb", table, {{"name_bits", 0}}), ArgumentError, "between 1 and 8");
  CHECK_THROWS(built("clcb", table, {{"events_per_pass", 2.5}}), ArgumentError, "a whole number");
}

TEST(clcb_takes_40_bytes_for_a_filter) {
  PlacedWorkload workload;
  workload.n_filters = 1000;
  Random random(3);
  const std::size_t n_bytes = built("clcb", workload.table(random))->n_bytes();
  CHECK(n_bytes >= 40 * 1000);
  CHECK(n_bytes < 42 * 1000);
}

}  // namespace
}  // namespace tamis
