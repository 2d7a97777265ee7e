// The engines for GPUs without Python: the papers' ones on single events, ours from packed events
// in pinned memory to pairs in pinned memory. Prints figures.hpp's lines.
//
//     tamis_gpu_bench [share of the workloads] [part | papers | ours]...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "figures.hpp"
#include "parts.hpp"

namespace tamis::bench {
namespace {

struct Part {
  const char* name;
  const char* group;
  void (*run)(double share);
};

// At the full size 10M events; a smaller workload, for tries, has as much less.
std::size_t events_of(double share, std::size_t n_events) {
  return std::max<std::size_t>(
      1000, static_cast<std::size_t>(std::min(1.0, share) * static_cast<double>(n_events)));
}

constexpr Part kParts[] = {
    {"bounds", "ours", [](double) { bench_bounds(); }},
    {"ccm", "papers", bench_ccm},
    {"clcb-cuda", "papers", [](double share) { bench_clcb(share, false); }},
    {"clcb-cuda/always", "papers", [](double share) { bench_clcb(share, true); }},
    {"hem-cuda", "papers", bench_hem},
    {"tuple-key-cuda", "ours",
     [](double share) { bench_tuple_key(share, events_of(share, 10'000'000)); }},
    {"tuple-key-cuda/10m", "ours",  // filters
     [](double share) { bench_tuple_key(40 * share, events_of(share, 1'000'000)); }},
    {"block-bitmap-cuda", "ours",
     [](double share) { bench_block_bitmap(share, events_of(share, 1'000'000)); }},
    {"spatial-grid-cuda", "ours",
     [](double share) { bench_spatial_grid(share, false, 1, events_of(share, 10'000'000)); }},
    {"spatial-grid-cuda/zipf", "ours",
     [](double share) { bench_spatial_grid(share, true, 1, events_of(share, 1'000'000)); }},
    {"spatial-grid-cuda/radii", "ours",
     [](double share) { bench_spatial_grid(share, false, 3, events_of(share, 1'000'000)); }},
};

int run(double share, const std::vector<std::string>& wanted) {
  for (const std::string& each : wanted) {
    const auto is_it = [&](const Part& part) { return each == part.name || each == part.group; };
    if (std::any_of(std::begin(kParts), std::end(kParts), is_it)) continue;
    std::fprintf(stderr, "a part must be papers, ours or one of these, not %s:", each.c_str());
    for (const Part& part : kParts) std::fprintf(stderr, " %s", part.name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  for (const Part& part : kParts) {
    const auto is_it = [&](const std::string& each) {
      return each == part.name || each == part.group;
    };
    if (!wanted.empty() && std::none_of(wanted.begin(), wanted.end(), is_it)) continue;
    const auto begin = Clock::now();
    part.run(share);
    Figure("done", "", "")
        .add("part", part.name)
        .add("share", share)
        .add("seconds", seconds_since(begin));
  }
  return 0;
}

}  // namespace
}  // namespace tamis::bench

int main(int argc, char** argv) {
  const double share = argc > 1 ? std::atof(argv[1]) : 1;
  if (!(share > 0)) {
    std::fprintf(stderr, "the share of the workloads must be a number above 0, not %s\n", argv[1]);
    return 2;
  }
  if (const std::string reason = tamis::cuda_unavailable(); !reason.empty()) {
    std::fprintf(stderr, "there is nothing to measure on: %s\n", reason.c_str());
    return 2;
  }
  try {
    return tamis::bench::run(share, {argv + std::min(argc, 2), argv + argc});
  } catch (const std::exception& error) {
    tamis::bench::fail("", "", error.what());
  }
}
