// Errors of CUDA calls, all through one function.
#pragma once

#include <driver_types.h>

namespace tamis::cuda {

// Throws UnavailableError or Error unless `status` is success. `what` completes "could not ...".
void check(cudaError_t status, const char* what);

}  // namespace tamis::cuda
