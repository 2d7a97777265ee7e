// Lines of likely filters, added bit by bit: as wide as the instruction set of the file allows.
//
// For the files of kernels.hpp. In a namespace without a name, so that each has its own copy.
#pragma once

#include "engines/tuple_key/kernels.hpp"

namespace tamis::tuple_key {
namespace {

using LineBits = std::uint64_t __attribute__((vector_size(64), may_alias));
constexpr std::size_t kBitsOfLine = sizeof(LikelyLine) / sizeof(LineBits);

inline void add_lines(const LikelyLine* lines, const std::uint32_t* idxs, std::size_t n_idxs,
                      const LikelyLine* needed, LikelyLine& out) {
  const auto bits = [](const LikelyLine& line) {
    return reinterpret_cast<const LineBits*>(line.words);
  };
  for (std::size_t at = 0; at < kBitsOfLine; ++at) {
    LineBits ones = bits(needed[0])[at], twos = bits(needed[1])[at], fours = bits(needed[2])[at];
    for (std::size_t each = 0; each < n_idxs; ++each) {
      const LineBits more = bits(lines[idxs[each]])[at];
      const LineBits carry = ones & more, second_carry = twos & carry;
      ones ^= more;
      twos ^= carry;
      fours ^= second_carry;
    }
    reinterpret_cast<LineBits*>(out.words)[at] = ~(ones | twos | fours);
  }
}

}  // namespace
}  // namespace tamis::tuple_key
