// A sliding sample of the events that a matcher has seen, for its planner.
//
//     ring   [kMostEvents]   copies of events, the oldest is overwritten
//
// Every event until the ring is full, then one of kStride. A thread that matches counts down in its
// own workspace, so an event that is not taken costs a comparison; one that is taken is copied if
// nobody else is at the ring, and left out otherwise: no match ever waits.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tamis/collector.hpp"
#include "tamis/event_batch.hpp"

namespace tamis {

struct SampledEvents {
  EventBatch events;
  double to_subscribers = 0;  // share of them that was delivered to subscribers
  bool is_for_subscribers() const { return to_subscribers >= 0.5; }
  double alone = 0;  // share of them that came in calls of few events
};

class EventSample {
 public:
  static constexpr std::size_t kMostEvents = 256;
  static constexpr std::size_t kStride = 127;  // a prime: workloads repeat in round numbers
  // Larger events are left out: the sample stays below 256 times this.
  static constexpr std::size_t kMostValues = 4096, kMostStringBytes = 64 * 1024;
  static constexpr std::size_t kFewEvents = 8;  // of a call: fewer share nothing

  // Events `begin` to `end` of a match. `n_until_next` is the caller's own, and begins with 0.
  void see(const EventBatch& events, std::size_t begin, std::size_t end, Deliver deliver,
           std::size_t& n_until_next) {
    if (n_until_next >= end - begin) {
      n_until_next -= end - begin;
      return;
    }
    take(events, begin, end, deliver, n_until_next);
  }
  // How many were ever taken.
  std::uint64_t n_taken() const { return n_taken_.load(std::memory_order_relaxed); }
  std::size_t size() const {
    return static_cast<std::size_t>(std::min<std::uint64_t>(n_taken(), kMostEvents));
  }
  // The events that were encoded for these names, or nearly all of them.
  SampledEvents read(std::uint64_t catalogue_id, std::size_t n_names) const;

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
    Deliver deliver = Deliver::subscriptions;
    bool is_alone = false;
    std::size_t n_known = 0;
    std::uint64_t catalogue_id = 0;
  };
  void take(const EventBatch& events, std::size_t begin, std::size_t end, Deliver deliver,
            std::size_t& n_until_next);
  void copy(const EventBatch& events, std::size_t event, Deliver deliver, bool is_alone);

  mutable std::mutex ring_lock_;
  std::array<Event, kMostEvents> ring_;
  std::atomic<std::uint64_t> n_taken_{0};
};

}  // namespace tamis
