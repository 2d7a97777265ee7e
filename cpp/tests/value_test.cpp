// Numbers keep their mathematical order, whatever type they came from.
#include "tamis/value.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include "check.hpp"
#include "tamis/value_set.hpp"

namespace tamis {
namespace {

TEST(numbers_of_all_types_are_in_mathematical_order) {
  constexpr std::int64_t kTwo53 = std::int64_t{1} << 53;
  const std::vector<Number> rising = {
      Number::from(-std::numeric_limits<double>::infinity()),
      Number::from(-1e300),
      Number::from(std::numeric_limits<std::int64_t>::min()),
      Number::from(std::numeric_limits<std::int64_t>::min() + 1),
      Number::from(-kTwo53 - 1),
      Number::from(-kTwo53),
      Number::from(-0.5),
      Number::from(std::int64_t{0}),
      Number::from(5e-324),
      Number::from(0.5),
      Number::from(kTwo53),
      Number::from(kTwo53 + 1),
      Number::from(kTwo53 + 2),
      Number::from(std::numeric_limits<std::int64_t>::max() - 1),
      Number::from(std::numeric_limits<std::int64_t>::max()),
      Number::from(0x1p63),
      Number::from((std::uint64_t{1} << 63) + 1),
      Number::from(std::numeric_limits<std::uint64_t>::max()),
      Number::from(0x1p64),
      Number::from(std::numeric_limits<double>::infinity()),
  };
  for (std::size_t a = 0; a < rising.size(); ++a) {
    for (std::size_t b = 0; b < rising.size(); ++b) {
      CHECK_EQ(rising[a] < rising[b], a < b);
      CHECK_EQ(rising[a] == rising[b], a == b);
    }
    CHECK(kLowest < rising[a].before());
    CHECK(rising[a].before() < rising[a].after());
    CHECK(rising[a].after() < kHighest);
  }
}

TEST(equal_numbers_of_different_types_are_equal) {
  CHECK(Number::from(0.0) == Number::from(-0.0));
  CHECK(Number::from(std::int64_t{5}) == Number::from(5.0));
  CHECK(Number::from(std::uint64_t{5}) == Number::from(std::int64_t{5}));
  CHECK(Number::from(std::uint64_t{1} << 63) == Number::from(0x1p63));
  CHECK(Number::from(std::numeric_limits<std::int64_t>::min()) == Number::from(-0x1p63));
}

// Sets as sums over a small universe, against bit masks.
ValueSet set_of(unsigned mask) {
  ValueSet set;
  for (int value = 0; value < 6; ++value) {
    if ((mask >> value) & 1) {
      const Number number = Number::from(static_cast<double>(value));
      set.numbers.push_back({number.before(), number.after()});
      const std::string text(1, static_cast<char>('a' + value));
      set.strings.push_back({{text, false, false}, {text, true, false}});
    }
  }
  normalise(set);
  return set;
}

unsigned mask_of(const ValueSet& set, bool of_strings) {
  unsigned mask = 0;
  for (int value = 0; value < 6; ++value) {
    const std::string text(1, static_cast<char>('a' + value));
    const bool is_in = of_strings ? set.contains(EventValue::of(std::string_view(text)))
                                  : set.contains(EventValue::of(static_cast<double>(value)));
    if (is_in) mask |= 1u << value;
  }
  return mask;
}

TEST(sets_behave_as_sets) {
  for (unsigned a = 0; a < 64; ++a) {
    for (const Kind kind : {Kind::number, Kind::string}) {
      const ValueSet rest = complement_within_type(set_of(a), kind);
      CHECK_EQ(mask_of(rest, kind == Kind::string), ~a & 63);
      CHECK_EQ(mask_of(rest, kind != Kind::string), 0u);
      CHECK(complement_within_type(rest, kind) ==
            (kind == Kind::string ? ValueSet{.numbers = {}, .strings = set_of(a).strings}
                                  : ValueSet{.numbers = set_of(a).numbers, .strings = {}}));
    }
    for (unsigned b = 0; b < 64; ++b) {
      for (const bool of_strings : {false, true}) {
        CHECK_EQ(mask_of(set_union(set_of(a), set_of(b)), of_strings), a | b);
        CHECK_EQ(mask_of(set_intersection(set_of(a), set_of(b)), of_strings), a & b);
      }
    }
  }
}

}  // namespace
}  // namespace tamis
