// One lazy pool of threads for the process.
//
// std::thread, not OpenMP: that hangs after fork and blinds TSan. A child of fork has no threads
// of its parent, so it begins with a new pool.
#pragma once

#include <cstddef>
#include <functional>

namespace tamis {

// Runs task(0) .. task(n_tasks - 1) on up to `n_threads` threads, the caller among them, and
// returns when all are done. The first exception is thrown again here; tasks not yet begun are then
// left out.
void parallel_for(std::size_t n_tasks, std::size_t n_threads,
                  const std::function<void(std::size_t)>& task);

}  // namespace tamis
