// How the host starts the kernel of `tuple-key-cuda`, and what it reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/integers.hpp"
#include "engines/tuple_key/kernels.hpp"

namespace tamis::cuda {

struct TupleKeyAttribute {
  enum Flag : std::uint32_t {
    kUsed = 1,  // filters have it
    kTerm = 2,  // some filter needs it
    kHost = 4,  // its numbers have no IntegerCuts: an event with it is the host's
  };
  std::uint32_t flags = 0;
  std::uint32_t hash = 0;
  IntegerCuts cuts;  // on the device
};

// A slot of ranks that lanes read: the rank of a number that the event has there, kNoRank if the
// slot is for strings, or else the preset.
struct TupleKeySlot {
  static constexpr std::uint32_t kStrings = std::uint32_t{1} << 31;
  std::uint32_t attribute = 0;  // with kStrings
  std::uint32_t preset = 0;
};

inline constexpr std::uint32_t kTupleKeyMostAttributes = 10;  // of an event that the device takes
inline constexpr std::uint32_t kTupleKeyMostFound = 16;       // keys of an event with filters

struct TupleKeyIndexView {  // on the device
  const TupleKeyAttribute* attributes;
  const TupleKeySlot* slots;
  const tuple_key::KeyWord* words;
  const std::uint32_t* starts;
  const std::uint64_t* records;
  std::uint32_t n_attributes;
  std::uint32_t key_sizes;  // bit n: there are keys of n attributes
  std::uint32_t shift, start_mask, always_end, lane_bytes;
};

// Events of a few numbers each. Memory of the device, or pinned memory of the host.
//
// Packed: cell after cell, each of all events, attribute << 16 | value, the value a 16-bit integer;
// a cell of ones is no attribute. Else, by offsets: attributes and doubles.
struct TupleKeyEvents {
  static constexpr std::uint32_t kNoCell = ~std::uint32_t{0};
  const std::uint32_t* cells = nullptr;  // [n_cells][stride]
  std::uint32_t n_cells = 0, stride = 0;
  const std::uint32_t* offsets = nullptr;  // [n_events + 1]
  const std::uint32_t* attributes = nullptr;
  const double* values = nullptr;
  std::uint32_t first_event = 0, n_events = 0;
};

struct TupleKeyPair {
  static constexpr std::uint32_t kVerify = std::uint32_t{1} << 31;
  std::uint32_t event;  // with kVerify: the filter table decides
  std::uint32_t filter;
};

// Keys that were found for events, and the events' ranks: from the first kernel to the second.
struct TupleKeyWork {
  struct Place {
    std::uint32_t attribute, rank;
  };
  static constexpr std::uint32_t kAlways = ~std::uint32_t{0};  // a key: filters that need nothing
  Place* places;           // [kTupleKeyMostAttributes][most_events]
  std::uint32_t* events;   // [most_tasks] of each task
  std::uint32_t* keys;     // [most_tasks]
  std::uint32_t* hashes;   // [most_tasks]
  std::uint64_t* n_tasks;  // in: 0
  std::uint32_t most_events;

  static constexpr std::size_t most_tasks(std::size_t most_events) {
    return most_events * (kTupleKeyMostFound + 1);
  }
};

struct TupleKeyCounts {
  std::uint64_t n_pairs, n_left;
};

// Each event's filters without repeats, in no order, behind those of the launches before. What does
// not fit is counted and not written. All on the device.
struct TupleKeyResults {
  TupleKeyPair* pairs;     // [most_pairs]
  std::uint32_t* left;     // events that the host must match, and that have no pairs
  TupleKeyCounts* counts;  // in and out
  std::uint64_t most_pairs;
};

// The same in pinned memory.
struct TupleKeyPinned {
  TupleKeyPair* pairs;
  std::uint32_t* left;
  TupleKeyCounts* counts;
};

// Two kernels: the keys of each event, then the records of each key that was found.
void launch_tuple_key_match(const TupleKeyIndexView& index, const TupleKeyEvents& events,
                            const TupleKeyWork& work, const TupleKeyResults& results, void* stream);
// What was found since the launch before: `brought` has its counts then, and behind them those now.
void launch_tuple_key_bring(const TupleKeyResults& from, const TupleKeyPinned& to,
                            TupleKeyCounts* brought, void* stream);

}  // namespace tamis::cuda
