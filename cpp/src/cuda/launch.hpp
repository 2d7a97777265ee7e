// Kernel launches and constant memory: CUDA's, or those of the shim where no CUDA compiler reads
// this.
//
// Threads of a block that work together do it in phases: an object of trivially copyable members
// with
//
//     static constexpr std::uint32_t kThreads, kBlocks;   // a block's, a multiprocessor's (least)
//     static constexpr std::size_t kMostSharedBytes;      // of a block
//     bool is_over(std::uint32_t phase, const void* shared) const;   // the same for all threads
//     void run(std::uint32_t phase, void* shared) const;             // of one thread
//
// All threads of a block have run a phase before one runs the next. What a thread keeps from phase
// to phase lies in the block's shared memory, aligned to 16 bytes. While some thread asks whether
// it is over, others run the phase that follows: what it reads must not change there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "input.hpp"

#ifdef __CUDACC__
#include <cuda_runtime.h>

#include "check_cuda.hpp"

#define TAMIS_DEVICE __device__
#define TAMIS_INLINE __device__ __forceinline__
#define TAMIS_UNROLL _Pragma("unroll")

#if __cplusplus < 202002L
#error "the kernels need C++20: some versions of CMake drop the flag for .cu files"
#endif

namespace tamis::cuda {

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), std::uint32_t n_blocks_x, std::uint32_t n_blocks_y,
            void* stream, Arguments... arguments) {
  if (n_blocks_x == 0 || n_blocks_y == 0) return;
  kernel<<<dim3(n_blocks_x, n_blocks_y), kThreadsPerBlock, 0, static_cast<cudaStream_t>(stream)>>>(
      arguments...);
  check(cudaGetLastError(), "start a kernel");
}

template <typename Phases>
__global__ void __launch_bounds__(Phases::kThreads, Phases::kBlocks) run_phases(Phases phases) {
  extern __shared__ uint4 shared_of_block[];
  for (std::uint32_t phase = 0; !phases.is_over(phase, shared_of_block); ++phase) {
    phases.run(phase, shared_of_block);
    __syncthreads();
  }
}

template <typename Phases>
void launch_phases(const Phases& phases, std::uint32_t n_blocks, std::size_t n_shared_bytes,
                   void* stream) {
  if (n_blocks == 0) return;
  constexpr std::size_t kAlwaysThere = 48 * 1024;
  // Once, not at each launch.
  [[maybe_unused]] static const bool is_set_aside = [] {
    check(cudaFuncSetAttribute(run_phases<Phases>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(Phases::kMostSharedBytes)),
          "set aside shared memory");
    // Else the cache may take what further blocks of a multiprocessor need. Where a block needs
    // little, the driver's choice leaves more to the cache.
    if constexpr (Phases::kMostSharedBytes > kAlwaysThere) {
      check(cudaFuncSetAttribute(run_phases<Phases>, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared),
            "set aside shared memory");
    }
    return true;
  }();
  run_phases<<<n_blocks, Phases::kThreads, n_shared_bytes, static_cast<cudaStream_t>(stream)>>>(
      phases);
  check(cudaGetLastError(), "start a kernel");
}

template <typename T>
void copy_to_constant(T& symbol, const T& from, std::size_t n_bytes, void* stream) {
  check(cudaMemcpyToSymbolAsync(symbol, &from, n_bytes, 0, cudaMemcpyHostToDevice,
                                static_cast<cudaStream_t>(stream)),
        "copy to constant memory");
}

}  // namespace tamis::cuda
#else
#include "shim/launch.hpp"
#endif

namespace tamis::cuda {

// Blocks so that each of `n` items has a thread.
inline std::uint32_t blocks_for(std::size_t n, std::uint32_t n_threads = kThreadsPerBlock) {
  return static_cast<std::uint32_t>((n + n_threads - 1) / n_threads);
}

}  // namespace tamis::cuda
