// Stands in for the CUDA side in builds without it.
#include "block_bitmap_cuda.hpp"
#include "ccm.hpp"
#include "clcb_cuda.hpp"
#include "device.hpp"
#include "hem_cuda.hpp"
#include "runtime.hpp"
#include "spatial_grid_cuda.hpp"
#include "tamis/error.hpp"
#include "tuple_key_cuda.hpp"

namespace tamis {

std::string cuda_unavailable() { return "this build of Tamis has no CUDA"; }
bool is_pinned(const void*) { return false; }

namespace cuda {

void* allocate_pinned(std::size_t) { throw UnavailableError(cuda_unavailable()); }
void release_pinned(void*) noexcept {}

}  // namespace cuda

std::unique_ptr<Index> build_block_bitmap_cuda(std::shared_ptr<const FilterTable>,
                                               const Parameters&) {
  throw UnavailableError(cuda_unavailable());
}

std::unique_ptr<Index> build_ccm(std::shared_ptr<const FilterTable>, const Parameters&) {
  throw UnavailableError(cuda_unavailable());
}

std::unique_ptr<Index> build_clcb_cuda(std::shared_ptr<const FilterTable>, const Parameters&) {
  throw UnavailableError(cuda_unavailable());
}

std::unique_ptr<Index> build_hem_cuda(std::shared_ptr<const FilterTable>, const Parameters&) {
  throw UnavailableError(cuda_unavailable());
}

std::unique_ptr<Index> build_spatial_grid_cuda(std::shared_ptr<const FilterTable>,
                                               const Parameters&) {
  throw UnavailableError(cuda_unavailable());
}

std::unique_ptr<Index> build_owned_spatial_grid_cuda(std::shared_ptr<const FilterTable>,
                                                     const Parameters&,
                                                     std::span<const std::uint32_t>) {
  throw UnavailableError(cuda_unavailable());
}

std::unique_ptr<Index> build_tuple_key_cuda(std::shared_ptr<const FilterTable>, const Parameters&) {
  throw UnavailableError(cuda_unavailable());
}

}  // namespace tamis
