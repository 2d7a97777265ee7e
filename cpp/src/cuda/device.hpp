// The GPU, if this build and this machine have one. Callers ask; they never test how it was built.
#pragma once

#include <string>

namespace tamis {

// Why no GPU engine can run here; empty: one can.
std::string cuda_unavailable();

}  // namespace tamis
