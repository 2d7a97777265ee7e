// Values of attributes, exactly ordered.
//
// A number is the double nearest to it and the small integer that is missing:
//
//     value = nearest + residue          |residue| <= 1024
//
// Rounding to nearest is monotone, so (nearest, residue) in lexicographic order is
// the mathematical order of all doubles, int64 and uint64 together: 2^53 + 1 is
// (2^53, +1), above 2^53 and below 2^53 + 2. Rejected: long double (not portable,
// slow), comparing by pairs of types (nine cases in every kernel).
//
// A place between two values is a cut: (nearest, fine) with fine = 2 * residue for
// "just before the value" and 2 * residue + 1 for "just after it". An interval is
// [low cut, high cut) and open, closed and unbounded ends are all the same test.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "tamis/order.hpp"

namespace tamis {

enum class Kind : std::uint8_t { absent = 0, number, string, boolean, nan };

struct Cut {
  double nearest = 0;
  std::int16_t fine = 0;

  friend constexpr bool operator==(const Cut&, const Cut&) = default;
  friend constexpr bool operator<(const Cut& a, const Cut& b) {
    return is_cut_below(a.nearest, a.fine, b.nearest, b.fine);
  }
};

inline constexpr Cut kLowest{-std::numeric_limits<double>::infinity(),
                             std::numeric_limits<std::int16_t>::min()};
inline constexpr Cut kHighest{std::numeric_limits<double>::infinity(),
                              std::numeric_limits<std::int16_t>::max()};

struct Number {
  double nearest = 0;
  std::int16_t residue = 0;

  static constexpr Number from(double value) { return {value + 0.0, 0}; }  // -0.0 becomes 0.0

  static constexpr Number from(std::int64_t value) {
    const double nearest = static_cast<double>(value);
    // 2^63 itself is not an int64: subtract in unsigned arithmetic, where it wraps to the right
    // difference.
    const std::uint64_t back = nearest == 0x1p63
                                   ? std::uint64_t{1} << 63
                                   : static_cast<std::uint64_t>(static_cast<std::int64_t>(nearest));
    return {nearest, static_cast<std::int16_t>(
                         static_cast<std::int64_t>(static_cast<std::uint64_t>(value) - back))};
  }

  static constexpr Number from(std::uint64_t value) {
    const double nearest = static_cast<double>(value);
    const std::uint64_t back = nearest == 0x1p64 ? 0 : static_cast<std::uint64_t>(nearest);
    return {nearest, static_cast<std::int16_t>(static_cast<std::int64_t>(value - back))};
  }

  constexpr Cut before() const { return {nearest, static_cast<std::int16_t>(2 * residue)}; }
  constexpr Cut after() const { return {nearest, static_cast<std::int16_t>(2 * residue + 1)}; }

  friend constexpr bool operator==(const Number&, const Number&) = default;
  friend constexpr bool operator<(const Number& a, const Number& b) {
    return a.before() < b.before();
  }
};

// One value of an event. Strings are borrowed: the batch that holds the value keeps their bytes.
struct EventValue {  // 16 bytes
  Kind kind = Kind::absent;
  bool boolean = false;
  std::int16_t residue = 0;  // of a number
  std::uint32_t length = 0;  // of a string, in bytes
  union {
    double nearest;    // of a number
    const char* data;  // of a string
  };

  constexpr EventValue() : nearest(0) {}

  static EventValue of(Number number) {
    EventValue value;
    value.kind = Kind::number;
    value.residue = number.residue;
    value.nearest = number.nearest;
    return value;
  }
  static EventValue of(std::int64_t number) { return of(Number::from(number)); }
  static EventValue of(std::uint64_t number) { return of(Number::from(number)); }
  static EventValue of(double number) {
    if (number != number) {
      EventValue value;
      value.kind = Kind::nan;
      return value;
    }
    return of(Number::from(number));
  }
  static EventValue of(bool truth) {
    EventValue value;
    value.kind = Kind::boolean;
    value.boolean = truth;
    return value;
  }
  static EventValue of(std::string_view text) {
    EventValue value;
    value.kind = Kind::string;
    value.length = static_cast<std::uint32_t>(text.size());
    value.data = text.data();
    return value;
  }

  Number number() const { return {nearest, residue}; }
  std::string_view string() const { return {data, length}; }
};
static_assert(sizeof(EventValue) == 16);

}  // namespace tamis
