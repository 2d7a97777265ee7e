// What only the shim can show: a device without memory, and one that is lost.
#include <limits>
#include <optional>

#include "../against_naive.hpp"
#include "cuda/shim/runtime.hpp"
#include "tamis/matcher.hpp"

namespace tamis {
namespace {

using namespace against_naive;
using namespace cuda::shim;

struct FreeBytes {
  explicit FreeBytes(std::size_t n_bytes) { set_free_bytes(n_bytes); }
  ~FreeBytes() { set_free_bytes(std::numeric_limits<std::size_t>::max() / 2); }
};

TEST(shim_device_without_memory_is_an_error_and_loses_nothing) {
  const Equalities workload = equalities(1000, 2, 10, 3, 5, 5);
  const std::size_t n_before = n_bytes_taken();
  for (const char* engine : {"block-bitmap-cuda", "ccm", "clcb-cuda", "hem-cuda",
                             "spatial-grid-cuda", "tuple-key-cuda"}) {
    {
      const FreeBytes few(10'000);
      CHECK_THROWS(built(engine, workload.table), UnavailableError, "has no room for");
      CHECK_EQ(n_bytes_taken(), n_before);
    }
    const std::unique_ptr<Index> index = built(engine, workload.table);
    const FreeBytes few(4);
    CHECK_THROWS(index->make_scratch(), UnavailableError, "use an engine on the CPU");
  }
  CHECK_EQ(n_bytes_taken(), n_before);
}

TEST(shim_device_that_is_lost_is_an_error_until_it_is_back) {
  const Equalities workload = equalities(1000, 2, 10, 3, 5, 5);
  for (const char* engine : {"block-bitmap-cuda", "ccm", "clcb-cuda", "hem-cuda",
                             "spatial-grid-cuda", "tuple-key-cuda"}) {
    const std::unique_ptr<Index> index = built(engine, workload.table);
    const std::unique_ptr<Scratch> scratch = index->make_scratch();
    const Answer before = answer_of(*index, 1000, workload.events, *scratch);
    set_lost(true);
    CHECK_THROWS(answer_of(*index, 1000, workload.events, *scratch), Error, "the device is gone");
    set_lost(false);
    CHECK(answer_of(*index, 1000, workload.events, *scratch).filters == before.filters);
  }
}

// The index is not built, and the matcher goes on without.
TEST(shim_device_without_memory_leaves_a_matcher_that_answers) {
  for (const char* engine : {"block-bitmap-cuda", "ccm", "clcb-cuda", "hem-cuda",
                             "spatial-grid-cuda", "tuple-key-cuda"}) {
    MatcherOptions options;
    options.engine = engine;
    std::optional<FreeBytes> few(std::in_place, 1000);
    Matcher matcher(options);
    for (std::int64_t id = 0; id < 1000; ++id) {
      const std::string predicate = "x >= " + std::to_string(id);
      const NewSubscription row{IdView::of(id), predicate, std::nullopt};
      CHECK(matcher.subscribe({&row, 1}).empty());
    }
    const auto n_matches = [&] {
      EventBatch events;
      events.encode_for(matcher.view().names());
      events.add(0, EventValue::of(std::int64_t{499}));
      events.end_event();
      return matcher.match(matcher.view(), events, {Output::ids, Deliver::subscriptions})
          .offsets[1];
    };
    CHECK_THROWS(matcher.flush(), UnavailableError, "has no room for");
    CHECK_EQ(n_matches(), 500);
    few.reset();
    matcher.flush();
    CHECK_EQ(n_matches(), 500);
  }
}

// 900,000 pairs where there is room for 262,144, and none to be had.
TEST(shim_device_without_memory_for_more_pairs_takes_fewer_events) {
  std::vector<std::string> filters;
  for (int filter = 0; filter < 3000; ++filter)
    filters.push_back("a0 >= " + std::to_string(filter));
  const auto table = table_of(filters, 1);
  EventBatch events;
  events.n_known = 1;
  for (std::int64_t event = 0; event < 300; ++event) {
    events.add(0, EventValue::of(5000 + event % 7));
    events.end_event();
  }
  const Answer expected = answer_of("naive", table, events);
  for (const char* engine : {"block-bitmap-cuda", "spatial-grid-cuda", "tuple-key-cuda"}) {
    const std::unique_ptr<Index> index = built(engine, table);
    const std::unique_ptr<Scratch> scratch = index->make_scratch();
    const FreeBytes none(0);
    CHECK(answer_of(*index, 3000, events, *scratch).filters == expected.filters);
  }
}

// Moves that could not be brought to the device wait for the next match.
TEST(shim_device_that_is_lost_loses_no_move) {
  MatcherOptions options;
  options.engine = "spatial-grid-cuda";
  Matcher matcher(options);
  for (std::int64_t id = 0; id < 300; ++id) {
    const NewSubscription row{IdView::of(id), "NEAR(0, 0, 1)", std::nullopt};
    CHECK(matcher.subscribe({&row, 1}).empty());
  }
  matcher.flush();
  const auto n_at = [&](double x) {
    EventBatch events;
    events.encode_for(matcher.view().names());
    events.add_position(x, 0);
    events.end_event();
    return matcher.match(matcher.view(), events, {Output::ids, Deliver::subscriptions}).offsets[1];
  };
  CHECK_EQ(n_at(0), 300);
  const auto move_to = [&](std::int64_t id, double x) {
    const Move row{IdView::of(id), x, 0, std::nullopt};
    CHECK(matcher.move({&row, 1}).empty());
  };
  for (std::int64_t id = 0; id < 100; ++id) move_to(id, 50);
  set_lost(true);
  CHECK_THROWS(n_at(50), Error, "the device is gone");
  for (std::int64_t id = 50; id < 150; ++id) move_to(id, 90);
  CHECK_THROWS(n_at(90), Error, "the device is gone");
  set_lost(false);
  CHECK_EQ(n_at(50), 50);
  CHECK_EQ(n_at(90), 100);
  CHECK_EQ(n_at(0), 150);
}

}  // namespace
}  // namespace tamis
