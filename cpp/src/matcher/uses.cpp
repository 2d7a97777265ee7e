#include "uses.hpp"

#include <algorithm>
#include <cmath>

namespace tamis {

// Who gets the events is the last digit, and the output the one before.
std::size_t Uses::place_of(const Use& use) {
  const std::size_t call = use.is_alone ? 1 : 0;
  return (call * kNumOutputs + static_cast<std::size_t>(use.output)) * 2 +
         static_cast<std::size_t>(use.deliver);
}

void Uses::add(const Use& use, double n_events, double ns) {
  const double counted = std::clamp(ns, 0.0, kMostNs);
  const double kept = 1 - counted / kRecentNs;
  for (Amount& each : of_) {
    each.n_events *= kept;
    each.ns *= kept;
  }
  Amount& own = of_[place_of(use)];
  own.n_events += n_events;
  own.ns += counted;
}

Uses::Amount Uses::total() const {
  Amount all;
  for (const Amount& each : of_) {
    all.n_events += each.n_events;
    all.ns += each.ns;
  }
  return all;
}

bool Uses::is_empty() const {
  const Amount all = total();
  return !(all.n_events > 0 && all.ns > 0);
}

double Uses::to_subscribers() const {
  if (is_empty()) return 0;
  double ns = 0;
  for (std::size_t place = static_cast<std::size_t>(Deliver::subscribers); place < kNumUses;
       place += 2) {
    ns += of_[place].ns;
  }
  return ns / total().ns;
}

std::vector<Uses::Way> Uses::ways() const {
  if (is_empty()) return {Way{}};
  const Amount all = total();
  std::vector<Way> found;
  double n_events = 0;
  for (std::size_t place = 0; place < kNumUses; place += 2) {
    const Amount &first = of_[place], &second = of_[place + 1];
    const Amount both{first.n_events + second.n_events, first.ns + second.ns};
    if (both.n_events < kLeastShare * all.n_events && both.ns < kLeastShare * all.ns) continue;
    const std::size_t digits = place / 2;
    found.push_back(
        {digits >= kNumOutputs, static_cast<Output>(digits % kNumOutputs), both.n_events});
    n_events += both.n_events;
  }
  for (Way& way : found) way.weight /= n_events;
  return found;
}

double difference(const Uses& before, const Uses& now) {
  if (before.is_empty() || now.is_empty()) return 0;
  const double all_before = before.total().ns, all_now = now.total().ns;
  double apart = 0;
  for (std::size_t place = 0; place < Uses::kNumUses; ++place) {
    apart += std::abs(before.of_[place].ns / all_before - now.of_[place].ns / all_now);
  }
  return apart / 2;
}

}  // namespace tamis
