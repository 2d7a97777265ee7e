// How the host starts the kernels of `tuple-key-cuda`, and what they read and write.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engines/tuple_key/kernels.hpp"
#include "pairs_launch.hpp"
#include "ranked_launch.hpp"

namespace tamis::cuda {

inline constexpr std::uint32_t kTupleKeyMostAttributes = 10;  // of an event that the device takes

struct TupleKeyIndexView {  // on the device
  const RankedAttribute* attributes;
  const RankedSlot* slots;
  const tuple_key::KeyWord* words;
  const std::uint32_t* starts;
  const std::uint64_t* records;
  std::uint32_t n_attributes;
  std::uint32_t key_sizes;  // bit n: there are keys of n attributes
  std::uint32_t shift, start_mask, always_end, lane_bytes;
  std::uint32_t least_record;   // words of the shortest
  std::uint32_t has_long_runs;  // some are tasks
};

inline constexpr std::uint32_t kTupleKeyLongRun = 32;  // words: longer ones are tasks

// A run of records that one thread would take too long for, of an event.
struct TupleKeyTask {
  std::uint32_t event, begin, end;
};

// From the first kernel to the second.
struct TupleKeyWork {
  RankedValue* values;  // [most_events][kTupleKeyMostAttributes]
  TupleKeyTask* tasks;  // [most_tasks]
  std::uint64_t most_tasks;
  std::uint64_t* n_tasks;  // in: 0
};

// Two kernels: the keys of each event and their records; then those of long runs.
void launch_tuple_key_match(const TupleKeyIndexView& index, const NumberEvents& events,
                            const TupleKeyWork& work, const MatchResults& results, void* stream);

}  // namespace tamis::cuda
