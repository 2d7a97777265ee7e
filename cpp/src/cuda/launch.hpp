// Kernel launches and constant memory: CUDA's, or those of the shim where no CUDA compiler reads
// this.
//
// Threads of a block that work together do it in phases: an object of trivially copyable members
// with
//
//     std::uint32_t n_phases() const;                      // the same for all threads of a block
//     void run(std::uint32_t phase, void* shared) const;   // of one thread
//
// All threads of a block have run a phase before one runs the next. What a thread keeps from phase
// to phase lies in the block's shared memory, aligned to 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "input.hpp"

#ifdef __CUDACC__
#ifndef __CUDACC_RTC__  // NVRTC compiles kernels alone: scripts/check_nvrtc.py
#include <cuda_runtime.h>

#include "check_cuda.hpp"
#endif

#define TAMIS_DEVICE __device__
#define TAMIS_UNROLL _Pragma("unroll")

#if __cplusplus < 202002L
#error "the kernels need C++20: some versions of CMake drop the flag for .cu files"
#endif

namespace tamis::cuda {

template <typename Phases>
__global__ void __launch_bounds__(kThreadsPerBlock) run_phases(Phases phases) {
  extern __shared__ uint4 shared_of_block[];
  const std::uint32_t n_phases = phases.n_phases();
  for (std::uint32_t phase = 0; phase < n_phases; ++phase) {
    if (phase > 0) __syncthreads();
    phases.run(phase, shared_of_block);
  }
}

#ifndef __CUDACC_RTC__
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), std::uint32_t n_blocks_x, std::uint32_t n_blocks_y,
            void* stream, Arguments... arguments) {
  if (n_blocks_x == 0 || n_blocks_y == 0) return;
  kernel<<<dim3(n_blocks_x, n_blocks_y), kThreadsPerBlock, 0, static_cast<cudaStream_t>(stream)>>>(
      arguments...);
  check(cudaGetLastError(), "start a kernel");
}

template <typename Phases>
void launch_phases(const Phases& phases, std::uint32_t n_blocks, std::size_t n_shared_bytes,
                   void* stream) {
  if (n_blocks == 0) return;
  constexpr std::size_t kAlwaysThere = 48 * 1024;
  if (n_shared_bytes > kAlwaysThere) {
    // The limit is the kernel's, whoever starts it: always the same, or one thread would take from
    // another what it has just set aside.
    check(cudaFuncSetAttribute(run_phases<Phases>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(Phases::kMostSharedBytes)),
          "set aside shared memory");
    // Else the cache may take what further blocks of a multiprocessor need.
    check(cudaFuncSetAttribute(run_phases<Phases>, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared),
          "set aside shared memory");
  }
  run_phases<<<n_blocks, kThreadsPerBlock, n_shared_bytes, static_cast<cudaStream_t>(stream)>>>(
      phases);
  check(cudaGetLastError(), "start a kernel");
}

template <typename T>
void copy_to_constant(T& symbol, const T& from, std::size_t n_bytes, void* stream) {
  check(cudaMemcpyToSymbolAsync(symbol, &from, n_bytes, 0, cudaMemcpyHostToDevice,
                                static_cast<cudaStream_t>(stream)),
        "copy to constant memory");
}
#else
template <typename... Parameters, typename... Arguments>
void launch(void (*)(Parameters...), std::uint32_t, std::uint32_t, void*, Arguments...) {}
template <typename Phases>
void launch_phases(const Phases&, std::uint32_t, std::size_t, void*) {
  [[maybe_unused]] void (*const kernel)(Phases) = run_phases<Phases>;
}
template <typename T>
void copy_to_constant(T&, const T&, std::size_t, void*) {}
#endif

}  // namespace tamis::cuda
#else
#include "shim/launch.hpp"
#endif

namespace tamis::cuda {

// Blocks so that each of `n` items has a thread.
inline std::uint32_t blocks_for(std::size_t n) {
  return static_cast<std::uint32_t>((n + kThreadsPerBlock - 1) / kThreadsPerBlock);
}

}  // namespace tamis::cuda
