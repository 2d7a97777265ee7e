// The parts of tamis_gpu_bench, a file each.
#pragma once

#include <cstddef>

namespace tamis::bench {

void bench_bounds();
void bench_ccm(double share);
void bench_clcb(double share, bool always);
void bench_hem(double share);
void bench_tuple_key(double share, std::size_t n_most);
void bench_block_bitmap(double share, std::size_t n_most);
void bench_spatial_grid(double share, bool is_zipf, std::size_t n_radii, std::size_t n_most);

}  // namespace tamis::bench
