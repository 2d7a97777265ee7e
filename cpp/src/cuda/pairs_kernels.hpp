// How threads write pairs, and the kernel that brings them: side by side, since the bus takes whole
// lines.
#pragma once

#include "launch.hpp"
#include "pairs_launch.hpp"

namespace tamis::cuda {

TAMIS_DEVICE inline std::uint64_t add_to(std::uint64_t* counter, std::uint32_t count) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(counter), count);
}
TAMIS_DEVICE inline std::uint32_t add_to(std::uint32_t* counter, std::uint32_t count) {
  return atomicAdd(counter, count);
}

// Places for `count` more behind a counter, one atomic operation for all threads of a warp that
// are here together.
template <typename Counter>
TAMIS_DEVICE Counter reserve(Counter* counter, std::uint32_t count) {
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
  Counter first = 0;
  if (lane == static_cast<unsigned>(leader)) first = add_to(counter, total);
  return __shfl_sync(here, first, leader) + before;
#else
  return add_to(counter, count);
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

// The pairs of a block, in its shared memory, then in pinned memory side by side.
template <std::uint32_t kMost>
struct BlockPairs {
  MatchPair pairs[kMost];
  std::uint64_t first;
  std::uint32_t n_pairs;

  TAMIS_DEVICE void clear() { n_pairs = 0; }
  TAMIS_DEVICE void add(const MatchPair& pair, const StraightResults& results) {
    const std::uint32_t at = reserve(&n_pairs, 1);
    if (at < kMost) {
      pairs[at] = pair;
      return;
    }
    const std::uint64_t alone = reserve(&results.now->found.n_pairs, 1);
    if (alone < results.most_pairs) results.to.pairs[alone] = pair;
  }
  TAMIS_DEVICE std::uint32_t size() const { return n_pairs < kMost ? n_pairs : kMost; }

  // The first thread, once all have added; then all of them.
  TAMIS_DEVICE void take_places(const StraightResults& results) {
    first = add_to(&results.now->found.n_pairs, size());
  }
  TAMIS_DEVICE void bring(const StraightResults& results) const {
    for (std::uint32_t at = threadIdx.x; at < size(); at += blockDim.x) {
      if (first + at < results.most_pairs) results.to.pairs[first + at] = pairs[at];
    }
    if (threadIdx.x == 0) end_block(results);
  }

 private:
  TAMIS_DEVICE static void end_block(const StraightResults& results) {
    __threadfence();  // what the block counted comes before
    if (add_to(&results.now->n_blocks, 1) + 1 < gridDim.x) return;
    __threadfence();
    *results.to.counts = results.now->found;
    results.now->n_blocks = 0;
    *results.next = {};
  }
};

// Leaves an event to the host.
TAMIS_DEVICE inline void leave(std::uint32_t event, const StraightResults& results) {
  results.to.left[reserve(&results.now->found.n_left, 1)] = event;
}

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
