#pragma once

#include "tamis/engine.hpp"

namespace tamis {

// A byte counts a filter's constraints, and one for its circle.
inline constexpr std::uint32_t kClcbCudaMostConstraints = 254;

inline constexpr Parameter kClcbCudaParameters[] = {
    {"name_bits", 2, 1, 8, "bits that a name sets in a Bloom filter of 32"},
    {"stream", 1, 0, 1, "0: the host waits for the GPU after every step, and each is timed"},
};

// Throws ArgumentError for a parameter that is no whole number, and for a filter with more than
// kClcbCudaMostConstraints constraints; UnavailableError where the GPU has no room.
std::unique_ptr<Index> build_clcb_cuda(std::shared_ptr<const FilterTable> table, const Parameters&);

// Where the time went, by step, while `stream` was 0: 003 figure 6.
struct ClcbTimes {
  std::int64_t copy_input_ns = 0, loc_ns = 0, cont_ns = 0, zip_ns = 0, copy_results_ns = 0;
};
ClcbTimes clcb_times(const Scratch& scratch);  // one that build_clcb_cuda's index made

}  // namespace tamis
