// How a call is cut into tasks for threads.
#pragma once

#include <algorithm>
#include <cstddef>

#include "call_times.hpp"
#include "tamis/engine.hpp"

namespace tamis {

// Filters times events below which waking another thread costs more than it brings, as long as
// nothing better is known.
inline constexpr std::size_t kMinParallelWork = std::size_t{1} << 20;

struct Tasks {
  std::size_t n_events = 1;  // of each but the last
  std::size_t n_threads = 1;
};

// Some for each thread, so that none waits long for the last; but one for each where events of a
// task share work, and not few of what an engine on a device can take, where fewer hardly take less
// time. `n_most` is the largest n_task_events of the engines that take part, and `work` what calls
// took on the host.
inline Tasks choose_tasks(std::size_t n_most, std::size_t n_events, std::size_t n_filters,
                          std::size_t n_threads, const EventWork& work) {
  constexpr std::size_t kAnyCpu = Engine{}.n_task_events, kLeastOnDevice = 8192;
  const Tasks one{std::max<std::size_t>(n_events, 1), 1};
  if (n_threads == 1 || n_events < 2) return one;
  if (n_most > kLeastOnDevice) {
    if (n_events * n_filters < kMinParallelWork) return one;
    return {std::clamp(n_events / (2 * n_threads), kLeastOnDevice, n_most), n_threads};
  }
  const std::size_t n_wanted = work.choose_threads(n_events, n_threads);
  if (n_wanted == 1 || (n_wanted == 0 && n_events * n_filters < kMinParallelWork)) return one;
  const std::size_t n_used = n_wanted == 0 ? n_threads : n_wanted;
  const std::size_t n_for_each = n_most > kAnyCpu ? 1 : 4;
  return {std::clamp<std::size_t>((n_events + n_used - 1) / (n_for_each * n_used), 1, n_most),
          n_used};
}

}  // namespace tamis
