// What only the shim can show: a device without memory, and one that is lost.
#include <bit>
#include <limits>
#include <optional>

#include "../against_naive.hpp"
#include "cuda/shim/runtime.hpp"
#include "matcher/twin.hpp"
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

// Wherever the device fails within a call of several launches, the host goes on behind the events
// that are done, and none is found twice or not at all.
TEST(shim_device_that_is_lost_in_a_call_of_auto_leaves_the_host_to_go_on) {
  std::vector<std::string> filters;
  for (int filter = 0; filter < 1500; ++filter)
    filters.push_back("a0 >= " + std::to_string(filter));
  const auto table = table_of(filters, 1);
  EventBatch events;
  events.n_known = 1;
  for (std::int64_t event = 0; event < 400; ++event) {
    events.add(0, EventValue::of(event % 5 == 0 ? event : 5000));
    events.end_event();
  }
  std::vector<std::uint32_t> targets(table->size());
  std::iota(targets.begin(), targets.end(), 0u);
  for (const char* name : {"block-bitmap", "tuple-key"}) {
    const std::unique_ptr<Index> host = built(name, table);
    const std::unique_ptr<Scratch> host_scratch = host->make_scratch();
    const Engine& engine = find_engine(find_engine(name).on_device);
    const std::shared_ptr<Index> index = built(engine.name, table);
    for (const Output output : {Output::ids, Output::bitset, Output::count}) {
      std::size_t n_partial = 0;
      for (std::size_t n_calls = 0, is_whole = 0; is_whole == 0; n_calls += 1 + n_calls / 8) {
        const Twin twin(engine, index, 1);
        std::unique_ptr<Scratch> scratch = index->make_scratch();
        Collector::Setup setup;
        setup.output = output;
        setup.slot_of = setup.target_of = targets.data();
        setup.n_targets = targets.size();
        setup.can_repeat = false;
        setup.words_per_event = (targets.size() + 63) / 64;
        std::vector<std::uint64_t> bits(events.size() * setup.words_per_event);
        setup.bits = bits.data();
        Stamps stamps;
        CollectorBuffers buffers;
        Collector out(setup, stamps, buffers);
        {
          const FreeBytes none(0);  // more launches, of fewer events
          lose_after(n_calls);
          twin.match(events, 0, events.size(), scratch, *host, *host_scratch, out);
          set_lost(false);
        }
        CHECK_EQ(out.n_events(), events.size());
        for (std::size_t event = 0; event < events.size(); ++event) {
          const std::int64_t expected =
              event % 5 == 0 ? std::min<std::int64_t>(static_cast<std::int64_t>(event) + 1, 1500)
                             : 1500;
          std::int64_t found = 0;
          if (output == Output::ids) {
            found = static_cast<std::int64_t>(out.end(event) - out.begin(event));
          } else if (output == Output::count) {
            found = out.counts()[event];
          } else {
            for (std::size_t word = 0; word < setup.words_per_event; ++word) {
              found += std::popcount(bits[event * setup.words_per_event + word]);
            }
          }
          CHECK_EQ(found, expected);
        }
        is_whole = twin.has_failed() ? 0 : 1;
        CHECK_EQ(twin.is_usable(), is_whole == 1);
        CHECK_EQ(scratch != nullptr, is_whole == 1);
        if (is_whole == 0) {
          CHECK(twin.reasons().why_not.find("the device is gone") != std::string::npos);
          n_partial += 1;
        }
      }
      CHECK(n_partial > 5);
    }
  }
}

// A matcher of engine="auto" that should be on the device: its segments, after a flush.
struct AutoMatcher {
  AutoMatcher() {
    options.device_from = 1;
    matcher.emplace(options);
    std::vector<std::string> texts;
    for (int id = 0; id < 3000; ++id) {
      texts.push_back("a" + std::to_string(id % 40) + " = " + std::to_string(id % 7) + " AND a" +
                      std::to_string(id * 7 % 40) + " = 3 AND a" + std::to_string(id % 11) +
                      " > 2");
    }
    std::vector<NewSubscription> rows;
    for (std::size_t id = 0; id < texts.size(); ++id) {
      rows.push_back({IdView::of(static_cast<std::int64_t>(id)), texts[id], std::nullopt});
    }
    CHECK(matcher->subscribe(rows).empty());
  }
  std::vector<std::uint32_t> match() {
    EventBatch events;
    events.encode_for(matcher->view().names());
    for (std::int64_t event = 0; event < 100; ++event) {
      for (AttributeId attribute = 0; attribute < 40; attribute += 6) {
        events.add(attribute, EventValue::of((event + attribute) % 7));
      }
      events.end_event();
    }
    MatchResult result =
        matcher->match(matcher->view(), events, {Output::ids, Deliver::subscriptions});
    for (std::size_t event = 0; event < 100; ++event) {
      std::sort(result.targets.begin() + result.offsets[event],
                result.targets.begin() + result.offsets[event + 1]);
    }
    return {result.targets.begin(), result.targets.end()};
  }
  DeviceReasons device() const {
    const std::vector<SegmentReasons> plan = matcher->plan();
    CHECK_EQ(plan.size(), 1u);
    CHECK(plan[0].groups[0].device.has_value());
    return plan[0].groups[0].device.value_or(DeviceReasons());
  }
  MatcherOptions options;
  std::optional<Matcher> matcher;
};

TEST(shim_device_without_memory_or_lost_leaves_auto_on_the_host) {
  AutoMatcher usual;
  const std::vector<std::uint32_t> expected = usual.match();  // by no index
  CHECK(!expected.empty());
  usual.matcher->flush();
  CHECK_EQ(usual.device().least_events, 1u);
  CHECK(usual.match() == expected);
  {  // no room for an index
    AutoMatcher each;
    const FreeBytes few(1000);
    each.matcher->flush();
    CHECK(each.device().why_not.find("has no room for") != std::string::npos);
    CHECK_EQ(each.device().least_events, 0u);
    CHECK(each.match() == expected);
  }
  {  // no room to match in
    AutoMatcher each;
    each.matcher->flush();
    const FreeBytes few(1000);
    CHECK(each.match() == expected);
    CHECK(each.device().why_not.find("has no room for") != std::string::npos);
  }
  {  // it is there no more when the index is built, and comes back
    AutoMatcher each;
    set_lost(true);
    each.matcher->flush();
    CHECK(each.device().why_not.find("the device is gone") != std::string::npos);
    CHECK(each.match() == expected);
    set_lost(false);
    CHECK(each.match() == expected);
  }
  // It is lost between two calls, and is not asked again.
  set_lost(true);
  CHECK(usual.match() == expected);
  CHECK(usual.device().why_not.find("the device is gone") != std::string::npos);
  set_lost(false);
  CHECK(usual.match() == expected);
  CHECK_EQ(usual.device().least_events, 0u);
}

}  // namespace
}  // namespace tamis
