// Which keys the filters of a `tuple-key` index get, by estimated cost.
//
// A term is "attribute present" (P) or "attribute = value" (V). A key has up to three terms on
// different attributes of one group; its shape is how many of them are V and P. A key plan says
// which shapes are in use and into how many groups attributes are divided: more groups mean fewer
// keys to probe for an event, and need filters with more constraints to find three in one group.
//
//     cost of an event with w attributes, in ns (the constants are in planner.cpp):
//         probes * kProbeNs + keys found * kFoundNs + candidates * record_ns
//     probes      of each shape and group, the ways to choose its terms among the event's
//     candidates  sum over filters of the probability that an event has its key
//     keys found  at most as many as probes, and as candidates
//
// A plan may have guards: two further terms of each filter beside its place under the key. Shorter
// keys then serve as well: their longer lists are read 32 filters a step, and few records are:
//         probes * kProbeNs + keys found * kFoundNs + candidates * kGuardNs
//         + candidates with their guards * (kFoundNs + record_ns)
//
// What events look like is an EventModel. There is no sample of events yet: it is guessed from the
// filters, for a range of widths, and the index keeps the few plans that serve all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tamis/filter_table.hpp"

namespace tamis::tuple_key {

inline constexpr std::uint32_t kNoValue = ~std::uint32_t{0};

// A constraint that an event needs the attribute for, at most one for each attribute of a filter.
struct FilterTerm {
  AttributeId attribute = 0;
  std::uint32_t value = kNoValue;  // the only rank it accepts
};

struct FilterTerms {  // of all filters
  std::vector<FilterTerm> terms;
  std::vector<std::uint64_t> begins{0};  // [n_filters + 1]
  // [n_filters] of events that have its attributes, which share it accepts, were ranks all as
  // likely
  std::vector<float> shares;
  std::size_t size() const { return begins.size() - 1; }
  std::span<const FilterTerm> operator[](std::size_t filter) const {
    return {terms.data() + begins[filter], terms.data() + begins[filter + 1]};
  }
};

struct Shape {
  std::uint8_t n_values, n_presences;
};
inline constexpr Shape kShapes[] = {{0, 1}, {1, 0}, {0, 2}, {1, 1}, {2, 0},
                                    {0, 3}, {1, 2}, {2, 1}, {3, 0}};
inline constexpr std::size_t kNumShapes = std::size(kShapes);
inline constexpr std::uint32_t kPresenceShape = 1;  // the bit of kShapes[0]
inline constexpr std::size_t kMostGroups = 16;

struct KeyPlan {
  std::uint32_t shapes = kPresenceShape;  // bits of kShapes
  std::uint32_t n_groups = 1;
  bool has_guards = false;
  double n_attributes = 1;  // of the events it is meant for
  friend bool operator==(const KeyPlan& a, const KeyPlan& b) {
    return a.shapes == b.shapes && a.n_groups == b.n_groups && a.has_guards == b.has_guards;
  }
};

// How often attributes and values are expected in events.
struct EventModel {
  std::vector<double> presences;  // [n_attributes]
};

struct Key {
  struct Term {
    AttributeId attribute;
    std::uint32_t value;  // kNoValue: present
  };
  std::uint32_t n_terms = 0;  // 0: no key
  Term terms[3];
  double probability = 1;  // that an event has it
  // Where the plan has guards: the least likely terms of the filter that are left.
  std::uint32_t n_guards = 0;
  Term guards[2];
  double guards_probability = 1;  // that an event has them all
};

enum class Choice : std::uint8_t { by_cost, never, always };

class Planner {
 public:
  struct Settings {
    double event_attributes = 0;  // 0: unknown
    std::uint32_t key_terms = 3;
    std::uint32_t n_groups = 0;  // 0: by cost
    Choice guards = Choice::by_cost;
  };
  // `record_bytes`: of an average filter.
  Planner(const FilterTerms& filters, std::size_t n_attributes, double record_bytes,
          const Settings& settings);

  // The plans to build, at least one; the first serves events that are not wide.
  const std::vector<KeyPlan>& plans() const { return plans_; }
  // Of each number of attributes an event may have, which of plans(), or plans().size(): test all.
  const std::vector<std::uint8_t>& plan_of_width() const { return plan_of_width_; }
  std::uint32_t group_of(AttributeId attribute, std::uint32_t n_groups) const {
    return popularity_rank_[attribute] % n_groups;
  }
  // The key with the lowest probability. A filter that no shape fits has its rarest attribute.
  Key choose_key(std::span<const FilterTerm> filter, const KeyPlan& plan,
                 const EventModel& model) const;
  EventModel model_of(double n_attributes) const;

 private:
  struct Sample;
  double value_probability(const FilterTerm& term) const;
  double best_probability(std::span<const FilterTerm> filter, std::uint32_t shape,
                          std::uint32_t n_groups, const EventModel& model, Key* key) const;
  Sample sample(std::uint32_t n_groups, const EventModel& model) const;
  double n_probes(std::uint32_t shapes, std::uint32_t n_groups, const EventModel& model) const;
  void add_guards(std::span<const FilterTerm> filter, const EventModel& model, Key& key) const;
  double cost(const Sample& sample, const KeyPlan& plan, const EventModel& model) const;
  KeyPlan best_plan(double width) const;
  double plan_cost(const KeyPlan& plan, double width) const;
  void choose_plans(const std::vector<double>& widths);
  void fill_plan_of_width();

  const FilterTerms& filters_;
  Settings settings_;
  double record_ns_;
  std::uint32_t n_used_attributes_ = 0;
  double n_mean_terms_ = 0;
  std::uint32_t n_most_terms_ = 0;
  std::vector<std::uint32_t> n_terms_of_;     // [n_attributes]
  std::vector<std::uint32_t> n_values_of_;    // [n_attributes] terms that are values
  std::vector<std::uint32_t> n_distinct_of_;  // [n_attributes] values
  std::vector<std::uint64_t> value_at_;       // [n_attributes]
  std::vector<std::uint32_t> value_counts_;
  std::vector<std::uint32_t> popularity_rank_;  // [n_attributes]
  std::vector<std::uint32_t> sample_;
  std::vector<KeyPlan> plans_;
  std::vector<std::uint8_t> plan_of_width_;
};

}  // namespace tamis::tuple_key
