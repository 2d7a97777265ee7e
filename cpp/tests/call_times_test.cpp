#include "matcher/call_times.hpp"

#include <algorithm>

#include "check.hpp"
#include "matcher/tasks.hpp"

namespace tamis {
namespace {

// What calls of a size take on each side.
struct Truth {
  double host_ns, device_ns;
  double of(Side side) const { return side == Side::host ? host_ns : device_ns; }
};

// What so many calls take, against the better side alone.
double run_calls(CallTimes& times, std::size_t n_events, Side expected, Truth truth, int n_calls) {
  double spent = 0;
  for (int call = 0; call < n_calls; ++call) {
    const Side side = times.choose({n_events, false}, expected);
    times.see({n_events, false}, side, truth.of(side));
    spent += truth.of(side);
  }
  return spent / (n_calls * std::min(truth.host_ns, truth.device_ns));
}

TEST(call_times_go_to_the_quicker_side_whatever_was_expected) {
  for (const Side expected : {Side::host, Side::device}) {
    for (const Truth truth : {Truth{100, 50}, {50, 100}, {10, 1000}, {1000, 10}, {70, 70}}) {
      CallTimes times;
      run_calls(times, 300, expected, truth, 100);
      CHECK(run_calls(times, 300, expected, truth, 1000) < 1.05);
    }
  }
}

TEST(call_times_try_the_other_side_seldom_and_cheaply) {
  CallTimes times;
  CHECK(run_calls(times, 300, Side::host, {10, 1000}, 10'000) < 1.15);
  // Until it was tried, the other may take as long as this one.
  CallTimes new_ones;
  int n_before = 0;
  for (; new_ones.choose({300, false}, Side::host) == Side::host; ++n_before) {
    new_ones.see({300, false}, Side::host, 10);
  }
  CHECK(n_before == 6 || n_before == 7);
  // Three times in a row: the first one may have taken long for reasons of its own.
  new_ones.see({300, false}, Side::device, 90);
  for (int call = 0; call < 2; ++call) {
    CHECK(new_ones.choose({300, false}, Side::host) == Side::device);
    new_ones.see({300, false}, Side::device, 5);
  }
  CHECK(new_ones.choose({300, false}, Side::host) == Side::device);
}

TEST(call_times_follow_what_changes) {
  CallTimes times;
  run_calls(times, 300, Side::host, {100, 50}, 1000);
  run_calls(times, 300, Side::host, {100, 400}, 200);
  CHECK(run_calls(times, 300, Side::host, {100, 400}, 1000) < 1.05);
  run_calls(times, 300, Side::host, {100, 10}, 1000);
  CHECK(run_calls(times, 300, Side::host, {100, 10}, 1000) < 1.05);
  // The device has another index: what it took is not what it takes.
  times.forget();
  for (int call = 0; call < 3; ++call) {
    CHECK(times.choose({300, false}, Side::host) == Side::host);
    times.see({300, false}, Side::host, 1);
  }
}

TEST(call_times_of_one_size_say_nothing_of_another) {
  CallTimes times;
  run_calls(times, 300, Side::host, {100, 10}, 100);
  run_calls(times, 5000, Side::host, {100, 1000}, 100);
  CHECK(times.choose({300, false}, Side::host) == Side::device);
  CHECK(times.choose({5000, false}, Side::host) == Side::host);
  CHECK(times.choose({70'000, false}, Side::host) == Side::host);
  CHECK(times.choose({140'000, false}, Side::device) == Side::device);
  CHECK(times.choose({300, true}, Side::host) == Side::host);
  CHECK(times.choose({~std::size_t{0}, false}, Side::device) == Side::device);
}

TEST(call_times_give_work_as_many_threads_as_it_is_worth) {
  EventWork work;
  CHECK_EQ(work.choose_threads(1000, 16), 0u);
  // Nothing is known: by filters and events.
  CHECK_EQ(choose_tasks(256, 100, 100, 16, work).n_threads, 1u);
  CHECK_EQ(choose_tasks(256, 100'000, 1000, 16, work).n_threads, 16u);
  work.see(100, 100 * 500);
  CHECK_EQ(work.choose_threads(16, 16), 1u);
  CHECK_EQ(work.choose_threads(1000, 16), 11u);
  CHECK_EQ(work.choose_threads(100'000, 16), 16u);
  const Tasks few = choose_tasks(256, 16, 1'000'000, 16, work);
  CHECK_EQ(few.n_events, 16u);
  CHECK_EQ(few.n_threads, 1u);
  const Tasks some = choose_tasks(256, 1000, 1'000'000, 16, work);
  CHECK_EQ(some.n_events, 22u);
  CHECK_EQ(some.n_threads, 11u);
  CHECK_EQ(choose_tasks(256, 100'000, 10, 16, work).n_events, 256u);
  CHECK_EQ(choose_tasks(256, 100'000, 10, 1, work).n_events, 100'000u);
  // Large tasks for a device, whatever the host's work.
  CHECK_EQ(choose_tasks(65'536, 100'000, 1000, 16, work).n_events, 8192u);
  // One for each thread, where events of a task share work.
  CHECK_EQ(choose_tasks(4096, 4097, 1'000'000, 2, work).n_events, 2049u);
  CHECK_EQ(choose_tasks(4096, 100'000, 1'000'000, 2, work).n_events, 4096u);
}

}  // namespace
}  // namespace tamis
