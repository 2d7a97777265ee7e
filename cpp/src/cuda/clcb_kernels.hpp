// The kernels of CLCB: papers/003, section 4, algorithm 1; Cont is CCM's with another first test.
#pragma once

#include "clcb_launch.hpp"
#include "constant_input.hpp"
#include "launch.hpp"

namespace tamis::cuda {

// A filter's count begins with 1 where its names and its circle fit.
__global__ void clcb_loc(ClcbFilters filters, ClcbInput input, std::uint32_t run) {
  const std::uint32_t id = blockIdx.x * blockDim.x + threadIdx.x;
  if (id >= filters.n_filters) return;
  if (id == 0) *filters.n_found = 0;
  bool is_located = (filters.blooms[id] & input.missing) == 0;
  if (is_located) {
    const double limit = filters.limits[id];
    is_located = limit != limit ||
                 (input.has_position != 0 && is_within(input.position, filters.centres[id], limit));
  }
  if (run == 0) {
    filters.counts[id] = is_located ? 1 : 0;
  } else if (is_located) {
    reinterpret_cast<std::uint8_t*>(filters.counts + id)[run] = 1;  // the lowest byte is the first
  }
  if (is_located && filters.sizes[id] == 0) filters.matched[id] = 1;
}

__global__ void clcb_cont(Columns columns, ClcbFilters filters, std::uint32_t run) {
  const std::uint32_t x = blockIdx.x * blockDim.x + threadIdx.x;
  const InputLine& line = constant_input.lines[blockIdx.y];
  if (x >= line.n_constraints) return;
  const std::uint32_t at = line.first_constraint + x;
  const std::uint32_t filter = columns.filters[at];
  const std::uint32_t shift = 8 * run;
  if (((filters.counts[filter] >> shift) & 255) == 0) return;
  if (!may_hold(columns.operators[at], columns.operands[at], line, columns.intervals)) return;
  const std::uint32_t count = (atomicAdd(filters.counts + filter, 1u << shift) >> shift) & 255;
  if (count == filters.sizes[filter]) filters.matched[filter] = 1;
}

__global__ void clcb_zip(ClcbFilters filters) {
  const std::uint32_t id = blockIdx.x * blockDim.x + threadIdx.x;
  if (id >= filters.n_filters || filters.matched[id] == 0) return;
  filters.matched[id] = 0;
  filters.found[atomicAdd(filters.n_found, 1u)] = id;
}

void launch_clcb_loc(const ClcbFilters& filters, const ClcbInput& input, std::uint32_t run,
                     void* stream) {
  launch(clcb_loc, blocks_for(filters.n_filters), 1, stream, filters, input, run);
}

void launch_clcb_cont(std::uint32_t n_lines, std::uint32_t longest_row, const Columns& columns,
                      const ClcbFilters& filters, std::uint32_t run, void* stream) {
  launch(clcb_cont, blocks_for(longest_row), n_lines, stream, columns, filters, run);
}

void launch_clcb_zip(const ClcbFilters& filters, void* stream) {
  launch(clcb_zip, blocks_for(filters.n_filters), 1, stream, filters);
}

}  // namespace tamis::cuda
