#include "common/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace tamis {

std::size_t valid_utf8_prefix(const char* text, std::size_t n_bytes) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text);
  std::size_t at = 0;
  const auto is_continuation = [&](std::size_t place) { return (bytes[place] & 0xC0) == 0x80; };
  while (at < n_bytes) {
    const unsigned char lead = bytes[at];
    if (lead < 0x80) {
      ++at;
      for (std::uint64_t word; n_bytes - at >= 8; at += 8) {
        std::memcpy(&word, bytes + at, 8);
        if (word & 0x8080808080808080ull) break;
      }
      continue;
    }
    const std::size_t left = n_bytes - at;
    if (lead < 0xC2) return at;  // a continuation byte, or an overlong form of two bytes
    if (lead < 0xE0) {
      if (left < 2 || !is_continuation(at + 1)) return at;
      at += 2;
    } else if (lead < 0xF0) {
      if (left < 3 || !is_continuation(at + 1) || !is_continuation(at + 2)) return at;
      if (lead == 0xE0 && bytes[at + 1] < 0xA0) return at;   // overlong
      if (lead == 0xED && bytes[at + 1] >= 0xA0) return at;  // a surrogate
      at += 3;
    } else {
      if (lead > 0xF4 || left < 4 || !is_continuation(at + 1) || !is_continuation(at + 2) ||
          !is_continuation(at + 3)) {
        return at;
      }
      if (lead == 0xF0 && bytes[at + 1] < 0x90) return at;   // overlong
      if (lead == 0xF4 && bytes[at + 1] >= 0x90) return at;  // above U+10FFFF
      at += 4;
    }
  }
  return at;
}

}  // namespace tamis
