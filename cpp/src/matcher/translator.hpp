// Carries groups over to a device where large calls are quicker there: of engine="auto".
//
//     match        says how large calls are and how long they take            atomics
//     merger       after merges, when it looks at plans, before flush() returns:
//                  large calls lately? ─► second index ─► timed beside the first ─► Twin (twin.hpp)
//     match        a call goes there if calls of its size were quicker there (call_times.hpp);
//                  at first, if it has least_events and more
//
// Plans and images know the index on the host alone. Areas that move do so in both: what moved
// while the second one was built follows before it is published.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "call_times.hpp"
#include "event_sample.hpp"
#include "segment.hpp"

namespace tamis {

class Translator {
 public:
  // Smaller calls gain nothing that a second index would be worth: a launch with its copies takes
  // tens of µs, and so many events take a quick engine on the host some 500 µs.
  static constexpr std::size_t kLargeCall = 4096;
  // With 1,000 filters an H200 was still a fifth quicker from 256 events on
  // (docs/benchmarks/gpu.md); fewer are not worth a second index.
  static constexpr std::size_t kLeastFilters = 512;
  // Fewer events say nothing of how long calls take.
  static constexpr std::size_t kLeastSample = 16;

  // Where areas move, an index is about to be set beside a group: brings them to where they are now
  // in a new one, and keeps the writer from moving more as long as the lock is held. It is not
  // whole if an area has moved that cannot move there.
  struct Settled {
    std::unique_lock<std::mutex> lock;
    bool is_whole = true;
  };
  using Settle = std::function<Settled(const Group& group, const Twin& beside, bool is_new)>;

  // Without `settle`: nobody moves.
  Translator(std::optional<std::size_t> device_from, std::size_t n_threads, Settle settle = {});

  // Where a call goes.
  Side choose_side(std::span<const std::shared_ptr<const Segment>> segments, CallKind call) {
    if (call.n_events < CallTimes::kLeastEvents && !device_from_) return Side::host;
    return choose_timed(segments, call);
  }
  // It took so long.
  void see_call(CallKind call, Side side, double ns) {
    if (has_device_.load(std::memory_order_relaxed)) times_.see(call, side, ns);
    matched_ns_.store(matched_ns_.load(std::memory_order_relaxed) + ns, std::memory_order_relaxed);
    if (call.n_events < kLargeCall) return;
    if (lately_.load(std::memory_order_relaxed) != kLooks) {
      lately_.store(kLooks, std::memory_order_relaxed);
    }
  }

  // What timed calls took so far.
  double matched_ns() const { return matched_ns_.load(std::memory_order_relaxed); }

  // --- of the merging thread ---
  // Has it groups that might gain and were not tried?
  bool wants(const Segment& segment) const;
  // Builds and times what it wants; `is_again`: also what was tried, for events are others now.
  // What fails leaves a note in the group. Never throws for a device.
  void translate(const Segment& segment, const SampledEvents& events, bool is_again);
  // A look at the plans ended: calls that were large long ago do not count.
  void grow_older();

 private:
  // Large calls are remembered over so many looks at the plans.
  static constexpr int kLooks = 2;

  Side choose_timed(std::span<const std::shared_ptr<const Segment>> segments, CallKind call);
  bool is_wanted() const;
  bool wants(const Group& group) const;
  void translate(const Group& group, const SampledEvents& events, bool is_again);
  void set_twin(const Group& group, std::unique_ptr<Twin> twin, bool is_new = false);

  const std::optional<std::size_t> device_from_;  // MatcherOptions
  const std::size_t n_threads_;
  const Settle settle_;
  const int process_;
  std::atomic<int> lately_{0};
  std::atomic<bool> has_device_{false};  // ever had
  CallTimes times_;
  std::atomic<double> matched_ns_{0};
  // Filters with which an engine was not quicker there: not tried again before there are twice as
  // many, or events have changed.
  std::map<const Engine*, std::size_t> lost_with_;
  std::string gone_;  // why no device can be used any more
};

}  // namespace tamis
