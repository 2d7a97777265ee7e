// Stands in for the CUDA side in builds without it.
#include "device.hpp"

namespace tamis {

std::string cuda_unavailable() { return "this build of Tamis has no CUDA"; }

}  // namespace tamis
