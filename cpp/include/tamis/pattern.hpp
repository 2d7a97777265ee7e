// LIKE patterns: `%` any run of characters, `_` one character (a code point, not a byte).
//
//     'ab%c_d' ->  prefix "ab", then segments between the `%`: "", "c_d"
//
// Segments match left to right, each at the first place where it fits; the last one is anchored at
// the end. That is exact for `%` and linear in practice, and needs no backtracking over segments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tamis {

class Pattern {
 public:
  // `escape` is empty or one character. Throws std::invalid_argument (a pattern that ends in its
  // escape character, or escapes something other than `%`, `_` and itself).
  Pattern(std::string_view text, std::string_view escape);

  bool matches(std::string_view text) const;

  // The literal text before the first wildcard, and what the whole comes down to.
  enum class Form : std::uint8_t { exact, prefix, general };
  Form form() const { return form_; }
  const std::string& prefix() const { return prefix_; }
  std::size_t bytes() const;

  friend bool operator==(const Pattern&, const Pattern&) = default;

 private:
  struct Piece {
    std::string literal;             // bytes to find
    std::uint32_t n_any_before = 0;  // `_` before it
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  using Segment = std::vector<Piece>;  // between two `%`
  static bool match_at(const Segment& segment, std::string_view text, std::size_t at,
                       std::size_t& end);

  Form form_ = Form::exact;
  std::string prefix_;
  std::vector<Segment> segments_;  // one more than there are `%`
};

}  // namespace tamis
