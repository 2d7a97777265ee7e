// From how many events on a call is quicker on a device: both are timed, and what they take is
//
//     ns of a call of n events  =  ns + event_ns * n          a line for each; they may cross
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

namespace tamis {

inline constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

struct CallTime {
  double n_events = 0, ns = 0;
};
// The line that is off by the least share of each time: in the usual way, by squares, the longest
// call would be all that counts. Neither part is negative.
CallCost fit_call_cost(std::span<const CallTime> times);
// The least events of a call for which `there` is clearly quicker; kNever: it is not.
std::size_t find_least_events(const CallCost& here, const CallCost& there);

struct Calibration {
  CallCost here, there;
  std::size_t least_events = kNever;
};
// An index with the engine that built it.
struct TimedIndex {
  const Index& index;
  const Engine& engine;
};
// Times calls of sampled events, repeated, as a matcher with so many threads makes them. Throws
// what the index on the device throws.
Calibration calibrate(TimedIndex here, TimedIndex there, std::size_t n_filters,
                      const EventBatch& events, std::size_t n_threads);

}  // namespace tamis
