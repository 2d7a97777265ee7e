// What tests can ask of the shim.
#pragma once

#include <cstddef>

namespace tamis::cuda::shim {

// The device has so much memory from now on, besides what is taken.
void set_free_bytes(std::size_t n_bytes);
// The device fails at the next call, and from then on; or it works again.
void set_lost(bool is_lost);
// It fails after so many calls, and from then on, until set_lost(false).
void lose_after(std::size_t n_calls);
std::size_t n_bytes_taken();  // device and pinned

}  // namespace tamis::cuda::shim
