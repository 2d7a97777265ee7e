// A sliding sample of the events that a matcher has seen, for its planner.
//
//     ring   [kMostEvents]   copies of events, the oldest is overwritten
//     uses                   how they came, and what they took (uses.hpp)
//
// Every event until the ring is full, then one for each kSampledNs of matching, but at most one of
// kMostStride: an event of 2 ms is taken, of those of 200 ns one in 125. With a fixed stride the
// sample of a matcher whose events take 2 ms would turn over once in a minute. A thread that
// matches counts down in its own workspace, and has the clock only where it takes an event, so one
// that is not taken costs a comparison; one that is taken is copied if nobody else is at the ring,
// and left out otherwise: no match ever waits.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tamis/event_batch.hpp"
#include "uses.hpp"

namespace tamis {

struct SampledEvents {
  EventBatch events;
  Uses uses;
  bool is_for_subscribers() const { return uses.to_subscribers() >= 0.5; }
};

class EventSample {
 public:
  static constexpr std::size_t kMostEvents = 256;
  static constexpr double kSampledNs = 25'000;
  static constexpr std::size_t kMostStride = 127;
  // Larger events are left out: the sample stays below 256 times this.
  static constexpr std::size_t kMostValues = 4096, kMostStringBytes = 64 * 1024;
  // So much of the time that was spent since the planner looked went to other uses than before: it
  // should look again.
  static constexpr double kOtherUse = 0.5;

  // Before a match of so many rows: shall some of them be taken? Then it is to be timed.
  // `n_until_next` is the caller's own, and begins with 0.
  static bool wants(std::size_t n_rows, std::size_t& n_until_next) {
    if (n_until_next < n_rows) return true;
    n_until_next -= n_rows;
    return false;
  }
  // What a match was, of which some rows are taken.
  struct Match {
    Use use;
    double event_ns = 0;         // that an event took
    double events_each_row = 1;  // where it had more events than rows are shown
  };
  // After it: rows `begin` to `end`.
  void take(const EventBatch& events, std::size_t begin, std::size_t end, const Match& match,
            std::size_t& n_until_next);
  // How many were ever taken.
  std::uint64_t n_taken() const { return n_taken_.load(std::memory_order_relaxed); }
  std::size_t size() const {
    return static_cast<std::size_t>(std::min<std::uint64_t>(n_taken(), kMostEvents));
  }
  // The events that were encoded for these names, or nearly all of them.
  SampledEvents read(std::uint64_t catalogue_id, std::size_t n_names) const;

  // The planner looks at what there is now: that is what later uses are compared with.
  void know_uses();
  bool has_other_use() const { return has_other_use_.load(std::memory_order_relaxed); }
  // Until the next event is taken.
  void forget_other_use() { has_other_use_.store(false, std::memory_order_relaxed); }

  // Around fork, so that the child finds the ring whole and unlocked.
  void lock() { ring_lock_.lock(); }
  void unlock() { ring_lock_.unlock(); }

 private:
  struct Event {
    std::vector<AttributeId> attributes;
    std::vector<EventValue>
        values;  // strings: `data` is unused, they follow one another in `bytes`
    std::string bytes;
    double x = 0, y = 0;
    bool has_position = false;
    std::size_t n_known = 0;
    std::uint64_t catalogue_id = 0;
  };
  void copy(const EventBatch& events, std::size_t event);

  mutable std::mutex ring_lock_;
  std::array<Event, kMostEvents> ring_;
  Uses uses_, known_uses_;  // under the lock, as the ring
  std::atomic<std::uint64_t> n_taken_{0};
  std::atomic<bool> has_other_use_{false};
};

}  // namespace tamis
