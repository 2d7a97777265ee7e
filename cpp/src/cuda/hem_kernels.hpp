// The kernels of HEM (papers/002, sections 4.2 and 4.3), which the paper has for CPUs only.
#pragma once

#include "hem_launch.hpp"
#include "launch.hpp"

namespace tamis::cuda {

__global__ void hem_or(HemFilters filters, const std::uint32_t* sources, std::uint32_t n_sources) {
  const std::uint32_t word = blockIdx.x * blockDim.x + threadIdx.x;
  if (word >= filters.n_words) return;
  if (word == 0) *filters.n_found = 0;
  std::uint64_t marks = filters.unused[word];
  for (std::uint32_t at = 0; at < n_sources; ++at) {
    marks |= filters.bitsets[std::size_t{sources[at]} * filters.n_words + word];
  }
  filters.marks[word] = marks;
}

// x: a pair of the run, y: the run.
__global__ void hem_mark(HemFilters filters, const HemRun* runs) {
  const std::uint32_t x = blockIdx.x * blockDim.x + threadIdx.x;
  const HemRun run = runs[blockIdx.y];
  if (x >= run.count) return;
  const std::uint32_t rank = filters.ranks[run.first + x];
  if ((run.is_low != 0) != (run.rank < rank)) return;
  const std::uint32_t bit = filters.bits[run.first + x];
  // Words of 32 bits, the lowest first.
  atomicOr(reinterpret_cast<std::uint32_t*>(filters.marks) + bit / 32, 1u << (bit % 32));
}

__global__ void hem_collect(HemFilters filters) {
  const std::uint32_t word = blockIdx.x * blockDim.x + threadIdx.x;
  if (word >= filters.n_words) return;
  std::uint64_t open = ~filters.marks[word];
  if (open == 0) return;
  std::uint32_t count = 0;
  for (std::uint64_t rest = open; rest != 0; rest &= rest - 1) ++count;
  std::uint32_t* found = filters.found + atomicAdd(filters.n_found, count);
  for (std::uint32_t bit = 0; open != 0; ++bit, open >>= 1) {
    if ((open & 1) != 0) *found++ = 64 * word + bit;
  }
}

void launch_hem_or(const HemFilters& filters, const std::uint32_t* sources, std::uint32_t n_sources,
                   void* stream) {
  launch(hem_or, blocks_for(filters.n_words), 1, stream, filters, sources, n_sources);
}

void launch_hem_mark(const HemFilters& filters, const HemRun* runs, std::uint32_t n_runs,
                     std::uint32_t longest_run, void* stream) {
  constexpr std::uint32_t kMostBlocksY = 65535;
  for (std::uint32_t first = 0; first < n_runs; first += kMostBlocksY) {
    const std::uint32_t n_left = n_runs - first;
    launch(hem_mark, blocks_for(longest_run), n_left < kMostBlocksY ? n_left : kMostBlocksY, stream,
           filters, runs + first);
  }
}

void launch_hem_collect(const HemFilters& filters, void* stream) {
  launch(hem_collect, blocks_for(filters.n_words), 1, stream, filters);
}

}  // namespace tamis::cuda
