#pragma once

#include <span>

#include "tamis/engine.hpp"

namespace tamis {

extern const std::span<const Parameter> kOcmParameters;

// Throws ArgumentError for a parameter that is no whole number.
std::unique_ptr<Index> build_ocm(std::shared_ptr<const FilterTable> table, const Parameters&);

}  // namespace tamis
