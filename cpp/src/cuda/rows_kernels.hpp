// The kernel of rows_launch.hpp, a thread for each event: neighbours read neighbours of a column.
//
// What the host would refuse (a name twice, an index beyond the dictionary, offsets that fall) is
// left to it: it says what is wrong.
#pragma once

#include "launch.hpp"
#include "pairs_kernels.hpp"
#include "rows_launch.hpp"

namespace tamis::cuda {

// The row of an event.
struct NumberRow {
  const RankedAttribute* ranked;
  std::uint32_t n_attributes;
  std::uint32_t* attributes;
  double* values;
  std::uint32_t most, n = 0;
  bool is_taken = true;

  TAMIS_DEVICE bool uses(std::uint32_t attribute) const {
    return attribute < n_attributes && (ranked[attribute].flags & RankedAttribute::kUsed) != 0;
  }
  TAMIS_DEVICE void add(std::uint32_t attribute, double number) {
    if (!uses(attribute)) return;
    is_taken = is_taken && n < most && number == number &&
               (ranked[attribute].flags & RankedAttribute::kHost) == 0;
    if (!is_taken) return;
    attributes[n] = attribute;
    values[n++] = number;
  }
};

TAMIS_DEVICE inline void read_columns(const ColumnEvents& events, std::int64_t row, NumberRow& to) {
  for (std::uint32_t at = 0; at < events.n_columns; ++at) {
    const NumberColumn column = events.columns[at];
    if (!to.uses(column.attribute) || !column.has(row)) continue;
    double number = 0;
    to.is_taken = column.read(row, number) && to.is_taken;
    to.add(column.attribute, number);
  }
}

TAMIS_DEVICE inline void read_map(const ColumnEvents& events, std::int64_t row, NumberRow& to) {
  const NumberMap& map = events.map;
  const std::int64_t begin = map.offsets[row], end = map.offsets[row + 1];
  if (begin < 0 || end < begin || end > map.n_entries || end - begin > kMostMapEntries) {
    to.is_taken = false;
    return;
  }
  const auto n_entries = static_cast<std::uint32_t>(end - begin);
  std::uint32_t attributes[kMostMapEntries];  // all on their way at once
  double numbers[kMostMapEntries];
  bool has[kMostMapEntries];
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kMostMapEntries; ++at) {
    attributes[at] = RankedValue::kNone;
    numbers[at] = 0;
    has[at] = false;
    if (at >= n_entries) continue;
    double key = 0;
    if (!map.keys.read(begin + at, key) || !(key >= 0 && key < map.n_keys)) {
      to.is_taken = false;
      continue;
    }
    attributes[at] = map.attribute_of[static_cast<std::uint32_t>(key)];
    has[at] = map.values.has(begin + at);
    if (has[at] && !map.values.read(begin + at, numbers[at])) to.is_taken = false;
  }
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kMostMapEntries; ++at) {
    TAMIS_UNROLL for (std::uint32_t before = 0; before < at; ++before) {
      if (attributes[at] != RankedValue::kNone && attributes[at] == attributes[before]) {
        to.is_taken = false;
      }
    }
    if (has[at]) to.add(attributes[at], numbers[at]);
  }
  for (std::uint32_t column = 0; column < events.n_columns; ++column) {
    const std::uint32_t attribute = events.columns[column].attribute;
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMostMapEntries; ++at) {
      if (attributes[at] == attribute) to.is_taken = false;
    }
  }
}

TAMIS_DEVICE inline void read_position(const ColumnEvents& events, std::int64_t row, NumberRow& to,
                                       double* point) {
  if (events.x.values == nullptr || !events.x.has(row) || !events.y.has(row)) return;
  double x = 0, y = 0;
  const bool is_read = events.x.read(row, x) && events.y.read(row, y);
  to.is_taken = is_read && to.is_taken;
  if (!is_read || x != x || y != y) return;
  point[0] = x, point[1] = y, point[2] = 0;
}

__global__ void number_rows(ColumnEvents events, const RankedAttribute* ranked,
                            std::uint32_t n_attributes, NumberRows rows, MatchResults results) {
  const std::uint32_t event = blockIdx.x * blockDim.x + threadIdx.x;
  if (event >= events.n_events) return;
  const std::int64_t from = events.first_row + event;
  NumberRow row{ranked, n_attributes, rows.attributes + std::size_t{event} * rows.most,
                rows.values + std::size_t{event} * rows.most, rows.most};
  double point[3];
  point[0] = point[1] = point[2] = rows.none;
  read_columns(events, from, row);
  if (events.map.offsets != nullptr) read_map(events, from, row);
  if (rows.points != nullptr) read_position(events, from, row, point);
  if (!row.is_taken) {
    row.n = 0;
    point[0] = point[1] = point[2] = rows.none;
    results.left[reserve(&results.counts->n_left, 1)] = event;
  }
  for (std::uint32_t at = row.n; at < rows.most; ++at) {
    row.attributes[at] = RankedValue::kNone;
    row.values[at] = 0;  // which is read with the others, if not used
  }
  for (std::uint32_t at = 0; rows.points != nullptr && at < 3; ++at) {
    rows.points[std::size_t{3} * event + at] = point[at];
  }
  rows.offsets[event] = event * rows.most;
  if (event + 1 == events.n_events) rows.offsets[event + 1] = events.n_events * rows.most;
}

void launch_number_rows(const ColumnEvents& events, const RankedAttribute* ranked,
                        std::uint32_t n_attributes, const NumberRows& rows,
                        const MatchResults& results, void* stream) {
  launch(number_rows, blocks_for(events.n_events), 1, stream, events, ranked, n_attributes, rows,
         results);
}

}  // namespace tamis::cuda
