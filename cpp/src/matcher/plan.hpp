// What the planner of "auto" decided for a segment, and on what grounds.
#pragma once

#include <string>
#include <vector>

#include "segment.hpp"
#include "uses.hpp"

namespace tamis {

// What is known of events.
struct EventFacts {
  bool is_guess = true;  // none were seen: they are made up from the filters
  std::size_t n_events = 0;
  double n_attributes = 0;        // of an event, on average
  double usual_width = 0;         // attributes that nearly all events have, roughly; 0: they differ
  double n_strings = 0;           // values of an event that are strings
  double positions = 0;           // share of events that have one
  Uses uses;                      // how they came
  std::vector<double> presences;  // [n_attributes] share of events that have each
  bool is_for_subscribers() const { return uses.to_subscribers() >= 0.5; }
};

// Work that an index does for an event, in the units of Counters.
struct Work {
  double filters = 0, constraints = 0, candidates = 0, cells = 0, nodes = 0, bits = 0;
};

// What one engine would take.
struct Estimate {
  EngineChoice choice;
  Parameters tried_with;  // instead of the choice's, for what is only guessed
  const CostModel* cost = nullptr;
  double ns = 0;             // an event
  double trial_ns = 0;       // the same by its trial alone
  bool is_measured = false;  // by an index over all the filters
  double model_ns = 0;       // by the cost model alone
  Work work;                 // of the whole group
  double n_bytes = 0;
};

struct GroupPlan {
  std::string filters;  // which: "all", "with an area", ...
  EngineChoice choice;
  std::size_t n_filters = 0;
  std::size_t n_trial_filters = 0;                         // that trial indexes were built over
  std::vector<Estimate> estimates;                         // the cheapest first
  const Estimate* find(const EngineChoice& wanted) const;  // null: it was not tried
  const Estimate& chosen() const { return *find(choice); }
  // The estimate of a choice by what an index over all the filters took. The choice stays.
  void correct(const EngineChoice& built, double ns, const Work& work);
  // Of the same filters for other events: trials err as they did before.
  void correct(const GroupPlan& before);
  void sort();
};

struct SegmentPlan {
  EventFacts events;
  double n_matches = 0;  // of an event, estimated
  GroupPlan whole;       // were all filters one group
  std::vector<GroupPlan> groups;
  double seconds = 0;  // of CPU time that planning took
  double seen_ns = 0;  // as model_ns(), but of the indexes themselves, when they were looked at
  double ns() const;
  double model_ns() const;
};

}  // namespace tamis
