#include "rows_on_device.hpp"

#include <algorithm>
#include <limits>

namespace tamis::cuda {
namespace {

// By way of pinned memory, so that nobody waits for the copy.
template <typename T>
void bring(const std::vector<T>& items, PinnedArray<T>& here, DeviceArray<T>& there,
           Stream stream) {
  if (items.size() > there.size()) {
    here = PinnedArray<T>(items.size());
    there = DeviceArray<T>(items.size());
  }
  if (items.empty()) return;
  std::copy(items.begin(), items.end(), here.data());
  copy_to_device(there.data(), here.data(), items.size() * sizeof(T), stream);
}

}  // namespace

NumberEvents RowsOnDevice::make(const EventColumns& columns, std::size_t begin,
                                std::size_t n_events, const RanksOnDevice& ranks,
                                const MatchResults& results, Stream stream) {
  if (offsets_.size() == 0) {
    attributes_ = DeviceArray<std::uint32_t>(most_events_ * most_attributes_);
    values_ = DeviceArray<double>(most_events_ * most_attributes_);
    points_ = DeviceArray<double>(has_points_ ? 3 * most_events_ : 0);
    offsets_ = DeviceArray<std::uint32_t>(most_events_ + 1);
  }
  bring(columns.columns, columns_here_, columns_, stream);
  bring(columns.attribute_of, attribute_of_here_, attribute_of_, stream);
  ColumnEvents from;
  from.columns = columns_.data();
  from.n_columns = static_cast<std::uint32_t>(columns.columns.size());
  from.map = columns.map;
  from.map.attribute_of = attribute_of_.data();
  if (has_points_ && !columns.position.empty()) {
    from.x = columns.position[0];
    from.y = columns.position[1];
  }
  from.first_row = static_cast<std::int64_t>(begin);
  from.n_events = static_cast<std::uint32_t>(n_events);
  const NumberRows rows{offsets_.data(),
                        attributes_.data(),
                        values_.data(),
                        points_.data(),
                        static_cast<std::uint32_t>(most_attributes_),
                        std::numeric_limits<double>::quiet_NaN()};
  launch_number_rows(from, ranks.attributes(), static_cast<std::uint32_t>(ranks.n_attributes()),
                     rows, results, stream);
  NumberEvents made;
  made.offsets = rows.offsets;
  made.attributes = rows.attributes;
  made.values = rows.values;
  made.points = rows.points;
  made.n_events = from.n_events;
  return made;
}

}  // namespace tamis::cuda
