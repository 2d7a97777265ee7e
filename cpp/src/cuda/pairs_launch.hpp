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

// Of kernels whose blocks write to pinned memory themselves, many pairs at a time: nothing is left
// to bring, and nobody has to clear a counter before.
struct StraightCounts {  // on the device
  MatchCounts found;
  std::uint32_t n_blocks;  // of a launch that are through; the last one has them all
};
struct StraightResults {
  PinnedResults to;  // the counts are there after the last block
  std::uint64_t most_pairs;
  StraightCounts* now;   // in and out
  StraightCounts* next;  // out: clear
};

// What was found since the launch before: `brought` has its counts then, and behind them those now.
void launch_bring(const DeviceResults& from, const PinnedResults& to, MatchCounts* brought,
                  void* stream);

}  // namespace tamis::cuda
