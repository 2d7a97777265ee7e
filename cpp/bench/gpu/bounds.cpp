// What the machine could do: the bus in both directions, and the device's memory.
#include "cuda/buffers.hpp"
#include "figures.hpp"
#include "parts.hpp"

namespace tamis::bench {

void bench_bounds() {
  constexpr std::size_t kBytes = std::size_t{1} << 28;
  constexpr int kRounds = 15;
  const cuda::PinnedArray<char> here(kBytes);
  const cuda::DeviceArray<char> there(kBytes), beside(kBytes);
  const cuda::OwnStream stream;
  const auto measure = [&](const char* bound, std::size_t n_bytes, auto work) {
    const double seconds = median_seconds(kRounds, [&] {
      work();
      cuda::synchronize(stream);
    });
    Figure("bound", "", "")
        .add("bound", bound)
        .add("seconds", seconds)
        .add("bytes", n_bytes)
        .add("rounds", kRounds);
  };
  cuda::clear(beside.data(), kBytes, stream);
  cuda::copy_to_host(here.data(), beside.data(), kBytes, stream);  // touches every page
  cuda::synchronize(stream);
  measure("bus", kBytes, [&] { cuda::copy_to_device(there.data(), here.data(), kBytes, stream); });
  measure("bus back", kBytes,
          [&] { cuda::copy_to_host(here.data(), there.data(), kBytes, stream); });
  // Read and written.
  measure("memory", 2 * kBytes,
          [&] { cuda::copy_on_device(beside.data(), there.data(), kBytes, stream); });
}

}  // namespace tamis::bench
