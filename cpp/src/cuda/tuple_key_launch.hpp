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

void launch_tuple_key_match(const TupleKeyIndexView& index, const NumberEvents& events,
                            const StraightResults& results, void* stream);

}  // namespace tamis::cuda
