// Latency and breakdown of CCM as 000 table 4 and figure 14 have them.
#include "cuda/ccm.hpp"

#include "parts.hpp"
#include "single_events.hpp"

namespace tamis::bench {

void bench_ccm(double share) {
  Workload workload = pcm_default(share);
  workload.answer_by_naive();
  measure_single(workload, "ocm", {});
  for (const double selection : {1, 0}) {
    for (const double n_events : {1, 2, 4, 8, 16, 32}) {
      measure_single(workload, "ccm",
                     {{"filter_selection", selection}, {"events_per_kernel", n_events}});
    }
    measure_steps(workload, "ccm", {{"filter_selection", selection}, {"stream", 0}},
                  [](const Scratch& scratch) {
                    const CcmTimes times = ccm_times(scratch);
                    return Steps{
                        {"input", 1e-9 * static_cast<double>(times.input_ns)},
                        {"copy input", 1e-9 * static_cast<double>(times.copy_input_ns)},
                        {"kernel", 1e-9 * static_cast<double>(times.kernel_ns)},
                        {"copy results", 1e-9 * static_cast<double>(times.copy_results_ns)},
                        {"reset", 1e-9 * static_cast<double>(times.reset_ns)}};
                  });
  }
}

}  // namespace tamis::bench
