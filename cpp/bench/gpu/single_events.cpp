#include "single_events.hpp"

#include <algorithm>

namespace tamis::bench {

SingleEvents::SingleEvents(const Workload& workload, const char* engine, const Parameters& given)
    : workload_(workload), engine_(engine) {
  const Engine& found = find_engine(engine);
  const auto begin = Clock::now();
  index_ = found.build(workload.table, complete_parameters(found, given));
  build_s_ = seconds_since(begin);
  scratch_ = index_->make_scratch();
}

double SingleEvents::match(std::size_t begin, std::size_t end) {
  const auto before = Clock::now();
  Collector::Setup setup;
  setup.slot_of = workload_.slot_of.data();
  setup.target_of = workload_.target_of.data();
  setup.targets_id = 2;
  setup.n_targets = workload_.n_targets;
  Collector out(setup, stamps_, buffers_);
  index_->match(workload_.events, begin, end, *scratch_, out);
  const double seconds = seconds_since(before);
  for (std::size_t event = 0; event < end - begin; ++event) {
    std::vector<std::uint32_t> targets(out.targets().begin() + out.begin(event),
                                       out.targets().begin() + out.end(event));
    std::sort(targets.begin(), targets.end());
    found_.push_back(std::move(targets));
  }
  return seconds;
}

std::vector<double> SingleEvents::match_each() {
  std::vector<double> all;
  for (std::size_t event = 0; event < workload_.events.size(); ++event) {
    all.push_back(match(event, event + 1));
  }
  return all;
}

void SingleEvents::verify() {
  if (take_found() != workload_.expected) fail(engine_, workload_.name, "wrong answers");
}

void measure_single(const Workload& workload, const char* engine, const Parameters& given) {
  SingleEvents run(workload, engine, given);
  const std::size_t n_events = workload.events.size();
  constexpr int kRounds = 3;
  std::vector<double> singles, batches;
  for (int round = 0; round <= kRounds; ++round) {  // the first one warms up
    const std::vector<double> each = run.match_each();
    run.verify();
    const double batch = run.match(0, n_events) / static_cast<double>(n_events);
    run.verify();
    if (round == 0) continue;
    singles.insert(singles.end(), each.begin(), each.end());
    batches.push_back(batch);
  }
  Figure("single", engine, workload.name)
      .add("n_filters", workload.table->size())
      .add("n_events", n_events)
      .add("parameters", given)
      .add("seconds", median(singles))
      .add("batch_seconds", median(batches))
      .add("rounds", kRounds)
      .add("build_seconds", run.build_s())
      .add("index_bytes", run.n_bytes())
      .add("targets_per_event", workload.targets_per_event())
      .add("verified", n_events);
}

}  // namespace tamis::bench
