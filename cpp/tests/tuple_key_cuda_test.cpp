// Engine `tuple-key-cuda` against `naive`: on the shim, or on a GPU where this is tamis_gpu_tests.
#include "cuda/tuple_key_cuda.hpp"

#include "against_naive.hpp"
#include "engines/tuple_key/items.hpp"

namespace tamis {
namespace {

using namespace against_naive;

void check_as_naive(const std::shared_ptr<FilterTable>& table, const EventBatch& events) {
  CHECK(answer_of("tuple-key-cuda", table, events).filters ==
        answer_of("naive", table, events).filters);
}

// The filters of every pair, as the kernels wrote them, of events of up to `n_cells` attributes in
// two launches.
std::vector<std::vector<std::uint32_t>> found_in_packed(const FilterTable& table,
                                                        const EventBatch& events,
                                                        std::uint32_t n_cells,
                                                        std::size_t n_first) {
  const std::size_t n_events = events.size();
  const cuda::TupleKeyOnDevice index(table);
  constexpr std::uint32_t kCells = cuda::PackedCells::kCells;
  const std::uint32_t n_packed = (n_cells + kCells - 1) / kCells;
  cuda::PinnedArray<cuda::PackedCells> cells(n_packed * n_events);
  std::fill_n(cells.data(), cells.size(), cuda::PackedCells::none());
  for (std::size_t event = 0; event < n_events; ++event) {
    for (std::uint64_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
      const auto cell = static_cast<std::uint32_t>(at - events.offsets[event]);
      const auto value = static_cast<std::int32_t>(events.values[at].nearest);
      CHECK(cuda::PackedCells::takes(events.attributes[at], value));
      cells.data()[event * n_packed + cell / kCells].set(cell % kCells, events.attributes[at],
                                                         value);
    }
  }
  constexpr std::size_t kMostPairs = 100'000;
  const cuda::OwnStream stream;
  cuda::TupleKeyBuffers buffers(n_events);
  const cuda::PinnedArray<cuda::MatchPair> pairs(kMostPairs);
  const cuda::PinnedArray<std::uint32_t> left(n_events);
  const cuda::PinnedArray<cuda::MatchCounts> counts(1);
  buffers.begin({pairs.data(), left.data(), counts.data(), pairs.size()}, stream);
  for (const auto& [first, end] : {std::pair{std::size_t{0}, n_first}, {n_first, n_events}}) {
    cuda::NumberEvents packed;
    packed.packed = cells.data();
    packed.n_packed = n_packed;
    packed.first_event = static_cast<std::uint32_t>(first);
    packed.n_events = static_cast<std::uint32_t>(end - first);
    buffers.match(index, packed, stream);
  }
  buffers.finish(stream);
  cuda::synchronize(stream);
  CHECK_EQ(counts.data()->n_left, std::uint64_t{0});
  std::vector<std::vector<std::uint32_t>> found(n_events);
  for (std::size_t at = 0; at < counts.data()->n_pairs; ++at) {
    found[pairs.data()[at].event].push_back(pairs.data()[at].filter);
  }
  for (auto& each : found) std::sort(each.begin(), each.end());
  return found;
}

TEST(tuple_key_cuda_answers_as_naive_does_for_every_kind_of_constraint) {
  check_every_kind("tuple-key-cuda", {{}, {{"event_attributes", 12}}});
}

TEST(tuple_key_cuda_finds_keys_of_equalities) {
  for (const std::size_t n_attributes : {3, 5, 8}) {
    const Equalities workload = equalities(3000, 3, 12, 6, n_attributes, 40);
    check_as_naive(workload.table, workload.events);
  }
}

// Lanes of one, two and four bytes: up to 256 ranks, up to 65,536, and more.
TEST(tuple_key_cuda_tests_lanes_of_every_width) {
  for (const std::int64_t step : {1, 40, 1000}) {
    std::vector<std::string> filters;
    EventBatch events;
    events.n_known = 3;
    for (std::int64_t each = 0; each < 70; ++each) {
      const std::string low = std::to_string(each * step), high = std::to_string(each * step + 7);
      filters.push_back("a0 BETWEEN " + low + " AND " + high + " AND a1 != " + low);
      filters.push_back("a0 = " + low + " AND a2 IN (1, " + high + ")");
      filters.push_back("NOT a1 BETWEEN " + low + " AND " + high + " AND a0 IS NULL");
      for (std::int64_t shift = -1; shift < 2; ++shift) {
        if (each % 3 != 0) events.add(0, EventValue::of(each * step + shift));
        events.add(1, EventValue::of(each * step));
        if (each % 2 == 0) events.add(2, EventValue::of(static_cast<double>(each) + 0.5));
        events.end_event();
      }
    }
    // More boundaries than a lane of one byte, or of two, can tell apart.
    for (std::int64_t each = 0; each < 70 * step; ++each) {
      filters.push_back("a0 = " + std::to_string(each * 3) + " AND a1 = " + std::to_string(each));
    }
    check_as_naive(table_of(filters, 3), events);
  }
}

TEST(tuple_key_cuda_leaves_to_the_host_what_it_cannot_take) {
  std::vector<std::string> filters = {
      "a0 = 'x'",  "a0 LIKE '%x%'", "a1 = TRUE",         "a2 = 9007199254740993",
      "a3 < 0.1",  "a3 > 1e300",    "a4 = 1 AND a5 = 2", "NEAR(0, 0, 10)",
      "a6 IS NULL"};
  std::string wide = "a10 = 0";
  for (int name = 11; name < 30; ++name) wide += " AND a" + std::to_string(name) + " >= 0";
  filters.push_back(wide);
  EventBatch events;
  events.n_known = 30;
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
  for (AttributeId attribute = 10; attribute < 30; ++attribute) {
    events.add(attribute, EventValue::of(std::int64_t{0}));
  }
  events.end_event();
  events.add(4, EventValue::of(std::int64_t{1}));
  events.add(5, EventValue::of(std::int64_t{2}));
  events.end_event();
  check_as_naive(table_of(filters, 30), events);
}

// More pairs than a first buffer holds, and keys that many filters share.
TEST(tuple_key_cuda_brings_back_any_number_of_pairs) {
  const Equalities workload = equalities(6000, 1, 2, 2, 2, 120);
  const Answer expected = answer_of("naive", workload.table, workload.events);
  CHECK(expected.filters[0].size() * 120 > std::size_t{1} << 18);
  CHECK(answer_of("tuple-key-cuda", workload.table, workload.events).filters == expected.filters);
}

TEST(tuple_key_cuda_answers_for_empty_tables_and_filters_without_names) {
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();
  events.end_event();
  check_as_naive(table_of({}, 0), events);
  check_as_naive(table_of({"TRUE", "a0 IS NULL", "NEAR(0, 0, 1)", "a1 IS NULL", "a0 > 0"}, 2),
                 events);
}

// Constraints that accept a missing value have lanes and are no terms; those that come when a
// record is full have no lane, and may still be the only term.
TEST(tuple_key_cuda_and_its_twin_find_a_filter_whose_term_has_no_lane) {
  for (const std::size_t n_optional : {100, 168, 170, 172, 300}) {
    std::string text;
    for (std::size_t name = 1; name <= n_optional; ++name) {
      const std::string attribute = "a" + std::to_string(name);
      text += "(" + attribute + " != 3 OR " + attribute + " IS NULL) AND ";
    }
    const auto table = table_of({text + "a0 = 1"}, n_optional + 1);
    EventBatch events;
    events.n_known = n_optional + 1;
    events.add(0, EventValue::of(std::int64_t{1}));
    events.end_event();
    events.add(0, EventValue::of(std::int64_t{1}));
    events.add(static_cast<AttributeId>(n_optional), EventValue::of(std::int64_t{3}));
    events.end_event();
    for (const char* engine : {"tuple-key", "tuple-key-cuda"}) {
      const auto found = answer_of(engine, table, events).filters;
      CHECK_EQ(found[0].size(), std::size_t{1});
      CHECK_EQ(found[1].size(), std::size_t{0});
    }
  }
}

// Filters without terms make a pair for every event: more than fit are found in fewer events at
// once.
TEST(tuple_key_cuda_takes_fewer_events_where_pairs_are_too_many) {
  const std::vector<std::string> filters(9000, "a0 IS NULL");
  EventBatch events;
  events.n_known = 1;
  for (int event = 0; event < 2000; ++event) events.end_event();
  const Answer answer = answer_of("tuple-key-cuda", table_of(filters, 1), events);
  CHECK_EQ(answer.filters.size(), std::size_t{2000});
  for (const auto& each : answer.filters) CHECK_EQ(each.size(), filters.size());
}

// Two attributes whose keys have one bit of the bitmap together, alone and with others: an event
// with both finds that bit twice, and each filter once.
TEST(tuple_key_cuda_finds_filters_once_whose_keys_share_a_bit) {
  constexpr AttributeId kAttributes = 2000;
  constexpr std::uint32_t kLeastBits = 16;
  std::vector<std::pair<AttributeId, AttributeId>> alike;
  for (AttributeId one = 0; one < kAttributes; ++one) {
    for (AttributeId other = 0; other < one; ++other) {
      const std::uint32_t difference =
          tuple_key::presence_hash(one) ^ tuple_key::presence_hash(other);
      if (difference >> (32 - kLeastBits) == 0) alike.emplace_back(one, other);
    }
  }
  CHECK(alike.size() > 10);
  std::vector<std::string> filters;
  EventBatch events;
  events.n_known = kAttributes;
  for (const auto& [one, other] : alike) {
    const std::string a = "a" + std::to_string(one), b = "a" + std::to_string(other);
    const AttributeId third = (one + 1) % kAttributes;
    const std::string c = "a" + std::to_string(third);
    for (const char* text : {" = 1", " = 2", " < 2"}) {
      filters.push_back(a + text);
      filters.push_back(b + text);
      filters.push_back(a + text + " AND " + c + " > 0");
      filters.push_back(b + text + " AND " + c + " > 0");
    }
    for (const bool has_third : {false, true}) {
      events.add(one, EventValue::of(std::int64_t{1}));
      events.add(other, EventValue::of(std::int64_t{1}));
      if (has_third && third != other) events.add(third, EventValue::of(std::int64_t{1}));
      events.end_event();
    }
  }
  const auto table = table_of(filters, kAttributes);
  CHECK(found_in_packed(*table, events, 3, events.size() / 2) ==
        answer_of("naive", table, events).filters);
}

// Every pair of ten attributes is the key of a long run: more tasks than there is room for are
// done with fewer events at once.
TEST(tuple_key_cuda_takes_fewer_events_where_long_runs_are_too_many) {
  std::vector<std::string> filters;
  for (int one = 0; one < 10; ++one) {
    for (int other = 0; other < one; ++other) {
      for (int value = 0; value < 20; ++value) {
        filters.push_back("a" + std::to_string(one) + " = " + std::to_string(value) + " AND a" +
                          std::to_string(other) + " >= " + std::to_string(value));
      }
    }
  }
  EventBatch events;
  events.n_known = 10;
  for (int event = 0; event < 30'000; ++event) {
    for (AttributeId name = 0; name < 10; ++name) {
      events.add(name, EventValue::of(std::int64_t{(event * (name + 3)) % 23}));
    }
    events.end_event();
  }
  check_as_naive(table_of(filters, 10), events);
}

// Packed events, in two launches: the pairs of the second come behind those of the first.
TEST(tuple_key_cuda_matches_packed_events) {
  for (const std::uint32_t n_cells : {4, 9}) {
    const Equalities workload = equalities(2000, n_cells - 2, 9, 2, n_cells - 1, 60);
    CHECK(found_in_packed(*workload.table, workload.events, n_cells, 25) ==
          answer_of("naive", workload.table, workload.events).filters);
  }
}

}  // namespace
}  // namespace tamis
