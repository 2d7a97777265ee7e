// How the host starts the kernels of `spatial-grid-cuda`, and what they read and write.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engines/spatial_grid/levels.hpp"
#include "pairs_launch.hpp"
#include "ranked_launch.hpp"

namespace tamis::cuda {

inline constexpr std::uint32_t kGridMostAttributes = 10;  // of an event that the device takes
// A name in a bucket's key: 0 is any, and where filters have more names some share one.
inline constexpr std::uint32_t kGridTerms = 128;
inline constexpr std::uint32_t kGridMostCells = 6;  // of an event on an axis

// A level and its buckets. The number of a bucket is linear in cell and term, with factors such
// that no two (cell, term) of one event share a bucket: then no place is found twice. Those of
// different events may, which only brings more entries to look at.
struct GridLevel {
  spatial_grid::Level level;
  std::uint32_t first_bucket = 0, mask = 0;
  std::uint32_t x_factor = 0, y_factor = 0, z_factor = 0, term_factor = 0;
  std::uint32_t has_cells = 0;
  std::uint32_t has_any = 0;  // are there places without a name?

  TAMIS_HOST_DEVICE std::uint32_t number_of(std::int32_t x, std::int32_t y, std::int32_t z,
                                            std::uint32_t term) const {
    return (static_cast<std::uint32_t>(x) * x_factor + static_cast<std::uint32_t>(y) * y_factor +
            static_cast<std::uint32_t>(z) * z_factor + term * term_factor) &
           mask;
  }
  TAMIS_HOST_DEVICE std::uint32_t bucket_of(const spatial_grid::Cell& cell,
                                            std::uint32_t term) const {
    return first_bucket + number_of(cell.x, cell.y, cell.z, term);
  }
};

// Two bits of 32 for a name: a filter that has bits which no name of the event has cannot match.
TAMIS_HOST_DEVICE inline std::uint32_t grid_bloom(std::uint32_t hash_of_name) {
  return std::uint32_t{1} << (hash_of_name & 31) | std::uint32_t{1} << (hash_of_name >> 5 & 31);
}

TAMIS_HOST_DEVICE inline std::uint32_t grid_term(std::uint32_t attribute) {
  return 1 + attribute % (kGridTerms - 1);
}

struct alignas(8) GridBucket {
  std::uint32_t start = 0;  // in entries, a multiple of kGridStep
  std::uint32_t size = 0;
};
inline constexpr std::uint32_t kGridStep = 4;  // entries that are read at once

// What a candidate is tested by, in one sector of memory.
struct alignas(32) GridPlace {
  double x = 0, y = 0;
  double limit = 0;
  std::uint32_t record = 0;  // of its filter
  std::uint32_t has_circle = 0;
};
struct alignas(8) GridHome {  // of a place: what does not move
  std::uint32_t level_and_term = 0;
  std::uint32_t bloom = 0;
  TAMIS_HOST_DEVICE std::uint32_t level() const { return level_and_term / kGridTerms; }
  TAMIS_HOST_DEVICE std::uint32_t term() const { return level_and_term % kGridTerms; }
};
// A place in its bucket: where it is on the lattice of its cell, and the names of its filter.
struct alignas(16) GridEntry {
  std::uint32_t xy, z, place, bloom;
};
// Where a place will stand: from counting to scattering.
struct alignas(16) GridTicket {
  std::uint32_t bucket, number, xy, z;
};

struct GridView {  // on the device
  const RankedAttribute* attributes;
  const RankedSlot* slots;
  const GridLevel* levels;    // [n_levels] the last one has no cells
  const std::uint8_t* terms;  // [n_levels][n_attributes] is the name in keys of this level?
  GridBucket* buckets;        // [n_buckets]
  GridEntry* entries;         // [most_entries] by bucket
  GridPlace* places;          // [n_places]
  double* place_z;            // [n_places] on earth, else null
  const GridHome* homes;      // [n_places]
  const std::uint64_t* records;
  std::uint32_t n_attributes, n_levels, n_buckets, n_places, lane_bytes;
};

// A bucket, or a piece of a large one, for one event.
struct alignas(16) GridTask {
  static constexpr std::uint32_t kMostEntries = 2 * kGridStep;
  static constexpr std::uint32_t kNoEvent = ~std::uint32_t{0};  // there is nothing to do
  static constexpr std::uint32_t kNoLattice = 0xFFFF;           // a level: all places are near
  std::uint32_t event;
  std::uint32_t entries;  // where they begin / kGridStep * kMostEntries + how many - 1
  std::uint32_t xy;       // of the event on the lattice of the bucket's cell
  std::uint32_t z_and_level;
};
struct alignas(8) GridCandidate {
  std::uint32_t event, place;
};
// Tasks and candidates are in segments, each with its counter: thousands of warps that add to one
// number wait for one another.
inline constexpr std::uint32_t kGridSegments = 16;
// Each in a line of its own: the cache does the atomic operations of a line one by one.
struct alignas(256) GridCounts {
  std::uint64_t n_tasks, n_candidates;
};

// From kernel to kernel.
struct GridWork {
  std::byte* events;          // [most_events] of GridEventData
  std::uint32_t* missing;     // [most_events] bits that no name of the event has
  GridTask* tasks;            // [kGridSegments][most_tasks]
  GridCandidate* candidates;  // [kGridSegments][most_candidates]
  GridCounts* counts;         // [kGridSegments] in: 0
  std::uint64_t most_tasks, most_candidates;
};

// What a candidate's test reads of its event.
template <bool kFlat, std::uint32_t kMost>
struct alignas(16) GridEventData {
  double point[kFlat ? 2 : 3];
  RankedValue values[kMost];
};
inline constexpr std::size_t kGridEventBytes = sizeof(GridEventData<false, kGridMostAttributes>);

// Three kernels: the buckets of each event, the places near it there, and the filters of these.
void launch_grid_match(const GridView& grid, const NumberEvents& events, const GridWork& work,
                       const DeviceResults& results, void* stream);

// New centres of some places, each at most once. In device memory or pinned.
struct GridMoves {
  const std::uint32_t* which = nullptr;  // [n_moves]
  const double* points = nullptr;        // [n_moves][3]
  std::uint32_t n_moves = 0;
};
// The buckets are as before.
void launch_grid_move(const GridView& grid, const GridMoves& moves, void* stream);

// All places into buckets, which must be clear: each part of them counted, then all of them placed.
// `positions` [n_places][2]: new centres in the plane, or null. `tickets` [n_places]; `n_entries`:
// in: 0.
void launch_grid_count(const GridView& grid, std::uint32_t first, std::uint32_t n_places,
                       const float* positions, GridTicket* tickets, void* stream);
void launch_grid_place(const GridView& grid, const GridTicket* tickets, std::uint64_t* n_entries,
                       void* stream);

}  // namespace tamis::cuda
