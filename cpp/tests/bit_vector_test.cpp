// Engine `bit-vector` against `naive`, with both positions of its switches, and its counters
// against the cost formula of its page.
#include "against_naive.hpp"

namespace tamis {
namespace {

using namespace against_naive;

TEST(bit_vector_answers_as_naive_does_for_every_kind_of_constraint) {
  std::vector<Parameters> variants;
  for (const double is_inline : {0, 1}) {
    for (const double is_by_rarity : {0, 1}) {
      for (const double has_hash : {0, 1}) {
        variants.push_back({{"inline", is_inline}, {"rarity", is_by_rarity}, {"hash", has_hash}});
      }
    }
  }
  check_every_kind("bit-vector", variants);
}

TEST(bit_vector_answers_for_empty_tables_and_filters_without_names) {
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();
  events.end_event();
  CHECK(answer_of("bit-vector", table_of({}, 0), events).filters ==
        std::vector<std::vector<std::uint32_t>>(2));
  const auto table = table_of({"TRUE", "a0 IS NULL", "NEAR(0, 0, 1)", "a1 IS NULL", "a0 > 0"}, 2);
  const Answer answer = answer_of("bit-vector", table, events);
  CHECK(answer.filters == answer_of("naive", table, events).filters);
  CHECK(answer.filters[0] == std::vector<std::uint32_t>({0, 3, 4}));
  CHECK_EQ(answer.counters.candidates, 2u * 4 + 1);  // the four without names, and one filter
}

TEST(bit_vector_tells_values_apart_that_a_double_does_not) {
  const auto table =
      table_of({"a0 = 9007199254740992", "a0 = 9007199254740993", "a0 IN (1, 9007199254740993)",
                "a0 = '9007199254740993'", "a0 = TRUE", "a0 != 9007199254740993", "a0 = 0"},
               1);
  EventBatch events;
  events.n_known = 1;
  const std::string text = "9007199254740993";
  for (const EventValue& value :
       {EventValue::of(std::int64_t{9007199254740993}), EventValue::of(9007199254740992.0),
        EventValue::of(std::string_view(text)), EventValue::of(true), EventValue::of(-0.0),
        EventValue::of(std::nan(""))}) {
    events.add(0, value);
    events.end_event();
  }
  for (const double has_hash : {0, 1}) {
    CHECK(answer_of("bit-vector", table, events, {{"hash", has_hash}}).filters ==
          std::vector<std::vector<std::uint32_t>>({{1, 2}, {0, 5}, {3}, {4}, {5, 6}, {}}));
  }
}

TEST(bit_vector_numbers_more_constraints_than_16_bits_hold) {
  std::vector<std::string> predicates;
  for (int value = 0; value < 70000; ++value) {
    predicates.push_back("a0 = " + std::to_string(value) + " AND a1 = " +
                         std::to_string(value % 7) + " AND a2 != 3 AND a3 > 1 AND a4 < 2");
  }
  const auto table = table_of(predicates, 5);
  EventBatch events;
  events.n_known = 5;
  for (const std::int64_t value : {0, 65535, 65536, 69999, 70000}) {
    events.add(0, EventValue::of(value));
    events.add(1, EventValue::of(value % 7));
    events.add(2, EventValue::of(std::int64_t{4}));
    events.add(3, EventValue::of(std::int64_t{2}));
    events.add(4, EventValue::of(std::int64_t{1}));
    events.end_event();
  }
  const Answer expected = answer_of("naive", table, events);
  CHECK(expected.filters[2] == std::vector<std::uint32_t>({65536}));
  for (const double is_inline : {0, 1}) {
    CHECK(answer_of("bit-vector", table, events, {{"inline", is_inline}}).filters ==
          expected.filters);
  }
}

TEST(bit_vector_evaluates_shared_constraints_once) {
  std::vector<std::string> predicates;
  for (int each = 0; each < 5000; ++each) {
    predicates.push_back("a0 LIKE '%x' AND a1 > 3 AND a2 = " + std::to_string(each));
  }
  const auto table = table_of(predicates, 3);
  EventBatch events;
  events.n_known = 3;
  events.add(0, EventValue::of(std::string_view("abx")));
  events.add(1, EventValue::of(std::int64_t{4}));
  events.add(2, EventValue::of(std::int64_t{77}));
  events.end_event();
  const Answer answer = answer_of("bit-vector", table, events);
  CHECK(answer.filters == std::vector<std::vector<std::uint32_t>>({{77}}));
  CHECK_EQ(answer.counters.constraints, 3u);
  CHECK_EQ(answer.counters.filters, 5000u);
  const Answer rarest = answer_of("bit-vector", table, events, {{"rarity", 1}});
  CHECK(rarest.filters == answer.filters);
  CHECK_EQ(rarest.counters.filters, 1u);
}

TEST(bit_vector_skips_verification_where_the_target_is_settled) {
  const auto table = table_of({"a0 > 0", "a0 > 0 AND a1 IS NULL"}, 2);
  const std::unique_ptr<Index> index = built("bit-vector", table);
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
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();
  const auto scratch = index->make_scratch();
  index->match(events, 0, 1, *scratch, out);
  CHECK(out.targets() == std::vector<std::uint32_t>({0}));
}

// The formula of docs/engines/bit-vector.md.
TEST(bit_vector_counters_fit_the_cost_formula) {
  const Equalities all = equalities(40000, 6, 40, 8, 20, 200);
  const double n_distinct = static_cast<double>(all.m * all.v);
  const double n_evaluated = static_cast<double>(all.k) * n_distinct / static_cast<double>(all.m);
  const double n_hold = n_evaluated / static_cast<double>(all.v);
  const double n_filters = n_hold * static_cast<double>(all.n) / n_distinct;
  const double share = n_hold / n_distinct;
  for (const double is_inline : {0, 1}) {
    for (const double has_hash : {0, 1}) {
      const Counters counters = answer_of("bit-vector", all.table, all.events,
                                          {{"inline", is_inline}, {"hash", has_hash}})
                                    .counters;
      CHECK(fits(counters.constraints, all.n_events, has_hash ? n_hold : n_evaluated));
      CHECK(fits(counters.filters, all.n_events, n_filters));
      CHECK(fits(counters.bits, all.n_events, n_filters / (1 - share)));
      CHECK(counters.cells <= all.n_events * static_cast<std::size_t>(n_hold + 0.5));
      CHECK(counters.candidates < counters.filters / 50);
    }
  }
}

TEST(bit_vector_says_what_its_parameters_must_be) {
  const auto table = table_of({"a0 = 1"}, 1);
  CHECK_THROWS(built("bit-vector", table, {{"inline", 2}}), ArgumentError, "between 0 and 1");
  CHECK_THROWS(built("bit-vector", table, {{"rarity", 0.5}}), ArgumentError, "a whole number");
  CHECK_THROWS(built("bit-vector", table, {{"bits", 2}}), ArgumentError, "rarity");
}

TEST(bit_vector_knows_its_size) {
  const Equalities all = equalities(20000, 10, 100, 15, 50, 1);
  const std::size_t n_bytes = built("bit-vector", all.table)->n_bytes();
  // 2 bytes for a constraint besides the first, 8 for a filter; 1,500 distinct ones come on top.
  CHECK(n_bytes > all.n * (8 + 2 * 9));
  CHECK(n_bytes < all.n * (8 + 2 * 9) * 3 / 2);
}

}  // namespace
}  // namespace tamis
