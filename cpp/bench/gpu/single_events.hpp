// Engines as the matcher uses them, from encoded events to collected targets: the papers' ones are
// measured so, with the steps that their authors give.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "figures.hpp"
#include "tamis/collector.hpp"
#include "tamis/engine.hpp"
#include "workloads.hpp"

namespace tamis::bench {

class SingleEvents {
 public:
  SingleEvents(const Workload& workload, const char* engine, const Parameters& given);

  // Seconds for the events from `begin` to `end` in one call.
  double match(std::size_t begin, std::size_t end);
  // Each event in a call of its own.
  std::vector<double> match_each();
  // Fails unless all events were matched since the last time, with the answers of naive.
  void verify();
  Answers take_found() { return std::exchange(found_, {}); }
  const Scratch& scratch() const { return *scratch_; }
  double build_s() const { return build_s_; }
  std::size_t n_bytes() const { return index_->n_bytes(); }

 private:
  const Workload& workload_;
  const char* engine_;
  std::unique_ptr<Index> index_;
  std::unique_ptr<Scratch> scratch_;
  Stamps stamps_;
  CollectorBuffers buffers_;
  Answers found_;
  double build_s_ = 0;
};

// Single events, the median; then all in one call.
void measure_single(const Workload& workload, const char* engine, const Parameters& given);

// What `times_of` says about a scratch after single events, less what it said before: the mean.
template <typename TimesOf>
void measure_steps(const Workload& workload, const char* engine, const Parameters& given,
                   TimesOf times_of) {
  SingleEvents run(workload, engine, given);
  Steps before, after;
  for (int round = 0; round < 2; ++round) {
    before = times_of(run.scratch());
    run.match_each();
    run.verify();
  }
  after = times_of(run.scratch());
  const auto n_events = static_cast<double>(workload.events.size());
  for (std::size_t step = 0; step < after.size(); ++step) {
    after[step].second = (after[step].second - before[step].second) / n_events;
  }
  Figure("steps", engine, workload.name)
      .add("n_filters", workload.table->size())
      .add("n_events", workload.events.size())
      .add("parameters", given)
      .add("steps", after)
      .add("verified", workload.events.size());
}

}  // namespace tamis::bench
