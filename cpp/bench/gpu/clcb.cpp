// Latency and breakdown of CLCB as 003 figure 6 has them.
#include "cuda/clcb_cuda.hpp"
#include "parts.hpp"
#include "single_events.hpp"

namespace tamis::bench {

void bench_clcb(double share, bool always) {
  Workload workload = clcb_default(share, always);
  workload.answer_by_naive();
  measure_single(workload, "clcb", {});
  measure_single(workload, "clcb-cuda", {});
  measure_single(workload, "clcb-cuda", {{"stream", 0}});
  measure_steps(workload, "clcb-cuda", {{"stream", 0}}, [](const Scratch& scratch) {
    const ClcbTimes times = clcb_times(scratch);
    return Steps{{"copy input", 1e-9 * static_cast<double>(times.copy_input_ns)},
                 {"Loc", 1e-9 * static_cast<double>(times.loc_ns)},
                 {"Cont", 1e-9 * static_cast<double>(times.cont_ns)},
                 {"Zip", 1e-9 * static_cast<double>(times.zip_ns)},
                 {"copy results", 1e-9 * static_cast<double>(times.copy_results_ns)}};
  });
}

}  // namespace tamis::bench
