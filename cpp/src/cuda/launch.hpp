// Kernel launches and constant memory: CUDA's, or those of the shim where no CUDA compiler reads
// this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "input.hpp"

#ifdef __CUDACC__
#include <cuda_runtime.h>

#include "check_cuda.hpp"

#define TAMIS_DEVICE __device__
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
inline std::uint32_t blocks_for(std::size_t n) {
  return static_cast<std::uint32_t>((n + kThreadsPerBlock - 1) / kThreadsPerBlock);
}

}  // namespace tamis::cuda
