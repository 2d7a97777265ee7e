#pragma once

#include <span>

#include "tamis/engine.hpp"

namespace tamis {

extern const std::span<const Parameter> kClcbParameters;

// Throws ArgumentError for a parameter that is no whole number.
std::unique_ptr<Index> build_clcb(std::shared_ptr<const FilterTable> table, const Parameters&);

}  // namespace tamis
