// Engine `block-bitmap` against `naive`, in both of its layouts and through every output, and its
// counters against the cost formula of its page.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "against_naive.hpp"
#include "common/simd.hpp"
#include "engines/block_bitmap/tuples.hpp"

namespace tamis {
namespace {

using against_naive::below;
using against_naive::built;
using against_naive::Random;
using against_naive::random_events;
using against_naive::random_predicate;
using against_naive::table_of;
using Found = std::vector<std::vector<std::uint32_t>>;  // of each event, in order

// Subscriptions of intervals of width w on `psi` of `d` attributes, values 0 .. 9999; events have
// every attribute.
std::shared_ptr<FilterTable> interval_table(Random& random, std::size_t n, std::size_t d,
                                            std::size_t psi, double w) {
  std::vector<std::size_t> names(d);
  std::iota(names.begin(), names.end(), std::size_t{0});
  std::vector<std::string> predicates(n);
  const auto width = static_cast<std::size_t>(w * 10000);
  for (std::string& text : predicates) {
    std::shuffle(names.begin(), names.end(), random);
    for (std::size_t at = 0; at < psi; ++at) {
      const std::size_t low = below(random, 10000 - width + 1);
      text += (at == 0 ? "a" : " AND a") + std::to_string(names[at]) + " BETWEEN " +
              std::to_string(low) + " AND " + std::to_string(low + width - 1);
    }
  }
  return table_of(predicates, d);
}
EventBatch interval_events(Random& random, std::size_t n_events, std::size_t d) {
  EventBatch events;
  events.n_known = d;
  for (std::size_t event = 0; event < n_events; ++event) {
    for (AttributeId name = 0; name < d; ++name) {
      events.add(name, EventValue::of(static_cast<std::int64_t>(below(random, 10000))));
    }
    events.end_event();
  }
  return events;
}

// Every filter is a target of its own unless told otherwise; targets begin at `first_target`.
struct Query {
  Output output = Output::ids;
  std::uint32_t first_target = 0;
  std::uint32_t filters_per_target = 1;
  bool has_runs = true;
  const DeathVersions* died_at = nullptr;
};

Found answer_of(const Index& index, std::size_t n_filters, const EventBatch& events,
                Scratch& scratch, const Query& query = {}, Counters* counters = nullptr) {
  std::vector<std::uint32_t> slots(n_filters), targets(n_filters);
  for (std::uint32_t idx = 0; idx < n_filters; ++idx) {
    slots[idx] = idx;
    targets[idx] = query.first_target + idx / query.filters_per_target;
  }
  const std::vector<std::uint64_t> runs = find_runs(targets);
  Collector::Setup setup;
  setup.output = query.output;
  setup.slot_of = slots.data();
  setup.target_of = targets.data();
  setup.died_at = query.died_at;
  setup.version = 1;
  setup.can_repeat = query.filters_per_target > 1;
  setup.n_targets = targets.empty() ? 0 : targets.back() + 1;
  setup.runs = query.has_runs ? runs.data() : nullptr;
  setup.words_per_event = (setup.n_targets + 63) / 64;
  std::vector<std::uint64_t> bits(events.size() * setup.words_per_event);
  setup.bits = bits.data();
  Stamps stamps;
  CollectorBuffers buffers;
  Collector out(setup, stamps, buffers);
  index.match(events, 0, events.size(), scratch, out);
  CHECK_EQ(out.n_events(), events.size());
  if (counters != nullptr) *counters = out.counters;
  Found found(events.size());
  for (std::size_t event = 0; event < events.size(); ++event) {
    if (query.output == Output::count) {
      found[event] = {static_cast<std::uint32_t>(out.counts()[event])};
    } else if (query.output == Output::bitset) {
      for (std::uint32_t target = 0; target < setup.n_targets; ++target) {
        const std::uint64_t word = bits[event * setup.words_per_event + target / 64];
        if (word >> (target % 64) & 1) found[event].push_back(target);
      }
    } else {
      found[event].assign(out.targets().begin() + static_cast<std::ptrdiff_t>(out.begin(event)),
                          out.targets().begin() + static_cast<std::ptrdiff_t>(out.end(event)));
      std::sort(found[event].begin(), found[event].end());
    }
  }
  return found;
}

Found answer_of(const char* engine, const std::shared_ptr<FilterTable>& table,
                const EventBatch& events, const Parameters& given = {}, const Query& query = {}) {
  const std::unique_ptr<Index> index = built(engine, table, given);
  const std::unique_ptr<Scratch> scratch = index->make_scratch();
  // Twice with one scratch: nothing of the first call may show in the second.
  Counters first, second;
  const Found found = answer_of(*index, table->size(), events, *scratch, query, &first);
  CHECK(answer_of(*index, table->size(), events, *scratch, query, &second) == found);
  CHECK_EQ(first.candidates, second.candidates);
  return found;
}

const Parameters kLines = {{"layout", 1}}, kSweep = {{"layout", 2}};

EventBatch first_events(const EventBatch& all, std::size_t n_events) {
  EventBatch events;
  events.n_known = all.n_known;
  for (std::size_t event = 0; event < n_events; ++event) {
    for (std::uint64_t at = all.offsets[event]; at < all.offsets[event + 1]; ++at) {
      events.add(all.attributes[at], all.values[at]);
    }
    if (all.has_positions()) events.add_position(all.x[event], all.y[event]);
    events.end_event();
  }
  return events;
}

TEST(block_bitmap_answers_as_naive_does_for_every_kind_of_constraint) {
  Random random(7);
  std::size_t n_matches = 0;
  for (const std::size_t n_names : {1, 4, 12, 90}) {
    std::vector<std::string> predicates(n_names == 12 ? 5000 : 700);
    for (std::string& each : predicates) each = random_predicate(random, n_names);
    const std::shared_ptr<FilterTable> table = table_of(predicates, n_names);
    const EventBatch events = random_events(random, 150, n_names + 2);
    const Found expected = answer_of("naive", table, events);
    for (const auto& each : expected) n_matches += each.size();
    for (const Parameters& parameters :
         {Parameters{}, kLines, kSweep, Parameters{{"layout", 1}, {"tuple_size", 1}}}) {
      CHECK(answer_of("block-bitmap", table, events, parameters) == expected);
      const Found of_few = answer_of("block-bitmap", table, first_events(events, 5), parameters);
      CHECK(std::equal(of_few.begin(), of_few.end(), expected.begin()));
    }
  }
  CHECK(n_matches > 1000);
}

TEST(block_bitmap_answers_through_every_output) {
  Random random(8);
  const auto table = interval_table(random, 3000, 6, 2, 0.8);
  DeathVersions died_at;
  died_at.grow_to(3000);
  for (std::uint32_t slot = 0; slot < 3000; slot += 7) died_at[slot] = 1;
  for (std::uint32_t slot = 3; slot < 3000; slot += 7) died_at[slot] = 2;  // not yet
  const EventBatch events = interval_events(random, 100, 6);
  for (const Output output : {Output::ids, Output::bitset, Output::count}) {
    for (const std::uint32_t filters_per_target : {1u, 3u, 1000u}) {
      for (const std::uint32_t first_target : {0u, 5u, 64u}) {
        for (const bool has_dead : {false, true}) {
          for (const bool has_runs : {false, true}) {
            Query query{output, first_target, filters_per_target, has_runs};
            if (has_dead) query.died_at = &died_at;
            const Found expected = answer_of("naive", table, events, {}, query);
            CHECK(answer_of("block-bitmap", table, events, kLines, query) == expected);
            CHECK(answer_of("block-bitmap", table, events, kSweep, query) == expected);
          }
        }
      }
    }
  }
}

TEST(block_bitmap_answers_for_tables_of_any_size) {
  Random random(9);
  const EventBatch events = interval_events(random, 40, 5);
  for (const std::size_t n : {0, 1, 63, 64, 65, 511, 512, 513, 1024, 2100}) {
    const auto table = interval_table(random, n, 5, 3, 0.5);
    const Found expected = answer_of("naive", table, events);
    CHECK(answer_of("block-bitmap", table, events, kLines) == expected);
    CHECK(answer_of("block-bitmap", table, events, kSweep) == expected);
  }
  EventBatch empty;
  empty.n_known = 1;
  empty.end_event();
  const auto table = table_of({"TRUE", "a0 IS NULL", "NEAR(0, 0, 1)", "a0 > 0"}, 1);
  for (const Parameters& parameters : {kLines, kSweep}) {
    CHECK(answer_of("block-bitmap", table, empty, parameters) == Found({{0, 1}}));
  }
}

// Sections in memory, at multiples of 64 bytes as in files.
class Sections final : public SectionWriter, public SectionReader {
 public:
  using SectionWriter::write;
  void write(const std::string& name, const void* data, std::size_t n_bytes) override {
    CHECK(!items_.contains(name));
    Item& item = items_[name];
    item.n_bytes = n_bytes;
    item.lines.resize(n_bytes / sizeof(block_bitmap::Line) + 1);
    if (n_bytes > 0) std::memcpy(item.lines.data(), data, n_bytes);
  }
  std::span<const std::byte> read(const std::string& name, std::size_t item_size) const override {
    const Item& item = items_.at(name);
    CHECK_EQ(item.n_bytes % item_size, 0u);
    return {reinterpret_cast<const std::byte*>(item.lines.data()), item.n_bytes};
  }
  void check(const std::string&) const override {}
  std::shared_ptr<const void> owner() const override { return {}; }

 private:
  struct Item {
    std::vector<block_bitmap::Line> lines;
    std::size_t n_bytes = 0;
  };
  std::map<std::string, Item> items_;
};

TEST(block_bitmap_opens_what_it_saved) {
  Random random(12);
  std::vector<std::string> predicates(2000);
  for (std::string& each : predicates) each = random_predicate(random, 12);
  const auto table = table_of(predicates, 12);
  const EventBatch events = random_events(random, 60, 12);
  const Found expected = answer_of("naive", table, events);
  const Engine& engine = find_engine("block-bitmap");
  for (const Parameters& parameters : {kLines, kSweep}) {
    Sections sections;
    built("block-bitmap", table, parameters)->save(sections);
    const auto index = engine.open(table, complete_parameters(engine, parameters), sections);
    CHECK(answer_of(*index, table->size(), events, *index->make_scratch()) == expected);
    CHECK(index->n_bytes() < 4096);  // the columns are borrowed
    CHECK_THROWS(engine.open(table_of({"a0 = 1"}, 13), {}, sections), Error, "must");
  }
}

TEST(block_bitmap_stops_when_all_targets_are_settled) {
  Random random(13);
  const auto table = interval_table(random, 5000, 4, 2, 0.9);
  const EventBatch events = interval_events(random, 20, 4);
  for (const Parameters& parameters : {kLines, kSweep}) {
    const auto index = built("block-bitmap", table, parameters);
    Counters all, few;
    answer_of(*index, table->size(), events, *index->make_scratch(), {}, &all);
    Query query;
    query.filters_per_target = 2500;
    answer_of(*index, table->size(), events, *index->make_scratch(), query, &few);
    CHECK(few.nodes < all.nodes);
    CHECK(few.candidates <= all.candidates);
  }
}

// The formula of docs/engines/block-bitmap.md.
TEST(block_bitmap_counters_fit_the_cost_formula) {
  constexpr std::size_t n = 40000, d = 8, psi = 4, n_events = 200;
  Random random(11);
  const EventBatch events = interval_events(random, n_events, d);
  for (const double w : {0.1, 0.3}) {
    const auto table = interval_table(random, n, d, psi, w);
    const block_bitmap::Arrangement arrangement =
        block_bitmap::arrange(*table, Ranks(*table), block_bitmap::kMaxTupleSize);
    double n_blocks = 0, n_filters = 0, n_words = 0;
    for (const block_bitmap::Tuple& tuple : arrangement.tuples) {
      const double b = tuple.n_blocks, k = tuple.n_attributes;
      if (b == 0) continue;
      const auto share_of = [&](double n_parts) {
        const double side = w + (1 - w) / std::pow(n_parts, 1 / k) + 1.0 / 128;
        return k == 0 ? 1 : std::pow(std::min(1.0, side), k);
      };
      n_blocks += b * share_of(b);
      n_filters += 512 * b * share_of(8 * b);
      n_words += k * std::ceil(b / 8);
    }
    const double n_candidates = n * std::pow(w + 1.0 / 32, psi);
    const auto fits = [](double counted, double expected) {
      const double measured = counted / n_events;
      return measured <= 2 * expected && expected <= 2 * measured;
    };
    const auto index = built("block-bitmap", table, kLines);
    const auto scratch = index->make_scratch();
    Counters counters;
    answer_of(*index, n, events, *scratch, {}, &counters);
    CHECK(fits(static_cast<double>(counters.filters), n_filters));
    CHECK(static_cast<double>(counters.nodes) <= 1.5 * n_blocks * n_events);
    CHECK(fits(static_cast<double>(counters.candidates), n_candidates));
    CHECK(counters.cells <= counters.nodes * d);
    CHECK(counters.bits >= 8 * counters.cells);
    CHECK(fits(static_cast<double>(counters.bits - 8 * counters.cells), n_words));
    CHECK(n_blocks < 0.5 * n / 512);
    // Block by block or event by event: the same work.
    Counters single;
    for (std::size_t event = 0; event < n_events; ++event) {
      Counters of_event;
      EventBatch only;
      only.n_known = d;
      for (std::uint64_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
        only.add(events.attributes[at], events.values[at]);
      }
      only.end_event();
      answer_of(*index, n, only, *scratch, {}, &of_event);
      single += of_event;
    }
    CHECK_EQ(single.nodes, counters.nodes);
    CHECK_EQ(single.candidates, counters.candidates);

    Counters sweep;
    const auto swept = built("block-bitmap", table, kSweep);
    answer_of(*swept, n, events, *swept->make_scratch(), {}, &sweep);
    CHECK_EQ(sweep.nodes, n_events * ((n + 511) / 512));
    CHECK_EQ(sweep.cells, sweep.nodes * d);
    CHECK_EQ(sweep.candidates, 0u);
  }
}

TEST(block_bitmap_answers_the_same_at_every_simd_level) {
  Random random(14);
  const auto table = interval_table(random, 3000, 6, 3, 0.4);
  const EventBatch events = interval_events(random, 40, 6);
  const Found expected = answer_of("naive", table, events);
  const SimdLevel before = simd_level();
  for (const SimdLevel level : {SimdLevel::v2, SimdLevel::avx2, SimdLevel::avx512}) {
    if (!has_simd_level(level)) continue;
    set_simd_level(level);
    CHECK(answer_of("block-bitmap", table, events, kLines) == expected);
    CHECK(answer_of("block-bitmap", table, events, kSweep) == expected);
  }
  set_simd_level(before);
}

TEST(block_bitmap_chooses_the_layout_by_cost) {
  Random random(10);
  const auto narrow = interval_table(random, 20000, 10, 4, 0.2);
  const auto wide = interval_table(random, 20000, 10, 3, 0.9);
  const EventBatch events = interval_events(random, 64, 10);
  const auto candidates = [&](const std::shared_ptr<FilterTable>& table) {
    const auto index = built("block-bitmap", table);
    Counters counters;
    answer_of(*index, table->size(), events, *index->make_scratch(), {}, &counters);
    return counters.candidates;
  };
  CHECK(candidates(narrow) > 0);   // lines: candidates are verified
  CHECK_EQ(candidates(wide), 0u);  // sweep: nothing is
}

TEST(block_bitmap_says_what_its_parameters_must_be) {
  const auto table = table_of({"a0 = 1"}, 1);
  CHECK_THROWS(built("block-bitmap", table, {{"tuple_size", 4}}), ArgumentError, "between 1 and 3");
  CHECK_THROWS(built("block-bitmap", table, {{"tuple_size", 2.5}}), ArgumentError,
               "a whole number");
  CHECK_THROWS(built("block-bitmap", table, {{"layout", 3}}), ArgumentError, "between 0 and 2");
}

}  // namespace
}  // namespace tamis
