// What the measurements say: one JSON object a line, flushed, so that a run that is cut off leaves
// every figure it had. `tamis bench` reads them.
//
//     {"figure": "packed", "engine": "tuple-key-cuda", "workload": "pcm-default",
//      "n_filters": 250000, "n_events": 100000, "seconds": 9.6e-05, "bytes": 2000000,
//      "bound": "bus", "bound_seconds": 4.4e-05, "verified": 1000, ...}
//
// `seconds` are medians of `rounds`; `verified` is how many events' answers were those of `naive`.
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tamis/engine.hpp"

namespace tamis::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename Work>
double median_seconds(int n_rounds, Work work) {
  std::vector<double> all;
  for (int round = 0; round < n_rounds; ++round) {
    const auto begin = Clock::now();
    work();
    all.push_back(seconds_since(begin));
  }
  return median(std::move(all));
}

using Steps = std::vector<std::pair<std::string, double>>;  // seconds of each

// A line that is written when it goes.
class Figure {
 public:
  Figure(std::string_view figure, std::string_view engine, std::string_view workload);
  Figure(const Figure&) = delete;
  Figure& operator=(const Figure&) = delete;
  ~Figure();

  Figure& add(std::string_view name, double value);
  Figure& add(std::string_view name, std::integral auto value) {
    return add_plain(name, std::to_string(value));
  }
  Figure& add(std::string_view name, std::string_view text);
  Figure& add(std::string_view name, const Steps& steps);
  Figure& add(std::string_view name, const Parameters& parameters);

 private:
  Figure& add_plain(std::string_view name, std::string_view json);
  std::string line_;
};

// An answer is wrong, or nothing can be measured: a line that says so, and the end.
[[noreturn]] void fail(std::string_view engine, std::string_view workload, std::string_view reason);

}  // namespace tamis::bench
