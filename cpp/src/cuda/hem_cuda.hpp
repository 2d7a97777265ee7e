#pragma once

#include "tamis/engine.hpp"

namespace tamis {

inline constexpr Parameter kHemCudaParameters[] = {
    {"c", 1000, 1, 65536, "cells of an attribute"},
    {"g", 32, 1, 4096, "groups of cells with a bitset at each end; 1 covers half the cells"},
    {"joined_ends", 1, 0, 1, "1: one bitset for the groups of both ends, not the paper's two"},
    {"bytes_per_constraint", 32, 0, 65536,
     "most bytes of bitsets for each constraint on an attribute; where g groups would take more, "
     "there are fewer"},
};

// Throws ArgumentError for a parameter that is no whole number; UnavailableError where the GPU has
// no room.
std::unique_ptr<Index> build_hem_cuda(std::shared_ptr<const FilterTable> table, const Parameters&);

}  // namespace tamis
