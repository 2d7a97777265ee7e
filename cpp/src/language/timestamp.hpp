// TIMESTAMP literals: ISO 8601 date and time -> microseconds since the epoch in UTC.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tamis {

// `2026-11-15`, `2026-11-15T10:00`, `2026-11-15 10:00:00.123456+01:00`; without a zone it is UTC.
std::optional<std::int64_t> parse_timestamp(std::string_view text);

}  // namespace tamis
