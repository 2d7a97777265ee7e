// Ids of subscriptions and subscribers: int64 or string, one type for a matcher.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tamis {

enum class IdType : std::uint8_t { none, integer, string };

struct IdView {
  IdType type = IdType::none;
  std::int64_t integer = 0;
  std::string_view string;

  static IdView of(std::int64_t value) { return {IdType::integer, value, {}}; }
  static IdView of(std::string_view value) { return {IdType::string, 0, value}; }
  friend bool operator==(const IdView&, const IdView&) = default;
};

std::string to_text(const IdView& id);

}  // namespace tamis
