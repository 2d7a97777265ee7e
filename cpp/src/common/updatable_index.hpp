// An index whose paper defines insertion and deletion and measures them.
//
// A matcher never calls these: its segments are immutable, and live changes are its own. They are
// here so that the papers' figures can be measured again.
#pragma once

#include <chrono>

#include "tamis/engine.hpp"

namespace tamis {

class UpdatableIndex : public Index {
 public:
  // A filter of the table that the index was made of, which must not be in the index. Neither
  // method may run while another thread matches.
  virtual void insert(FilterIdx filter) = 0;
  // A filter that is in the index.
  virtual void erase(FilterIdx filter) = 0;
};

struct UpdateTimes {
  double insert_ns = 0, erase_ns = 0;  // for each filter
};

// Inserts the filters from `begin` to `end`, then erases them.
inline UpdateTimes measure_updates(UpdatableIndex& index, FilterIdx begin, FilterIdx end) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (FilterIdx filter = begin; filter < end; ++filter) index.insert(filter);
  const auto middle = Clock::now();
  for (FilterIdx filter = begin; filter < end; ++filter) index.erase(filter);
  const auto stop = Clock::now();
  const auto each = [&](auto from, auto to) {
    return std::chrono::duration<double, std::nano>(to - from).count() / (end - begin);
  };
  return {each(start, middle), each(middle, stop)};
}

}  // namespace tamis
