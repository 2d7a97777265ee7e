// What the kernels of our engines find: pairs of an event and a filter, in pinned memory.
#pragma once

#include <cstdint>

namespace tamis::cuda {

struct alignas(8) MatchPair {
  static constexpr std::uint32_t kVerify = std::uint32_t{1} << 31;
  std::uint32_t event;  // with kVerify: the filter table decides
  std::uint32_t filter;
};

struct MatchCounts {
  std::uint64_t n_pairs, n_left;
  std::uint64_t n_lost;  // of a kernel's work, what did not fit: all must be done again with less
};

// Each event's filters without repeats, in no order, behind those of the launches before. What does
// not fit is counted and not written. Kernels write to pinned memory, side by side
// (warp_queue.hpp): the bus takes whole lines.
struct MatchResults {
  MatchPair* pairs;     // [most_pairs]
  std::uint32_t* left;  // events that the host must match, and that have no pairs
  MatchCounts* counts;  // on the device, in and out
  std::uint64_t most_pairs;
};

// The counts of a call to pinned memory, and all that it counted with is 0 again.
void launch_finish_call(MatchCounts* counts, MatchCounts* to, std::uint32_t* used,
                        std::uint32_t n_used, void* stream);

}  // namespace tamis::cuda
