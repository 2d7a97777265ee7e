// The host's side of input.hpp: constraints go to the device when an index is built, values of
// events for each kernel.
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "buffers.hpp"
#include "common/name_tables.hpp"
#include "input.hpp"

namespace tamis::cuda {

// Held from copy_input() until the kernels that read the input are done.
inline std::mutex constant_memory;

class DeviceColumns {
 public:
  // `names` gives away its columns.
  DeviceColumns(const FilterTable& table, NameTables& names, Stream stream);

  Columns columns() const {
    return {blooms_.data(), operators_.data(), operands_.data(), filters_.data(),
            intervals_.data()};
  }
  // [filters in tables] Has the filter a constraint that the device cannot decide?
  const std::vector<bool>& undecided() const { return undecided_; }
  std::size_t n_bytes() const {
    return blooms_.n_bytes() + operators_.n_bytes() + operands_.n_bytes() + filters_.n_bytes() +
           intervals_.n_bytes();
  }

 private:
  DeviceArray<std::uint64_t> blooms_;
  DeviceArray<std::uint8_t> operators_;
  DeviceArray<std::uint64_t> operands_;
  DeviceArray<std::uint32_t> filters_;
  DeviceArray<Interval> intervals_;
  std::vector<bool> undecided_;
};

// What constant memory gets for the events of one kernel, as many times as their lines fill it.
class InputParts {
 public:
  struct Part {
    const Input& input;
    std::uint32_t n_lines, longest_row;
  };

  void clear() { lines_.clear(); }
  // The lines of an event's selection, for place `event` of the kernel's events.
  void add(const NameSelection& selection, std::size_t event);
  // Writes what was added to pinned memory.
  void finish();

  std::size_t n_lines() const { return lines_.size(); }
  std::size_t n_parts() const { return (lines_.size() + kMostLines - 1) / kMostLines; }
  Part part(std::size_t idx) const;

 private:
  std::array<std::uint64_t, kMostEvents> blooms_{};
  std::vector<InputLine> lines_;
  std::vector<PinnedArray<Input>> inputs_;  // one each
};

}  // namespace tamis::cuda
