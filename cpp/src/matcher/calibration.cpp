#include "calibration.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "common/thread_pool.hpp"
#include "published.hpp"
#include "tasks.hpp"

namespace tamis {
namespace {

// Calls of so many events are timed, from the least up.
constexpr std::size_t kSizes[] = {16, 256, 4096, 65536};
// A size is left out if a call on either side is expected to take longer than this, or to need more
// room: a merge waits meanwhile.
constexpr double kMostCallNs = 1e8;
constexpr double kMostValues = 1 << 22, kMostTargets = 1 << 24;
// Each call several times by turns, of which the least counts; long ones fewer times.
constexpr int kMostRounds = 5, kLeastRounds = 2;
constexpr double kLongNs = 2e7;
// What is not clearly quicker stays where it is.
constexpr double kWorthwhile = 0.9;

// Calls on one index, as Matcher::match makes them.
class Caller {
 public:
  Caller(TimedIndex timed, const TrialTargets& targets, std::size_t n_threads)
      : timed_(timed),
        n_threads_(n_threads),
        n_filters_(targets.of().size()),
        setup_(targets.setup()) {}

  double run(const EventBatch& events, std::size_t n_events) {
    const Tasks tasks =
        choose_tasks(timed_.engine.n_task_events, n_events, n_filters_, n_threads_, work_);
    const std::size_t n_task = tasks.n_events;
    n_found_ = 0;
    std::atomic<double> work_ns{0};
    const WallWatch whole;
    parallel_for((n_events + n_task - 1) / n_task, tasks.n_threads, [&](std::size_t task) {
      const WallWatch one;
      std::unique_ptr<Room> room = rooms_.take();
      if (!room->scratch) room->scratch = timed_.index.make_scratch();
      Collector out(setup_, room->stamps, room->buffers);
      const std::size_t begin = task * n_task;
      timed_.index.match(events, begin, std::min(begin + n_task, n_events), *room->scratch, out);
      n_found_ += out.targets().size();
      rooms_.give(std::move(room));
      work_ns += one.ns();
    });
    work_.see(n_events, work_ns);
    return whole.ns();
  }
  std::size_t n_found() const { return n_found_; }  // by the last call

 private:
  struct Room {
    std::unique_ptr<Scratch> scratch;
    Stamps stamps;
    CollectorBuffers buffers;
  };
  TimedIndex timed_;
  std::size_t n_threads_, n_filters_;
  Collector::Setup setup_;
  Spares<Room> rooms_;
  EventWork work_;
  std::atomic<std::size_t> n_found_{0};
};

// Appends copies of `some`, over and over, until there are so many. Their strings stay where they
// are.
void repeat(const EventBatch& some, std::size_t n_events, EventBatch& repeated) {
  while (repeated.size() < n_events) {
    const std::size_t event = repeated.size() % some.size();
    for (std::size_t at = some.offsets[event]; at < some.offsets[event + 1]; ++at) {
      repeated.add(some.attributes[at], some.values[at]);
    }
    if (some.has_positions()) repeated.add_position(some.x[event], some.y[event]);
    repeated.end_event();
  }
}

}  // namespace

CallCost fit_call_cost(std::span<const CallTime> times) {
  // Least squares of (ns + event_ns * n - time) / time.
  double one = 0, n = 0, nn = 0, t = 0, nt = 0;
  for (const CallTime& each : times) {
    const double weight = 1 / (each.ns * each.ns);
    one += weight;
    n += weight * each.n_events;
    nn += weight * each.n_events * each.n_events;
    t += weight * each.ns;
    nt += weight * each.n_events * each.ns;
  }
  if (one == 0) return {};
  const double spread = one * nn - n * n;
  if (!(spread > 1e-12 * one * nn)) return {0, nt / nn};  // all of one size
  const CallCost both{(t * nn - nt * n) / spread, (one * nt - n * t) / spread};
  if (both.ns < 0) return {0, nt / nn};
  if (both.event_ns < 0) return {t / one, 0};
  return both;
}

std::size_t find_least_events(std::span<const CallTime> here, std::span<const CallTime> there) {
  if (here.empty()) return kNever;
  const auto gain = [&](std::size_t at) { return kWorthwhile * here[at].ns - there[at].ns; };
  std::size_t first = here.size();  // from which on all gain
  while (first > 0 && gain(first - 1) > 0) --first;
  if (first == 0) return static_cast<std::size_t>(here[0].n_events);
  if (here.size() == 1) return kNever;
  // Between the size before and this one, or, if the largest does not gain, behind them.
  const std::size_t to = std::min(first, here.size() - 1), from = to - 1;
  const double slope = (gain(to) - gain(from)) / (here[to].n_events - here[from].n_events);
  if (!(slope > 0)) return kNever;
  const double least = std::ceil(here[from].n_events - gain(from) / slope);
  constexpr double kMost = 1 << 24;  // later is no crossing but chance
  return least < kMost ? static_cast<std::size_t>(least) : kNever;
}

Calibration calibrate(TimedIndex here, TimedIndex there, const TrialTargets& targets,
                      const EventBatch& events, std::size_t n_threads) {
  Caller callers[] = {{here, targets, n_threads}, {there, targets, n_threads}};
  std::vector<CallTime> times[2];
  EventBatch repeated;
  repeated.n_known = events.n_known;
  repeated.catalogue_id = events.catalogue_id;
  const double values_each =
      static_cast<double>(events.values.size()) / static_cast<double>(events.size());
  for (const std::size_t n_events : kSizes) {
    double longest = 0;
    for (std::size_t side = 0; side < 2 && !times[side].empty(); ++side) {
      const CallTime& last = times[side].back();
      const double share = static_cast<double>(n_events) / last.n_events;
      const CallCost fitted = fit_call_cost(times[side]);
      longest = std::max(longest, fitted.ns + fitted.event_ns * static_cast<double>(n_events));
      if (static_cast<double>(callers[side].n_found()) * share > kMostTargets) longest = 1e300;
    }
    if (longest > kMostCallNs || values_each * static_cast<double>(n_events) > kMostValues) break;
    repeat(events, n_events, repeated);
    double least[] = {1e300, 1e300};
    for (int round = 0; round < kMostRounds; ++round) {
      for (std::size_t side = 0; side < 2; ++side) {
        least[side] = std::min(least[side], callers[side].run(repeated, n_events));
      }
      if (round + 1 >= kLeastRounds && least[0] + least[1] > kLongNs) break;
    }
    for (std::size_t side = 0; side < 2; ++side) {
      times[side].push_back({static_cast<double>(n_events), std::max(1.0, least[side])});
    }
  }
  Calibration found;
  found.here = fit_call_cost(times[0]);
  found.there = fit_call_cost(times[1]);
  found.least_events = find_least_events(times[0], times[1]);
  return found;
}

}  // namespace tamis
