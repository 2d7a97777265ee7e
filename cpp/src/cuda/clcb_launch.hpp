// How the host starts the kernels of CLCB.
#pragma once

#include "input.hpp"
#include "tamis/point.hpp"

namespace tamis::cuda {

// What Loc needs of an event: InputBF and InputPos.
struct ClcbInput {
  Point position;
  std::uint32_t missing;  // bits that no name of the event sets
  std::uint32_t has_position;
};

// All [n_filters] but for n_found.
struct ClcbFilters {
  const std::uint32_t* blooms;  // BF
  const Point* centres;         // FPos
  const double* limits;         // SqDist; NaN: the filter has no circle
  const std::uint8_t* sizes;    // counted constraints
  std::uint32_t* counts;        // FCount, a byte for each of four runs
  std::uint8_t* matched;        // SubsBV
  std::uint32_t* n_found;       // SubsCount
  std::uint32_t* found;         // Subs
  std::uint32_t n_filters;
};

// `run` is 0 to 3; the first clears the counts.
void launch_clcb_loc(const ClcbFilters& filters, const ClcbInput& input, std::uint32_t run,
                     void* stream);
void launch_clcb_cont(std::uint32_t n_lines, std::uint32_t longest_row, const Columns& columns,
                      const ClcbFilters& filters, std::uint32_t run, void* stream);
void launch_clcb_zip(const ClcbFilters& filters, void* stream);

}  // namespace tamis::cuda
