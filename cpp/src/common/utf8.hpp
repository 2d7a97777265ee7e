// Validation of UTF-8, for everything that comes from outside.
//
// Well-formed as the Unicode standard has it (table 3-7): no overlong forms, no surrogates,
// nothing above U+10FFFF. Text that is ASCII alone is better asked of simd().is_ascii first.
#pragma once

#include <cstddef>
#include <string_view>

namespace tamis {

// The length in bytes of the longest prefix that is well-formed.
std::size_t valid_utf8_prefix(const char* text, std::size_t n_bytes);

inline bool is_valid_utf8(std::string_view text) {
  return valid_utf8_prefix(text.data(), text.size()) == text.size();
}

}  // namespace tamis
