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
  for (const char* engine :
       {"block-bitmap-cuda", "ccm", "clcb-cuda", "hem-cuda", "tuple-key-cuda"}) {
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
  for (const char* engine :
       {"block-bitmap-cuda", "ccm", "clcb-cuda", "hem-cuda", "tuple-key-cuda"}) {
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
  for (const char* engine :
       {"block-bitmap-cuda", "ccm", "clcb-cuda", "hem-cuda", "tuple-key-cuda"}) {
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

}  // namespace
}  // namespace tamis
