// How the host starts the kernels of CCM.
#pragma once

#include "input.hpp"

namespace tamis::cuda {

struct CcmFilter {  // FiltersInfo
  std::uint32_t size;
  std::uint32_t interface;
};

// A copy of each array for each of the events that share a kernel.
struct CcmState {
  std::uint32_t* counts;     // [n_events * n_filters] FiltersCount, eight half-bytes each
  std::uint8_t* interfaces;  // [n_events * n_interfaces]
  std::uint32_t n_filters;
  std::uint32_t n_interfaces;  // a multiple of 4
};

// One thread for each constraint of the `n_lines` rows in constant memory.
void launch_ccm_evaluate(std::uint32_t n_lines, std::uint32_t longest_row, const Columns& columns,
                         const CcmFilter* filters, const CcmState& state, std::uint32_t stage,
                         void* stream);
// Clears the interfaces of `n_events` events, and the counts of `n_counted_events`.
void launch_ccm_reset(const CcmState& state, std::uint32_t n_events, std::uint32_t n_counted_events,
                      void* stream);

}  // namespace tamis::cuda
