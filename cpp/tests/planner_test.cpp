// What the planner compares, not what it finds: that depends on the machine.
#include "matcher/planner.hpp"

#include <algorithm>
#include <string_view>

#include "check.hpp"
#include "intervals.hpp"

namespace tamis {
namespace {

constexpr Use kSingleIds{true, Output::ids, Deliver::subscriptions};
constexpr Use kBatchBits{false, Output::bitset, Deliver::subscriptions};
constexpr Use kBatchCounts{false, Output::count, Deliver::subscriptions};

// Wide intervals: most filters match most events.
struct Wide {
  against_naive::Intervals made = against_naive::intervals(3000, 20, 3, 0.95, 20, 80);
  SegmentFilters filters() const {
    SegmentFilters all(Space::plane);
    all.table = made.table;
    for (std::uint32_t slot = 0; slot < made.n; ++slot) all.add(1, slot, slot);
    return all;
  }
  SampledEvents events(std::initializer_list<Use> uses) {
    SampledEvents sampled;
    sampled.events = std::move(made.events);
    for (const Use& use : uses) sampled.uses.add(use, 1, 1000);
    return sampled;
  }
};

const Estimate* find(const GroupPlan& plan, std::string_view engine) {
  const auto found =
      std::find_if(plan.estimates.begin(), plan.estimates.end(),
                   [&](const Estimate& each) { return each.choice.engine->name == engine; });
  return found == plan.estimates.end() ? nullptr : &*found;
}

// An engine that is left out of the trials can neither lose nor win against them by what they took.
TEST(an_engine_for_many_matches_is_tried_however_events_come) {
  for (const Use& use : {kSingleIds, kBatchBits, kBatchCounts}) {
    Wide wide;
    const PlannedSegment planned = build_planned(wide.filters(), wide.events({use}));
    CHECK(find(planned.plan->whole, "hem") != nullptr);
    CHECK(find(planned.plan->whole, "block-bitmap") != nullptr);
    for (const Estimate& each : planned.plan->whole.estimates) CHECK(each.ns > 0);
  }
}

TEST(a_segment_is_compared_with_other_engines_by_the_same_trials) {
  Wide wide;
  const EngineChoice hem{&find_engine("hem"), complete_parameters(find_engine("hem"), {})};
  std::vector<Group> groups;
  groups.emplace_back(wide.filters(), hem);
  const std::shared_ptr<const Segment> segment = Segment::planned(std::move(groups));
  const SampledEvents events = wide.events({kBatchBits});
  const std::shared_ptr<const SegmentPlan> fresh = plan_again(*segment, nullptr, events);
  const Estimate* const own = find(fresh->whole, "hem");
  CHECK(own != nullptr && own->choice == segment->choice());
  CHECK(measure_ns(*segment, events) > 0);
}

TEST(an_engine_for_many_matches_is_not_tried_on_a_guess) {
  Wide wide;
  const PlannedSegment planned = build_planned(wide.filters(), {});
  CHECK(planned.plan->events.is_guess);
  CHECK(find(planned.plan->whole, "hem") == nullptr);
}

TEST(events_differ_if_they_come_in_another_way) {
  Wide wide;
  SampledEvents sampled = wide.events({kSingleIds});
  const EventFacts before = facts_of(sampled, false);
  CHECK_EQ(difference(before, facts_of(sampled, false)), 0.0);
  sampled.uses = {};
  sampled.uses.add(kBatchBits, 1, 1000);
  CHECK(difference(before, facts_of(sampled, false)) >= 0.5);
}

}  // namespace
}  // namespace tamis
