// How events come and what is wanted of them, and how much of either there was lately.
//
//     use      alone or in a batch  ×  output  ×  deliver
//     tally    of each use: events, and ns that they took    as of the last second of matching
//
// Engines gain differently from batches and from outputs, so a plan is as good as what it knows of
// this. The number of events of each use is what a plan is reckoned with: it does not depend on the
// engines that are there now, so that a plan does not undo its own grounds. The time says which
// uses matter, and whether they have changed.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "tamis/collector.hpp"

namespace tamis {

inline constexpr std::size_t kFewEvents = 8;  // of a call: fewer share nothing

struct Use {
  bool is_alone = true;  // in a call of few events
  Output output = Output::ids;
  Deliver deliver = Deliver::subscriptions;
  bool operator==(const Use&) const = default;
};

class Uses {
 public:
  // What lies further back counts by 1/e for each so many ns of matching.
  static constexpr double kRecentNs = 1e9;
  // One event that took longer, because its thread had to wait, say, decides nothing.
  static constexpr double kMostNs = kRecentNs / 8;
  // A use with less of both the events and the time is not worth a trial.
  static constexpr double kLeastShare = 0.1;

  void add(const Use& use, double n_events, double ns);
  bool is_empty() const;
  double to_subscribers() const;  // share of the time

  // A way to match: who gets the events is the same for all of a plan.
  struct Way {
    bool is_alone = true;
    Output output = Output::ids;
    double weight = 1;  // share of the events
  };
  // Those that matter, with weights that add up to 1; single events and ids if nothing is known.
  std::vector<Way> ways() const;

  // From 0, the same, to 1: the share of the time that went from some uses to others. 0 if nothing
  // is known of either.
  friend double difference(const Uses& before, const Uses& now);

 private:
  static constexpr std::size_t kNumOutputs = 3, kNumUses = 2 * kNumOutputs * 2;
  struct Amount {
    double n_events = 0, ns = 0;
  };
  static std::size_t place_of(const Use& use);
  Amount total() const;
  std::array<Amount, kNumUses> of_;
};

}  // namespace tamis
