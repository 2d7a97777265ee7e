// Records of one or two lanes, without SIMD: gathering two ranks takes longer than reading them.
//
// For the files of kernels.hpp. In a namespace without a name, so that each has its own copy.
#pragma once

#include "engines/tuple_key/kernels.hpp"

namespace tamis::tuple_key {
namespace {

// Without branches: nobody can foresee which lane fails, nor whether there are one or two.
template <typename Lane>
inline bool hold_one_or_two(const Lane* lanes, std::uint32_t n_lanes, const std::uint32_t* ranks) {
  constexpr std::uint32_t kNegated = std::uint32_t{1} << (8 * sizeof(Lane) - 1);
  const auto holds = [&](std::uint32_t lane) {
    const std::uint32_t slot = lanes[lane];
    const std::uint32_t rank = ranks[slot & (kNegated - 1)];
    const bool is_inside = rank - lanes[n_lanes + lane] <= lanes[2 * n_lanes + lane];
    const bool is_negated = (slot & kNegated) != 0;
    return static_cast<unsigned>(is_inside != is_negated) & static_cast<unsigned>(rank != kNoRank);
  };
  return (holds(0) & holds(n_lanes - 1)) != 0;
}

}  // namespace
}  // namespace tamis::tuple_key
