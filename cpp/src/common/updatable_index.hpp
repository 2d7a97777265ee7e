// An index whose paper defines insertion and deletion and measures them.
//
// A matcher never calls these: its segments are immutable, and live changes are its own. They are
// here so that the papers' figures can be measured again.
#pragma once

#include <ctime>

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

// Inserts the filters from `begin` to `end`, then erases them. CPU time of the process.
inline UpdateTimes measure_updates(UpdatableIndex& index, FilterIdx begin, FilterIdx end) {
  const std::clock_t start = std::clock();
  for (FilterIdx filter = begin; filter < end; ++filter) index.insert(filter);
  const std::clock_t middle = std::clock();
  for (FilterIdx filter = begin; filter < end; ++filter) index.erase(filter);
  const std::clock_t stop = std::clock();
  const double tick_ns = 1e9 / CLOCKS_PER_SEC / (end - begin);
  return {static_cast<double>(middle - start) * tick_ns,
          static_cast<double>(stop - middle) * tick_ns};
}

}  // namespace tamis
