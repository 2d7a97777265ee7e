// How a call is cut into tasks for threads.
#pragma once

#include <algorithm>
#include <cstddef>

#include "tamis/engine.hpp"

namespace tamis {

// Filters times events below which waking another thread costs more than it brings.
inline constexpr std::size_t kMinParallelWork = std::size_t{1} << 20;

// Events of a task: some for each thread, so that none waits long for the last; but not few of what
// an engine on a device can take, where fewer hardly take less time. `n_most` is the largest
// n_task_events of the engines that take part.
inline std::size_t choose_task(std::size_t n_most, std::size_t n_events, std::size_t n_filters,
                               std::size_t n_threads) {
  constexpr std::size_t kOnCpu = Engine{}.n_task_events, kLeastOnDevice = 8192;
  if (n_threads == 1 || n_events * n_filters < kMinParallelWork) {
    return std::max<std::size_t>(n_events, 1);
  }
  if (n_most > kOnCpu) return std::clamp(n_events / (2 * n_threads), kLeastOnDevice, n_most);
  return std::clamp<std::size_t>(n_events / (4 * n_threads), 1, n_most);
}

}  // namespace tamis
