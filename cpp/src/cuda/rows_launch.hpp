// Rows of numbers out of columns in pinned memory: the step before an engine's own, where nobody on
// the host has looked at the events.
#pragma once

#include "pairs_launch.hpp"
#include "ranked_launch.hpp"
#include "tamis/number_column.hpp"

namespace tamis::cuda {

inline constexpr std::uint32_t kMostMapEntries = 16;  // of an event that the device takes

struct ColumnEvents {
  const NumberColumn* columns = nullptr;  // [n_columns] on the device
  std::uint32_t n_columns = 0;
  NumberMap map;      // attribute_of on the device
  NumberColumn x, y;  // in the plane; without values: there are no positions
  std::int64_t first_row = 0;
  std::uint32_t n_events = 0;
};

// Each row has room for `most` attributes, of which those behind the event's are
// RankedValue::kNone.
struct NumberRows {
  std::uint32_t* offsets;     // [n_events + 1]
  std::uint32_t* attributes;  // [n_events][most]
  double* values;             // the same
  double* points;             // [n_events][3], or null
  std::uint32_t most;
  double none;  // of an event without a position: not a number
};

// The attributes that filters have. An event that the device cannot take is one of results.left,
// and has none here.
void launch_number_rows(const ColumnEvents& events, const RankedAttribute* ranked,
                        std::uint32_t n_attributes, const NumberRows& rows,
                        const MatchResults& results, void* stream);

}  // namespace tamis::cuda
