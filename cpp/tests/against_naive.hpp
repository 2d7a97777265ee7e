// Random filters and events of every kind, and an engine's answers beside those of `naive`.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "tamis/ast.hpp"
#include "tamis/collector.hpp"
#include "tamis/engine.hpp"
#include "tamis/error.hpp"
#include "tamis/normal_form.hpp"

namespace tamis::against_naive {

using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t limit) { return random() % limit; }
template <typename Items>
const auto& one_of(Random& random, const Items& items) {
  return items[below(random, std::size(items))];
}

inline const std::string kNumbers[] = {"0",
                                       "1",
                                       "2",
                                       "3",
                                       "-1",
                                       "2.5",
                                       "1e300",
                                       "-7.25",
                                       "9007199254740992",
                                       "9007199254740993",
                                       "9223372036854775807",
                                       "-9223372036854775808"};
inline const std::string kTexts[] = {"",          "a",         "ab",        "abcdefgh",
                                     "abcdefghi", "abcdefghj", "abcdefg",   "b",
                                     "\xC3\xA9",  "zz",        "abcdefgha", "ba"};
inline const std::string kComparisons[] = {"=", "!=", "<", "<=", ">", ">="};

inline std::string quoted(const std::string& text) { return "'" + text + "'"; }

inline std::string random_condition(Random& random, std::size_t n_names) {
  const std::string name = "a" + std::to_string(below(random, n_names));
  switch (below(random, 16)) {
    case 0:
      return name + " IS NULL";
    case 1:
      return name + " IS NOT NULL";
    case 2:
      return "(" + name + " IS NULL OR " + name + " > 1)";
    case 3:
      return name + " BETWEEN 1 AND " + one_of(random, kNumbers);
    case 4:
      return name + " NOT BETWEEN 0 AND 2";
    case 5:
      return name + " IN (1, 2, " + one_of(random, kNumbers) + ")";
    case 6:
      return name + " IN ('a', 'b', " + quoted(one_of(random, kTexts)) + ")";
    case 7:
      return name + " LIKE 'a%'";
    case 8:
      return name + " NOT LIKE '%b_'";
    case 9:
      return name + (below(random, 2) ? " = TRUE" : " != TRUE");
    case 10:
      return std::string(below(random, 4) ? "" : "NOT ") + "NEAR(1, 1, 2)";
    case 11:
    case 12:
      return name + " " + one_of(random, kComparisons) + " " + quoted(one_of(random, kTexts));
    default:
      return name + " " + one_of(random, kComparisons) + " " + one_of(random, kNumbers);
  }
}

inline std::string random_predicate(Random& random, std::size_t n_names) {
  if (below(random, 50) == 0) return "TRUE";
  std::string text = random_condition(random, n_names);
  for (std::size_t more = below(random, 4); more > 0; --more) {
    text += " AND " + random_condition(random, n_names);
  }
  if (below(random, 20) == 0) {
    // Too many products to multiply out: a residual.
    for (int part = 0; part < 10; ++part) {
      text += " AND (" + random_condition(random, n_names) + " OR " +
              random_condition(random, n_names) + ")";
    }
  }
  return text;
}

inline EventValue random_value(Random& random) {
  switch (below(random, 10)) {
    case 0:
      return EventValue::of(std::nan(""));
    case 1:
      return EventValue::of(below(random, 2) == 0);
    case 2:
    case 3:
    case 4:
      return EventValue::of(std::string_view(one_of(random, kTexts)));
    case 5: {
      const std::int64_t large[] = {9007199254740991, 9007199254740992, 9007199254740993,
                                    std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min()};
      return EventValue::of(one_of(random, large));
    }
    case 6: {
      const double real[] = {2.5,
                             -7.25,
                             1e300,
                             -0.0,
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()};
      return EventValue::of(one_of(random, real));
    }
    default:
      return EventValue::of(static_cast<std::int64_t>(below(random, 5)) - 1);
  }
}

inline EventBatch random_events(Random& random, std::size_t n_events, std::size_t n_names) {
  EventBatch events;
  events.n_known = n_names;
  for (std::size_t event = 0; event < n_events; ++event) {
    // Few attributes, most of them, and all that there are.
    const std::size_t share = one_of(random, std::vector<std::size_t>{1, 3, 10});
    for (AttributeId attribute = 0; attribute < n_names; ++attribute) {
      if (below(random, 10) < share) events.add(attribute, random_value(random));
    }
    events.add_position(below(random, 4) == 0 ? std::nan("") : static_cast<double>(event % 4), 1);
    events.end_event();
  }
  return events;
}

inline std::shared_ptr<FilterTable> table_of(const std::vector<std::string>& predicates,
                                             std::size_t n_names) {
  auto table = std::make_shared<FilterTable>(Space::plane);
  Catalogue names;
  for (std::size_t name = 0; name < n_names; ++name) names.intern("a" + std::to_string(name));
  Ast ast;
  for (const std::string& predicate : predicates) {
    parse(predicate, ast);
    table->append(to_normal_form(ast), names);
  }
  return table;
}

struct Answer {
  std::vector<std::vector<std::uint32_t>> filters;  // of each event, in order
  Counters counters;
};

// Every filter is a target of its own.
inline Answer answer_of(const Index& index, std::size_t n_filters, const EventBatch& events,
                        Scratch& scratch) {
  std::vector<std::uint32_t> targets(n_filters);
  std::iota(targets.begin(), targets.end(), 0u);
  Collector::Setup setup;
  setup.slot_of = setup.target_of = targets.data();
  setup.n_targets = n_filters;
  Stamps stamps;
  CollectorBuffers buffers;
  Collector out(setup, stamps, buffers);
  index.match(events, 0, events.size(), scratch, out);
  Answer answer;
  CHECK_EQ(out.n_events(), events.size());
  for (std::size_t event = 0; event < events.size(); ++event) {
    auto& found = answer.filters.emplace_back(out.targets().begin() + out.begin(event),
                                              out.targets().begin() + out.end(event));
    std::sort(found.begin(), found.end());
  }
  answer.counters = out.counters;
  return answer;
}

inline std::unique_ptr<Index> built(const char* engine_name,
                                    const std::shared_ptr<FilterTable>& table,
                                    const Parameters& given = {}) {
  const Engine& engine = find_engine(engine_name);
  return engine.build(table, complete_parameters(engine, given));
}

inline Answer answer_of(const char* engine, const std::shared_ptr<FilterTable>& table,
                        const EventBatch& events, const Parameters& given = {}) {
  const std::unique_ptr<Index> index = built(engine, table, given);
  const std::unique_ptr<Scratch> scratch = index->make_scratch();
  // Twice with one scratch: nothing of the first call may show in the second.
  const Answer first = answer_of(*index, table->size(), events, *scratch);
  const Answer second = answer_of(*index, table->size(), events, *scratch);
  CHECK(first.filters == second.filters);
  CHECK_EQ(first.counters.constraints, second.counters.constraints);
  return second;
}

// The engine answers as `naive` does for every kind of constraint, with each set of parameters.
inline void check_every_kind(const char* engine, const std::vector<Parameters>& variants) {
  Random random(7);
  std::size_t n_matches = 0;
  for (const std::size_t n_names : {1, 4, 12, 90}) {
    std::vector<std::string> predicates(n_names == 12 ? 3000 : 600);
    for (std::string& each : predicates) each = random_predicate(random, n_names);
    const std::shared_ptr<FilterTable> table = table_of(predicates, n_names);
    const EventBatch events = random_events(random, 60, n_names + 2);
    const Answer expected = answer_of("naive", table, events);
    for (const auto& each : expected.filters) n_matches += each.size();
    for (const Parameters& parameters : variants) {
      CHECK(answer_of(engine, table, events, parameters).filters == expected.filters);
    }
  }
  CHECK(n_matches > 1000);
}

// n filters of c equalities on c of m names with v values, and events of k attributes.
struct Equalities {
  std::size_t n = 0, c = 0, m = 0, v = 0, k = 0, n_events = 0;
  std::shared_ptr<FilterTable> table;
  EventBatch events;
};
inline Equalities equalities(std::size_t n, std::size_t c, std::size_t m, std::size_t v,
                             std::size_t k, std::size_t n_events) {
  Equalities all{n, c, m, v, k, n_events, nullptr, {}};
  Random random(11);
  std::vector<AttributeId> names(m);
  std::iota(names.begin(), names.end(), AttributeId{0});
  std::vector<std::string> predicates(n);
  for (std::string& text : predicates) {
    std::shuffle(names.begin(), names.end(), random);
    for (std::size_t at = 0; at < c; ++at) {
      text += (at == 0 ? "a" : " AND a") + std::to_string(names[at]) + " = " +
              std::to_string(below(random, v));
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

// Within a factor of two.
inline bool fits(std::uint64_t counted, std::size_t n_events, double expected) {
  const double measured = static_cast<double>(counted) / static_cast<double>(n_events);
  return measured <= 2 * expected && expected <= 2 * measured;
}

}  // namespace tamis::against_naive
