// What only a GPU can show. tamis_gpu_tests runs it together with all other tests.
#include "../against_naive.hpp"
#include "cuda/buffers.hpp"
#include "cuda/device.hpp"

namespace tamis {
namespace {

TEST(gpu_is_there) { CHECK_EQ(cuda_unavailable(), ""); }

TEST(gpu_without_memory_is_an_error_and_stays_usable) {
  CHECK_THROWS(cuda::DeviceArray<char>(std::size_t{1} << 50), UnavailableError, "has no room for");
  const std::uint32_t numbers[] = {1, 2, 3};
  cuda::OwnStream stream;
  const auto there = cuda::to_device(std::span<const std::uint32_t>(numbers), stream);
  std::uint32_t back[3] = {};
  cuda::copy_to_host(back, there.data(), sizeof back, stream);
  cuda::synchronize(stream);
  CHECK_EQ(back[2], 3u);
}

}  // namespace
}  // namespace tamis
