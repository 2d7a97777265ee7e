#pragma once

#include <span>

#include "tamis/engine.hpp"

namespace tamis {

extern const std::span<const Parameter> kAdaReinParameters;

// Throws ArgumentError for a number of cells that is not whole.
std::unique_ptr<Index> build_ada_rein(std::shared_ptr<const FilterTable> table, const Parameters&);

}  // namespace tamis
