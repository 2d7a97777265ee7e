// How the host starts the kernel of `tuple-key-cuda`, and what it reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engines/tuple_key/kernels.hpp"
#include "pairs_launch.hpp"
#include "ranked_launch.hpp"

namespace tamis::cuda {

inline constexpr std::uint32_t kTupleKeyMostAttributes = 10;  // of an event that the device takes
inline constexpr std::uint32_t kTupleKeyMostFound = 16;       // keys of an event with filters

struct TupleKeyIndexView {  // on the device
  const RankedAttribute* attributes;
  const RankedSlot* slots;
  const tuple_key::KeyWord* words;
  const std::uint32_t* starts;
  const std::uint64_t* records;
  std::uint32_t n_attributes;
  std::uint32_t key_sizes;  // bit n: there are keys of n attributes
  std::uint32_t shift, start_mask, always_end, lane_bytes;
};

// Keys that were found for events, and the events' ranks: from the first kernel to the second.
struct TupleKeyWork {
  static constexpr std::uint32_t kAlways = ~std::uint32_t{0};  // a key: filters that need nothing
  RankedValue* values;     // [kTupleKeyMostAttributes][most_events]
  std::uint32_t* events;   // [most_tasks] of each task
  std::uint32_t* keys;     // [most_tasks]
  std::uint32_t* hashes;   // [most_tasks]
  std::uint64_t* n_tasks;  // in: 0
  std::uint32_t most_events;

  static constexpr std::size_t most_tasks(std::size_t most_events) {
    return most_events * (kTupleKeyMostFound + 1);
  }
};

// Two kernels: the keys of each event, then the records of each key that was found.
void launch_tuple_key_match(const TupleKeyIndexView& index, const NumberEvents& events,
                            const TupleKeyWork& work, const DeviceResults& results, void* stream);

}  // namespace tamis::cuda
