// How threads write pairs: side by side, since the bus takes whole lines.
#pragma once

#include "launch.hpp"
#include "pairs_launch.hpp"
#include "warp_queue.hpp"

namespace tamis::cuda {

// Places for `count` more behind a counter, one atomic operation for all threads of a warp that
// are here together.
TAMIS_DEVICE inline std::uint64_t reserve(std::uint64_t* counter, std::uint32_t count) {
  auto* const number = reinterpret_cast<unsigned long long*>(counter);
#ifdef __CUDA_ARCH__
  const unsigned here = __activemask();
  const unsigned lane = threadIdx.x % 32;
  const unsigned below = (1u << lane) - 1;
  std::uint32_t before = 0, total = 0;
  const unsigned bits = __reduce_or_sync(here, count);
  for (unsigned bit = 0; bits >> bit != 0; ++bit) {  // counts are small
    const unsigned with = __ballot_sync(here, count >> bit & 1);
    before += static_cast<std::uint32_t>(__popc(with & below)) << bit;
    total += static_cast<std::uint32_t>(__popc(with)) << bit;
    if (bit == 31) break;
  }
  if (total == 0) return 0;
  const int leader = __ffs(static_cast<int>(here)) - 1;
  unsigned long long first = 0;
  if (lane == static_cast<unsigned>(leader)) first = atomicAdd(number, total);
  return __shfl_sync(here, first, leader) + before;
#else
  return atomicAdd(number, count);
#endif
}

// The same for one each, all threads of a warp together.
TAMIS_DEVICE inline std::uint64_t reserve_of_warp(std::uint64_t* counter, bool is_one) {
  auto* const number = reinterpret_cast<unsigned long long*>(counter);
#ifdef __CUDA_ARCH__
  const unsigned with = __ballot_sync(~0u, is_one), lane = threadIdx.x % 32;
  unsigned long long first = 0;
  if (lane == 0) first = atomicAdd(number, static_cast<unsigned>(__popc(with)));
  return __shfl_sync(~0u, first, 0) + __popc(with & ((1u << lane) - 1));
#else
  return atomicAdd(number, is_one);
#endif
}

// The pairs of a warp on their way out. All threads of a warp add and finish together.
struct PairOutput {
  WarpQueue<MatchPair, 1> pairs;

  TAMIS_DEVICE void add(bool is_one, const MatchPair& pair, const MatchResults& results) {
    pairs.push(is_one, pair);
    write(false, results);
  }
  TAMIS_DEVICE void finish(const MatchResults& results) { write(true, results); }

 private:
  TAMIS_DEVICE void write(bool is_last, const MatchResults& results) {
    pairs.take(is_last, [&](const MatchPair& pair, bool is_one) {
      const std::uint64_t at = reserve_of_warp(&results.counts->n_pairs, is_one);
      if (is_one && at < results.most_pairs) results.pairs[at] = pair;
    });
  }
};

// One block.
__global__ void finish_call(MatchCounts* counts, MatchCounts* to, std::uint32_t* used,
                            std::uint32_t n_used) {
  if (threadIdx.x == 0) {
    *to = *counts;
    *counts = {0, 0, 0};
  }
  for (std::uint32_t at = threadIdx.x; at < n_used; at += blockDim.x) used[at] = 0;
}

void launch_finish_call(MatchCounts* counts, MatchCounts* to, std::uint32_t* used,
                        std::uint32_t n_used, void* stream) {
  launch(finish_call, 1, 1, stream, counts, to, used, n_used);
}

}  // namespace tamis::cuda
