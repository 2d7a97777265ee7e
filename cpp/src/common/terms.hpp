// Hashes of terms: an attribute that must be there, or an attribute with one value. A filter that
// stands under one of its terms is found by an event that has it. A hash decides nothing: what it
// finds is verified.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "tamis/filter_table.hpp"

namespace tamis {

inline constexpr std::uint64_t kTermMultiplier = 0x9E3779B97F4A7C15ull;

inline std::uint64_t mix_terms(std::uint64_t a, std::uint64_t b) {
  const auto product =
      static_cast<unsigned __int128>(a ^ kTermMultiplier) * (b ^ (kTermMultiplier << 1));
  return (static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64)) *
         kTermMultiplier;
}

inline std::uint64_t hash_attribute(AttributeId attribute) { return mix_terms(attribute, 1); }

inline std::uint64_t hash_number(Number number) {
  return mix_terms(
      std::bit_cast<std::uint64_t>(number.nearest),
      2 + (static_cast<std::uint64_t>(static_cast<std::uint16_t>(number.residue)) << 8));
}

inline std::uint64_t hash_value(const EventValue& value) {
  switch (value.kind) {
    case Kind::number:
      return hash_number(value.number());
    case Kind::string:
      return mix_terms(hash_name(value.string()), 3);
    case Kind::boolean:
      return mix_terms(value.boolean, 4);
    default:
      return mix_terms(0, 5);
  }
}

// The hash of the one value that the constraint accepts, if it is one.
inline std::optional<std::uint64_t> hash_only_value(const FilterTable& table,
                                                    const Constraint& constraint) {
  const auto of_range = [](const NumberRange& range) -> std::optional<std::uint64_t> {
    // [just before v, just after v)
    if (range.low != range.high || range.low_fine % 2 != 0 ||
        range.high_fine != range.low_fine + 1) {
      return std::nullopt;
    }
    return hash_number({range.low, static_cast<std::int16_t>(range.low_fine / 2)});
  };
  if (constraint.is_interval()) return of_range(table.number(constraint.set));
  const GeneralSet& set = table.general(constraint);
  const std::uint32_t n_intervals = set.numbers.count + set.strings.count;
  if (set.flags == GeneralSet::kTrue && n_intervals == 0) return mix_terms(true, 4);
  if (set.flags == GeneralSet::kFalse && n_intervals == 0) return mix_terms(false, 4);
  if (set.flags != 0 || n_intervals != 1) return std::nullopt;
  if (set.numbers.count == 1) return of_range(table.number(set.numbers.first));
  const FilterTable::StringRange& range = table.string(set.strings.first);
  const std::string_view low = table.text(range.low_at, range.low_length);
  if (range.low_is_after || !range.high_is_after || range.high_is_unbounded ||
      low != table.text(range.high_at, range.high_length)) {
    return std::nullopt;
  }
  return mix_terms(hash_name(low), 3);
}

}  // namespace tamis
