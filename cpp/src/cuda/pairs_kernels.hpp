// How threads write pairs, and the kernel that brings them: side by side, since the bus takes whole
// lines.
#pragma once

#include "launch.hpp"
#include "pairs_launch.hpp"

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

// The pairs of a thread on their way out.
struct PairOutput {
  static constexpr std::uint32_t kMost = 4;
  MatchPair pairs[kMost] = {};
  std::uint32_t n_pairs = 0;

  TAMIS_DEVICE void add(const MatchPair& pair, const DeviceResults& results) {
    if (n_pairs == kMost) flush(results);
    pairs[n_pairs++] = pair;
  }
  TAMIS_DEVICE void flush(const DeviceResults& results) {
    const std::uint64_t first = reserve(&results.counts->n_pairs, n_pairs);
    for (std::uint32_t at = 0; at < n_pairs; ++at) {
      if (first + at < results.most_pairs) results.pairs[first + at] = pairs[at];
    }
    n_pairs = 0;
  }
};

__global__ void bring_pairs(DeviceResults from, PinnedResults to, MatchCounts* brought) {
  const std::uint32_t n_threads = gridDim.x * blockDim.x;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const MatchCounts counts = *from.counts;
  if (thread == 0) *to.counts = brought[1] = counts;
  const std::uint64_t end = counts.n_pairs < from.most_pairs ? counts.n_pairs : from.most_pairs;
  for (std::uint64_t at = brought[0].n_pairs + thread; at < end; at += n_threads) {
    to.pairs[at] = from.pairs[at];
  }
  for (std::uint64_t at = brought[0].n_left + thread; at < counts.n_left; at += n_threads) {
    to.left[at] = from.left[at];
  }
}

void launch_bring(const DeviceResults& from, const PinnedResults& to, MatchCounts* brought,
                  void* stream) {
  constexpr std::uint32_t kBlocks = 64;  // enough to fill the bus
  launch(bring_pairs, kBlocks, 1, stream, from, to, brought);
}

}  // namespace tamis::cuda
