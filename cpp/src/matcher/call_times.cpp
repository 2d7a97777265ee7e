#include "call_times.hpp"

#include <algorithm>
#include <cmath>

namespace tamis {
namespace {

// Threads write at the same time and one of them is lost: the next call brings another.
constexpr auto kRelaxed = std::memory_order_relaxed;

// What is usual. One that took many times as long counts as twice, and one that took less than half
// says that what was known was such a one.
float follow(float known, float seen) {
  if (known == 0 || seen < known / 2) return seen;
  return known + (std::min(seen, 2 * known) - known) / 4;
}

}  // namespace

Side CallTimes::choose(CallKind call, Side expected) {
  Alike& calls = alike(call);
  if (calls.n_asked.load(kRelaxed) > 0) return calls.asked.load(kRelaxed);
  const auto event_ns = [&](Side side) {
    return calls.of_side[static_cast<std::size_t>(side)].load(kRelaxed);
  };
  const float host = event_ns(Side::host), device = event_ns(Side::device);
  const bool is_new = host == 0 || device == 0;
  const Side better = is_new ? expected : device < host ? Side::device : Side::host;
  const Side other = better == Side::host ? Side::device : Side::host;
  const auto ask = [&](Side side) {
    calls.asked.store(side, kRelaxed);
    calls.n_asked.store(kInARow, kRelaxed);
    calls.of_side[static_cast<std::size_t>(side)].store(0, kRelaxed);
    return side;
  };
  if (event_ns(better) == 0) return ask(better);
  const float times_better = is_new ? 1 : event_ns(other) / event_ns(better);
  const float price = kInARow * times_better * event_ns(better) * static_cast<float>(call.n_events);
  const int n_rounds = calls.n_rounds.load(kRelaxed);
  const float share = std::max(static_cast<float>(1 << std::min(n_rounds, kMostRounds)),
                               times_better * times_better);
  if (calls.spent_ns.load(kRelaxed) < share * price) return better;
  calls.n_rounds.store(n_rounds + 1, kRelaxed);
  return ask(other);
}

void CallTimes::see(CallKind call, Side side, double ns) {
  if (call.n_events == 0) return;
  Alike& calls = alike(call);
  std::atomic<float>& known = calls.of_side[static_cast<std::size_t>(side)];
  const float seen = static_cast<float>(ns / static_cast<double>(call.n_events));
  const float before = known.load(kRelaxed);
  if (const int n_asked = calls.n_asked.load(kRelaxed);
      n_asked > 0 && side == calls.asked.load(kRelaxed)) {
    known.store(before == 0 ? seen : std::min(before, seen), kRelaxed);
    calls.n_asked.store(n_asked - 1, kRelaxed);
    calls.spent_ns.store(0, kRelaxed);
    return;
  }
  known.store(follow(before, seen), kRelaxed);
  calls.spent_ns.store(calls.spent_ns.load(kRelaxed) + static_cast<float>(ns), kRelaxed);
}

void CallTimes::forget() {
  for (auto& of_kind : alike_) {
    for (Alike& calls : of_kind) {
      calls.of_side[static_cast<std::size_t>(Side::device)].store(0, kRelaxed);
      calls.spent_ns.store(0, kRelaxed);
      calls.n_asked.store(0, kRelaxed);
      calls.n_rounds.store(0, kRelaxed);
    }
  }
}

void EventWork::see(std::size_t n_events, double ns) {
  if (n_events == 0) return;
  const float seen = static_cast<float>(ns / static_cast<double>(n_events));
  event_ns_.store(follow(event_ns_.load(kRelaxed), seen), kRelaxed);
}

std::size_t EventWork::choose_threads(std::size_t n_events, std::size_t n_threads) const {
  // work / t + t * wake is least for the root of work / wake. Waking one took 3 to 5 µs on 16
  // cores.
  constexpr double kWakeNs = 4000;
  const double work_ns = event_ns_.load(kRelaxed) * static_cast<double>(n_events);
  if (work_ns == 0) return 0;
  const double best = std::sqrt(work_ns / kWakeNs);
  return static_cast<std::size_t>(std::clamp(best, 1.0, static_cast<double>(n_threads)));
}

}  // namespace tamis
