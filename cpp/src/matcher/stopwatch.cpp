#include "stopwatch.hpp"

#include <algorithm>
#include <ctime>

namespace tamis {
namespace {

// A round has at most so many events. One of single events ends early after so long; of batches,
// which have all of them, there are fewer rounds if together they would take longer.
constexpr std::size_t kTimedEvents = 64, kEventsAtOnce = 8, kLeastRounds = 2;
constexpr double kRoundSeconds = 0.0005;

}  // namespace

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Stopwatch::Stopwatch(const Index& index, const TrialTargets& targets,
                     std::span<const Uses::Way> ways)
    : index_(index), scratch_(index.make_scratch()), setup_(targets.setup()) {
  setup_.words_per_event = (setup_.n_targets + 63) / 64;
  for (const Uses::Way& way : ways) timed_.push_back({way});
}

void Stopwatch::run(const EventBatch& events) {
  for (Timed& timed : timed_) {
    const bool is_long = timed.seconds > kRounds * kRoundSeconds;
    if (timed.way.is_alone || timed.n_rounds < kLeastRounds || !is_long) run(events, timed);
  }
}

double Stopwatch::least_ns() const {
  double ns = 0;
  for (const Timed& timed : timed_) ns += timed.way.weight * timed.least_ns;
  return ns;
}

void Stopwatch::run(const EventBatch& events, Timed& timed) {
  const std::size_t n_events = std::min(events.size(), kTimedEvents);
  const std::size_t n_each_call = timed.way.is_alone ? 1 : n_events;
  Collector::Setup setup = setup_;
  setup.output = timed.way.output;
  if (setup.output == Output::bitset) {
    bits_.resize(std::max(bits_.size(), n_each_call * setup.words_per_event));
    setup.bits = bits_.data();
  }
  std::size_t done = 0;
  const double begin = cpu_seconds();
  double seconds = 0;
  while (done < n_events && seconds < kRoundSeconds) {
    const std::size_t end = std::min(done + std::max(kEventsAtOnce, n_each_call), n_events);
    for (; done < end; done += n_each_call) {
      if (setup.bits != nullptr) {
        std::fill_n(setup.bits, n_each_call * setup.words_per_event, 0);
      }
      Collector out(setup, stamps_, buffers_);
      index_.match(events, done, done + n_each_call, *scratch_, out);
    }
    seconds = cpu_seconds() - begin;
  }
  timed.least_ns = std::min(timed.least_ns, 1e9 * seconds / static_cast<double>(done));
  timed.seconds += seconds;
  ++timed.n_rounds;
}

}  // namespace tamis
