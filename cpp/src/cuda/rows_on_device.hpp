// Events on their way from columns in pinned memory: a kernel reads them there, and writes rows
// that the engine's own kernels read.
#pragma once

#include "buffers.hpp"
#include "ranks_on_device.hpp"
#include "rows_launch.hpp"
#include "tamis/event_columns.hpp"
#include "tamis/space.hpp"

namespace tamis::cuda {

class RowsOnDevice {
 public:
  // `most_attributes`: of an event, of those that filters have. Takes no memory before it is used.
  RowsOnDevice(std::size_t most_events, std::size_t most_attributes, bool has_points)
      : most_events_(most_events), most_attributes_(most_attributes), has_points_(has_points) {}

  // On earth a position becomes a point by functions that a device computes in another way.
  bool takes(const EventColumns& columns, Space space) const {
    return !has_points_ || columns.position.empty() || space == Space::plane;
  }
  // Starts to make those from `begin`. The stream must be done with those before.
  NumberEvents make(const EventColumns& columns, std::size_t begin, std::size_t n_events,
                    const RanksOnDevice& ranks, const MatchResults& results, Stream stream);

 private:
  std::size_t most_events_, most_attributes_;
  bool has_points_;
  PinnedArray<NumberColumn> columns_here_;
  DeviceArray<NumberColumn> columns_;
  PinnedArray<std::uint32_t> attribute_of_here_;
  DeviceArray<std::uint32_t> attribute_of_, offsets_, attributes_;
  DeviceArray<double> values_, points_;
};

}  // namespace tamis::cuda
