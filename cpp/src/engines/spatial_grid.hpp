#pragma once

#include <memory>
#include <span>

#include "tamis/engine.hpp"

namespace tamis {

extern const std::span<const Parameter> kSpatialGridParameters;

std::unique_ptr<Index> build_spatial_grid(std::shared_ptr<const FilterTable> table,
                                          const Parameters& parameters);
// With the slot of each filter: gives a MovableIndex.
std::unique_ptr<Index> build_owned_spatial_grid(std::shared_ptr<const FilterTable> table,
                                                const Parameters& parameters,
                                                std::span<const std::uint32_t> slot_of);
std::unique_ptr<Index> open_spatial_grid(std::shared_ptr<const FilterTable> table,
                                         const Parameters& parameters,
                                         const SectionReader& sections);

}  // namespace tamis
