// The kernels of CCM: papers/000, section 3.3, algorithm 1.
#pragma once

#include "ccm_launch.hpp"
#include "constant_input.hpp"
#include "launch.hpp"

namespace tamis::cuda {

// x: a constraint of the row, y: a row of Input, which is a value of an event in a table.
__global__ void ccm_evaluate(Columns columns, const CcmFilter* filters, CcmState state,
                             std::uint32_t stage) {
  const std::uint32_t x = blockIdx.x * blockDim.x + threadIdx.x;
  const InputLine& line = constant_input.lines[blockIdx.y];
  if (x >= line.n_constraints) return;
  const std::uint32_t at = line.first_constraint + x;
  if ((columns.blooms[at] & ~constant_input.blooms[line.event]) != 0) return;
  if (!may_hold(columns.operators[at], columns.operands[at], line, columns.intervals)) return;
  const std::uint32_t filter = columns.filters[at];
  const std::uint32_t shift = 4 * stage;
  std::uint32_t* const counts = state.counts + std::size_t{line.event} * state.n_filters;
  const std::uint32_t count = (atomicAdd(counts + filter, 1u << shift) >> shift) & 15;
  const CcmFilter info = filters[filter];
  // Several threads may write here, all of them the same.
  if (count + 1 == info.size) {
    state.interfaces[std::size_t{line.event} * state.n_interfaces + info.interface] = 1;
  }
}

__global__ void ccm_reset(std::uint32_t* counts, std::size_t n_counts, std::uint32_t* interfaces,
                          std::size_t n_words) {
  const std::size_t id = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (id < n_counts) counts[id] = 0;
  if (id < n_words) interfaces[id] = 0;
}

void launch_ccm_evaluate(std::uint32_t n_lines, std::uint32_t longest_row, const Columns& columns,
                         const CcmFilter* filters, const CcmState& state, std::uint32_t stage,
                         void* stream) {
  launch(ccm_evaluate, blocks_for(longest_row), n_lines, stream, columns, filters, state, stage);
}

void launch_ccm_reset(const CcmState& state, std::uint32_t n_events, std::uint32_t n_counted_events,
                      void* stream) {
  const std::size_t n_counts = std::size_t{n_counted_events} * state.n_filters;
  const std::size_t n_words = std::size_t{n_events} * state.n_interfaces / 4;
  launch(ccm_reset, blocks_for(n_counts > n_words ? n_counts : n_words), 1, stream, state.counts,
         n_counts, reinterpret_cast<std::uint32_t*>(state.interfaces), n_words);
}

}  // namespace tamis::cuda
