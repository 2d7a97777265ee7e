// LIKE patterns: `%` any run of characters, `_` one character (a code point, not a byte).
//
//     'ab%c_d'  ->  a b 0xFF c 0xFE d         bytes that UTF-8 never has stand for the wildcards
//
// Flat bytes, so that a million patterns are one array in a file. What stands between two `%` is a
// segment; segments match left to right, each at the first place where it fits, and the last one is
// anchored at the end. That is exact for `%` and needs no backtracking over segments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tamis {

class Pattern {
 public:
  // `escape` is empty or one character. Throws std::invalid_argument (a pattern that ends in its
  // escape character, or escapes something other than `%`, `_` and itself).
  Pattern(std::string_view text, std::string_view escape);

  const std::string& compiled() const { return compiled_; }
  static bool matches(std::string_view compiled, std::string_view text);
  bool matches(std::string_view text) const { return matches(compiled_, text); }

  // The literal text before the first wildcard, and what the whole comes down to.
  enum class Form : std::uint8_t { exact, prefix, general };
  Form form() const { return form_; }
  const std::string& prefix() const { return prefix_; }

  friend bool operator==(const Pattern&, const Pattern&) = default;

 private:
  Form form_ = Form::exact;
  std::string prefix_;
  std::string compiled_;
};

}  // namespace tamis
