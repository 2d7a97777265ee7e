// Cuts beside integers that lie close, two bits for each integer: part of Ranks.
#pragma once

#include <cstddef>

#include "tamis/host_device.hpp"

namespace tamis {

struct Integers {                                   // 64 of them, in 20 bytes
  std::uint32_t n_cuts = 0;                         // of all integers below
  std::uint32_t cuts_before[2]{}, cuts_after[2]{};  // bits

  void add(std::size_t at, bool is_after) {
    // By a pointer: under UBSan GCC 12 takes the wrong item of (a ? b : c)[i].
    std::uint32_t* const cuts = is_after ? cuts_after : cuts_before;
    cuts[at / 32] |= std::uint32_t{1} << (at % 32);
  }
  TAMIS_HOST_DEVICE static std::uint64_t bits(const std::uint32_t (&halves)[2]) {
    return halves[0] | std::uint64_t{halves[1]} << 32;
  }
};

struct IntegerCuts {  // of one attribute
  const Integers* integers = nullptr;
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
    const auto at = static_cast<std::uint32_t>(place);
    const Integers& of_64 = integers[at / 64];
    const std::uint64_t here = std::uint64_t{1} << (at % 64), below = here - 1;
    const std::uint64_t after = is_after || whole != value ? below | here : below;
    return of_64.n_cuts + count_bits(Integers::bits(of_64.cuts_before) & (below | here)) +
           count_bits(Integers::bits(of_64.cuts_after) & after);
  }
};

}  // namespace tamis
