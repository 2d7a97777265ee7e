// Engine `block-bitmap-cuda` against `naive`: on the shim, or on a GPU where this is
// tamis_gpu_tests.
#include "cuda/block_bitmap_cuda.hpp"

#include "against_naive.hpp"
#include "engines/block_bitmap.hpp"

namespace tamis {
namespace {

using namespace against_naive;

void check_as_naive(const std::shared_ptr<FilterTable>& table, const EventBatch& events,
                    const Parameters& given = {}) {
  CHECK(answer_of("block-bitmap-cuda", table, events, given).filters ==
        answer_of("naive", table, events).filters);
}

// Filters of intervals on `n_of` of `n_names` attributes, values 0 .. 999, as hem-default has them.
std::shared_ptr<FilterTable> interval_table(Random& random, std::size_t n_filters,
                                            std::size_t n_names, std::size_t n_of, double width) {
  std::vector<std::size_t> names(n_names);
  std::iota(names.begin(), names.end(), std::size_t{0});
  std::vector<std::string> predicates(n_filters);
  const auto n_wide = static_cast<std::size_t>(width * 1000);
  for (std::string& text : predicates) {
    std::shuffle(names.begin(), names.end(), random);
    for (std::size_t at = 0; at < n_of; ++at) {
      const std::size_t low = below(random, 1001 - n_wide);
      text += (at == 0 ? "a" : " AND a") + std::to_string(names[at]) + " BETWEEN " +
              std::to_string(low) + " AND " + std::to_string(low + n_wide - 1);
    }
  }
  return table_of(predicates, n_names);
}

// `n_missing`: one attribute in so many is not there; 0: all are.
EventBatch interval_events(Random& random, std::size_t n_events, std::size_t n_names,
                           std::size_t n_missing) {
  EventBatch events;
  events.n_known = n_names;
  for (std::size_t event = 0; event < n_events; ++event) {
    for (AttributeId name = 0; name < n_names; ++name) {
      if (n_missing > 0 && below(random, n_missing) == 0) continue;
      const auto whole = static_cast<std::int64_t>(below(random, 1000));
      if (below(random, 10) == 0) {
        events.add(name, EventValue::of(static_cast<double>(whole) + 0.5));
      } else {
        events.add(name, EventValue::of(whole));
      }
    }
    events.end_event();
  }
  return events;
}

TEST(block_bitmap_cuda_answers_as_naive_does_for_every_kind_of_constraint) {
  check_every_kind("block-bitmap-cuda", {{}, {{"tuple_size", 1}}});
}

// Several blocks and tuples, columns that are no multiple of four, events without some attributes.
TEST(block_bitmap_cuda_finds_intervals) {
  Random random(5);
  struct Case {
    std::size_t n_filters, n_names, n_of;
    double width;
  };
  for (const Case& each : {Case{6000, 20, 10, 0.5},
                           {3000, 5, 3, 0.2},
                           {2500, 13, 2, 0.1},
                           {1300, 1, 1, 0.1},
                           {1500, 40, 30, 0.9},
                           {700, 70, 3, 0.3}}) {
    const auto table = interval_table(random, each.n_filters, each.n_names, each.n_of, each.width);
    for (const std::size_t n_missing : {0, 6}) {
      const EventBatch events = interval_events(random, 150, each.n_names, n_missing);
      const Answer expected = answer_of("naive", table, events);
      const Answer found = answer_of("block-bitmap-cuda", table, events);
      CHECK(found.filters == expected.filters);
      // Those with at most 64 attributes were on the device, and none was left to be verified.
      std::size_t n_matches = 0;
      for (const auto& filters : expected.filters) n_matches += filters.size();
      if (each.n_names <= 64) CHECK_EQ(found.counters.filters, n_matches);
      if (each.n_names <= 64) CHECK_EQ(found.counters.candidates, std::size_t{0});
    }
  }
}

TEST(block_bitmap_cuda_tells_boundaries_apart) {
  std::vector<std::string> filters;
  EventBatch events;
  events.n_known = 3;
  for (std::int64_t each = 0; each < 700; ++each) {
    const std::string low = std::to_string(each * 3), high = std::to_string(each * 3 + 7);
    filters.push_back("a0 BETWEEN " + low + " AND " + high + " AND a1 > " + low);
    filters.push_back("a0 > " + low + " AND a0 < " + high + " AND a2 NOT BETWEEN 5 AND " + high);
    filters.push_back("a0 IN (1, " + low + ", " + high + ") AND a1 != " + low);
    filters.push_back("a0 >= " + low + " AND a0 <= " + low + " AND a1 IS NULL");
  }
  for (std::int64_t each = -2; each < 70; ++each) {
    for (const double shift : {0.0, 0.5, 1.0}) {
      const double value = static_cast<double>(each * 31) + shift;
      events.add(0, EventValue::of(value));
      if (each % 3 != 0) events.add(1, EventValue::of(value + 1));
      if (each % 4 != 0) events.add(2, EventValue::of(std::int64_t{4 + each % 3}));
      events.end_event();
    }
  }
  events.add(0, EventValue::of(-0.0));
  events.end_event();
  events.add(0, EventValue::of(1e300));
  events.end_event();
  events.add(0, EventValue::of(std::numeric_limits<double>::infinity()));
  events.end_event();
  check_as_naive(table_of(filters, 3), events);
}

TEST(block_bitmap_cuda_leaves_to_the_host_what_it_cannot_take) {
  std::vector<std::string> filters = {
      "a0 = 'x'",  "a0 LIKE '%x%'", "a1 = TRUE",         "a2 = 9007199254740993",
      "a3 < 0.1",  "a3 > 1e300",    "a4 = 1 AND a5 = 2", "NEAR(0, 0, 10)",
      "a6 IS NULL"};
  std::string wide = "a10 = 0";
  for (int name = 11; name < 90; ++name) wide += " AND a" + std::to_string(name) + " >= 0";
  filters.push_back(wide);
  EventBatch events;
  events.n_known = 90;
  const auto add = [&](AttributeId attribute, const EventValue& value) {
    events.add(attribute, value);
    events.end_event();
  };
  add(0, EventValue::of(std::string_view("x")));
  add(0, EventValue::of(std::string_view("axb")));
  add(1, EventValue::of(true));
  add(2, EventValue::of(std::int64_t{9007199254740993}));
  add(2, EventValue::of(9007199254740992.0));
  add(3, EventValue::of(0.05));
  add(3, EventValue::of(1e305));
  add(3, EventValue::of(std::numeric_limits<double>::infinity()));
  add(3, EventValue::of(std::numeric_limits<double>::quiet_NaN()));
  events.end_event();
  for (AttributeId attribute = 10; attribute < 90; ++attribute) {
    events.add(attribute, EventValue::of(std::int64_t{0}));
  }
  events.end_event();
  events.add(4, EventValue::of(std::int64_t{1}));
  events.add(5, EventValue::of(std::int64_t{2}));
  events.end_event();
  check_as_naive(table_of(filters, 90), events);
}

TEST(block_bitmap_cuda_answers_for_empty_tables_and_filters_without_names) {
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();
  events.end_event();
  check_as_naive(table_of({}, 0), events);
  check_as_naive(table_of({"TRUE"}, 0), events);
  check_as_naive(table_of({"TRUE", "a0 IS NULL", "NEAR(0, 0, 1)", "a1 IS NULL", "a0 > 0"}, 2),
                 events);
}

// Batches of one event, around the events of a chunk, and of several parts.
TEST(block_bitmap_cuda_takes_batches_of_any_size) {
  Random random(9);
  const auto table = interval_table(random, 1100, 6, 4, 0.2);
  for (const std::size_t n_events : {0, 1, 2, 3, 5, 4095, 4097, 9000, 70'000}) {
    const EventBatch events = interval_events(random, n_events, 6, 7);
    CHECK(answer_of("block-bitmap-cuda", table, events).filters ==
          answer_of("block-bitmap", table, events).filters);
  }
}

// More pairs and candidates than a first buffer holds, and than a block of threads keeps.
TEST(block_bitmap_cuda_brings_back_any_number_of_pairs) {
  const Equalities workload = equalities(6000, 1, 2, 2, 2, 120);
  const Answer expected = answer_of("naive", workload.table, workload.events);
  CHECK(expected.filters[0].size() * 120 > std::size_t{1} << 18);
  CHECK(answer_of("block-bitmap-cuda", workload.table, workload.events).filters ==
        expected.filters);
}

// Every event matches every filter: more than fit are found in fewer events at once.
TEST(block_bitmap_cuda_takes_fewer_events_where_pairs_are_too_many) {
  const std::vector<std::string> filters(9000, "a0 IS NULL");
  EventBatch events;
  events.n_known = 1;
  for (int event = 0; event < 2000; ++event) events.end_event();
  const Answer answer = answer_of("block-bitmap-cuda", table_of(filters, 1), events);
  CHECK_EQ(answer.filters.size(), std::size_t{2000});
  for (const auto& each : answer.filters) CHECK_EQ(each.size(), filters.size());
}

TEST(block_bitmap_cuda_refuses_a_tuple_size_that_is_not_whole) {
  CHECK_THROWS(built("block-bitmap-cuda", table_of({"a0 = 1"}, 1), {{"tuple_size", 1.5}}),
               ArgumentError, "must be a whole number");
}

// A caller's events in pinned memory, in two launches: the pairs of the second come behind those of
// the first. Those with an attribute that the device cannot take are left, and have no pairs. So
// few events have less room for candidates than there are.
TEST(block_bitmap_cuda_matches_events_of_a_caller) {
  Random random(13);
  std::vector<std::string> filters;
  for (int filter = 0; filter < 2000; ++filter) {
    const std::size_t low = below(random, 800);
    filters.push_back("a" + std::to_string(below(random, 3)) + " BETWEEN " + std::to_string(low) +
                      " AND " + std::to_string(low + 200));
  }
  filters.push_back("a3 > 0.125");
  const auto table = table_of(filters, 4);
  const std::size_t n_events = 60, n_first = 25;
  const EventBatch events = interval_events(random, n_events, 4, 2);
  const auto naive = answer_of("naive", table, events).filters;
  const auto lines = build_block_bitmap(table, {{"layout", 1}, {"tuple_size", 3}});
  const cuda::BlockBitmapOnDevice index(*table, *lines);
  cuda::PinnedArray<std::uint32_t> offsets(n_events + 1), attributes(4 * n_events);
  cuda::PinnedArray<double> values(4 * n_events);
  std::vector<bool> is_left(n_events);
  std::size_t n_left = 0;
  for (std::size_t event = 0; event <= n_events; ++event) {
    offsets.data()[event] = static_cast<std::uint32_t>(events.offsets[event]);
    if (event == n_events) break;
    for (std::uint64_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
      attributes.data()[at] = events.attributes[at];
      values.data()[at] = events.values[at].nearest;
      is_left[event] = is_left[event] || events.attributes[at] == 3;
    }
    n_left += is_left[event];
  }
  CHECK(n_left > 0 && n_left < n_events);
  constexpr std::size_t kMostPairs = 100'000;
  const cuda::OwnStream stream;
  cuda::BlockBitmapBuffers buffers(index, n_events);
  const cuda::PinnedArray<cuda::MatchPair> pairs(kMostPairs);
  const cuda::PinnedArray<std::uint32_t> left(n_events);
  const cuda::PinnedArray<cuda::MatchCounts> counts(1);
  buffers.begin({pairs.data(), left.data(), counts.data(), pairs.size()}, stream);
  for (const auto& [first, end] : {std::pair{std::size_t{0}, n_first}, {n_first, n_events}}) {
    cuda::NumberEvents given;
    given.offsets = offsets.data();
    given.attributes = attributes.data();
    given.values = values.data();
    given.first_event = static_cast<std::uint32_t>(first);
    given.n_events = static_cast<std::uint32_t>(end - first);
    buffers.match(index, given, stream);
  }
  buffers.finish(stream);
  cuda::synchronize(stream);
  CHECK_EQ(counts.data()->n_left, n_left);
  for (std::size_t at = 0; at < n_left; ++at) CHECK(is_left[left.data()[at]]);
  std::vector<std::vector<std::uint32_t>> found(n_events);
  for (std::size_t at = 0; at < counts.data()->n_pairs; ++at) {
    found[pairs.data()[at].event].push_back(pairs.data()[at].filter);
  }
  for (std::size_t event = 0; event < n_events; ++event) {
    std::sort(found[event].begin(), found[event].end());
    CHECK(is_left[event] ? found[event].empty() : found[event] == naive[event]);
  }
}

}  // namespace
}  // namespace tamis
