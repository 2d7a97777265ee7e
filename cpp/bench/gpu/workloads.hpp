// Workloads drawn as `pcm-default`, `clcb-default` and `hem-default` of tamis.workloads are, here:
// where the GPU is, PyArrow may not be. `share` is of the workload's size.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tamis/event_batch.hpp"
#include "tamis/filter_table.hpp"

namespace tamis::bench {

using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

// By event, each sorted.
using Answers = std::vector<std::vector<std::uint32_t>>;

struct Workload {
  std::string name;
  std::shared_ptr<FilterTable> table = std::make_shared<FilterTable>(Space::plane);
  std::vector<std::uint32_t> slot_of, target_of;
  std::size_t n_targets = 0;
  EventBatch events;
  Answers expected;  // of naive

  void answer_by_naive();
  // The targets are the filters themselves, as pairs name them.
  void target_filters() {
    target_of = slot_of;
    n_targets = slot_of.size();
  }
  double targets_per_event() const;
};

// Places in the unit square: uniform, or around 1,000 hot spots that are popular by Zipf's law.
class Places {
 public:
  explicit Places(bool is_zipf);
  // Floats, so that packed events have them exactly.
  std::pair<float, float> operator()(Random& random);

 private:
  std::uniform_real_distribution<double> uniform_{0, 1};
  std::normal_distribution<double> normal_{0, 1};
  std::discrete_distribution<std::size_t> popular_;
  std::vector<std::pair<double, double>> spots_;
};

// 000 table 1.
Workload pcm_default(double share);
// 003 table 1; `always`: content that every event has and every filter accepts, figure 6(b).
Workload clcb_default(double share, bool always, bool is_zipf = false, std::size_t n_radii = 1);
// 002 table 2.
Workload hem_default(double share);

}  // namespace tamis::bench
