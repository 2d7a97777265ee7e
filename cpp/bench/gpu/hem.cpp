// HEM on the GPU beside its twin on the CPU.
#include "parts.hpp"
#include "single_events.hpp"

namespace tamis::bench {

void bench_hem(double share) {
  Workload workload = hem_default(share);
  workload.answer_by_naive();
  for (const double are_joined : {1, 0}) {
    measure_single(workload, "hem", {{"joined_ends", are_joined}});
    measure_single(workload, "hem-cuda", {{"joined_ends", are_joined}});
  }
}

}  // namespace tamis::bench
