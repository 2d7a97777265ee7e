// What the kernels of our engines find: pairs of an event and a filter, from the device to pinned
// memory.
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
// not fit is counted and not written. All on the device.
struct DeviceResults {
  MatchPair* pairs;     // [most_pairs]
  std::uint32_t* left;  // events that the host must match, and that have no pairs
  MatchCounts* counts;  // in and out
  std::uint64_t most_pairs;
};

// The same in pinned memory.
struct PinnedResults {
  MatchPair* pairs;
  std::uint32_t* left;
  MatchCounts* counts;
};

// What was found since the launch before: `brought` has its counts then, and behind them those now.
void launch_bring(const DeviceResults& from, const PinnedResults& to, MatchCounts* brought,
                  void* stream);

}  // namespace tamis::cuda
