// A predicate with the centre of one area moved, the rest of its text as it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tamis {

// `area` counts the areas in the order of the text. Throws ArgumentError if there is no such area,
// or if it is not said which of several.
std::string move_area(std::string_view text, std::optional<std::uint32_t> area, double x, double y);

}  // namespace tamis
