// Chooses engines for the filters of a segment: the planner behind engine="auto".
//
//     filters ─► kinds: with an area │ with a fixed value │ others        whole subscriptions
//                   │ a sample of each, and half of that
//                   ▼
//     trial indexes of each candidate engine ◄─ sample of events (event_sample.hpp, or guessed)
//                   │ the work that they count, for an event; how it grows with the filters
//                   ▼
//     ns of the trial × cost model of all the work / of the trial's (Engine::costs)
//                   │
//                   ▼
//     the cheapest engine for each kind, or for all
//                   │ built over all filters, and timed
//                   ▼
//     it stays, unless its estimate was wrong and another is quicker
//
// A candidate is an exact engine with a cost model in the table of engines. Trials are timed, since
// a unit of work is not always the same: a candidate of tuple-key costs 5 ns or, with an area, 60.
// Estimates from counts alone were wrong by up to 6 times (docs/planner.md). Few filters are tried
// in full, and the trial's index is kept.
#pragma once

#include <memory>

#include "event_sample.hpp"
#include "plan.hpp"

namespace tamis {

// An estimate may be so far from what is found; beyond, what was found counts.
inline constexpr double kAsExpected = 1.5;
// An index that takes so many times as much as another would is worth building again.
inline constexpr double kMuchWorse = 1.5;

struct PlannedSegment {
  std::shared_ptr<const Segment> segment;
  std::shared_ptr<const SegmentPlan> plan;
};

// Plans and builds. `events` may be empty: then they are guessed.
PlannedSegment build_planned(SegmentFilters filters, const SampledEvents& events);

// What an event costs with the indexes that the segment has, by their cost models.
double model_ns(const Segment& segment, const SampledEvents& events);
// The same by the clock.
double measure_ns(const Segment& segment, const SampledEvents& events);
// What it would cost if the segment were planned anew. Builds nothing but trials.
// `before` is the plan that the segment has, or null.
std::shared_ptr<const SegmentPlan> plan_again(const Segment& segment, const SegmentPlan* before,
                                              const SampledEvents& events);

EventFacts facts_of(const SampledEvents& events, bool is_guess);
// From 0, the same, to 1: how much attributes, positions and uses of events have changed.
double difference(const EventFacts& before, const EventFacts& now);

}  // namespace tamis
