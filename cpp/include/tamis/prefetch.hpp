// Fetches a line of memory that will be read or written soon.
#pragma once

namespace tamis {

// Not __builtin_prefetch alone: GCC takes a function that does nothing else for one without
// effects, and where it does not inline it, it leaves out the calls. An empty asm is an effect.
inline void prefetch_line(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}

// To the second cache only: for more of it than the first one holds.
inline void prefetch_line_far(const void* address) {
  __builtin_prefetch(address, 0, 2);
  asm volatile("");
}

}  // namespace tamis
