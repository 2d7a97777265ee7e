#include "planner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "guessed_events.hpp"
#include "stopwatch.hpp"
#include "trial_targets.hpp"

namespace tamis {
namespace {

// Up to so many filters are tried in full, above one of kTrialShare, but not more than the most.
// One of 32 was too few: of 100,000 filters of a skewed mix, tuple-key took 3.0 ns a filter with
// 2,048, whose keys are coarser, 1.0 with 8,192 and 1.4 with all of them.
constexpr std::size_t kMinTrialFilters = 2048;
constexpr std::size_t kMaxTrialFilters = 16 * 1024;
constexpr std::size_t kTrialShare = 8;
constexpr std::size_t kSmallerTrial = 2;  // the second trial has half, to see how work grows
constexpr std::size_t kGuessedEvents = 64;
constexpr std::size_t kMinEvents = 16;  // fewer say less than a guess
// A kind with fewer filters is not worth an index of its own.
constexpr std::size_t kMinGroupFilters = 256;
// A plan that is not the simplest must be so much cheaper: estimates are not better than that.
constexpr double kWorthwhile = 0.67;
// The same for subscribers: one that is settled in a group is looked for in the others all the
// same, and an engine with its likeliest filters in front loses them to several.
constexpr double kWorthwhileForSubscribers = 0.5;
// So few that engines have the likeliest filters of each in front (tuple_key/likely.hpp).
constexpr std::size_t kFewSubscribers = 64;
// Events are of one width if nine of ten have at most so many times the attributes of one of ten.
constexpr double kSameWidth = 2;
// Work below this, over all events of a trial, is too little to tell how it grows.
constexpr double kMinCounted = 64;
// An index of the first size lies in the caches of a core, of the second in memory.
constexpr double kNearBytes = 1 << 20, kFarBytes = 64 << 20;
constexpr std::size_t kCounted = 32;  // events whose work is counted where an estimate was wrong
// What a share of the time that went to other uses counts beside a change of attributes: it varies
// more from one second to the next.
constexpr double kUseWeight = 0.5;

enum FilterKind : std::uint8_t { kLocated, kFixed, kOther, kNumKinds };
constexpr const char* kKindNames[] = {"with an area", "with a fixed value", "others"};

bool is_fixed(const FilterTable& table, const Constraint& constraint) {
  if (!constraint.needs_attribute()) return false;
  if (constraint.is_interval()) {
    const NumberRange& range = table.number(constraint.set);
    return range.low == range.high && range.high_fine == range.low_fine + 1;
  }
  const GeneralSet& set = table.general(constraint);
  if (set.patterns.count > 0 || set.numbers.count > 0) return false;
  if (set.strings.count == 0) {
    return set.flags == GeneralSet::kTrue || set.flags == GeneralSet::kFalse;
  }
  if (set.strings.count > 1 || set.flags != 0) return false;
  const FilterTable::StringRange& range = table.string(set.strings.first);
  return !range.high_is_unbounded && !range.low_is_after && range.high_is_after &&
         table.text(range.low_at, range.low_length) == table.text(range.high_at, range.high_length);
}

FilterKind kind_of(const FilterTable& table, FilterIdx idx) {
  const FilterTable::Filter& filter = table.filter(idx);
  for (std::uint32_t at = 0; at < filter.areas.count; ++at) {
    if (!table.area(filter.areas.first + at).is_negated) return kLocated;
  }
  for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
    if (is_fixed(table, table.constraint(filter.constraints.first + at))) return kFixed;
  }
  return kOther;
}

// Filters that are planned together, as runs of whole subscriptions.
struct Part {
  std::string name;
  std::vector<std::pair<FilterIdx, FilterIdx>> runs;
  std::size_t n_filters = 0;

  void add(FilterIdx begin, FilterIdx end) {
    n_filters += end - begin;
    if (!runs.empty() && runs.back().second == begin) {
      runs.back().second = end;
    } else {
      runs.emplace_back(begin, end);
    }
  }
};

std::vector<Part> divide(const SegmentFilters& filters) {
  std::array<Part, kNumKinds> kinds;
  for (std::size_t begin = 0, end = 0; begin < filters.size(); begin = end) {
    end = filters.end_of_slot(begin);
    FilterKind kind = kLocated;  // the least of them
    for (std::size_t filter = begin; filter < end; ++filter) {
      kind = std::max(kind, kind_of(*filters.table, static_cast<FilterIdx>(filter)));
    }
    kinds[kind].add(static_cast<FilterIdx>(begin), static_cast<FilterIdx>(end));
  }
  std::vector<Part> parts;
  for (std::size_t kind = 0; kind < kNumKinds; ++kind) {
    if (kinds[kind].n_filters == 0) continue;
    kinds[kind].name = kKindNames[kind];
    parts.push_back(std::move(kinds[kind]));
  }
  const bool has_small = std::any_of(parts.begin(), parts.end(), [](const Part& part) {
    return part.n_filters < kMinGroupFilters;
  });
  if (parts.size() > 1 && !has_small) return parts;
  if (parts.size() == 3) {  // the small ones join the others
    std::vector<Part> joined;
    Part rest{.name = kKindNames[kOther], .runs = {}, .n_filters = 0};
    for (Part& part : parts) {
      if (part.n_filters >= kMinGroupFilters && part.name != kKindNames[kOther]) {
        joined.push_back(std::move(part));
        continue;
      }
      for (const auto& [begin, end] : part.runs) rest.add(begin, end);
    }
    std::sort(rest.runs.begin(), rest.runs.end());
    if (rest.n_filters >= kMinGroupFilters && !joined.empty()) {
      joined.push_back(std::move(rest));
      return joined;
    }
  }
  Part all{.name = "all", .runs = {}, .n_filters = 0};
  if (filters.size() > 0) all.add(0, static_cast<FilterIdx>(filters.size()));
  return {all};
}

// Every k-th filter of a part.
std::shared_ptr<FilterTable> sample_of(const FilterTable& table, const Part& part,
                                       std::size_t n_wanted) {
  auto sample = std::make_shared<FilterTable>(table.space());
  std::size_t n_before = 0, n_taken = 0;
  for (const auto& [begin, end] : part.runs) {
    for (; n_taken < n_wanted; ++n_taken) {
      const std::size_t place = n_taken * part.n_filters / n_wanted;
      if (place >= n_before + (end - begin)) break;
      const auto filter = static_cast<FilterIdx>(begin + (place - n_before));
      sample->append(table, filter, filter + 1, {});
    }
    n_before += end - begin;
  }
  return sample;
}

struct Sample {
  std::shared_ptr<const FilterTable> table;
  TrialTargets targets;
};

struct Counted {
  Work work;  // of an event
  double n_matches = 0;
};

Counted count_work(const Index& index, const TrialTargets& targets, const EventBatch& events,
                   std::size_t n_most = ~std::size_t{0}) {
  Stamps stamps;
  CollectorBuffers buffers;
  Collector out(targets.setup(), stamps, buffers);
  const std::unique_ptr<Scratch> scratch = index.make_scratch();
  const std::size_t n_counted = std::min(n_most, events.size());
  index.match(events, 0, n_counted, *scratch, out);
  const auto n_events = static_cast<double>(n_counted);
  const auto per_event = [&](std::uint64_t n) { return static_cast<double>(n) / n_events; };
  const Counters& all = out.counters;
  return {{per_event(all.filters), per_event(all.constraints), per_event(all.candidates),
           per_event(all.cells), per_event(all.nodes), per_event(all.bits)},
          per_event(out.targets().size())};
}

constexpr double Work::* kUnits[] = {&Work::filters, &Work::constraints, &Work::candidates,
                                     &Work::cells,   &Work::nodes,       &Work::bits};

// A cost model in two parts: what an event costs anyway, and what grows with the filters.
struct Modelled {
  double fixed = 0, growing = 0;
};

Modelled model(const CostModel& cost, const Work& work, const EventFacts& facts, double n_matches,
               double n_bytes) {
  const auto fixed = [&](const WorkCost& each) {
    return each.event + each.number * (facts.n_attributes - facts.n_strings) +
           each.string * facts.n_strings;
  };
  const auto growing = [&](const WorkCost& each) {
    return each.match * n_matches + each.filter * work.filters +
           each.constraint * work.constraints + each.candidate * work.candidates +
           each.cell * work.cells + each.node * work.nodes + each.bit * work.bits;
  };
  const double far =
      std::clamp(std::log(n_bytes / kNearBytes) / std::log(kFarBytes / kNearBytes), 0.0, 1.0);
  return {(1 - far) * fixed(cost.near) + far * fixed(cost.far),
          (1 - far) * growing(cost.near) + far * growing(cost.far)};
}

// So many filters must match an event, one after another, until one of every subscriber has: as
// likely as not. Each of a subscriber's filters is as likely to match as any other.
double matches_until_settled(std::span<const std::uint32_t> subscriber_of) {
  const TrialTargets subscribers = TrialTargets::subscribers(subscriber_of);
  std::vector<std::uint32_t> n_filters_of(subscribers.n_all());
  for (const std::uint32_t subscriber : subscribers.of()) ++n_filters_of[subscriber];
  std::sort(n_filters_of.begin(), n_filters_of.end(), std::greater<>());
  const auto chance_of_all = [&](double n_matches) {
    double chance = 1;
    for (std::size_t at = 0; at < n_filters_of.size() && n_filters_of[at] > 0; ++at) {
      chance *=
          1 - std::exp(-n_matches * n_filters_of[at] / static_cast<double>(subscriber_of.size()));
      if (chance < 0.5) break;
    }
    return chance;
  };
  double low = 0, high = 1;
  while (chance_of_all(high) < 0.5) high *= 2;
  while (high - low > 0.01 * high) {
    const double middle = (low + high) / 2;
    (chance_of_all(middle) < 0.5 ? low : high) = middle;
  }
  return high;
}

struct Trial {
  Estimate estimate;
  std::shared_ptr<const Index> index, smaller;
  double n_matches = 0;  // of all filters
  Modelled full, tried, tried_smaller;
};

// From the times of a trial and of a smaller one. What grew between them is the part that grows,
// and the model says how much more all filters take; so a unit of work that is dearer here than the
// model has it is reckoned with. Where the work hardly grew, the difference of two times is chance,
// and the part that grows is as large as the model has it.
double extrapolate(const Trial& trial, double ns, double smaller_ns) {
  const double growth = trial.tried.growing / std::max(1e-9, trial.tried_smaller.growing);
  const double share = growth > 1.05 ? growth / (growth - 1) : 1;
  const double least = std::min(ns, trial.tried.growing);
  const double measured = std::clamp((ns - smaller_ns) * share, least, ns);
  const double modelled = ns * trial.tried.growing / (trial.tried.fixed + trial.tried.growing);
  const double trust = std::clamp(growth - 1, 0.0, 1.0);
  const double growing = trust * measured + (1 - trust) * modelled;
  const double more = trial.full.growing / std::max(1e-9, trial.tried.growing);
  return (ns - growing) * trial.full.fixed / std::max(1e-9, trial.tried.fixed) + growing * more;
}

TrialTargets targets_of(const Group& group, const EventFacts& facts) {
  return facts.is_for_subscribers()
             ? TrialTargets::subscribers(group.filters().subscriber_of.span())
             : TrialTargets::own(group.size(),
                                 TrialTargets::are_runs(group.filters().slot_of.span()));
}

double measure(const Group& group, const EventFacts& facts, const EventBatch& events) {
  const TrialTargets targets = targets_of(group, facts);
  const std::vector<Uses::Way> ways = facts.uses.ways();
  Stopwatch watch(group.index(), targets, ways);
  for (std::size_t round = 0; round < Stopwatch::kRounds; ++round) watch.run(events);
  return watch.least_ns();
}

void correct(GroupPlan& plan, const Group& group, double ns, const EventFacts& facts,
             const EventBatch& events) {
  const TrialTargets targets = targets_of(group, facts);
  plan.correct(group.choice(), ns, count_work(group.index(), targets, events, kCounted).work);
}

class Planner {
 public:
  Planner(const SegmentFilters& filters, const SampledEvents& seen) : filters_(filters) {
    const bool is_guess = seen.events.size() < kMinEvents;
    if (is_guess) guessed_.events = guess_events(*filters.table, kGuessedEvents);
    facts_ = facts_of(is_guess ? guessed_ : seen, is_guess);
    events_ = is_guess ? &guessed_.events : &seen.events;
    if (facts_.is_for_subscribers() && filters.size() > 0) {
      const std::span<const std::uint32_t> subscribers = filters.subscriber_of.span();
      n_until_settled_ = matches_until_settled(subscribers);
      n_subscribers_ = TrialTargets::subscribers(subscribers).n_all();
    }
  }

  SegmentPlan plan();
  // An index of a plan's only group that a trial has built already, or null.
  std::shared_ptr<const Index> take_index() { return std::move(index_); }
  const std::vector<Part>& parts() const { return parts_; }
  // With the engine that was chosen, or with another if that one disappoints.
  Group build(SegmentFilters filters, GroupPlan& plan) const;

 private:
  GroupPlan plan_part(const Part& part, bool keeps_index);
  std::vector<Estimate> candidates(const Part& part) const;  // without estimates yet
  Trial try_out(const Estimate& candidate, const Part& part, const Sample& sample,
                const Sample* smaller) const;

  const SegmentFilters& filters_;
  SampledEvents guessed_;
  const EventBatch* events_ = nullptr;
  EventFacts facts_;
  // Matches after which an event needs no further look; for subscriptions that is never.
  double n_until_settled_ = std::numeric_limits<double>::infinity();
  std::size_t n_subscribers_ = 0;  // 0: it does not matter
  std::vector<Part> parts_;        // of the groups of the plan
  std::shared_ptr<const Index> index_;
  double n_matches_ = 0;
};

std::vector<Estimate> Planner::candidates(const Part& part) const {
  bool has_areas = false;
  std::uint32_t features = 0, n_constraints = 0;
  for (const auto& [begin, end] : part.runs) {
    for (FilterIdx filter = begin; filter < end; ++filter) {
      has_areas = has_areas || filters_.table->filter(filter).areas.count > 0;
      features |= features_of(*filters_.table, filter);
      n_constraints = std::max(n_constraints, filters_.table->filter(filter).constraints.count);
    }
  }
  std::vector<Estimate> found;
  for (const Engine& engine : engines()) {
    if (!engine.is_exact || engine.costs.empty() || !engine.unavailable().empty()) continue;
    if ((features & ~engine.features) != 0 || n_constraints > engine.n_most_constraints) continue;
    for (const CostModel& cost : engine.costs) {
      if (cost.needs_areas && !has_areas) continue;
      if (cost.needs_events && facts_.is_guess) continue;
      Parameters given;
      Estimate& candidate = found.emplace_back();
      candidate.cost = &cost;
      if (cost.parameter != nullptr) {
        given[cost.parameter] = std::isnan(cost.value) ? facts_.usual_width : cost.value;
      }
      candidate.tried_with = complete_parameters(engine, given);
      // What a guess says of events is good for a trial, and not for the index.
      if (facts_.is_guess && cost.parameter != nullptr && std::isnan(cost.value)) given.clear();
      candidate.choice = {&engine, complete_parameters(engine, given)};
    }
  }
  return found;
}

Trial Planner::try_out(const Estimate& candidate, const Part& part, const Sample& sample,
                       const Sample* smaller) const {
  const EngineChoice& choice = candidate.choice;
  Trial trial;
  trial.estimate = candidate;
  trial.index = choice.engine->build(sample.table, candidate.tried_with);
  const Counted counted = count_work(*trial.index, sample.targets, *events_);
  const auto n_sampled = static_cast<double>(sample.table->size());
  const double scale = static_cast<double>(part.n_filters) / n_sampled;
  const auto n_bytes = static_cast<double>(trial.index->n_bytes());
  trial.tried = model(*candidate.cost, counted.work, facts_, counted.n_matches, n_bytes);
  trial.n_matches = counted.n_matches * scale;
  trial.estimate.work = counted.work;
  trial.estimate.n_bytes = n_bytes * scale;
  if (smaller != nullptr) {
    trial.smaller = choice.engine->build(smaller->table, candidate.tried_with);
    const Counted fewer = count_work(*trial.smaller, smaller->targets, *events_);
    trial.tried_smaller = model(*candidate.cost, fewer.work, facts_, fewer.n_matches,
                                static_cast<double>(trial.smaller->n_bytes()));
    const double ratio = n_sampled / static_cast<double>(smaller->table->size());
    for (const auto unit : kUnits) {
      const double more = counted.work.*unit, less = fewer.work.*unit;
      // Work grows as a power of the filters, between not at all and in proportion.
      const bool is_clear = less * static_cast<double>(events_->size()) >= kMinCounted;
      const double power =
          is_clear ? std::clamp(std::log(more / less) / std::log(ratio), 0.0, 1.0) : 1.0;
      trial.estimate.work.*unit = more * std::pow(scale, power);
    }
    // Engines stop where every subscriber is settled; a sample has too few matches to get there.
    const double until = n_subscribers_ <= kFewSubscribers
                             ? candidate.cost->settling * n_until_settled_
                             : n_until_settled_;
    const double looked_at = std::min(1.0, until / std::max(1e-9, trial.n_matches));
    trial.n_matches *= looked_at;
    for (const auto unit : kUnits) trial.estimate.work.*unit *= looked_at;
  }
  trial.full =
      model(*candidate.cost, trial.estimate.work, facts_, trial.n_matches, trial.estimate.n_bytes);
  trial.estimate.model_ns = trial.full.fixed + trial.full.growing;
  return trial;
}

GroupPlan Planner::plan_part(const Part& part, bool keeps_index) {
  const std::size_t n_tried = std::min(
      part.n_filters, std::clamp(part.n_filters / kTrialShare, kMinTrialFilters, kMaxTrialFilters));
  const bool is_whole = n_tried == filters_.size();
  const bool has_runs =
      part.n_filters == filters_.size() && TrialTargets::are_runs(filters_.slot_of.span());
  const Sample sample{is_whole ? std::shared_ptr<const FilterTable>(filters_.table)
                               : sample_of(*filters_.table, part, n_tried),
                      is_whole && facts_.is_for_subscribers()
                          ? TrialTargets::subscribers(filters_.subscriber_of.span())
                          : TrialTargets::own(n_tried, has_runs)};
  std::optional<Sample> smaller;
  if (n_tried < part.n_filters) {
    const std::size_t n_fewer = n_tried / kSmallerTrial;
    smaller = {sample_of(*filters_.table, part, n_fewer), TrialTargets::own(n_fewer, has_runs)};
  }
  GroupPlan plan;
  plan.filters = part.name;
  plan.n_filters = part.n_filters;
  plan.n_trial_filters = n_tried;
  std::vector<Trial> trials;
  for (const Estimate& candidate : candidates(part)) {
    const double least_matches = candidate.cost->least_share * static_cast<double>(part.n_filters);
    if (!trials.empty() && trials.front().n_matches < least_matches) continue;
    trials.push_back(try_out(candidate, part, sample, smaller ? &*smaller : nullptr));
  }
  const std::vector<Uses::Way> ways = facts_.uses.ways();
  std::vector<Stopwatch> watches;  // of each trial, then of each smaller one
  for (const Trial& trial : trials) watches.emplace_back(*trial.index, sample.targets, ways);
  for (const Trial& trial : trials) {
    if (trial.smaller) watches.emplace_back(*trial.smaller, smaller->targets, ways);
  }
  for (std::size_t round = 0; round < Stopwatch::kRounds; ++round) {
    for (Stopwatch& watch : watches) watch.run(*events_);
  }
  for (std::size_t at = 0; at < trials.size(); ++at) {
    const double ns = watches[at].least_ns();
    Estimate& estimate = trials[at].estimate;
    estimate.ns =
        smaller ? extrapolate(trials[at], ns, watches[at + trials.size()].least_ns()) : ns;
    estimate.trial_ns = estimate.ns;
    estimate.is_measured = !smaller && estimate.tried_with == estimate.choice.parameters;
  }
  // In the order of the table where they are equal.
  std::stable_sort(trials.begin(), trials.end(),
                   [](const Trial& a, const Trial& b) { return a.estimate.ns < b.estimate.ns; });
  for (const Trial& trial : trials) plan.estimates.push_back(trial.estimate);
  plan.choice = plan.estimates.front().choice;
  // An index that follows moves must know whose its filters are, which trials do not.
  const Estimate& best = trials.front().estimate;
  if (keeps_index && is_whole && best.tried_with == best.choice.parameters &&
      best.choice.engine->build_owned == nullptr) {
    index_ = std::move(trials.front().index);
  }
  n_matches_ += trials.front().n_matches;
  return plan;
}

SegmentPlan Planner::plan() {
  const double begin = cpu_seconds();
  SegmentPlan plan;
  plan.events = facts_;
  std::vector<Part> kinds = divide(filters_);
  Part all{.name = "all", .runs = {}, .n_filters = 0};
  all.add(0, static_cast<FilterIdx>(filters_.size()));
  plan.whole = plan_part(all, true);
  plan.n_matches = n_matches_;
  parts_ = {all};
  plan.groups = {plan.whole};
  if (kinds.size() > 1) {
    std::vector<GroupPlan> groups;
    std::vector<Part> parts;
    double ns = 0;
    for (const Part& kind : kinds) {
      GroupPlan group = plan_part(kind, false);
      ns += group.chosen().ns;
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const GroupPlan& each) {
        return each.choice == group.choice;
      });
      if (same == groups.end()) {
        groups.push_back(std::move(group));
        parts.push_back(kind);
        continue;
      }
      Part& joined = parts[static_cast<std::size_t>(same - groups.begin())];
      for (const auto& [first, last] : kind.runs) joined.add(first, last);
      std::sort(joined.runs.begin(), joined.runs.end());
      same->filters += " and " + group.filters;
      same->n_filters += group.n_filters;
      same->n_trial_filters += group.n_trial_filters;
      for (Estimate& estimate : same->estimates) {
        for (const Estimate& other : group.estimates) {
          if (!(other.choice == estimate.choice)) continue;
          estimate.ns += other.ns;
          estimate.model_ns += other.model_ns;
          estimate.n_bytes += other.n_bytes;
          for (const auto unit : kUnits) estimate.work.*unit += other.work.*unit;
        }
      }
    }
    const double most = facts_.is_for_subscribers() ? kWorthwhileForSubscribers : kWorthwhile;
    if (groups.size() > 1 && ns < most * plan.whole.chosen().ns) {
      plan.groups = std::move(groups);
      parts_ = std::move(parts);
      index_ = nullptr;
    }
  }
  plan.seconds = cpu_seconds() - begin;
  return plan;
}

// Trials over few filters do not foretell everything: tuples and keys become finer with more of
// them, or cannot any more. So the index is timed once it is there.
Group Planner::build(SegmentFilters filters, GroupPlan& plan) const {
  const auto shared = std::make_shared<const SegmentFilters>(std::move(filters));
  std::optional<Group> best;
  double best_ns = std::numeric_limits<double>::infinity();
  for (EngineChoice choice = plan.choice;; choice = plan.estimates.front().choice) {
    const bool is_first = !best;
    plan.choice = choice;
    const double estimated_ns = plan.chosen().ns;
    Group group(shared, choice);
    const double ns = measure(group, facts_, *events_);
    if (is_first && ns < kAsExpected * estimated_ns) return group;
    correct(plan, group, ns, facts_, *events_);
    if (is_first || ns < best_ns) {
      best_ns = ns;
      best.emplace(std::move(group));
    }
    plan.choice = best->choice();
    const Estimate& cheapest = plan.estimates.front();
    if (cheapest.is_measured || best_ns < kMuchWorse * cheapest.ns) return *std::move(best);
  }
}

// In steps, so that chance does not change a plan.
double usual_width(const EventBatch& events) {
  std::vector<std::uint64_t> widths;
  for (std::size_t event = 0; event < events.size(); ++event) {
    widths.push_back(events.offsets[event + 1] - events.offsets[event]);
  }
  std::sort(widths.begin(), widths.end());
  const auto low = static_cast<double>(widths[widths.size() / 10]);
  const auto high = static_cast<double>(widths[widths.size() * 9 / 10]);
  if (low < 1 || high > kSameWidth * low) return 0;
  const double middle = std::sqrt(low * high);
  return std::round(std::exp2(std::round(2 * std::log2(middle)) / 2));
}

}  // namespace

const Estimate* GroupPlan::find(const EngineChoice& wanted) const {
  const auto found =
      std::find_if(estimates.begin(), estimates.end(),
                   [&](const Estimate& estimate) { return estimate.choice == wanted; });
  return found == estimates.end() ? nullptr : &*found;
}

void GroupPlan::correct(const EngineChoice& built, double ns, const Work& work) {
  for (Estimate& estimate : estimates) {
    if (!(estimate.choice == built)) continue;
    estimate.ns = ns;
    estimate.work = work;
    estimate.is_measured = true;
  }
  sort();
}

void GroupPlan::correct(const GroupPlan& before) {
  for (Estimate& estimate : estimates) {
    const Estimate* const known = before.find(estimate.choice);
    if (known != nullptr && !estimate.is_measured) estimate.ns *= known->ns / known->trial_ns;
  }
  sort();
}

void GroupPlan::sort() {
  std::stable_sort(estimates.begin(), estimates.end(),
                   [](const Estimate& a, const Estimate& b) { return a.ns < b.ns; });
}

double SegmentPlan::ns() const {
  double all = 0;
  for (const GroupPlan& group : groups) all += group.chosen().ns;
  return all;
}

double SegmentPlan::model_ns() const {
  double all = 0;
  for (const GroupPlan& group : groups) all += group.chosen().model_ns;
  return all;
}

EventFacts facts_of(const SampledEvents& sampled, bool is_guess) {
  const EventBatch& events = sampled.events;
  EventFacts facts;
  facts.uses = sampled.uses;
  facts.is_guess = is_guess;
  facts.n_events = events.size();
  if (events.size() == 0) return facts;
  const auto n_events = static_cast<double>(events.size());
  facts.n_attributes = static_cast<double>(events.values.size()) / n_events;
  facts.usual_width = usual_width(events);
  for (const EventValue& value : events.values) {
    facts.n_strings += (value.kind == Kind::string ? 1 : 0) / n_events;
  }
  facts.presences.resize(events.n_known);
  for (const AttributeId attribute : events.attributes) facts.presences[attribute] += 1 / n_events;
  for (std::size_t event = 0; event < events.size(); ++event) {
    facts.positions += (events.has_position(event) ? 1 : 0) / n_events;
  }
  return facts;
}

double difference(const EventFacts& before, const EventFacts& now) {
  if (before.is_for_subscribers() != now.is_for_subscribers()) return 1;
  double apart = std::abs(before.positions - now.positions);
  double all = 1;
  const std::size_t n_most = std::max(before.presences.size(), now.presences.size());
  for (std::size_t attribute = 0; attribute < n_most; ++attribute) {
    const auto share = [&](const EventFacts& facts) {
      return attribute < facts.presences.size() ? facts.presences[attribute] : 0.0;
    };
    apart += std::abs(share(before) - share(now));
    all += std::max(share(before), share(now));
  }
  return std::max(apart / all, kUseWeight * difference(before.uses, now.uses));
}

PlannedSegment build_planned(SegmentFilters filters, const SampledEvents& events) {
  Planner planner(filters, events);
  auto plan = std::make_shared<SegmentPlan>(planner.plan());
  std::vector<Group> groups;
  if (plan->groups.size() == 1) {
    GroupPlan& only = plan->groups[0];
    if (std::shared_ptr<const Index> index = planner.take_index()) {
      groups.emplace_back(std::move(filters), only.choice, std::move(index));
    } else {
      groups.push_back(planner.build(std::move(filters), only));
      plan->whole = only;
    }
    return {Segment::planned(std::move(groups)), std::move(plan)};
  }
  std::vector<SegmentFilters> divided;
  for (const Part& part : planner.parts()) {
    SegmentFilters& own = divided.emplace_back(filters.table->space());
    for (const auto& [begin, end] : part.runs) own.append(filters, begin, end);
    own.shrink();
    own.centres = filters.centres;
  }
  filters = SegmentFilters(filters.table->space());
  for (std::size_t at = 0; at < divided.size(); ++at) {
    groups.push_back(planner.build(std::move(divided[at]), plan->groups[at]));
  }
  return {Segment::planned(std::move(groups)), std::move(plan)};
}

double measure_ns(const Segment& segment, const SampledEvents& events) {
  const EventFacts facts = facts_of(events, false);
  double ns = 0;
  for (const Group& group : segment.groups()) ns += measure(group, facts, events.events);
  return ns;
}

double model_ns(const Segment& segment, const SampledEvents& sampled) {
  const EventBatch& events = sampled.events;
  const EventFacts facts = facts_of(sampled, false);
  double ns = 0;
  for (const Group& group : segment.groups()) {
    const EngineChoice& choice = group.choice();
    const auto cost = std::find_if(choice.engine->costs.begin(), choice.engine->costs.end(),
                                   [&](const CostModel& each) {
                                     return each.parameter == nullptr || std::isnan(each.value) ||
                                            choice.parameters.at(each.parameter) == each.value;
                                   });
    if (cost == choice.engine->costs.end()) return std::numeric_limits<double>::infinity();
    const Counted counted = count_work(group.index(), targets_of(group, facts), events);
    const Modelled modelled = model(*cost, counted.work, facts, counted.n_matches,
                                    static_cast<double>(group.n_built_bytes()));
    ns += modelled.fixed + modelled.growing;
  }
  return ns;
}

std::shared_ptr<const SegmentPlan> plan_again(const Segment& segment, const SegmentPlan* before,
                                              const SampledEvents& events) {
  if (segment.groups().size() > 1) {
    SegmentFilters all(segment.groups()[0].table().space());
    for (const Group& group : segment.groups()) all.append(group.filters(), 0, group.size());
    return std::make_shared<SegmentPlan>(Planner(all, events).plan());
  }
  const Group& only = segment.groups()[0];
  auto plan = std::make_shared<SegmentPlan>(Planner(only.filters(), events).plan());
  if (before != nullptr) plan->whole.correct(before->whole);
  // Where the present index is better than its estimate, so may others be: only what is worse says
  // that the estimate is wrong.
  const EventFacts facts = facts_of(events, false);
  const Estimate* const own = plan->whole.find(only.choice());
  const double ns = own == nullptr || own->is_measured ? 0 : measure(only, facts, events.events);
  if (own != nullptr && ns > kAsExpected * own->ns) {
    correct(plan->whole, only, ns, facts, events.events);
  }
  plan->whole.choice = plan->whole.estimates.front().choice;
  if (plan->groups.size() == 1) plan->groups = {plan->whole};
  return plan;
}

}  // namespace tamis
