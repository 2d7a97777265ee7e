// Do the plans still suit the events? And what they are, for a person.
//
// After some sampled events the merging thread looks at each planned segment: if the events have
// hardly changed, and the work of its indexes on them is about what was estimated, that is all.
// Otherwise it plans again, by trials, and a segment that would be much cheaper with other engines
// is stale: the next merge takes it alone.
#include <algorithm>
#include <chrono>

#include "planner.hpp"
#include "state.hpp"

namespace tamis {
namespace {

constexpr double kWorse = 1.05;          // instead of kMuchWorse for a plan that was a guess, once
constexpr double kMaxDifference = 0.2;   // of facts about events that is taken for chance
constexpr std::size_t kLookEvents = 32;  // that are run through the indexes
constexpr int kLookPause = 50;           // times as long as a look nobody asks for the next one
constexpr int kOtherLookPause = 2;       // the same where events come in another way, at first

SampledEvents first_events(const SampledEvents& sampled, std::size_t n_most) {
  const EventBatch& events = sampled.events;
  SampledEvents first;
  first.uses = sampled.uses;
  EventBatch& some = first.events;
  some.n_known = events.n_known;
  some.catalogue_id = events.catalogue_id;
  for (std::size_t event = 0; event < std::min(n_most, events.size()); ++event) {
    for (std::size_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
      some.add(events.attributes[at], events.values[at]);
    }
    if (events.has_positions()) some.add_position(events.x[event], events.y[event]);
    some.end_event();
  }
  return first;
}

// How many times as much as with the new plan the present choice would cost. What was not tried is
// measured; its engine, with the parameters that suit best, is no dearer, and estimates err alike.
double times_as_much(const Segment& segment, const SegmentPlan& fresh,
                     const SampledEvents& events) {
  double least_ns = 0;
  if (segment.groups().size() == 1) {
    const Estimate* const own = fresh.whole.find(segment.choice());
    if (own != nullptr) return own->ns / fresh.ns();
    for (const Estimate& estimate : fresh.whole.estimates) {
      if (estimate.choice.engine != segment.choice().engine) continue;
      if (least_ns == 0) least_ns = estimate.ns;  // the first is the least
    }
  }
  return std::max(measure_ns(segment, events), least_ns) / fresh.ns();
}

// With the parameters of that plan, or with others?
bool has_engines_of(const Segment& segment, const SegmentPlan& plan) {
  return segment.groups().size() == plan.groups.size() &&
         std::equal(segment.groups().begin(), segment.groups().end(), plan.groups.begin(),
                    [](const Group& group, const GroupPlan& planned) {
                      return group.choice().engine == planned.choice.engine;
                    });
}

bool has_choices_of(const Segment& segment, const SegmentPlan& plan) {
  return segment.groups().size() == plan.groups.size() &&
         std::equal(segment.groups().begin(), segment.groups().end(), plan.groups.begin(),
                    [](const Group& group, const GroupPlan& planned) {
                      return group.choice() == planned.choice;
                    });
}

EngineEstimate to_reasons(const Estimate& estimate) {
  const Work& work = estimate.work;
  EngineEstimate reasons{estimate.choice.engine->name, estimate.choice.parameters, estimate.ns,
                         estimate.is_measured,         estimate.n_bytes,           {}};
  const std::pair<const char*, double> all[] = {
      {"filters", work.filters},       {"constraints", work.constraints},
      {"candidates", work.candidates}, {"cells", work.cells},
      {"nodes", work.nodes},           {"bits", work.bits}};
  for (const auto& [name, amount] : all) {
    if (amount > 0) reasons.work.emplace_back(name, amount);
  }
  return reasons;
}

}  // namespace

std::vector<SegmentReasons> Matcher::State::plan() const {
  const std::lock_guard lock(writer_);
  std::vector<SegmentReasons> all;
  for (const auto& segment : segments_) {
    SegmentReasons& each = all.emplace_back();
    each.n_filters = segment->size();
    each.is_indexed = segment->is_indexed();
    each.is_planned = segment->is_planned();
    const auto known = plans_.find(segment->serial());
    const SegmentPlan* plan = known == plans_.end() ? nullptr : known->second.get();
    if (plan != nullptr) {
      each.n_events = plan->events.n_events;
      each.is_guess = plan->events.is_guess;
      each.n_attributes = plan->events.n_attributes;
      each.positions = plan->events.positions;
      each.to_subscribers = plan->events.uses.to_subscribers();
      each.n_matches = plan->n_matches;
      each.planning_s = plan->seconds;
      each.best_ns = plan->ns();
      each.best_single_ns = plan->whole.chosen().ns;
    }
    const bool is_as_planned = plan != nullptr && has_engines_of(*segment, *plan);
    for (std::size_t at = 0; at < segment->groups().size(); ++at) {
      const Group& group = segment->groups()[at];
      GroupReasons& reasons = each.groups.emplace_back();
      reasons.engine = group.engine().name;
      reasons.parameters = group.choice().parameters;
      reasons.n_filters = group.size();
      reasons.n_index_bytes = group.index().n_bytes();
      if (group.twin() != nullptr) reasons.device = group.twin()->reasons();
      if (plan == nullptr) continue;
      const GroupPlan& planned = is_as_planned ? plan->groups[at] : plan->whole;
      reasons.filters = planned.filters;
      reasons.n_trial_filters = planned.n_trial_filters;
      for (const Estimate& estimate : planned.estimates) {
        reasons.estimates.push_back(to_reasons(estimate));
      }
    }
  }
  return all;
}

void Matcher::State::ask_for_look() {
  const std::unique_lock lock(writer_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // the next event asks again
  if (is_look_asked_) return;
  const auto now = std::chrono::steady_clock::now();
  const bool is_due = sample->n_taken() >= next_look_ && now >= no_look_before_;
  const bool is_other = sample->has_other_use() && now >= no_other_look_before_;
  if (!is_due && !is_other) {  // not before some more events were taken: asking takes time
    if (sample->n_taken() >= next_look_) next_look_ = sample->n_taken() + kFirstLook;
    sample->forget_other_use();
    return;
  }
  is_look_asked_ = true;
  is_for_other_use_ = is_other;
  wake_merger();
}

bool Matcher::State::has_new_events() const {
  if (!sample || segments_.empty()) return false;
  const std::uint64_t n_new = sample->n_taken() - last_look_;
  return n_new >= kLookEvents;
}

bool Matcher::State::wants_twins() const {
  return translator && std::any_of(segments_.begin(), segments_.end(), [&](const auto& segment) {
           return translator->wants(*segment);
         });
}

// Builds indexes on a device beside those that are there.
void Matcher::State::translate(std::unique_lock<std::mutex>& lock) {
  const std::vector<std::shared_ptr<const Segment>> segments = segments_;
  const std::shared_ptr<const Names> names = catalogue_.names();
  lock.unlock();
  std::exception_ptr error;
  try {
    const SampledEvents events = sample->read(names->catalogue_id(), names->size());
    for (const auto& segment : segments) {
      if (translator->wants(*segment)) translator->translate(*segment, events, false);
    }
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error) merge_error_ = error;
}

void Matcher::State::put_off_look() {
  look_interval_ = kFirstLook;
  next_look_ = sample->n_taken() + look_interval_;
}

void Matcher::State::run_look(std::unique_lock<std::mutex>& lock) {
  is_look_asked_ = false;
  n_other_looks_ = std::max(0, n_other_looks_ + (is_for_other_use_ ? 1 : -1));
  is_for_other_use_ = false;
  sample->know_uses();
  merger_.is_busy = merger_.is_long = true;
  last_look_ = sample->n_taken();
  look_interval_ = std::min(2 * look_interval_, kMaxLookInterval);
  next_look_ = last_look_ + look_interval_;
  const std::vector<std::shared_ptr<const Segment>> segments = segments_;
  auto plans = plans_;
  const std::shared_ptr<const Names> names = catalogue_.names();
  wake_merger();  // there may be a small merge to do meanwhile
  lock.unlock();
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::shared_ptr<const Segment>> stale;
  std::exception_ptr error;
  try {
    const SampledEvents events = sample->read(names->catalogue_id(), names->size());
    const EventFacts facts = facts_of(events, false);
    const SampledEvents few = first_events(events, kLookEvents);
    // Gives a plan if the present one has to be looked at again.
    const auto look_at = [&](const Segment& segment) -> std::shared_ptr<const SegmentPlan> {
      if (few.events.size() < kLookEvents) return nullptr;
      for (const Group& group : segment.groups()) group.check();
      const std::shared_ptr<const SegmentPlan> plan = plans[segment.serial()];
      if (plan && !plan->events.is_guess && difference(plan->events, facts) < kMaxDifference &&
          model_ns(segment, few) < kAsExpected * std::max(plan->model_ns(), plan->seen_ns)) {
        return nullptr;
      }
      return plan_again(segment, plan.get(), events);
    };
    for (const auto& segment : segments) {
      if (!segment->is_planned()) continue;
      std::shared_ptr<const SegmentPlan> fresh = look_at(*segment);
      const bool is_again = fresh != nullptr;
      const std::shared_ptr<const SegmentPlan>& plan = plans[segment->serial()];
      const double most = plan && !plan->events.is_guess ? kMuchWorse : kWorse;
      if (is_again && !has_choices_of(*segment, *fresh) &&
          times_as_much(*segment, *fresh, few) > most) {
        stale.push_back(segment);
        continue;
      }
      if (is_again) {
        // Estimates may be wrong for good: what was found stands, until it becomes worse.
        auto seen = std::make_shared<SegmentPlan>(*fresh);
        seen->seen_ns = model_ns(*segment, few);
        plans[segment->serial()] = std::move(seen);
      }
      translator->translate(*segment, events, is_again);
    }
    translator->grow_older();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  const auto ended = std::chrono::steady_clock::now();
  no_look_before_ = ended + kLookPause * (ended - began);
  const int other_pause = std::min(kLookPause, kOtherLookPause << std::min(n_other_looks_, 8));
  no_other_look_before_ = ended + other_pause * (ended - began);
  if (error) merge_error_ = error;
  for (const auto& segment : segments) {
    if (std::find(segments_.begin(), segments_.end(), segment) == segments_.end()) continue;
    if (std::find(stale.begin(), stale.end(), segment) != stale.end()) {
      stale_.push_back(segment);
    } else if (plans[segment->serial()]) {
      plans_[segment->serial()] = plans[segment->serial()];
    }
  }
  merger_.end();
  merger_is_idle_.notify_all();
}

}  // namespace tamis
