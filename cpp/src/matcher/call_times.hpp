// What calls took, by which the next ones are divided: between host and device, and among threads.
//
// A calibration (calibration.hpp) times an index alone. A call also encodes its events, on as many
// threads as there are, and joins what they found; so what calls really took has the last word.
//
//     call of n events ──► its kind, and sizes by powers of two ──► side whose time is less
//                                     ▲                                │
//                                     └───────── the time it took ◄────┘
//
// Now and then the other side is asked again, so that in the long run 1/32 of the time goes to
// that.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>

namespace tamis {

// Wall time, for a device works while the thread sleeps. One that does not run costs nothing.
class WallWatch {
 public:
  explicit WallWatch(bool runs = true) {
    if (runs) begun_ = Clock::now();
  }
  double ns() const {
    return std::chrono::duration<double, std::nano>(Clock::now() - begun_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begun_;
};

enum class Side { host, device };

// What can be compared: as many events take longer where the call also encodes them.
struct CallKind {
  std::size_t n_events = 0;
  bool encodes = false;
};

class CallTimes {
 public:
  // Calls of fewer events are not timed, and never pay a launch.
  static constexpr std::size_t kLeastEvents = 16;

  // The side of a call. Until both were timed with calls of this size, the one that is `expected`,
  // except where the other is tried.
  Side choose(CallKind call, Side expected);
  void see(CallKind call, Side side, double ns);
  // The device has another index now.
  void forget();

 private:
  // A side is asked with some calls in a row, of which the quickest counts: the first ones make
  // scratch memory or wake a device. Those of the other side may take as long as the calls since it
  // was asked before, then half as long, a quarter, and so on, down to 1/32; less if it is known to
  // be much slower.
  static constexpr int kInARow = 3, kMostRounds = 5;

  struct Alike {
    std::array<std::atomic<float>, 2> of_side{};  // ns an event; 0: not timed yet
    std::atomic<float> spent_ns{0};               // since the other side was asked
    std::atomic<int> n_rounds{0};                 // how often that was
    std::atomic<int> n_asked{0};                  // calls that still go to the one below
    std::atomic<Side> asked{Side::host};
  };
  Alike& alike(CallKind call) {
    return alike_[call.encodes][static_cast<std::size_t>(std::bit_width(call.n_events))];
  }
  std::array<std::array<Alike, 65>, 2> alike_;
};

// The work of an event on the host, on one thread, encoding included if that is part of the call.
class EventWork {
 public:
  void see(std::size_t n_events, double ns);
  // So many threads are best for a call; 0: nothing is known yet.
  std::size_t choose_threads(std::size_t n_events, std::size_t n_threads) const;

 private:
  std::atomic<float> event_ns_{0};
};

}  // namespace tamis
