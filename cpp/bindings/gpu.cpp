// Pinned memory for Python: copies between it and a GPU need no detour, and kernels read it.
#include <nanobind/ndarray.h>

#include "bindings.hpp"
#include "cuda/device.hpp"
#include "cuda/runtime.hpp"

namespace tamis {

void bind_gpu(nb::module_& module) {
  module.def(
      "pinned",
      [](std::size_t n_bytes) {
        if (const std::string reason = cuda_unavailable(); !reason.empty()) {
          throw UnavailableError("pinned memory needs a GPU: " + reason);
        }
        // NumPy wants an address for no bytes, too.
        void* const memory = cuda::allocate_pinned(n_bytes == 0 ? 1 : n_bytes);
        const nb::capsule owner(memory, [](void* held) noexcept { cuda::release_pinned(held); });
        return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(memory, {n_bytes}, owner);
      },
      nb::arg("n_bytes"), "Bytes of pinned memory, which go when the last array over them does.");
}

}  // namespace tamis
