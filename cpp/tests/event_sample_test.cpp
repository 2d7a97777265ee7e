// The planner's sample of events: what is taken follows the time that events take, and a change of
// how they come is seen after about as much time, whatever they take.
#include "matcher/event_sample.hpp"

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "check.hpp"

namespace tamis {
namespace {

constexpr Use kSingleIds{true, Output::ids, Deliver::subscriptions};
constexpr Use kBatchBits{false, Output::bitset, Deliver::subscriptions};
constexpr Use kSubscribers{false, Output::ids, Deliver::subscribers};

EventBatch some_events(std::size_t n_events) {
  EventBatch events;
  events.n_known = 1;
  for (std::size_t event = 0; event < n_events; ++event) {
    events.add(0, EventValue::of(static_cast<double>(event)));
    events.end_event();
  }
  return events;
}

// One thread that matches.
class Caller {
 public:
  explicit Caller(EventSample& sample) : sample_(sample) {}
  // So many calls of the same events. Gives back how many of them were timed.
  std::size_t call(const EventBatch& events, const Use& use, double event_ns, std::size_t n_calls) {
    std::size_t n_timed = 0;
    for (std::size_t each = 0; each < n_calls; ++each) {
      if (!EventSample::wants(events.size(), n_until_next_)) continue;
      sample_.take(events, 0, events.size(), {use, event_ns, 1}, n_until_next_);
      ++n_timed;
    }
    return n_timed;
  }

 private:
  EventSample& sample_;
  std::size_t n_until_next_ = 0;
};

TEST(event_sample_takes_events_by_the_time_that_they_take) {
  const EventBatch one = some_events(1);
  const auto share_taken = [&](double event_ns) {
    EventSample sample;
    Caller caller(sample);
    caller.call(one, kSingleIds, event_ns, EventSample::kMostEvents);
    CHECK_EQ(sample.n_taken(), EventSample::kMostEvents);
    caller.call(one, kSingleIds, event_ns, 127'000);
    return static_cast<double>(sample.n_taken() - EventSample::kMostEvents) / 127'000;
  };
  CHECK_EQ(share_taken(2'000'000), 1.0);
  CHECK_EQ(share_taken(EventSample::kSampledNs), 1.0);
  CHECK(std::abs(share_taken(2500) - 1.0 / 11) < 0.001);
  CHECK(std::abs(share_taken(200) - 1.0 / 125) < 0.0001);
  CHECK(std::abs(share_taken(1) - 1.0 / 127) < 0.0001);  // cheap ones do not pay more than that
  CHECK(std::abs(share_taken(0) - 1.0 / 127) < 0.0001);
}

TEST(event_sample_wants_the_clock_only_where_it_takes_events) {
  const EventBatch one = some_events(1);
  EventSample sample;
  Caller caller(sample);
  caller.call(one, kSingleIds, 200, EventSample::kMostEvents);
  CHECK_EQ(caller.call(one, kSingleIds, 200, 125'000), 1000u);
}

TEST(event_sample_takes_the_same_of_batches_and_of_single_events) {
  for (const std::size_t n_each : {1, 7, 100, 1000}) {
    const EventBatch events = some_events(n_each);
    EventSample sample;
    Caller caller(sample);
    caller.call(events, kSingleIds, 500, 100'000 / n_each);
    const auto n_expected = EventSample::kMostEvents + 100'000 / 51.0;
    CHECK(std::abs(static_cast<double>(sample.n_taken()) - n_expected) < 30);
  }
}

TEST(event_sample_sees_within_a_second_that_events_come_in_another_way) {
  const EventBatch one = some_events(1), many = some_events(100);
  for (const double event_ns : {200.0, 2'000'000.0}) {
    EventSample sample;
    Caller caller(sample);
    const auto n_in = [&](double seconds, double n_each) {
      return static_cast<std::size_t>(std::ceil(seconds * 1e9 / event_ns / n_each));
    };
    caller.call(one, kSingleIds, event_ns, n_in(5, 1));
    CHECK(!sample.has_other_use());  // nobody has looked yet
    sample.know_uses();
    caller.call(one, kSingleIds, event_ns, n_in(5, 1));
    CHECK(!sample.has_other_use());
    caller.call(many, kBatchBits, event_ns, n_in(0.4, 100));
    CHECK(!sample.has_other_use());  // a burst
    caller.call(many, kBatchBits, event_ns, n_in(0.6, 100));
    CHECK(sample.has_other_use());
    sample.forget_other_use();
    CHECK(!sample.has_other_use());
    caller.call(many, kBatchBits, event_ns, n_in(0.01, 100));
    CHECK(sample.has_other_use());  // it still is so
    sample.know_uses();
    CHECK(!sample.has_other_use());
    caller.call(many, kBatchBits, event_ns, n_in(5, 100));
    CHECK(!sample.has_other_use());  // more of the same
  }
}

TEST(event_sample_is_not_moved_by_one_event_that_had_to_wait) {
  const EventBatch one = some_events(1);
  EventSample sample;
  Caller caller(sample);
  caller.call(one, kSingleIds, 200, 10'000'000);
  sample.know_uses();
  std::size_t n_until_next = 0;  // of another thread
  sample.take(one, 0, 1, {kSubscribers, 60e9, 1}, n_until_next);
  CHECK(!sample.has_other_use());
  CHECK(!sample.read(0, 1).is_for_subscribers());
}

TEST(event_sample_counts_events_that_were_not_shown) {
  EventSample sample;
  const EventBatch few = some_events(16);
  std::size_t n_until_next = 0;
  sample.take(few, 0, 16, {kSubscribers, 10, 4096}, n_until_next);
  Caller(sample).call(some_events(1), kSingleIds, 10'000, 10);
  CHECK(sample.read(0, 1).is_for_subscribers());  // 655 µs against 100
  const std::vector<Uses::Way> ways = sample.read(0, 1).uses.ways();
  CHECK_EQ(ways.size(), 2u);
  CHECK(!ways[0].is_alone);
  CHECK(ways[1].is_alone);
  CHECK(std::abs(ways[1].weight - 10 / (16 * 4096.0)) < 1e-6);
}

TEST(uses_are_weighed_by_events_where_the_time_says_that_they_matter) {
  Uses uses;
  CHECK(uses.is_empty());
  CHECK_EQ(uses.ways().size(), 1u);  // as good as any
  CHECK(uses.ways()[0].is_alone);
  for (int each = 0; each < 100; ++each) {
    uses.add(kSingleIds, 1, 2000);
    uses.add(kBatchBits, 100, 200);
    uses.add({false, Output::count, Deliver::subscriptions}, 1, 1);  // little of either
  }
  const std::vector<Uses::Way> ways = uses.ways();
  CHECK_EQ(ways.size(), 2u);
  CHECK(!ways[0].is_alone && ways[0].output == Output::bitset);
  CHECK(ways[1].is_alone && ways[1].output == Output::ids);
  CHECK(std::abs(ways[0].weight - 100 / 101.0) < 1e-6);
  CHECK(std::abs(ways[0].weight + ways[1].weight - 1) < 1e-12);
}

// The engine that a plan has must not change what the next plan is reckoned with.
TEST(uses_have_the_same_weights_whatever_events_take) {
  Uses slow, quick;
  for (int each = 0; each < 100'000; ++each) {
    slow.add(kSingleIds, 1, 4000);
    slow.add(kBatchBits, 1, 9000);
    quick.add(kSingleIds, 1, 4000);
    quick.add(kBatchBits, 1, 1000);
  }
  CHECK_EQ(slow.ways().size(), 2u);
  CHECK(std::abs(slow.ways()[0].weight - quick.ways()[0].weight) < 1e-4);
}

TEST(uses_differ_by_the_share_of_the_time_that_went_elsewhere) {
  Uses singles, batches, both;
  singles.add(kSingleIds, 1, 100);
  batches.add(kBatchBits, 1, 700);
  both.add(kSingleIds, 1, 300);
  both.add(kBatchBits, 9, 100);
  CHECK_EQ(difference(singles, singles), 0.0);
  CHECK_EQ(difference(singles, batches), 1.0);
  CHECK(std::abs(difference(singles, both) - 0.25) < 1e-6);
  CHECK(std::abs(difference(both, batches) - 0.75) < 1e-6);
  CHECK_EQ(difference(Uses{}, batches), 0.0);
  CHECK_EQ(difference(batches, Uses{}), 0.0);
}

TEST(event_sample_is_taken_and_read_by_many_threads) {
  EventSample sample;
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (const Use& use : {kSingleIds, kBatchBits, kSubscribers}) {
    threads.emplace_back([&, use] {
      const EventBatch events = some_events(use.is_alone ? 1 : 20);
      Caller caller(sample);
      while (!is_over) {
        caller.call(events, use, 20'000, 10);
        if (sample.has_other_use()) sample.forget_other_use();
      }
    });
  }
  for (int look = 0; look < 200; ++look) {
    const SampledEvents read = sample.read(0, 1);
    CHECK(read.events.size() <= EventSample::kMostEvents);
    if (read.events.size() > 0) CHECK(!read.uses.is_empty());
    sample.know_uses();
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tamis
