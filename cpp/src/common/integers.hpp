// Cuts beside integers that lie close, two bits for each integer: part of Ranks.
#pragma once

#include <cstddef>

#include "tamis/host_device.hpp"

namespace tamis {

// 64 integers in 20 bytes, or 32 in 16, which a thread of a GPU reads at once.
template <std::uint32_t kWords>
struct alignas(kWords == 1 ? 16 : 4) IntegersOf {
  static constexpr std::uint32_t kIntegers = 32 * kWords;
  std::uint32_t n_cuts = 0;                                   // of all integers below
  std::uint32_t cuts_before[kWords]{}, cuts_after[kWords]{};  // bits

  void add(std::size_t at, bool is_after) {
    // By a pointer: under UBSan GCC 12 takes the wrong item of (a ? b : c)[i].
    std::uint32_t* const cuts = is_after ? cuts_after : cuts_before;
    cuts[at / 32] |= std::uint32_t{1} << (at % 32);
  }
  TAMIS_HOST_DEVICE static std::uint64_t bits(const std::uint32_t (&halves)[2]) {
    return halves[0] | std::uint64_t{halves[1]} << 32;
  }
  TAMIS_HOST_DEVICE static std::uint32_t bits(const std::uint32_t (&whole)[1]) { return whole[0]; }
};
using Integers = IntegersOf<2>;

template <std::uint32_t kWords>
struct IntegerCutsOf {  // of one attribute
  const IntegersOf<kWords>* integers = nullptr;
  double low = 0;                // the first integer
  std::uint32_t n_integers = 0;  // 0: there is no cut
  std::uint32_t n_cuts = 0;

  // The number of cuts at or before the value, or the place just after it.
  TAMIS_HOST_DEVICE std::uint32_t rank(double value, bool is_after) const {
    // floor() first: it is exact, and so is the difference of two integers.
    const double whole = __builtin_floor(value);
    const double place = whole - low;
    if (!(place >= 0)) return 0;
    if (place >= n_integers) return n_cuts;
    constexpr std::uint32_t kIntegers = IntegersOf<kWords>::kIntegers;
    const auto at = static_cast<std::uint32_t>(place);
    const IntegersOf<kWords> some = integers[at / kIntegers];
    const auto before = some.bits(some.cuts_before), after = some.bits(some.cuts_after);
    const auto here = decltype(some.bits(some.cuts_before)){1} << (at % kIntegers);
    const auto below = here - 1;
    return some.n_cuts + count_bits(before & (below | here)) +
           count_bits(after & (is_after || whole != value ? below | here : below));
  }
};
using IntegerCuts = IntegerCutsOf<2>;

}  // namespace tamis
