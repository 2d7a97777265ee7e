// Engine `ocm` against `naive`, with both positions of its switch, and its counters against the
// cost formula of its page.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "against_naive.hpp"

namespace tamis {
namespace {

using namespace against_naive;

TEST(ocm_answers_as_naive_does_for_every_kind_of_constraint) {
  check_every_kind("ocm", {{},
                           {{"filter_selection", 0}},
                           {{"name_vector_bits", 1}},
                           {{"name_vector_bits", 3}},
                           {{"name_vector_bits", 16}},
                           {{"name_vector_bits", 64}},
                           {{"table_threads", 2}},
                           {{"table_threads", 3}, {"name_vector_bits", 5}}});
}

TEST(ocm_answers_for_empty_tables_and_filters_without_names) {
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();
  events.end_event();
  CHECK(answer_of("ocm", table_of({}, 0), events).filters ==
        std::vector<std::vector<std::uint32_t>>(2));
  const auto table = table_of({"TRUE", "a0 IS NULL", "NEAR(0, 0, 1)", "a1 IS NULL", "a0 > 0"}, 2);
  const Answer answer = answer_of("ocm", table, events);
  CHECK(answer.filters == answer_of("naive", table, events).filters);
  CHECK(answer.filters[0] == std::vector<std::uint32_t>({0, 3, 4}));
  CHECK_EQ(answer.counters.candidates, 2u * 4 + 1);  // the four without names, and one count
}

TEST(ocm_counts_up_to_255_constraints_and_verifies_the_others) {
  EventBatch events;
  for (const bool is_last_right : {true, false}) {
    for (AttributeId attribute = 0; attribute < 300; ++attribute) {
      events.add(attribute, EventValue::of(std::int64_t{attribute != 299 || is_last_right}));
    }
    events.end_event();
  }
  events.n_known = 300;
  std::string text = "a0 = 1";
  for (int name = 1; name < 300; ++name) text += " AND a" + std::to_string(name) + " = 1";
  const auto table = table_of({text}, 300);
  for (const double n_bits : {1, 16, 64}) {
    const Answer answer = answer_of("ocm", table, events, {{"name_vector_bits", n_bits}});
    CHECK(answer.filters == std::vector<std::vector<std::uint32_t>>({{0}, {}}));
    CHECK_EQ(answer.counters.constraints, 2u * 255);
  }
}

TEST(ocm_skips_verification_where_the_target_is_settled) {
  const auto table = table_of({"a0 > 0", "a0 > 0 AND a1 IS NULL"}, 2);
  const std::unique_ptr<Index> index = built("ocm", table);
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
  CHECK_EQ(out.counters.candidates, 2u);
}

// The formula of docs/engines/ocm.md, for names drawn uniformly: n filters of c constraints on m
// names, events of k attributes, w bits (0: no filter selection).
struct Cost {
  double filters = 0, blooms = 0, evaluated = 0;
};
Cost cost_of(double n, int c, double m, double k, double w) {
  // Is a bit set by another name than the one in question?
  const auto covered = [&](double n_bits) {
    return 1 - std::pow(1 - k / m, std::max(0.0, m / n_bits - 1));
  };
  const double by_vector = w == 0 ? 1 : covered(w);
  const double by_both = by_vector * covered(64);
  Cost cost{n * (k / m + (1 - k / m) * by_vector), n * c * k / m, n * c * k / m};
  for (int at = 1; at < c; ++at) {
    const double present = (k - at) / (m - at);
    const double passes_vector = present + (1 - present) * by_vector;
    cost.filters *= passes_vector;
    cost.blooms *= passes_vector;
    cost.evaluated *= present + (1 - present) * by_both;
  }
  return cost;
}

TEST(ocm_counters_fit_the_cost_formula) {
  constexpr std::size_t n = 20000, c = 3, m = 100, k = 9, n_events = 300;
  Random random(11);
  std::vector<AttributeId> names(m);
  std::iota(names.begin(), names.end(), AttributeId{0});
  std::vector<std::string> predicates(n);
  for (std::string& text : predicates) {
    std::shuffle(names.begin(), names.end(), random);
    for (std::size_t at = 0; at < c; ++at) {
      text += (at == 0 ? "a" : " AND a") + std::to_string(names[at]) + " > " +
              std::to_string(below(random, 10));
    }
  }
  EventBatch events;
  events.n_known = m;
  for (std::size_t event = 0; event < n_events; ++event) {
    std::shuffle(names.begin(), names.end(), random);
    for (std::size_t at = 0; at < k; ++at) {
      events.add(names[at], EventValue::of(static_cast<std::int64_t>(below(random, 10))));
    }
    events.end_event();
  }
  const auto table = table_of(predicates, m);
  const auto fits = [](std::uint64_t counted, double expected) {
    const double measured = static_cast<double>(counted) / n_events;
    return measured <= 2 * expected && expected <= 2 * measured;
  };
  for (const double w : {0, 8, 16, 24, 40, 64}) {
    const Parameters parameters =
        w == 0 ? Parameters{{"filter_selection", 0}} : Parameters{{"name_vector_bits", w}};
    const Counters counters = answer_of("ocm", table, events, parameters).counters;
    const Cost cost = cost_of(n, c, m, k, w);
    CHECK(fits(counters.filters, cost.filters));
    CHECK(fits(counters.bits, cost.blooms));
    CHECK(fits(counters.constraints, cost.evaluated));
    CHECK(counters.cells <= n_events * (std::uint64_t{1} << (w == 0 ? 0 : k)));
  }
}

TEST(ocm_says_what_its_parameters_must_be) {
  const auto table = table_of({"a0 = 1"}, 1);
  CHECK_THROWS(built("ocm", table, {{"name_vector_bits", 0}}), ArgumentError, "between 1 and 64");
  CHECK_THROWS(built("ocm", table, {{"name_vector_bits", 2.5}}), ArgumentError, "a whole number");
  CHECK_THROWS(built("ocm", table, {{"bits", 2}}), ArgumentError, "name_vector_bits");
}

TEST(ocm_knows_its_size) {
  Random random(3);
  std::vector<std::string> predicates(1000);
  for (std::string& each : predicates) each = random_predicate(random, 20);
  const auto table = table_of(predicates, 20);
  const std::size_t n_bytes = built("ocm", table)->n_bytes();
  // 21 bytes for a constraint, 8 for a filter; rows, tables and the map come on top.
  CHECK(n_bytes > 21 * table->n_constraints() / 2);
  CHECK(n_bytes < 200 * table->n_constraints());
}

}  // namespace
}  // namespace tamis
