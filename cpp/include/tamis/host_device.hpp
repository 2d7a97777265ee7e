// Functions that the CPU engines and the kernels share. They include nothing but integers.
#pragma once

#ifdef __CUDACC__
#define TAMIS_HOST_DEVICE __host__ __device__
#else
#define TAMIS_HOST_DEVICE
#endif

#include <cstdint>

namespace tamis {

TAMIS_HOST_DEVICE inline std::uint32_t count_bits(std::uint64_t word) {
#ifdef __CUDA_ARCH__
  return static_cast<std::uint32_t>(__popcll(word));
#else
  return static_cast<std::uint32_t>(__builtin_popcountll(word));
#endif
}

}  // namespace tamis
