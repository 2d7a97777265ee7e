#include "common/simd.hpp"

#include <atomic>
#include <string>

#include "tamis/error.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tamis {

namespace {

#if defined(__x86_64__)
// GCC and Clang do not both know "lzcnt" by name.
bool has_lzcnt() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0x80000001u, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 5)) != 0;
}
#endif

const SimdKernels& kernels_of(SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return kSimdAvx512;
  if (level == SimdLevel::avx2) return kSimdAvx2;
#else
  (void)level;
#endif
  return kSimdV2;
}

// Null until somebody asks: no code of ours runs before main.
std::atomic<const SimdKernels*> active{nullptr};

}  // namespace

SimdLevel best_simd_level() {
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks whether the system saves the wide registers.
  static const SimdLevel best = [] {
    __builtin_cpu_init();
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
          __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt") && has_lzcnt())) {
      return SimdLevel::v2;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
      return SimdLevel::avx512;
    }
    return SimdLevel::avx2;
  }();
  return best;
#else
  return SimdLevel::v2;
#endif
}

bool has_simd_level(SimdLevel level) { return level <= best_simd_level(); }

const char* simd_level_name(SimdLevel level) {
  switch (level) {
    case SimdLevel::avx512:
      return "avx512";
    case SimdLevel::avx2:
      return "avx2";
    case SimdLevel::v2:
      break;
  }
  return "v2";
}

const SimdKernels& simd() {
  const SimdKernels* kernels = active.load(std::memory_order_acquire);
  if (kernels == nullptr) {
    // Two threads may both come here; one that lost to set_simd_level takes what was set.
    const SimdKernels* best = &kernels_of(best_simd_level());
    kernels = active.compare_exchange_strong(kernels, best) ? best : kernels;
  }
  return *kernels;
}

SimdLevel simd_level() {
  const SimdKernels* kernels = &simd();
#if defined(__x86_64__)
  if (kernels == &kSimdAvx512) return SimdLevel::avx512;
  if (kernels == &kSimdAvx2) return SimdLevel::avx2;
#else
  (void)kernels;
#endif
  return SimdLevel::v2;
}

void set_simd_level(SimdLevel level) {
  if (!has_simd_level(level)) {
    throw ArgumentError(std::string("the SIMD level must be one that this machine has, up to ") +
                        simd_level_name(best_simd_level()) + ", not " + simd_level_name(level));
  }
  active.store(&kernels_of(level), std::memory_order_release);
}

}  // namespace tamis
