// Engine `tuple-key` against `naive`, with every number of terms and groups and at every level of
// SIMD, its counters against the cost formula of its page, and opened from an image.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "against_naive.hpp"
#include "common/simd.hpp"
#include "engines/tuple_key/kernels.hpp"
#include "storage/image.hpp"

namespace tamis {
namespace {

using against_naive::below;
using against_naive::built;
using against_naive::Random;
using against_naive::random_events;
using against_naive::table_of;
using Found = std::vector<std::vector<std::uint32_t>>;

// With more equalities, which make keys, and sets of more gaps than lanes can say.
std::string random_predicate(Random& random, std::size_t n_names) {
  std::string text = against_naive::random_predicate(random, n_names);
  for (std::size_t more = below(random, 3); more > 0; --more) {
    text += " AND a" + std::to_string(below(random, n_names)) +
            (below(random, 4) == 0 ? " NOT IN (0, 1, 2, 3, 2.5, -7.25)" : " = 1");
  }
  return text;
}

struct Answer {
  Found found;  // of each event, in order
  Counters counters;
};

// `n_targets` 0: every filter is a target of its own; else filter i is of target i % n_targets.
Answer answer_of(const Index& index, std::size_t n_filters, const EventBatch& events,
                 Scratch& scratch, std::size_t n_targets = 0) {
  std::vector<std::uint32_t> slots(n_filters);
  std::iota(slots.begin(), slots.end(), 0u);
  std::vector<std::uint32_t> targets = slots;
  if (n_targets > 0) {
    for (std::uint32_t& target : targets) target %= static_cast<std::uint32_t>(n_targets);
  }
  Collector::Setup setup;
  setup.slot_of = slots.data();
  setup.target_of = targets.data();
  setup.n_targets = n_targets > 0 ? n_targets : n_filters;
  setup.can_repeat = n_targets > 0;  // else a filter that comes twice is found twice
  Stamps stamps;
  CollectorBuffers buffers;
  Collector out(setup, stamps, buffers);
  index.match(events, 0, events.size(), scratch, out);
  Answer answer;
  CHECK_EQ(out.n_events(), events.size());
  for (std::size_t event = 0; event < events.size(); ++event) {
    auto& found = answer.found.emplace_back(out.targets().begin() + out.begin(event),
                                            out.targets().begin() + out.end(event));
    std::sort(found.begin(), found.end());
  }
  answer.counters = out.counters;
  return answer;
}

Answer answer_of(const char* engine, const std::shared_ptr<FilterTable>& table,
                 const EventBatch& events, const Parameters& given = {},
                 std::size_t n_targets = 0) {
  const std::unique_ptr<Index> index = built(engine, table, given);
  const std::unique_ptr<Scratch> scratch = index->make_scratch();
  // Twice with one scratch: nothing of the first call may show in the second.
  const Answer first = answer_of(*index, table->size(), events, *scratch, n_targets);
  const Answer second = answer_of(*index, table->size(), events, *scratch, n_targets);
  CHECK(first.found == second.found);
  // Few targets are settled in the way that took less work before.
  if (n_targets == 0) CHECK_EQ(first.counters.constraints, second.counters.constraints);
  return second;
}

const std::vector<Parameters> kVariants = {
    {},
    {{"key_terms", 1}},
    {{"key_terms", 2}},
    {{"groups", 1}},
    {{"groups", 2}},
    {{"groups", 4}, {"event_attributes", 20}},
    {{"groups", 3}, {"key_terms", 2}},
    {{"groups", 16}},
    {{"event_attributes", 3}},
    {{"event_attributes", 50}},
    {{"guards", 1}},
    {{"guards", 2}},
    {{"guards", 2}, {"groups", 3}, {"key_terms", 2}},
    {{"guards", 2}, {"key_terms", 1}},
};

TEST(tuple_key_answers_as_naive_does_for_every_kind_of_constraint) {
  Random random(7);
  std::size_t n_matches = 0;
  for (const std::size_t n_names : {1, 4, 12, 90, 300}) {
    std::vector<std::string> predicates(n_names == 12 ? 3000 : 600);
    for (std::string& each : predicates) each = random_predicate(random, n_names);
    const std::shared_ptr<FilterTable> table = table_of(predicates, n_names);
    const EventBatch events = random_events(random, 60, n_names + 2);
    const Found expected = answer_of("naive", table, events).found;
    for (const auto& each : expected) n_matches += each.size();
    for (const Parameters& parameters : kVariants) {
      CHECK(answer_of("tuple-key", table, events, parameters).found == expected);
    }
    const Found targets = answer_of("naive", table, events, {}, 5).found;
    CHECK(answer_of("tuple-key", table, events, {}, 5).found == targets);
  }
  CHECK(n_matches > 1000);
}

TEST(tuple_key_answers_alike_at_every_simd_level) {
  Random random(23);
  const SimdLevel best = simd_level();
  std::vector<std::string> predicates(500);
  for (std::string& each : predicates) each = random_predicate(random, 8);
  // More than 65,535 ranks: lanes of 32 bits.
  std::vector<std::string> many = predicates;
  for (int number = 0; number < 70000; ++number) {
    many.push_back("a0 = " + std::to_string(number) + " AND a1 != " + std::to_string(number));
  }
  for (const auto& texts : {predicates, many}) {
    const auto table = table_of(texts, 8);
    const EventBatch events = random_events(random, 60, 8);
    const Found expected = answer_of("naive", table, events).found;
    for (const SimdLevel level : {SimdLevel::v2, SimdLevel::avx2, SimdLevel::avx512}) {
      if (!has_simd_level(level)) continue;
      set_simd_level(level);
      CHECK(answer_of("tuple-key", table, events).found == expected);
      CHECK(answer_of("tuple-key", table, events, {{"key_terms", 1}}).found == expected);
      CHECK(answer_of("tuple-key", table, events, {{"key_terms", 1}, {"guards", 2}}).found ==
            expected);
    }
    set_simd_level(best);
  }
}

TEST(tuple_key_answers_for_empty_tables_and_filters_without_keys) {
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();
  events.end_event();
  CHECK(answer_of("tuple-key", table_of({}, 0), events).found == Found(2));
  const auto table = table_of({"TRUE", "a0 IS NULL", "NEAR(0, 0, 1)", "a1 IS NULL", "a0 > 0",
                               "a0 != 7", "a0 LIKE '%x'", "EXISTS a0", "a0 > 3 AND a0 < 2"},
                              2);
  const Answer answer = answer_of("tuple-key", table, events);
  CHECK(answer.found == answer_of("naive", table, events).found);
  CHECK(answer.found[0] == std::vector<std::uint32_t>({0, 3, 4, 5, 7}));
  CHECK(answer_of("tuple-key", table_of({"a0 = 1"}, 1), events).found == Found({{0}, {}}));
}

TEST(tuple_key_takes_filters_and_events_of_hundreds_of_attributes) {
  Random random(5);
  constexpr std::size_t n_names = 700;
  std::vector<std::string> predicates;
  for (std::size_t filter = 0; filter < 400; ++filter) {
    std::string text;
    const std::size_t n_constraints = filter % 4 == 0 ? 600 : 1 + filter % 40;
    for (std::size_t at = 0; at < n_constraints; ++at) {
      text += (at == 0 ? "a" : " AND a") + std::to_string((filter + at) % n_names) +
              (at % 3 == 0   ? " = 1"
               : at % 3 == 1 ? " != 2"
                             : " < 3");
    }
    predicates.push_back(text);
  }
  EventBatch events;
  events.n_known = n_names;
  for (std::size_t event = 0; event < 12; ++event) {
    for (AttributeId attribute = 0; attribute < n_names; ++attribute) {
      if (event % 3 == 0 && below(random, 2) == 0) continue;
      const bool is_odd = event % 2 == 1 && below(random, 300) == 0;
      events.add(attribute, EventValue::of(std::int64_t{is_odd ? 2 : 1}));
    }
    events.end_event();
  }
  const auto table = table_of(predicates, n_names);
  const Answer expected = answer_of("naive", table, events);
  CHECK(std::any_of(expected.found.begin(), expected.found.end(),
                    [](const auto& each) { return each.size() > 100; }));
  for (const Parameters& parameters : kVariants) {
    const Answer answer = answer_of("tuple-key", table, events, parameters);
    CHECK(answer.found == expected.found);
    // 700 attributes have 57 million triples; 400 filters are tested first.
    CHECK(answer.counters.cells <= 12u * 20000);
  }
}

// n filters of c constraints on m names, no equalities, and events of k attributes.
struct Workload {
  std::shared_ptr<FilterTable> table;
  EventBatch events;
};
Workload uniform_workload(std::size_t n, std::size_t c, std::size_t m, std::size_t k,
                          std::size_t n_events, const std::string& comparison) {
  Random random(11);
  std::vector<AttributeId> names(m);
  std::iota(names.begin(), names.end(), AttributeId{0});
  std::vector<std::string> predicates(n);
  for (std::string& text : predicates) {
    std::shuffle(names.begin(), names.end(), random);
    for (std::size_t at = 0; at < c; ++at) {
      text += (at == 0 ? "a" : " AND a") + std::to_string(names[at]) + comparison +
              std::to_string(below(random, 10));
    }
  }
  Workload workload{table_of(predicates, m), {}};
  workload.events.n_known = m;
  for (std::size_t event = 0; event < n_events; ++event) {
    std::shuffle(names.begin(), names.end(), random);
    for (std::size_t at = 0; at < k; ++at) {
      workload.events.add(names[at], EventValue::of(static_cast<std::int64_t>(below(random, 10))));
    }
    workload.events.end_event();
  }
  return workload;
}

double choose(double n, int count) {
  double product = 1;
  for (int at = 0; at < count; ++at) product *= (n - at) / (at + 1);
  return product;
}

TEST(tuple_key_counters_fit_the_cost_formula) {
  constexpr std::size_t n = 20000, c = 4, m = 60, k = 12, n_events = 200;
  const auto fits = [](std::uint64_t counted, double expected) {
    const double measured = static_cast<double>(counted) / n_events;
    return measured <= 2 * expected && expected <= 2 * measured;
  };
  // A term that is a value is met once in `n_values` times that its attribute is there.
  for (const double n_values : {1, 10}) {
    const Workload workload = uniform_workload(n, c, m, k, n_events, n_values == 1 ? " > " : " = ");
    for (const int t : {1, 2, 3}) {
      const Counters counters = answer_of("tuple-key", workload.table, workload.events,
                                          {{"key_terms", static_cast<double>(t)},
                                           {"groups", 1},
                                           {"guards", 1},
                                           {"event_attributes", k}})
                                    .counters;
      if (t == 3 && n_values == 10) {  // two values are rare enough
        CHECK(fits(counters.cells, choose(k, 2)));
        continue;
      }
      const double probes = choose(k, t);
      const double keys = std::min<double>(n, choose(m, t) * std::pow(n_values, t));
      const double candidates = n * choose(k, t) / (choose(m, t) * std::pow(n_values, t));
      // Of keys that are not there, one in 16 to 32 seems to be.
      CHECK(fits(counters.cells, probes));
      CHECK(counters.candidates >= n_events * candidates / 2);
      CHECK(counters.candidates <= n_events * 2 * (candidates + probes / 16 * n / keys));
      CHECK(fits(counters.constraints, c * counters.candidates / double{n_events}));
      CHECK(counters.candidates < n_events * n / 4);
    }
  }
}

// Among so many events some have a key without filters that shares the bit of one that has.
TEST(tuple_key_finds_filters_whose_bit_another_key_shares) {
  constexpr std::size_t kValues = 200, kFiltersOfPair = 1500, kEvents = 300'000;
  constexpr std::pair<AttributeId, AttributeId> kPairs[] = {{0, 1}, {1, 2}, {0, 2}};
  Random random(7);
  std::vector<std::string> predicates;
  std::vector<std::array<std::uint32_t, 3>> filters;  // the pair and its values
  std::array<std::vector<bool>, 3> has_filter;
  for (std::uint32_t pair = 0; pair < 3; ++pair) {
    has_filter[pair].resize(kValues * kValues);
    for (std::size_t each = 0; each < kFiltersOfPair; ++each) {
      const auto first = static_cast<std::uint32_t>(below(random, kValues));
      const auto second = static_cast<std::uint32_t>(below(random, kValues));
      if (has_filter[pair][first * kValues + second]) continue;
      has_filter[pair][first * kValues + second] = true;
      filters.push_back({pair, first, second});
      predicates.push_back("a" + std::to_string(kPairs[pair].first) + " = " +
                           std::to_string(first) + " AND a" + std::to_string(kPairs[pair].second) +
                           " = " + std::to_string(second));
    }
  }
  const auto table = table_of(predicates, 3);
  EventBatch events;
  events.n_known = 3;
  std::vector<std::size_t> expected;
  for (std::size_t event = 0; event < kEvents; ++event) {
    const auto& [pair, first, second] = filters[below(random, filters.size())];
    std::array<std::size_t, 3> values;
    for (std::size_t& value : values) value = below(random, kValues);
    values[kPairs[pair].first] = first;
    values[kPairs[pair].second] = second;
    for (AttributeId at = 0; at < 3; ++at) {
      events.add(at, EventValue::of(static_cast<std::int64_t>(values[at])));
    }
    events.end_event();
    std::size_t n_matches = 0;
    for (std::size_t each = 0; each < 3; ++each) {
      const auto& [one, two] = kPairs[each];
      n_matches += has_filter[each][values[one] * kValues + values[two]];
    }
    expected.push_back(n_matches);
  }
  const Found found = answer_of("tuple-key", table, events).found;
  std::size_t n_wrong = 0;
  for (std::size_t event = 0; event < kEvents; ++event) {
    n_wrong += found[event].size() != expected[event];
  }
  CHECK_EQ(n_wrong, std::size_t{0});
}

TEST(tuple_key_fetches_only_records_whose_guards_the_event_has) {
  constexpr double n = 20000, c = 5, m = 40, k = 20, n_values = 10;
  const Workload workload = uniform_workload(n, c, m, k, 200, " = ");
  const auto counters_with = [&](double guards) {
    return answer_of("tuple-key", workload.table, workload.events,
                     {{"key_terms", 1}, {"groups", 1}, {"guards", guards}})
        .counters;
  };
  const Counters without = counters_with(1), with = counters_with(2);
  CHECK_EQ(with.cells, without.cells);
  CHECK_EQ(without.filters, without.candidates);
  CHECK_EQ(with.filters, without.filters);
  // Each guard is met by one event in m / k * n_values; a hash by chance now and then.
  const double passed = std::pow(k / m / n_values, 2);
  CHECK(static_cast<double>(with.candidates) <= 2 * passed * static_cast<double>(with.filters));
  CHECK(with.candidates > 0);
}

TEST(tuple_key_stops_where_all_targets_are_settled) {
  const Workload workload = uniform_workload(20000, 1, 10, 4, 50, " >= ");
  const Answer all = answer_of("tuple-key", workload.table, workload.events);
  const Answer few = answer_of("tuple-key", workload.table, workload.events, {}, 10);
  CHECK(few.found == answer_of("naive", workload.table, workload.events, {}, 10).found);
  CHECK(few.counters.candidates * 20 < all.counters.candidates);
}

// Of 30 names; nearly all filters accept nearly all values, and those of target 0 hardly any.
struct LikelyWorkload {
  std::shared_ptr<FilterTable> table;
  EventBatch events;
};

LikelyWorkload likely_workload(std::size_t n_targets, bool has_rare) {
  constexpr std::size_t kFilters = 8000, kNames = 30, kEvents = 200;
  Random random(11);
  std::vector<std::string> filters;
  for (std::size_t filter = 0; filter < kFilters; ++filter) {
    const std::size_t name = below(random, kNames);
    const auto constraint = [&](std::size_t more, const char* op) {
      return "a" + std::to_string((name + more) % kNames) + op + std::to_string(below(random, 50));
    };
    const bool is_rare = has_rare && filter % n_targets == 0;
    filters.push_back(constraint(0, is_rare ? " = " : " != ") + " AND " + constraint(3, " != ") +
                      " AND " + constraint(7, " != "));
  }
  EventBatch events;
  events.n_known = kNames;
  for (std::size_t event = 0; event < kEvents; ++event) {
    for (AttributeId name = 0; name < kNames; ++name) {
      if (event % 5 == 0 && name % 10 != 0) continue;  // some have too few attributes
      if (below(random, 4) == 0) continue;
      events.add(name, EventValue::of(static_cast<std::int64_t>(below(random, 50))));
    }
    events.end_event();
  }
  return {table_of(filters, kNames), std::move(events)};
}

TEST(tuple_key_takes_likely_filters_first_where_these_settle_few_targets) {
  const LikelyWorkload workload = likely_workload(10, false);
  const Answer all = answer_of("tuple-key", workload.table, workload.events);
  const Answer few = answer_of("tuple-key", workload.table, workload.events, {}, 10);
  CHECK(few.found == answer_of("naive", workload.table, workload.events, {}, 10).found);
  CHECK(few.counters.candidates * 10 < all.counters.candidates);
  CHECK(few.counters.cells * 2 < all.counters.cells);
  for (const Parameters& parameters : kVariants) {
    CHECK(answer_of("tuple-key", workload.table, workload.events, parameters, 10).found ==
          few.found);
  }
}

TEST(tuple_key_goes_on_where_likely_filters_leave_a_target) {
  for (const std::size_t n_targets : {1, 2, 10, 64, 65}) {
    const LikelyWorkload workload = likely_workload(n_targets, true);
    const Found expected = answer_of("naive", workload.table, workload.events, {}, n_targets).found;
    CHECK(answer_of("tuple-key", workload.table, workload.events, {}, n_targets).found == expected);
    std::size_t n_rare = 0;
    for (const auto& of_event : expected) {
      n_rare += !of_event.empty() && of_event.front() == 0 ? 1 : 0;
    }
    CHECK(n_rare > 20);
    CHECK(n_rare < expected.size());
  }
}

// Answers of eight events, of which half goes through likely filters, at every SIMD level.
// `n_words` counts what was read of lines.
void check_likely(const std::vector<std::string>& predicates, std::size_t n_names,
                  const EventBatch& events, std::size_t n_targets, std::uint64_t& n_words,
                  std::uint64_t& n_found) {
  const SimdLevel best = simd_level();
  const auto table = table_of(predicates, n_names);
  CHECK_EQ(events.size(), std::size_t{4});
  const Found expected = answer_of("naive", table, events, {}, n_targets).found;
  for (const auto& of_event : expected) n_found += of_event.size();
  for (const SimdLevel level : {SimdLevel::v2, SimdLevel::avx2, SimdLevel::avx512}) {
    if (!has_simd_level(level)) continue;
    set_simd_level(level);
    const Answer answer = answer_of("tuple-key", table, events, {}, n_targets);
    CHECK(answer.found == expected);
    n_words += answer.counters.bits;
  }
  set_simd_level(best);
}

std::string unlikely(std::size_t number) {
  const std::string value = std::to_string(number);
  return "a6 = " + value + " AND a7 = " + value + " AND a8 = " + value;
}

// Each target has one filter that may match, and fifteen that no event does.
TEST(tuple_key_finds_by_likely_filters_what_naive_does_for_every_kind_of_constraint) {
  constexpr std::size_t kTargets = 64;
  constexpr unsigned kSeeds = 120;
  std::uint64_t n_words = 0, n_found = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    Random random(seed);
    std::vector<std::string> predicates;
    for (std::size_t at = 0; at < kTargets; ++at) predicates.push_back(random_predicate(random, 6));
    for (std::size_t at = kTargets; at < 16 * kTargets; ++at) predicates.push_back(unlikely(at));
    check_likely(predicates, 9, random_events(random, 4, 6), kTargets, n_words, n_found);
  }
  CHECK(n_words > 0);
  CHECK(n_found > 4 * kSeeds);
  CHECK(n_found < 4 * kSeeds * kTargets / 2);
}

// Of one to nine attributes, some of which events lack: seven is the most that lines count.
TEST(tuple_key_counts_the_attributes_of_likely_filters) {
  constexpr std::size_t kTargets = 64, kNames = 10;
  constexpr unsigned kSeeds = 40;
  std::uint64_t n_words = 0, n_found = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    Random random(seed);
    std::vector<AttributeId> names(kNames);
    std::iota(names.begin(), names.end(), AttributeId{0});
    std::vector<std::string> predicates;
    for (std::size_t at = 0; at < 16 * kTargets; ++at) {
      std::shuffle(names.begin(), names.end(), random);
      std::string& text = predicates.emplace_back();
      for (std::size_t each = 0; each <= at % 9; ++each) {
        const bool is_rare = at >= kTargets;
        text += (each == 0 ? "a" : " AND a") + std::to_string(names[each]) +
                (is_rare ? " = " : " != ") + std::to_string(below(random, is_rare ? 100 : 4));
      }
    }
    EventBatch events;
    events.n_known = kNames;
    for (std::size_t event = 0; event < 4; ++event) {
      for (AttributeId name = 0; name < kNames; ++name) {
        if (below(random, 3) == 0) continue;
        events.add(name, EventValue::of(static_cast<std::int64_t>(below(random, 8)) - 2));
      }
      events.end_event();
    }
    check_likely(predicates, kNames, events, kTargets, n_words, n_found);
  }
  CHECK(n_words > 0);
  CHECK(n_found > 4 * kSeeds);
  CHECK(n_found < 4 * kSeeds * kTargets / 2);
}

// The likeliest 1,024 filters accept all values but that which every event has; those of the next
// stage are left.
TEST(tuple_key_goes_through_all_stages_of_likely_filters) {
  constexpr std::size_t kTargets = 64, kWide = 1024;
  constexpr unsigned kSeeds = 6;
  std::uint64_t n_words = 0, n_found = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    Random random(seed);
    std::vector<std::string> predicates;
    for (std::size_t at = 0; at < kTargets; ++at) {
      const auto near = [&] { return std::to_string(below(random, 10)); };
      predicates.push_back("a0 > " + near() + " AND a1 < " + near() + " AND a2 != " + near());
    }
    for (std::size_t at = 0; at < kWide; ++at) {
      predicates.push_back("a" + std::to_string(9 + at % 32) + " != 5");
    }
    while (predicates.size() < 16 * (kWide + kTargets)) {
      predicates.push_back(unlikely(predicates.size()));
    }
    EventBatch events;
    events.n_known = 41;
    for (std::size_t event = 0; event < 4; ++event) {
      for (AttributeId name = 0; name < 3; ++name) {
        events.add(name, EventValue::of(static_cast<std::int64_t>(below(random, 10))));
      }
      for (AttributeId name = 9; name < 41; ++name) {
        events.add(name, EventValue::of(std::int64_t{5}));
      }
      events.end_event();
    }
    check_likely(predicates, 41, events, kTargets, n_words, n_found);
  }
  // Four events of 35 attributes, 16 words a line: more than one stage.
  CHECK(n_words > kSeeds * 4 * 35 * 16);
  CHECK(n_found > kSeeds * 4);
  CHECK(n_found < kSeeds * 4 * kTargets / 2);
}

TEST(tuple_key_opened_from_an_image_answers_as_the_built_one) {
  Random random(3);
  std::vector<std::string> predicates(2000);
  for (std::string& each : predicates) each = random_predicate(random, 20);
  const auto table = table_of(predicates, 20);
  const EventBatch events = random_events(random, 50, 20);
  const std::unique_ptr<Index> index = built("tuple-key", table, {{"guards", 2}});
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tuple_key_test_" + std::to_string(::getpid()));
  std::uint64_t n_bytes = 0;
  {
    ImageWriter writer(path.string());
    PrefixedWriter prefixed(writer, "index/");
    index->save(prefixed);
    writer.finish();
    n_bytes = writer.n_bytes();
  }
  {
    const std::shared_ptr<const Image> image = Image::open(path.string(), n_bytes);
    image->check_all();
    const Engine& engine = find_engine("tuple-key");
    const std::unique_ptr<Index> opened =
        engine.open(table, complete_parameters(engine, {}), ImageReader(image, "index/"));
    CHECK(opened->n_bytes() < 10000);  // mapped, not built
    const auto scratch = index->make_scratch();
    const auto opened_scratch = opened->make_scratch();
    const Answer expected = answer_of(*index, table->size(), events, *scratch);
    const Answer answer = answer_of(*opened, table->size(), events, *opened_scratch);
    CHECK(answer.found == expected.found);
    CHECK_EQ(answer.counters.cells, expected.counters.cells);
    CHECK_EQ(answer.counters.candidates, expected.counters.candidates);
    const Answer few = answer_of(*index, table->size(), events, *scratch, 3);
    const Answer few_opened = answer_of(*opened, table->size(), events, *opened_scratch, 3);
    CHECK(few_opened.found == few.found);
    CHECK_EQ(few_opened.counters.candidates, few.counters.candidates);
    const auto other = table_of({"a30 = 1"}, 31);
    CHECK_THROWS(engine.open(other, {}, ImageReader(image, "index/")), Error, "must be");
  }
  std::filesystem::remove(path);
}

TEST(tuple_key_says_what_its_parameters_must_be) {
  const auto table = table_of({"a0 = 1"}, 1);
  CHECK_THROWS(built("tuple-key", table, {{"key_terms", 4}}), ArgumentError, "between 1 and 3");
  CHECK_THROWS(built("tuple-key", table, {{"groups", 2.5}}), ArgumentError, "a whole number");
  CHECK_THROWS(built("tuple-key", table, {{"guards", 3}}), ArgumentError, "between 0 and 2");
}

TEST(tuple_key_keeps_within_24_bytes_a_constraint) {
  const Workload workload = uniform_workload(20000, 4, 100, 4, 1, " = ");
  const std::size_t n_bytes = built("tuple-key", workload.table)->n_bytes();
  CHECK(n_bytes > 6 * workload.table->n_constraints());
  CHECK(n_bytes <= 24 * workload.table->n_constraints());
}

TEST(tuple_key_guards_are_tested_alike_at_every_simd_level) {
  using namespace tuple_key;
  Random random(29);
  constexpr std::uint32_t kFilters = 320;
  std::vector<GuardChunk> chunks(kFilters / kChunkFilters);
  const auto event = std::make_unique<EventGuards>();
  const auto set = [&](std::uint32_t guard) {
    event->words[guard / 32] |= 1u << (guard % 32);
    event->folded[guard / 16 % EventGuards::kFoldedWords] |=
        static_cast<std::uint16_t>(1u << (guard % 16));
  };
  set(kNoGuard);
  std::vector<std::uint16_t> terms{kNoGuard};
  for (int term = 0; term < 60; ++term) {
    terms.push_back(static_cast<std::uint16_t>(2 + below(random, 65534)));
    set(terms.back());
  }
  // Terms of the event, others that agree with them in the last 11 bits, anything, none and never.
  const auto guard = [&] {
    const std::uint16_t term = terms[below(random, terms.size())];
    const auto other = static_cast<std::uint16_t>(term ^ 1u << (11 + below(random, 5)));
    const std::size_t kind = below(random, 8);
    return kind < 4    ? term
           : kind == 4 ? other
           : kind == 5 ? static_cast<std::uint16_t>(2 + below(random, 65534))
           : kind == 6 ? kNoGuard
                       : kNeverGuard;
  };
  for (GuardChunk& chunk : chunks) {
    for (std::uint16_t& each : chunk.first) each = guard();
    for (std::uint16_t& each : chunk.second) each = guard();
  }
  const auto has = [&](std::uint16_t term) {
    return std::find(terms.begin(), terms.end(), term) != terms.end();
  };
  std::vector<const Kernels*> all{&kKernelsV2};
#if defined(__x86_64__)
  if (has_simd_level(SimdLevel::avx2)) all.push_back(&kKernelsAvx2);
  if (has_simd_level(SimdLevel::avx512)) all.push_back(&kKernelsAvx512);
#endif
  std::size_t n_all = 0;
  for (std::uint32_t begin = 0; begin < 40; ++begin) {
    for (const std::uint32_t n_filters : {0u, 1u, 7u, 8u, 31u, 32u, 33u, 64u, 255u, 256u, 280u}) {
      std::vector<std::uint32_t> expected;
      for (std::uint32_t at = begin; at < begin + n_filters; ++at) {
        const GuardChunk& chunk = chunks[at / kChunkFilters];
        if (has(chunk.first[at % kChunkFilters]) && has(chunk.second[at % kChunkFilters])) {
          expected.push_back(at);
        }
      }
      for (const Kernels* kernels : all) {
        std::vector<std::uint32_t> found(n_filters);
        found.resize(kernels->guard(chunks.data(), begin, begin + n_filters, *event, found.data()));
        CHECK(found == expected);
        n_all += found.size();
      }
    }
  }
  CHECK(n_all > 1000);
}

// Under each value of a0 a list of another length, of whose filters an event accepts the last few,
// and one that has nothing but its key.
TEST(tuple_key_reads_lists_with_guards_of_every_length) {
  constexpr std::size_t kLengths[] = {1, 2, 31, 32, 33, 63, 64, 65, 255, 256, 257, 300, 600, 1100};
  const SimdLevel best = simd_level();
  std::vector<std::string> filters;
  EventBatch events;
  events.n_known = 6;
  for (std::size_t list = 0; list <= std::size(kLengths); ++list) {
    const std::string key = "a0 = " + std::to_string(list);
    const std::size_t n_filters = list < std::size(kLengths) ? kLengths[list] : 0;
    for (std::size_t filter = 0; filter < n_filters; ++filter) {
      std::string text = key;
      const bool is_late = filter + 3 >= n_filters;
      for (std::size_t name = 1; name < 6; ++name) {
        if (filter == n_filters / 2) break;
        text += " AND a" + std::to_string(name) + " = " + std::to_string(is_late ? 1 : 0);
      }
      filters.push_back(text);
    }
    for (const std::int64_t value : {0, 1, 2}) {
      events.add(0, EventValue::of(static_cast<std::int64_t>(list)));
      for (AttributeId name = 1; name < 6; ++name) events.add(name, EventValue::of(value));
      events.end_event();
    }
  }
  const auto table = table_of(filters, 6);
  const Found expected = answer_of("naive", table, events).found;
  for (const SimdLevel level : {SimdLevel::v2, SimdLevel::avx2, SimdLevel::avx512}) {
    if (!has_simd_level(level)) continue;
    set_simd_level(level);
    for (const double key_terms : {1, 2}) {
      const Parameters parameters{{"guards", 2}, {"key_terms", key_terms}};
      const Answer answer = answer_of("tuple-key", table, events, parameters);
      CHECK(answer.found == expected);
      const Parameters none{{"guards", 1}, {"key_terms", key_terms}};
      CHECK_EQ(answer.counters.filters,
               answer_of("tuple-key", table, events, none).counters.filters);
    }
  }
  set_simd_level(best);
}

// Lists of some 500 filters under one term, of which an event has the guards of one or two: most
// pieces of a list bring nothing.
TEST(tuple_key_reads_lists_with_guards_to_their_end) {
  constexpr std::size_t kFilters = 80000, kNames = 10, kEvents = 200;
  Random random(23);
  std::vector<std::string> filters;
  EventBatch events;
  events.n_known = kNames;
  for (std::size_t filter = 0; filter < kFilters; ++filter) {
    std::string text;
    for (std::size_t name = 0; name < kNames; ++name) {
      const std::size_t value = below(random, 16);
      text += (name == 0 ? "a" : " AND a") + std::to_string(name) + " = " + std::to_string(value);
      if (filter % (kFilters / kEvents) == 0) {
        events.add(static_cast<AttributeId>(name),
                   EventValue::of(static_cast<std::int64_t>(value)));
      }
    }
    if (filter % (kFilters / kEvents) == 0) events.end_event();
    filters.push_back(std::move(text));
  }
  const auto table = table_of(filters, kNames);
  const Answer expected = answer_of("naive", table, events);
  for (const auto& of_event : expected.found) CHECK(!of_event.empty());
  for (const double key_terms : {1, 2}) {
    CHECK(answer_of("tuple-key", table, events, {{"guards", 2}, {"key_terms", key_terms}}).found ==
          expected.found);
  }
}

}  // namespace
}  // namespace tamis
