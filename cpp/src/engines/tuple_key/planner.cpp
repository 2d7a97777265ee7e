#include "engines/tuple_key/planner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace tamis::tuple_key {
namespace {

// Measured on pcm-default and its variants (2-core Xeon, AVX-512, 2026-11-15, busy); those of far
// keys and of guards are estimates. With 0.4 a guard, nearer to what chunks cost, fpga-1m took 5.8
// us instead of 8.4, but hem with d = 300 5.0 instead of 3.3 and 24.4 bytes a constraint (2-core
// EPYC, AVX-512, 2026-11-17, busy).
constexpr double kProbeNs = 2;     // a key in the bitmap
constexpr double kFarProbeNs = 7;  // where the bitmap leaves the L2 cache
constexpr std::size_t kCachedFilters = 1 << 20;
constexpr double kFoundNs = 14;  // a key that has records, with the misses
constexpr double kFarFoundNs = 60;
constexpr double kGuardNs = 0.8;    // a place in a list, with its share of the misses
constexpr double kRecordNs = 3;     // a record that follows the one before
constexpr double kLineNs = 2;       // and each cache line of it
constexpr double kShapeNs = 2;      // a shape in use
constexpr double kWeakGuard = 0.9;  // a term that most events have is no guard
constexpr std::size_t kSampleSize = 256;
constexpr std::size_t kMostPlans = 3;
// A further plan costs about 12 bytes a filter: it must be this much quicker, on average over
// widths (which are equally likely in powers of two).
constexpr double kWorthwhile = 0.1;  // natural logarithm
constexpr double kImpossible = 1e9;
// Of a filter that are looked at for its key: more would hardly make it rarer.
constexpr std::size_t kMostTerms = 32;

double falling(double n, double step, int count) {
  double product = 1;
  for (int at = 0; at < count; ++at) product *= std::max(0.0, n - at * step) / (at + 1);
  return product;
}

}  // namespace

struct Planner::Sample {
  struct Chance {
    double key = 0;     // that an event has the best key of a shape
    double guards = 0;  // and then its guards
  };
  std::vector<std::array<Chance, kNumShapes>> chances;  // of each filter of the sample
};

Planner::Planner(const FilterTerms& filters, std::size_t n_attributes, double record_bytes,
                 const Settings& settings)
    : filters_(filters),
      settings_(settings),
      record_ns_(kRecordNs + kLineNs * record_bytes / 64),
      n_terms_of_(n_attributes),
      n_values_of_(n_attributes),
      n_distinct_of_(n_attributes),
      value_at_(n_attributes),
      popularity_rank_(n_attributes) {
  std::vector<std::uint32_t> n_ranks(n_attributes);
  for (const FilterTerm& term : filters.terms) {
    ++n_terms_of_[term.attribute];
    if (term.value == kNoValue) continue;
    ++n_values_of_[term.attribute];
    n_ranks[term.attribute] = std::max(n_ranks[term.attribute], term.value + 1);
  }
  std::uint64_t n_all = 0;
  for (std::size_t attribute = 0; attribute < n_attributes; ++attribute) {
    value_at_[attribute] = n_all;
    n_all += n_ranks[attribute];
    n_used_attributes_ += n_terms_of_[attribute] > 0;
  }
  value_counts_.resize(n_all);
  for (const FilterTerm& term : filters.terms) {
    if (term.value == kNoValue) continue;
    n_distinct_of_[term.attribute] += value_counts_[value_at_[term.attribute] + term.value]++ == 0;
  }
  std::vector<std::uint32_t> by_popularity(n_attributes);
  std::iota(by_popularity.begin(), by_popularity.end(), 0u);
  std::stable_sort(
      by_popularity.begin(), by_popularity.end(),
      [&](std::uint32_t a, std::uint32_t b) { return n_terms_of_[a] > n_terms_of_[b]; });
  for (std::uint32_t at = 0; at < n_attributes; ++at) popularity_rank_[by_popularity[at]] = at;

  std::size_t n_with_terms = 0;
  for (std::size_t filter = 0; filter < filters.size(); ++filter) {
    const auto n_terms = static_cast<std::uint32_t>(filters[filter].size());
    n_with_terms += n_terms > 0;
    n_most_terms_ = std::max(n_most_terms_, n_terms);
  }
  n_mean_terms_ = static_cast<double>(filters.terms.size()) /
                  static_cast<double>(std::max<std::size_t>(1, n_with_terms));
  const std::size_t n_sampled = std::min(kSampleSize, filters.size());
  for (std::size_t at = 0; at < n_sampled; ++at) {
    const auto filter = static_cast<std::uint32_t>(at * filters.size() / n_sampled);
    if (!filters[filter].empty()) sample_.push_back(filter);
  }

  std::vector<double> widths;
  if (settings.event_attributes > 0) {
    widths = {std::min<double>(settings.event_attributes, std::max(1u, n_used_attributes_))};
  } else {
    for (double width = 1; width < n_used_attributes_; width *= width < 4 ? 2 : std::sqrt(2)) {
      widths.push_back(std::round(width));
    }
    widths.push_back(std::max(1u, n_used_attributes_));
  }
  choose_plans(widths);
  fill_plan_of_width();
}

// Attributes are as likely in events as in filters, in proportion, until they are certain.
EventModel Planner::model_of(double n_attributes) const {
  EventModel model;
  model.presences.resize(n_terms_of_.size());
  const double n_all = static_cast<double>(filters_.terms.size());
  if (n_all == 0) return model;
  double scale = n_attributes / n_all;
  for (int round = 0; round < 20; ++round) {
    double n_certain = 0, n_rest = 0;
    for (const std::uint32_t count : n_terms_of_) {
      if (count * scale >= 1) {
        ++n_certain;
      } else {
        n_rest += count;
      }
    }
    const double next =
        n_rest > 0 && n_attributes > n_certain ? (n_attributes - n_certain) / n_rest : scale;
    if (next <= scale * 1.0001) break;
    scale = next;
  }
  for (std::size_t at = 0; at < n_terms_of_.size(); ++at) {
    model.presences[at] = std::min(1.0, n_terms_of_[at] * scale);
  }
  return model;
}

// Values are as likely in events as in filters.
double Planner::value_probability(const FilterTerm& term) const {
  const double count = value_counts_[value_at_[term.attribute] + term.value];
  return (count + 1) / (n_values_of_[term.attribute] + n_distinct_of_[term.attribute] + 1.0);
}

double Planner::best_probability(std::span<const FilterTerm> filter, std::uint32_t shape_idx,
                                 std::uint32_t n_groups, const EventModel& model, Key* key) const {
  const Shape shape = kShapes[shape_idx];
  const std::size_t n_terms = std::min(filter.size(), kMostTerms);
  if (n_terms < std::size_t{shape.n_values} + shape.n_presences) return kImpossible;
  double best = kImpossible;
  std::array<double, kMostTerms> present, equal;
  std::array<std::uint32_t, kMostTerms> groups;
  std::uint32_t seen = 0;
  for (std::size_t at = 0; at < n_terms; ++at) {
    present[at] = model.presences[filter[at].attribute];
    equal[at] =
        filter[at].value == kNoValue ? kImpossible : present[at] * value_probability(filter[at]);
    groups[at] = group_of(filter[at].attribute, n_groups);
    seen |= std::uint32_t{1} << groups[at];
  }
  for (std::uint32_t group = 0; group < n_groups; ++group) {
    if (!(seen >> group & 1)) continue;
    std::uint32_t used = 0;
    double probability = 1;
    Key found;
    const auto take = [&](const std::array<double, kMostTerms>& of, bool is_value) {
      std::size_t least = n_terms;
      for (std::size_t at = 0; at < n_terms; ++at) {
        if (groups[at] != group || (used >> at & 1)) continue;
        if (least == n_terms || of[at] < of[least]) least = at;
      }
      if (least == n_terms) {
        probability = kImpossible;
        return;
      }
      used |= std::uint32_t{1} << least;
      probability *= of[least];
      found.terms[found.n_terms++] = {filter[least].attribute,
                                      is_value ? filter[least].value : kNoValue};
    };
    for (int value = 0; value < shape.n_values; ++value) take(equal, true);
    for (int presence = 0; presence < shape.n_presences; ++presence) take(present, false);
    if (probability >= best) continue;
    best = probability;
    if (key != nullptr) {
      *key = found;
      key->probability = probability;
    }
  }
  return best < kImpossible / 1e6 ? best : kImpossible;
}

Key Planner::choose_key(std::span<const FilterTerm> filter, const KeyPlan& plan,
                        const EventModel& model) const {
  Key best;
  best.probability = kImpossible;
  for (std::uint32_t shape = 0; shape < kNumShapes; ++shape) {
    if (!(plan.shapes >> shape & 1)) continue;
    Key key;
    if (best_probability(filter, shape, plan.n_groups, model, &key) < best.probability) best = key;
  }
  if (best.n_terms == 0) best_probability(filter, 0, plan.n_groups, model, &best);
  if (plan.has_guards) add_guards(filter, model, best);
  return best;
}

void Planner::add_guards(std::span<const FilterTerm> filter, const EventModel& model,
                         Key& key) const {
  std::array<double, std::size(Key{}.guards)> chances{};
  for (const FilterTerm& term : filter.first(std::min(filter.size(), kMostTerms))) {
    const auto is_same = [&](const Key::Term& of) {
      return of.attribute == term.attribute && of.value == term.value;
    };
    if (std::any_of(key.terms, key.terms + key.n_terms, is_same)) continue;
    double chance = term.value == kNoValue ? 1 : value_probability(term);
    // A value of an attribute that the key says is present is still worth a look; presence is not.
    const bool is_in_key =
        std::any_of(key.terms, key.terms + key.n_terms,
                    [&](const Key::Term& of) { return of.attribute == term.attribute; });
    if (!is_in_key) chance *= model.presences[term.attribute];
    if (chance > kWeakGuard) continue;
    Key::Term guard{term.attribute, term.value};
    for (std::size_t at = 0; at < std::size(key.guards); ++at) {
      if (at == key.n_guards) {
        key.guards[key.n_guards++] = guard;
        chances[at] = chance;
        break;
      }
      if (chance < chances[at]) {
        std::swap(key.guards[at], guard);
        std::swap(chances[at], chance);
      }
    }
  }
  key.guards_probability = 1;
  for (std::size_t at = 0; at < key.n_guards; ++at) key.guards_probability *= chances[at];
}

Planner::Sample Planner::sample(std::uint32_t n_groups, const EventModel& model) const {
  Sample all;
  for (const std::uint32_t filter : sample_) {
    auto& of = all.chances.emplace_back();
    for (std::uint32_t shape = 0; shape < kNumShapes; ++shape) {
      Key key;
      of[shape].key = best_probability(filters_[filter], shape, n_groups, model, &key);
      if (of[shape].key == kImpossible) continue;
      add_guards(filters_[filter], model, key);
      of[shape].guards = of[shape].key * key.guards_probability;
    }
  }
  return all;
}

double Planner::n_probes(std::uint32_t shapes, std::uint32_t n_groups,
                         const EventModel& model) const {
  std::array<double, kMostGroups> n_present{}, n_equal{};
  for (AttributeId attribute = 0; attribute < n_terms_of_.size(); ++attribute) {
    if (n_terms_of_[attribute] == 0) continue;
    const std::uint32_t group = group_of(attribute, n_groups);
    n_present[group] += model.presences[attribute];
    if (n_values_of_[attribute] > 0) n_equal[group] += model.presences[attribute];
  }
  double n_all = 0;
  const double step = 1.0 / n_groups;
  for (std::uint32_t shape = 0; shape < kNumShapes; ++shape) {
    if (!(shapes >> shape & 1)) continue;
    const int n_values = kShapes[shape].n_values;
    for (std::uint32_t group = 0; group < n_groups; ++group) {
      n_all += falling(n_equal[group], step, n_values) *
               falling(n_present[group] - n_values * step, step, kShapes[shape].n_presences);
    }
  }
  return n_all;
}

double Planner::cost(const Sample& sample, const KeyPlan& plan, const EventModel& model) const {
  std::uint32_t shapes = plan.shapes;
  double n_candidates = 0, n_guarded = 0;
  bool needs_presence = false;
  for (const auto& of : sample.chances) {
    Sample::Chance best{kImpossible, 0};
    for (std::uint32_t shape = 0; shape < kNumShapes; ++shape) {
      if ((shapes >> shape & 1) && of[shape].key < best.key) best = of[shape];
    }
    if (best.key == kImpossible) {
      best = of[0];
      needs_presence = true;
    }
    n_candidates += best.key;
    n_guarded += best.guards;
  }
  if (!sample.chances.empty()) {
    const double n_each =
        static_cast<double>(filters_.size()) / static_cast<double>(sample.chances.size());
    n_candidates *= n_each;
    n_guarded *= n_each;
  }
  if (needs_presence) shapes |= kPresenceShape;
  const double probes = n_probes(shapes, plan.n_groups, model);
  const bool is_far = filters_.size() > kCachedFilters;
  const double found_ns = is_far ? kFarFoundNs : kFoundNs;
  const double keys_ns = probes * (is_far ? kFarProbeNs : kProbeNs) +
                         std::min(probes, n_candidates) * found_ns +
                         __builtin_popcount(shapes) * kShapeNs;
  return plan.has_guards ? keys_ns + n_candidates * kGuardNs + n_guarded * (found_ns + record_ns_)
                         : keys_ns + n_candidates * record_ns_;
}

KeyPlan Planner::best_plan(double width) const {
  const EventModel model = model_of(width);
  std::uint32_t all_shapes = 0;
  for (std::uint32_t shape = 0; shape < kNumShapes; ++shape) {
    if (kShapes[shape].n_values + std::uint32_t{kShapes[shape].n_presences} <=
        settings_.key_terms) {
      all_shapes |= std::uint32_t{1} << shape;
    }
  }
  KeyPlan best;
  double least = -1;
  for (std::uint32_t n_groups = 1; n_groups <= kMostGroups; ++n_groups) {
    // With as many groups as terms a filter may have no two in one group. A sample hardly sees that
    // (4 of 10,000 filters of 10 terms), but their keys are names alone, with long lists.
    if (settings_.n_groups > 0 ? n_groups != settings_.n_groups
                               : n_groups > 1 && n_groups >= n_mean_terms_) {
      continue;
    }
    const Sample of = sample(n_groups, model);
    for (const bool has_guards : {false, true}) {
      if (settings_.guards == (has_guards ? Choice::never : Choice::always)) continue;
      KeyPlan plan{all_shapes, n_groups, has_guards, width};
      double plan_cost = cost(of, plan, model);
      // Drops the shape that is least worth its probes, until each is.
      for (bool has_dropped = true; has_dropped;) {
        has_dropped = false;
        KeyPlan without = plan;
        for (std::uint32_t shape = 0; shape < kNumShapes; ++shape) {
          KeyPlan fewer = plan;
          fewer.shapes &= ~(std::uint32_t{1} << shape);
          if (fewer == plan || fewer.shapes == 0) continue;
          const double fewer_cost = cost(of, fewer, model);
          if (fewer_cost > plan_cost) continue;
          plan_cost = fewer_cost;
          without = fewer;
          has_dropped = true;
        }
        plan = without;
      }
      if (least < 0 || plan_cost < least) {
        least = plan_cost;
        best = plan;
      }
    }
  }
  return best;
}

double Planner::plan_cost(const KeyPlan& plan, double width) const {
  const EventModel model = model_of(width);
  return cost(sample(plan.n_groups, model), plan, model);
}

// Takes the plan that serves all widths best, and then more while one is worth its memory.
void Planner::choose_plans(const std::vector<double>& widths) {
  std::vector<KeyPlan> candidates;
  for (const double width : widths) {
    const KeyPlan plan = best_plan(width);
    if (std::find(candidates.begin(), candidates.end(), plan) == candidates.end()) {
      candidates.push_back(plan);
    }
  }
  std::vector<std::vector<double>> costs;  // [candidates][widths]
  for (const KeyPlan& plan : candidates) {
    auto& of = costs.emplace_back();
    for (const double width : widths) of.push_back(plan_cost(plan, width));
  }
  const double scan = record_ns_ * static_cast<double>(filters_.size());
  std::vector<double> least(widths.size(), std::max(scan, 1.0));
  while (plans_.size() < std::min(kMostPlans, candidates.size())) {
    std::size_t best = 0;
    double best_gain = -1;
    for (std::size_t each = 0; each < candidates.size(); ++each) {
      double gain = 0;
      for (std::size_t at = 0; at < widths.size(); ++at) {
        gain += std::max(0.0, std::log(least[at] / costs[each][at]));
      }
      if (gain > best_gain) {
        best_gain = gain;
        best = each;
      }
    }
    if (!plans_.empty() && best_gain < kWorthwhile * static_cast<double>(widths.size())) break;
    plans_.push_back(candidates[best]);
    for (std::size_t at = 0; at < widths.size(); ++at) {
      least[at] = std::min(least[at], costs[best][at]);
    }
  }
  std::sort(plans_.begin(), plans_.end(),
            [](const KeyPlan& a, const KeyPlan& b) { return a.n_attributes < b.n_attributes; });
}

void Planner::fill_plan_of_width() {
  plan_of_width_.resize(n_used_attributes_ + std::size_t{1});
  const double scan = record_ns_ * static_cast<double>(filters_.size());
  for (std::size_t width = 0; width < plan_of_width_.size();) {
    double least = scan;
    std::size_t best = plans_.size();
    for (std::size_t each = 0; each < plans_.size(); ++each) {
      const double of = plan_cost(plans_[each], static_cast<double>(width));
      if (of >= least) continue;
      least = of;
      best = each;
    }
    for (const std::size_t end = std::min(plan_of_width_.size(), width + 1 + width / 8);
         width < end; ++width) {
      plan_of_width_[width] = static_cast<std::uint8_t>(best);
    }
  }
}

}  // namespace tamis::tuple_key
