// Cuts beside integers that lie close, two bits for each integer: part of Ranks.
#pragma once

#include "common/host_device.hpp"

namespace tamis {

struct Integers {  // 64 of them
  std::uint64_t cuts_before = 0, cuts_after = 0;
  std::uint64_t n_cuts = 0;  // of all integers below
};

struct IntegerCuts {  // of one attribute
  const Integers* integers = nullptr;
  double low = 0;                // the first integer
  std::uint32_t n_integers = 0;  // 0: there is no cut
  std::uint32_t n_cuts = 0;

  // The number of cuts at or before (value, fine); see Cut.
  TAMIS_HOST_DEVICE std::uint32_t rank(double value, std::int32_t fine) const {
    // floor() first: it is exact, and so is the difference of two integers.
    const double whole = __builtin_floor(value);
    const double place = whole - low;
    if (!(place >= 0)) return 0;
    if (place >= n_integers) return n_cuts;
    const auto at = static_cast<std::uint32_t>(place);
    const Integers& of_64 = integers[at / 64];
    const std::uint64_t here = std::uint64_t{1} << (at % 64), below = here - 1;
    const bool is_behind = whole != value || fine > 0;
    const std::uint64_t before = is_behind || fine == 0 ? below | here : below;
    const std::uint64_t after = is_behind ? below | here : below;
    return static_cast<std::uint32_t>(of_64.n_cuts) + count_bits(of_64.cuts_before & before) +
           count_bits(of_64.cuts_after & after);
  }
};

}  // namespace tamis
