// The GPU, if this build and this machine have one. Callers ask; they never test how it was built.
//
// One of three libraries answers: device_stub.cpp in builds without CUDA, runtime_cuda.cpp with the
// kernels of nvcc, and for tests shim/, which runs the same kernels on the CPU.
#pragma once

#include <string>

namespace tamis {

// Why no GPU engine can run here; empty: one can.
std::string cuda_unavailable();

// Can kernels read the memory there, as that of allocate_pinned (runtime.hpp)?
bool is_pinned(const void* memory);

}  // namespace tamis
