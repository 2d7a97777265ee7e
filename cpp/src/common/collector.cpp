#include "tamis/collector.hpp"

#include <algorithm>

namespace tamis {

std::vector<std::uint64_t> find_runs(std::span<const std::uint32_t> target_of) {
  std::vector<std::uint64_t> runs((target_of.size() + 4095) / 4096);
  for (std::size_t first = 0; first < target_of.size(); first += 64) {
    const std::size_t n_targets = std::min<std::size_t>(64, target_of.size() - first);
    bool is_run = true;
    for (std::size_t at = 1; at < n_targets; ++at) {
      is_run &= target_of[first + at] == target_of[first] + at;
    }
    if (is_run) runs[first / 4096] |= std::uint64_t{1} << (first / 64 % 64);
  }
  return runs;
}

}  // namespace tamis
