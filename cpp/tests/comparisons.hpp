// Filters of comparisons, as the papers' synthetic workloads have them, for counting engines.
#pragma once

#include "against_naive.hpp"

namespace tamis::against_naive {

// n filters of c constraints on c of m names, `= != < >` a quarter each, values 0 .. v-1; events of
// k attributes. A value satisfies half of the constraints on its name.
struct Comparisons {
  double n = 0, c = 0, m = 0, v = 0, k = 0;
  std::size_t n_events = 0;
  std::shared_ptr<FilterTable> table;
  EventBatch events;

  double share() const { return 0.5; }
};

inline Comparisons comparisons(std::size_t n, std::size_t c, std::size_t m, std::size_t v,
                               std::size_t k, std::size_t n_events) {
  Comparisons all;
  all.n = static_cast<double>(n);
  all.c = static_cast<double>(c);
  all.m = static_cast<double>(m);
  all.v = static_cast<double>(v);
  all.k = static_cast<double>(k);
  all.n_events = n_events;
  Random random(11);
  std::vector<AttributeId> names(m);
  std::iota(names.begin(), names.end(), AttributeId{0});
  std::vector<std::string> predicates(n);
  const std::string operators[] = {" = ", " != ", " < ", " > "};
  for (std::string& text : predicates) {
    std::shuffle(names.begin(), names.end(), random);
    for (std::size_t at = 0; at < c; ++at) {
      const std::size_t op = below(random, 4);
      const std::size_t value =
          op < 2 ? below(random, v) : below(random, v - 1) + (op == 2 ? 1 : 0);
      text += (at == 0 ? "a" : " AND a") + std::to_string(names[at]) + operators[op] +
              std::to_string(value);
    }
  }
  all.events.n_known = m;
  for (std::size_t event = 0; event < n_events; ++event) {
    std::shuffle(names.begin(), names.end(), random);
    for (std::size_t at = 0; at < k; ++at) {
      all.events.add(names[at], EventValue::of(static_cast<std::int64_t>(below(random, v))));
    }
    all.events.end_event();
  }
  all.table = table_of(predicates, m);
  return all;
}

// What every counting engine must get right at the edges.
inline void check_edges_of_counting(const char* engine, const std::vector<Parameters>& variants) {
  using Filters = std::vector<std::vector<std::uint32_t>>;
  for (const Parameters& parameters : variants) {
    const auto check = [&](const std::vector<std::string>& predicates, std::size_t n_names,
                           const EventBatch& events) {
      const auto table = table_of(predicates, n_names);
      const Answer answer = answer_of(engine, table, events, parameters);
      CHECK(answer.filters == answer_of("naive", table, events).filters);
      return answer;
    };

    EventBatch few;
    few.n_known = 2;
    few.add(0, EventValue::of(std::int64_t{1}));
    few.end_event();
    few.end_event();
    CHECK(check({}, 0, few).filters == Filters(2));
    CHECK(check({"a0 = 1"}, 1, few).filters == Filters({{0}, {}}));
    CHECK(check({"TRUE"}, 0, few).filters == Filters({{0}, {0}}));
    const Answer without =
        check({"TRUE", "a0 IS NULL", "NEAR(0, 0, 1)", "a1 IS NULL", "a0 > 0", "EXISTS a0"}, 2, few);
    CHECK(without.filters == Filters({{0, 3, 4, 5}, {0, 1, 3}}));
    CHECK_EQ(without.counters.candidates, 2u * 4 + 2);  // four without names; two that count

    // More constraints than a byte counts.
    EventBatch many;
    many.n_known = 300;
    for (const bool is_last_right : {true, false}) {
      for (AttributeId attribute = 0; attribute < 300; ++attribute) {
        many.add(attribute, EventValue::of(std::int64_t{attribute != 299 || is_last_right}));
      }
      many.end_event();
    }
    std::string text = "a0 = 1";
    for (int name = 1; name < 300; ++name) text += " AND a" + std::to_string(name) + " = 1";
    CHECK(check({text, "a3 = 1", text}, 300, many).filters == Filters({{0, 1, 2}, {1}}));

    // Neighbours of 2^53 + 1, where doubles are too coarse; types beside one another; long sets,
    // shared and not; several constraints on one attribute.
    EventBatch odd;
    odd.n_known = 1;
    const auto add = [&](EventValue value) {
      odd.add(0, value);
      odd.end_event();
    };
    for (const std::int64_t value : {9007199254740991, 9007199254740992, 9007199254740993,
                                     9007199254740994, std::int64_t{-1}, std::int64_t{7}}) {
      add(EventValue::of(value));
    }
    for (const double value : {-0.0, 0.5, std::nan(""), std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity()}) {
      add(EventValue::of(value));
    }
    for (const char* value : {"", "a", "ab", "b"}) add(EventValue::of(std::string_view(value)));
    add(EventValue::of(true));
    add(EventValue::of(false));
    check({"a0 = 9007199254740993",
           "a0 != 9007199254740993",
           "a0 < 9007199254740993",
           "a0 > 9007199254740993",
           "a0 BETWEEN 9007199254740992 AND 9007199254740993",
           "a0 NOT BETWEEN 9007199254740992 AND 9007199254740993",
           "a0 = ''",
           "a0 != ''",
           "a0 > ''",
           "a0 <= 'a'",
           "a0 LIKE 'a%'",
           "a0 LIKE '%b'",
           "a0 NOT LIKE '%b'",
           "a0 = TRUE",
           "a0 != TRUE",
           "EXISTS a0",
           "a0 IN (1, 3, 5, 7, 9)",
           "a0 IN (1, 3, 5, 7, 9)",
           "a0 IN (-1, 0.5, 7, 9007199254740993)",
           "a0 NOT IN (1, 3, 5, 7, 9)",
           "a0 IN ('a', 'b', 'c', 'd')",
           "a0 > 0 AND a0 < 1",
           "a0 LIKE 'a%' AND a0 LIKE '%b' AND a0 != 'aab'",
           "a0 IN (1, 3, 5, 7, 9) OR a0 = 'b' OR a0 = TRUE"},
          1, odd);

    // More events than there are epochs of counters.
    Random random(5);
    std::vector<std::string> predicates(200);
    for (std::string& each : predicates) each = random_predicate(random, 6);
    check(predicates, 6, random_events(random, 700, 6));
  }
}

// One target for all filters: the engine stops as soon as it is found.
inline Counters counters_with_one_target(const char* engine,
                                         const std::shared_ptr<FilterTable>& table,
                                         const EventBatch& events) {
  const std::unique_ptr<Index> index = built(engine, table);
  std::vector<std::uint32_t> slot_of(table->size()), target_of(table->size(), 0);
  std::iota(slot_of.begin(), slot_of.end(), 0u);
  Collector::Setup setup;
  setup.slot_of = slot_of.data();
  setup.target_of = target_of.data();
  setup.n_targets = 1;
  Stamps stamps;
  CollectorBuffers buffers;
  Collector out(setup, stamps, buffers);
  index->match(events, 0, events.size(), *index->make_scratch(), out);
  for (std::size_t event = 0; event < events.size(); ++event) {
    CHECK(out.end(event) - out.begin(event) <= 1);
  }
  return out.counters;
}

}  // namespace tamis::against_naive
