// How long an index takes for events, as matches run them through it.
//
// Times are taken in rounds, each index in its turn, so that a busy moment hurts all of them; the
// least of its rounds counts.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "tamis/engine.hpp"
#include "trial_targets.hpp"
#include "uses.hpp"

namespace tamis {

// CPU time of this thread.
double cpu_seconds();

// In each of some ways, and by their weights together.
class Stopwatch {
 public:
  static constexpr std::size_t kRounds = 5;

  Stopwatch(const Index& index, const TrialTargets& targets, std::span<const Uses::Way> ways);
  // Takes the time of a round; the events are the same in each.
  void run(const EventBatch& events);
  double least_ns() const;  // of an event

 private:
  struct Timed {
    Uses::Way way;
    double least_ns = std::numeric_limits<double>::infinity();
    double seconds = 0;  // of all rounds
    std::size_t n_rounds = 0;
  };
  void run(const EventBatch& events, Timed& timed);

  const Index& index_;
  std::unique_ptr<Scratch> scratch_;
  Collector::Setup setup_;
  std::vector<Timed> timed_;
  std::vector<std::uint64_t> bits_;
  Stamps stamps_;
  CollectorBuffers buffers_;
};

}  // namespace tamis
