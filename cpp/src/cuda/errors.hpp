// The texts of errors, which the shim gives too.
#pragma once

#include <cstddef>
#include <string>

#include "tamis/error.hpp"

namespace tamis::cuda {

[[noreturn]] inline void throw_no_memory(std::size_t n_bytes, std::size_t n_free) {
  throw UnavailableError("the GPU has no room for " + std::to_string(n_bytes) +
                         " bytes more, of which " + std::to_string(n_free) +
                         " are free; index fewer filters, or use an engine on the CPU");
}

[[noreturn]] inline void throw_no_pinned_memory(std::size_t n_bytes) {
  throw UnavailableError("this machine has no room for " + std::to_string(n_bytes) +
                         " bytes more of pinned memory; match fewer events at once, or use an "
                         "engine on the CPU");
}

[[noreturn]] inline void throw_failed(const std::string& what, const std::string& reason) {
  throw Error("the GPU could not " + what + ": " + reason +
              "; if it is lost, a new process or an engine on the CPU can go on");
}

}  // namespace tamis::cuda
