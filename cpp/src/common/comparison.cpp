#include "comparison.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace tamis {
namespace {

Comparison with_number(unsigned orders, double number) {
  return {static_cast<std::uint8_t>(orders), false, number, {}};
}
Comparison with_text(unsigned orders, std::string_view text) {
  return {static_cast<std::uint8_t>(orders), true, 0, text};
}

// The bound as a number without residue, if it is one. A cut is just before or just after it.
bool is_plain(Cut cut) { return cut.fine == 0 || cut.fine == 1; }
bool is_after(Cut cut) { return cut.fine == 1; }

Comparison number_comparison(const NumberRange& range) {
  const Cut low = range.low_cut(), high = range.high_cut();
  const bool has_low = !(low == kLowest), has_high = !(high == kHighest);
  if (!has_low && !has_high) return with_number(kAnyOrder, 0);
  if (has_low && has_high) {
    const bool is_equality = is_plain(low) && is_plain(high) && low.nearest == high.nearest &&
                             !is_after(low) && is_after(high);
    return with_number(is_equality ? kEqual : 0, low.nearest);
  }
  const Cut bound = has_low ? low : high;
  if (!is_plain(bound)) return {};
  const bool accepts_bound = is_after(bound) == has_high;
  return with_number((has_high ? kLess : kGreater) | (accepts_bound ? kEqual : 0), bound.nearest);
}

// x != 5: everything below and everything above.
Comparison number_inequality(const NumberRange& below, const NumberRange& above) {
  const Cut high = below.high_cut(), low = above.low_cut();
  if (!(below.low_cut() == kLowest) || !(above.high_cut() == kHighest)) return {};
  if (!is_plain(high) || !is_plain(low) || high.nearest != low.nearest) return {};
  if (is_after(high) || !is_after(low)) return {};
  return with_number(kLess | kGreater, low.nearest);
}

Comparison string_comparison(const FilterTable& table, const GeneralSet& set) {
  const auto low_text = [&](const FilterTable::StringRange& range) {
    return table.text(range.low_at, range.low_length);
  };
  const auto high_text = [&](const FilterTable::StringRange& range) {
    return table.text(range.high_at, range.high_length);
  };
  const FilterTable::StringRange& first = table.string(set.strings.first);
  const FilterTable::StringRange& last = table.string(set.strings.first + set.strings.count - 1);
  const bool has_low = first.low_length > 0 || first.low_is_after;
  const bool has_high = !last.high_is_unbounded;
  if (set.strings.count == 2) {
    const bool is_inequality = !has_low && !has_high && high_text(first) == low_text(last) &&
                               !first.high_is_after && last.low_is_after;
    return with_text(is_inequality ? kLess | kGreater : 0, low_text(last));
  }
  if (!has_low && !has_high) return with_text(kAnyOrder, {});
  if (has_low && has_high) {
    const bool is_equality =
        low_text(first) == high_text(first) && !first.low_is_after && first.high_is_after;
    return with_text(is_equality ? kEqual : 0, low_text(first));
  }
  const bool accepts_bound = has_high ? first.high_is_after : !first.low_is_after;
  return with_text((has_high ? kLess : kGreater) | (accepts_bound ? kEqual : 0),
                   has_high ? high_text(first) : low_text(first));
}

}  // namespace

Comparison comparison_of(const FilterTable& table, const Constraint& constraint) {
  if (constraint.is_interval()) return number_comparison(table.number(constraint.set));
  const GeneralSet& set = table.general(constraint);
  if (set.flags != 0 || set.patterns.count > 0) return {};
  if (set.numbers.count == 2 && set.strings.count == 0) {
    return number_inequality(table.number(set.numbers.first), table.number(set.numbers.first + 1));
  }
  const bool is_strings_alone = set.numbers.count == 0;
  if (is_strings_alone && (set.strings.count == 1 || set.strings.count == 2)) {
    return string_comparison(table, set);
  }
  return {};
}

std::uint64_t string_key(std::string_view text) {
  std::array<unsigned char, 8> bytes{};
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size()));
  std::uint64_t key = 0;
  for (const unsigned char byte : bytes) key = key << 8 | byte;
  return key;
}

}  // namespace tamis
