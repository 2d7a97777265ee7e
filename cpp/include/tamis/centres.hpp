// Where the areas of subscriptions are that have moved, by slot: one writer, any number of readers.
//
//     version    0: the area is where its filter says; else the copy of its parity is its place
//     copies     (x, y) as given, and the point of the distance test
//
// A move writes the copy that nobody is sent to and then the version. A reader that finds the
// version as it was has read a whole centre: a writer that rests in the middle of a move stops
// nobody.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tamis/grow_only.hpp"
#include "tamis/prefetch.hpp"
#include "tamis/space.hpp"

namespace tamis {

struct Centre {
  double x = 0, y = 0;
  Point point;
};

class Centres {
 public:
  bool has_moved(std::uint32_t slot) const {
    return records_[slot].version.load(std::memory_order_relaxed) != 0;
  }
  // False: the area has not moved, and `centre` stays as it is.
  bool read(std::uint32_t slot, Centre& centre) const {
    const Record& record = records_[slot];
    std::uint32_t version = record.version.load(std::memory_order_acquire);
    while (version != 0) {
      const Copy& copy = record.copy(version);
      // The second look at the version must come after these.
      const auto get = [&](std::size_t at) { return copy[at].load(std::memory_order_acquire); };
      const Centre found{get(0), get(1), {get(2), get(3), get(4)}};
      const std::uint32_t again = record.version.load(std::memory_order_relaxed);
      if (again == version) {
        centre = found;
        return true;
      }
      version = record.version.load(std::memory_order_acquire);
    }
    return false;
  }

  // --- the writer's part ---
  void grow_to(std::size_t n_slots) { records_.grow_to(n_slots); }
  void move(std::uint32_t slot, const Centre& centre) {
    Record& record = records_[slot];
    std::uint32_t next = record.version.load(std::memory_order_relaxed) + 1;
    if (next == 0) next = 2;
    Copy& copy = record.copy(next);
    const double values[] = {centre.x, centre.y, centre.point.x, centre.point.y, centre.point.z};
    for (std::size_t at = 0; at < 5; ++at) copy[at].store(values[at], std::memory_order_release);
    record.version.store(next, std::memory_order_release);
  }
  // Of a slot that nobody sees any more.
  void forget(std::uint32_t slot) { records_[slot].version.store(0, std::memory_order_relaxed); }
  void prefetch(std::uint32_t slot) const {
    const Record& record = records_[slot];
    prefetch_line(&record.even);
    prefetch_line(&record.version);
    prefetch_line(&record.odd.back());
  }
  std::size_t n_bytes() const { return records_.n_bytes(); }

 private:
  using Copy = std::array<std::atomic<double>, 5>;
  // The version is in the middle: it and either copy are on two lines of a cache at most.
  struct Record {
    Copy even;
    std::atomic<std::uint32_t> version;
    Copy odd;
    const Copy& copy(std::uint32_t of) const { return of % 2 == 0 ? even : odd; }
    Copy& copy(std::uint32_t of) { return of % 2 == 0 ? even : odd; }
  };
  GrowOnly<Record> records_;
};

}  // namespace tamis
