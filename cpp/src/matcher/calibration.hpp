// From how many events on a call is quicker on a device: calls of a few sizes are timed on both,
// and between two sizes each takes its way straight; the two may cross.
//
//          here /
//              /      ____----  there: a launch, copies, then little for each event
//          ___/__----
//            /|
//           / least_events
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include "tamis/engine.hpp"
#include "tamis/matcher.hpp"
#include "trial_targets.hpp"

namespace tamis {

inline constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

struct CallTime {
  double n_events = 0, ns = 0;
};
// The line that is off by the least share of each time: in the usual way, by squares, the longest
// call would be all that counts. Neither part is negative.
CallCost fit_call_cost(std::span<const CallTime> times);
// The least events of a call from which on `there` is clearly quicker; kNever: it is not. Calls of
// the same sizes, the smallest first. Not by the fitted lines: several threads bend them.
std::size_t find_least_events(std::span<const CallTime> here, std::span<const CallTime> there);

struct Calibration {
  CallCost here, there;  // fitted, for a person
  std::size_t least_events = kNever;
};
// An index with the engine that built it.
struct TimedIndex {
  const Index& index;
  const Engine& engine;
};
// Times calls of sampled events, repeated, as a matcher with so many threads makes them. Throws
// what the index on the device throws.
Calibration calibrate(TimedIndex here, TimedIndex there, const TrialTargets& targets,
                      const EventBatch& events, std::size_t n_threads);

}  // namespace tamis
