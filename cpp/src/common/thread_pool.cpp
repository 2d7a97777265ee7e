#include "thread_pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tamis {
namespace {

// One parallel_for: threads take the next task until none is left.
struct Job {
  explicit Job(std::size_t n, const std::function<void(std::size_t)>& what)
      : n_tasks(n), task(what) {}

  void work() {
    for (;;) {
      const std::size_t each = next.fetch_add(1);
      if (each >= n_tasks || has_failed.load()) return;
      try {
        task(each);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!has_failed.exchange(true)) error = std::current_exception();
      }
    }
  }
  void leave() {
    const std::lock_guard lock(mutex);
    --n_helpers;
    if (n_helpers == 0) is_idle.notify_all();
  }

  const std::size_t n_tasks;
  const std::function<void(std::size_t)>& task;
  std::atomic<std::size_t> next{0};
  std::atomic<bool> has_failed{false};
  std::mutex mutex;
  std::condition_variable is_idle;
  std::size_t n_helpers = 0;
  std::exception_ptr error;
};

class Pool {
 public:
  // Offers `job` to up to `n_helpers` threads.
  void offer(Job& job, std::size_t n_helpers) {
    {
      const std::lock_guard lock(mutex_);
      while (n_threads_ < n_helpers) {
        std::thread([this] { serve(); }).detach();
        ++n_threads_;
      }
      for (std::size_t helper = 0; helper < n_helpers; ++helper) offers_.push_back(&job);
    }
    // Not all of them: each that wakes for nothing keeps others from the lock.
    for (std::size_t helper = 0; helper < n_helpers; ++helper) wake_.notify_one();
  }
  // Withdraws what nobody has taken; returns how many offers that were.
  std::size_t withdraw(Job& job) {
    const std::lock_guard lock(mutex_);
    return std::erase(offers_, &job);
  }

 private:
  [[noreturn]] void serve() {
    for (;;) {
      Job* job = nullptr;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return !offers_.empty(); });
        job = offers_.front();
        offers_.pop_front();
      }
      job->work();
      job->leave();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job*> offers_;
  std::size_t n_threads_ = 0;
};

// The pool is never destroyed: its threads may outlive static destruction. A forked child drops
// the pointer, since the threads behind it do not exist there.
std::atomic<Pool*> the_pool{nullptr};
std::mutex* pool_mutex = new std::mutex;

Pool& pool() {
  if (Pool* existing = the_pool.load()) return *existing;
  const std::lock_guard lock(*pool_mutex);
  if (the_pool.load() == nullptr) {
    static const int once = pthread_atfork(nullptr, nullptr, [] {
      the_pool.store(nullptr);
      pool_mutex = new std::mutex;
    });
    (void)once;
    the_pool.store(new Pool);
  }
  return *the_pool.load();
}

}  // namespace

void parallel_for(std::size_t n_tasks, std::size_t n_threads,
                  const std::function<void(std::size_t)>& task) {
  Job job(n_tasks, task);
  const std::size_t n_helpers =
      std::min(n_threads, n_tasks) > 1 ? std::min(n_threads, n_tasks) - 1 : 0;
  if (n_helpers > 0) {
    job.n_helpers = n_helpers;
    pool().offer(job, n_helpers);
  }
  job.work();
  if (n_helpers > 0) {
    const std::size_t n_untaken = pool().withdraw(job);
    std::unique_lock lock(job.mutex);
    job.n_helpers -= n_untaken;
    job.is_idle.wait(lock, [&] { return job.n_helpers == 0; });
  }
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace tamis
