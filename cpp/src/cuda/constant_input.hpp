// The Input of CCM and CLCB in constant memory, of which a device has 64 KB. All streams share it:
// the host holds `constant_memory` (columns.hpp) from the copy until its kernels are done.
#pragma once

#include "input.hpp"
#include "launch.hpp"

namespace tamis::cuda {

__constant__ Input constant_input;

void copy_input(const Input& input, std::uint32_t n_lines, void* stream) {
  copy_to_constant(constant_input, input, offsetof(Input, lines) + n_lines * sizeof(InputLine),
                   stream);
}

}  // namespace tamis::cuda
