#pragma once

#include "tamis/engine.hpp"

namespace tamis {

// Half a byte counts a filter's constraints.
inline constexpr std::uint32_t kCcmMostConstraints = 15;

inline constexpr Parameter kCcmParameters[] = {
    {"name_vector_bits", 64, 1, 64, "bits of a NameVector, which divides filters into tables"},
    {"filter_selection", 1, 0, 1, "0: all filters in one table"},
    {"stream", 1, 0, 1, "0: the host waits for the GPU after every step, and each is timed"},
    {"events_per_kernel", 8, 1, 32, "events of a batch that share a kernel"},
};

// Throws ArgumentError for a parameter that is no whole number, and for a filter with more than
// kCcmMostConstraints constraints; UnavailableError where the GPU has no room.
std::unique_ptr<Index> build_ccm(std::shared_ptr<const FilterTable> table, const Parameters&);

// Where the time went, by step, while `stream` was 0: 000 table 4.
struct CcmTimes {
  std::int64_t input_ns = 0, copy_input_ns = 0, kernel_ns = 0, copy_results_ns = 0, reset_ns = 0;
};
CcmTimes ccm_times(const Scratch& scratch);  // one that build_ccm's index made

}  // namespace tamis
