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
std::shared_ptr<const SegmentPlan> plan_again(const Segment& segment, const SampledEvents& events);

EventFacts facts_of(const SampledEvents& events, bool is_guess);
// From 0, the same, to 1: how much attributes, positions and uses of events have changed.
double difference(const EventFacts& before, const EventFacts& now);

}  // namespace tamis
