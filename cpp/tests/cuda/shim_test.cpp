// What only the shim can show: a device without memory, and one that is lost.
#include <limits>

#include "../against_naive.hpp"
#include "cuda/shim/runtime.hpp"

namespace tamis {
namespace {

using namespace against_naive;
using namespace cuda::shim;

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max() / 2;

TEST(shim_device_without_memory_is_an_error_and_loses_nothing) {
  const Equalities workload = equalities(1000, 2, 10, 3, 5, 5);
  const std::size_t n_before = n_bytes_taken();
  for (const char* engine : {"ccm", "clcb-cuda", "hem-cuda"}) {
    set_free_bytes(10'000);
    CHECK_THROWS(built(engine, workload.table), UnavailableError, "has no room for");
    CHECK_EQ(n_bytes_taken(), n_before);
    set_free_bytes(kUnlimited);
    const std::unique_ptr<Index> index = built(engine, workload.table);
    set_free_bytes(1000);
    CHECK_THROWS(index->make_scratch(), UnavailableError, "use an engine on the CPU");
    set_free_bytes(kUnlimited);
  }
  CHECK_EQ(n_bytes_taken(), n_before);
}

TEST(shim_device_that_is_lost_is_an_error_until_it_is_back) {
  const Equalities workload = equalities(1000, 2, 10, 3, 5, 5);
  for (const char* engine : {"ccm", "clcb-cuda", "hem-cuda"}) {
    const std::unique_ptr<Index> index = built(engine, workload.table);
    const std::unique_ptr<Scratch> scratch = index->make_scratch();
    const Answer before = answer_of(*index, 1000, workload.events, *scratch);
    set_lost(true);
    CHECK_THROWS(answer_of(*index, 1000, workload.events, *scratch), Error, "the device is gone");
    set_lost(false);
    CHECK(answer_of(*index, 1000, workload.events, *scratch).filters == before.filters);
  }
}

}  // namespace
}  // namespace tamis
