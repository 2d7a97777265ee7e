// CUDA's kernel language for a C++ compiler: the threads of a launch run one after another.
//
// Tests link this instead of CUDA, so that kernels and host code run where no GPU is, under the
// sanitizers too. It finds wrong answers, bad addresses and memory that nothing set
// (shim/runtime.cpp fills what it gives out); it cannot find races, which compute-sanitizer does on
// a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/input.hpp"
#include "recording.hpp"

#define __global__ inline
#define TAMIS_DEVICE
#define TAMIS_UNROLL
#define __constant__
#define __launch_bounds__(...)

namespace tamis::cuda {

struct ThreadPlace {
  std::uint32_t x = 0, y = 0;
};
inline thread_local ThreadPlace threadIdx, blockIdx, blockDim, gridDim;

inline std::uint32_t atomicAdd(std::uint32_t* number, std::uint32_t more) {
  return __atomic_fetch_add(number, more, __ATOMIC_RELAXED);
}

inline unsigned long long atomicAdd(unsigned long long* number, unsigned long long more) {
  return __atomic_fetch_add(number, more, __ATOMIC_RELAXED);
}

inline std::uint32_t atomicOr(std::uint32_t* number, std::uint32_t bits) {
  return __atomic_fetch_or(number, bits, __ATOMIC_RELAXED);
}

template <typename... Parameters, typename... Arguments>
void run_now(void (*kernel)(Parameters...), std::uint32_t n_blocks_x, std::uint32_t n_blocks_y,
             const Arguments&... arguments) {
  blockDim = {kThreadsPerBlock, 1};
  gridDim = {n_blocks_x, n_blocks_y};
  for (std::uint32_t y = 0; y < n_blocks_y; ++y) {
    for (std::uint32_t x = 0; x < n_blocks_x; ++x) {
      blockIdx = {x, y};
      for (std::uint32_t thread = 0; thread < kThreadsPerBlock; ++thread) {
        threadIdx = {thread, 0};
        kernel(arguments...);
      }
    }
  }
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), std::uint32_t n_blocks_x, std::uint32_t n_blocks_y,
            void*, Arguments... arguments) {
  do_or_record([=] { run_now(kernel, n_blocks_x, n_blocks_y, arguments...); });
}

// The threads of a block run a phase one after another, then the next.
template <typename Phases>
void run_phases_now(const Phases& phases, std::uint32_t n_blocks, std::size_t n_shared_bytes) {
  struct alignas(16) Unit {
    std::byte bytes[16];
  };
  std::vector<Unit> shared((n_shared_bytes + sizeof(Unit) - 1) / sizeof(Unit));
  blockDim = {kThreadsPerBlock, 1};
  gridDim = {n_blocks, 1};
  for (std::uint32_t block = 0; block < n_blocks; ++block) {
    blockIdx = {block, 0};
    std::memset(static_cast<void*>(shared.data()), 0xA5, shared.size() * sizeof(Unit));
    for (std::uint32_t phase = 0; phase < phases.n_phases(); ++phase) {
      for (std::uint32_t thread = 0; thread < kThreadsPerBlock; ++thread) {
        threadIdx = {thread, 0};
        phases.run(phase, shared.data());
      }
    }
  }
}

template <typename Phases>
void launch_phases(const Phases& phases, std::uint32_t n_blocks, std::size_t n_shared_bytes,
                   void*) {
  do_or_record([=] { run_phases_now(phases, n_blocks, n_shared_bytes); });
}

template <typename T>
void copy_to_constant(T& symbol, const T& from, std::size_t n_bytes, void*) {
  std::memcpy(static_cast<void*>(&symbol), &from, n_bytes);
}

}  // namespace tamis::cuda
