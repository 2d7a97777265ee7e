// The matcher under threads: what the sanitizers are to see.
#include "tamis/matcher.hpp"

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "common/thread_pool.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

EventBatch events_with(Matcher& matcher, std::size_t n_events, std::int64_t value) {
  EventBatch events;
  const View view = matcher.view();
  const Names& names = view.names();
  events.encode_for(names);
  for (std::size_t event = 0; event < n_events; ++event) {
    for (AttributeId attribute = 0; attribute < names.size(); ++attribute) {
      events.add(attribute, EventValue::of(value));
    }
    events.end_event();
  }
  return events;
}

void subscribe(Matcher& matcher, std::int64_t id, const std::string& predicate) {
  const NewSubscription row{IdView::of(id), predicate, std::nullopt};
  CHECK(matcher.subscribe({&row, 1}).empty());
}

TEST(all_outputs_agree_over_segments_and_deletions) {
  for (const std::size_t n_threads : {1, 3}) {
    MatcherOptions options;
    options.n_threads = n_threads;
    Matcher matcher(options);
    for (std::int64_t id = 0; id < 3000; ++id) {
      subscribe(matcher, id, "x >= " + std::to_string(id % 10) + " OR y = " + std::to_string(id));
      if (id % 100 == 0) matcher.flush();
    }
    for (std::int64_t id = 0; id < 3000; id += 3) {
      const IdView view = IdView::of(id);
      matcher.unsubscribe({&view, 1});
      if (id % 500 == 0) matcher.flush();
    }
    CHECK_EQ(matcher.size(), 2000u);
    const EventBatch events = events_with(matcher, 700, 4);
    std::size_t expected = 0;
    for (std::int64_t id = 0; id < 3000; ++id) expected += id % 3 != 0 && (id % 10 <= 4 || id == 4);
    const MatchResult ids =
        matcher.match(matcher.view(), events, {Output::ids, Deliver::subscriptions});
    const MatchResult bits =
        matcher.match(matcher.view(), events, {Output::bitset, Deliver::subscribers});
    const MatchResult counts =
        matcher.match(matcher.view(), events, {Output::count, Deliver::subscribers});
    CHECK_EQ(ids.offsets.size(), 701u);
    CHECK_EQ(ids.targets.size(), 700 * expected);
    for (std::size_t event = 0; event < 700; ++event) {
      CHECK_EQ(counts.counts[event], static_cast<std::int64_t>(expected));
      std::size_t n_bits = 0;
      for (std::size_t word = 0; word < bits.words_per_event; ++word) {
        n_bits += static_cast<std::size_t>(
            __builtin_popcountll(bits.bits[event * bits.words_per_event + word]));
      }
      CHECK_EQ(n_bits, expected);
    }
    CHECK(matcher.stats().segments.size() <= Matcher::kMaxSegments);
  }
}

TEST(parts_that_tasks_encode_give_the_answers_of_the_whole) {
  MatcherOptions options;
  options.n_threads = 3;
  Matcher matcher(options);
  for (std::int64_t id = 0; id < 500; ++id) {
    subscribe(matcher, id, "x = " + std::to_string(id % 50) + " AND y < " + std::to_string(id));
  }
  matcher.flush();
  constexpr std::size_t kEvents = 20'000;
  const View view = matcher.view();
  const auto encode = [&](std::size_t begin, std::size_t end, EventBatch& batch) {
    batch.encode_for(view.names());
    for (std::size_t event = begin; event < end; ++event) {
      batch.add(view.names().find("x"), EventValue::of(static_cast<std::int64_t>(event % 60)));
      batch.add(view.names().find("y"), EventValue::of(static_cast<std::int64_t>(event % 700)));
      batch.end_event();
    }
  };
  EventBatch all;
  encode(0, kEvents, all);
  for (const Output output : {Output::ids, Output::bitset, Output::count}) {
    const MatchOptions asked{output, Deliver::subscriptions};
    const MatchResult whole = matcher.match(view, all, asked);
    std::atomic<std::size_t> n_parts = 0;
    const MatchResult parts = matcher.match_parts(
        view, kEvents,
        [&](std::size_t begin, std::size_t end, EventBatch& batch) {
          ++n_parts;
          encode(begin, end, batch);
        },
        asked);
    CHECK(n_parts > 1u);
    CHECK(whole.offsets == parts.offsets);
    CHECK(whole.counts == parts.counts);
    CHECK(whole.targets == parts.targets);
    CHECK(whole.bits == parts.bits);
  }
  CHECK_THROWS(matcher.match_parts(
                   view, kEvents,
                   [](std::size_t, std::size_t, EventBatch&) { throw EventError("a bad row"); },
                   {Output::ids, Deliver::subscriptions}),
               EventError, "a bad row");
  CHECK_EQ(matcher.match_parts(view, 0, encode, {Output::ids, Deliver::subscriptions}).n_events,
           0u);
}

TEST(matches_see_whole_changes_only) {
  MatcherOptions options;
  options.n_threads = 2;
  Matcher matcher(options);
  constexpr std::int64_t kGroup = 20;
  const auto put = [&](bool is_on) {
    std::vector<NewSubscription> rows;
    for (std::int64_t id = 0; id < kGroup; ++id) {
      rows.push_back({IdView::of(id), is_on ? "x = 1" : "x = 2", std::nullopt});
    }
    CHECK(matcher.subscribe(rows).empty());
  };
  put(true);
  std::atomic<bool> is_done{false};
  std::atomic<int> n_torn{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&] {
      const EventBatch events = events_with(matcher, 5, 1);
      while (!is_done) {
        const MatchResult result =
            matcher.match(matcher.view(), events, {Output::ids, Deliver::subscriptions});
        for (std::size_t event = 0; event < 5; ++event) {
          const std::int64_t count = result.offsets[event + 1] - result.offsets[event];
          if (count != 0 && count != kGroup) ++n_torn;
        }
        for (const std::uint32_t target : result.targets) {
          if (result.id(target).integer >= kGroup) ++n_torn;
        }
      }
    });
  }
  for (int round = 0; round < 300; ++round) put(round % 2 == 0);
  is_done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK_EQ(n_torn.load(), 0);
  CHECK_EQ(matcher.size(), static_cast<std::size_t>(kGroup));
}

TEST(parallel_for_runs_every_task_once_and_passes_errors_on) {
  for (int round = 0; round < 200; ++round) {
    std::vector<std::atomic<int>> n_runs(50);
    parallel_for(n_runs.size(), 4, [&](std::size_t task) { ++n_runs[task]; });
    for (const auto& each : n_runs) CHECK_EQ(each.load(), 1);
  }
  CHECK_THROWS(parallel_for(100, 4,
                            [](std::size_t task) {
                              if (task == 30) throw std::runtime_error("task 30");
                            }),
               std::runtime_error, "task 30");
}

TEST(bad_batches_change_nothing) {
  Matcher matcher(MatcherOptions{});
  subscribe(matcher, 1, "x = 1");
  const NewSubscription rows[] = {{IdView::of(std::int64_t{2}), "y = 1", std::nullopt},
                                  {IdView::of(std::int64_t{3}), "y = ", std::nullopt}};
  const std::vector<RowError> errors = matcher.subscribe(rows);
  CHECK_EQ(errors.size(), 1u);
  CHECK_EQ(errors[0].row, 1u);
  CHECK_EQ(matcher.size(), 1u);
  CHECK_EQ(matcher.view().names().size(), 1u);
  const IdView ids[] = {IdView::of(std::int64_t{1}), IdView::of(std::int64_t{9})};
  CHECK_THROWS(matcher.unsubscribe(ids), UnknownIdError, "9");
  CHECK_EQ(matcher.size(), 1u);
}

}  // namespace
}  // namespace tamis
