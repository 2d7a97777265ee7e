// The workload of papers/002: subscriptions of intervals of one width, events with uniform values.
#pragma once

#include "against_naive.hpp"

namespace tamis::against_naive {

struct Intervals {
  std::size_t n = 0, d = 0, psi_s = 0, psi_e = 0, n_events = 0;
  std::shared_ptr<FilterTable> table;
  EventBatch events;
};

// n filters of psi_s intervals of width w on d attributes with values 1..range. With `skew` above
// 0, attribute a is drawn with a weight of 1 / (a + 1)^skew.
inline Intervals intervals(std::size_t n, std::size_t d, std::size_t psi_s, double w,
                           std::size_t psi_e, std::size_t n_events, std::size_t range = 100000,
                           double skew = 0) {
  Intervals all{n, d, psi_s, psi_e, n_events, nullptr, {}};
  Random random(17);
  std::vector<double> weights(d);
  for (std::size_t at = 0; at < d; ++at) weights[at] = std::pow(at + 1.0, -skew);
  std::discrete_distribution<std::size_t> attribute(weights.begin(), weights.end());
  const auto distinct = [&](std::size_t count) {
    std::vector<std::size_t> names;
    while (names.size() < count) {
      const std::size_t name = attribute(random);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
  };
  const auto width = static_cast<std::size_t>(w * static_cast<double>(range));
  std::vector<std::string> predicates(n);
  for (std::string& text : predicates) {
    for (const std::size_t name : distinct(psi_s)) {
      const std::size_t low = 1 + below(random, range - width);
      text += (text.empty() ? "a" : " AND a") + std::to_string(name) + " BETWEEN " +
              std::to_string(low) + " AND " + std::to_string(low + width);
    }
  }
  all.events.n_known = d;
  for (std::size_t event = 0; event < n_events; ++event) {
    for (const std::size_t name : distinct(psi_e)) {
      all.events.add(static_cast<AttributeId>(name),
                     EventValue::of(static_cast<std::int64_t>(1 + below(random, range))));
    }
    all.events.end_event();
  }
  all.table = table_of(predicates, d);
  return all;
}

}  // namespace tamis::against_naive
