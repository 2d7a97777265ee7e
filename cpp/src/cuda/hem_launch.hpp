// How the host starts the kernels of HEM.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tamis::cuda {

// Pairs of one end of an attribute that an event may violate.
struct HemRun {
  std::uint32_t first, count;
  std::uint32_t rank;    // of the event's value
  std::uint32_t is_low;  // of the low end: violated by ranks below the pair's
};

struct HemFilters {
  const std::uint64_t* bitsets;  // [n_bitsets * n_words]
  const std::uint64_t* unused;   // [n_words] bits without a filter
  const std::uint32_t* bits;     // [n_pairs] where the pair's filter is in a bitset
  const std::uint32_t* ranks;    // [n_pairs]
  std::uint64_t* marks;          // [n_words]
  std::uint32_t* n_found;
  std::uint32_t* found;  // [64 * n_words] bits that are not marked
  std::uint32_t n_words;
};

// marks = unused OR the bitsets, whose numbers are on the device.
void launch_hem_or(const HemFilters& filters, const std::uint32_t* sources, std::uint32_t n_sources,
                   void* stream);
// Marks what violates the runs, which are on the device.
void launch_hem_mark(const HemFilters& filters, const HemRun* runs, std::uint32_t n_runs,
                     std::uint32_t longest_run, void* stream);
void launch_hem_collect(const HemFilters& filters, void* stream);

}  // namespace tamis::cuda
