#pragma once

#include <memory>
#include <span>

#include "tamis/engine.hpp"

namespace tamis {

extern const std::span<const Parameter> kSpatialGridParameters;

std::unique_ptr<Index> build_spatial_grid(std::shared_ptr<const FilterTable> table,
                                          const Parameters& parameters);
std::unique_ptr<Index> open_spatial_grid(std::shared_ptr<const FilterTable> table,
                                         const Parameters& parameters,
                                         const SectionReader& sections);

}  // namespace tamis
