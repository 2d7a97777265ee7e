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
inline constexpr std::uint32_t kGridMostLevels = 255;

// Where a centre is on a lattice of the whole level, in a few bits: the rest of its number is left
// out, which makes distances at most smaller.
template <bool kFlat>
struct GridLattice {
  static constexpr std::uint32_t kAxes = kFlat ? 2 : 3;
  static constexpr std::uint32_t kBits = kFlat ? 12 : 8;
  static constexpr std::int32_t kOfCell = 1 << (kBits - 2);  // points of a cell on an axis

  TAMIS_HOST_DEVICE static std::uint32_t of(const spatial_grid::Level& level, double at) {
    const double number = __builtin_floor(at * level.per_side * kOfCell);
    constexpr double kMost = std::int64_t{1} << 52;
    if (!(number > -kMost && number < kMost)) return 0;  // in a last cell
    return static_cast<std::uint32_t>(static_cast<std::int64_t>(number)) & ((1u << kBits) - 1);
  }
  // Of squared distances, as Level's.
  static std::int32_t limit_of(const spatial_grid::Level& level) {
    const double most = level.reach / level.side * kOfCell + 2;
    return static_cast<std::int32_t>(most * most) + 1;
  }
};

// A level and its buckets. The number of a bucket is linear in cell and term, with factors such
// that no two (cell, term) of one event share a bucket: then no place is found twice. Those of
// different events may, which only brings more entries to look at. Cells side by side have buckets
// side by side: an event looks up a row of them at once.
struct GridLevel {
  spatial_grid::Level level;
  std::uint32_t first_bucket = 0, mask = 0;  // multiples of kGridChunk; less 1
  std::uint32_t y_factor = 0, z_factor = 0, term_factor = 0;
  std::int32_t limit = 0;  // of squared distances on GridLattice
  std::uint32_t has_cells = 0;
  std::uint32_t has_any = 0;  // are there places without a name?

  TAMIS_HOST_DEVICE std::uint32_t number_of(std::int32_t x, std::int32_t y, std::int32_t z,
                                            std::uint32_t term) const {
    return (static_cast<std::uint32_t>(x) + static_cast<std::uint32_t>(y) * y_factor +
            static_cast<std::uint32_t>(z) * z_factor + term * term_factor) &
           mask;
  }
  TAMIS_HOST_DEVICE std::uint32_t bucket_of(const spatial_grid::Cell& cell,
                                            std::uint32_t term) const {
    return first_bucket + number_of(cell.x, cell.y, cell.z, term);
  }
};

// Where the entries of a bucket begin, in `starts`: those of a chunk of buckets follow one another,
// and behind them, once more, those of the first buckets of the level's next chunk (after the last
// comes the first), so that a row of cells is one run of entries. Then their end.
inline constexpr std::uint32_t kGridChunk = 1024;
inline constexpr std::uint32_t kGridHalo = kGridMostCells - 1;            // buckets once more
inline constexpr std::uint32_t kGridStride = kGridChunk + kGridHalo + 1;  // starts of a chunk
TAMIS_HOST_DEVICE inline std::uint32_t grid_start(std::uint32_t bucket) {
  return bucket / kGridChunk * kGridStride + bucket % kGridChunk;
}

// A bit for a name: a filter that has bits which no name of the event has cannot match. Names that
// came one after another, as those of one kind of events do, have different bits.
inline constexpr std::uint32_t kGridBloomBits = 12;
TAMIS_HOST_DEVICE inline std::uint32_t grid_bloom(std::uint32_t attribute) {
  return std::uint32_t{1} << attribute % kGridBloomBits;
}

TAMIS_HOST_DEVICE inline std::uint32_t grid_term(std::uint32_t attribute) {
  return 1 + attribute % (kGridTerms - 1);
}

// What does not move of a place: its record, the names of its filter, its level and term.
struct GridHome {
  static constexpr std::uint32_t kRecordBits = 28, kRestBits = 64 - kRecordBits - kGridBloomBits;
  std::uint64_t bits;

  static GridHome of(std::uint64_t record, std::uint64_t bloom, std::uint64_t level,
                     std::uint64_t term) {
    return {record << (64 - kRecordBits) | bloom << kRestBits | (level * kGridTerms + term)};
  }
  TAMIS_HOST_DEVICE std::uint32_t level_and_term() const {
    return static_cast<std::uint32_t>(bits) & ((1u << kRestBits) - 1);
  }
  TAMIS_HOST_DEVICE std::uint32_t level() const { return level_and_term() / kGridTerms; }
  TAMIS_HOST_DEVICE std::uint32_t term() const { return level_and_term() % kGridTerms; }
  TAMIS_HOST_DEVICE std::uint32_t record() const {
    return static_cast<std::uint32_t>(bits >> (64 - kRecordBits));
  }
};
static_assert((kGridMostLevels + 1) * kGridTerms <= 1u << GridHome::kRestBits);

// A place in its bucket: its home with its lattice instead of level and term.
struct alignas(8) GridEntry {
  std::uint64_t bits;

  template <bool kFlat>
  TAMIS_HOST_DEVICE static GridEntry of(const GridHome& home, const spatial_grid::Level& level,
                                        const Point& centre) {
    using Lattice = GridLattice<kFlat>;
    std::uint64_t at = Lattice::of(level, centre.x) | Lattice::of(level, centre.y)
                                                          << Lattice::kBits;
    if (!kFlat) at |= Lattice::of(level, centre.z) << (2 * Lattice::kBits % 32);
    return {home.bits >> GridHome::kRestBits << GridHome::kRestBits | at};
  }
  TAMIS_HOST_DEVICE std::uint32_t record() const { return GridHome{bits}.record(); }
  // With other bits above them.
  TAMIS_HOST_DEVICE std::uint32_t bloom() const {
    return static_cast<std::uint32_t>(bits >> GridHome::kRestBits);
  }
};
static_assert(GridLattice<true>::kAxes * GridLattice<true>::kBits <= GridHome::kRestBits);
static_assert(GridLattice<false>::kAxes * GridLattice<false>::kBits <= GridHome::kRestBits);

// What an entry is compared with: the event on the lattice of a level, each number in the highest
// bits of its own.
struct GridLooking {
  std::uint32_t at[3];
  std::int32_t limit;
  std::uint32_t missing;  // bits that no name of the event has

  template <bool kFlat>
  TAMIS_HOST_DEVICE bool is_near(const GridEntry& entry) const {
    constexpr std::uint32_t kBits = GridLattice<kFlat>::kBits;
    const auto places = static_cast<std::uint32_t>(entry.bits);
    std::int32_t squares = 0;
    for (std::uint32_t axis = 0; axis < GridLattice<kFlat>::kAxes; ++axis) {
      const std::uint32_t there = places
                                  << (32 - kBits * (axis + 1));  // smaller bits do not matter
      const std::int32_t apart = static_cast<std::int32_t>(there - at[axis]) >> (32 - kBits);
      squares += apart * apart;
    }
    return (entry.bloom() & missing) == 0 && squares <= limit;
  }
};

// Where a place will stand: from counting to scattering.
struct alignas(16) GridTicket {
  std::uint32_t bucket, number;
  GridEntry entry;
};

// What a candidate is tested by, in one line of memory: a circle, and the record of a filter as
// tuple_key::RecordEncoder writes it.
struct alignas(32) GridRecord {
  static constexpr std::uint64_t kCircle = 2;  // of a record's flags: only within it
  static constexpr std::size_t kWords = 4;     // of it alone
  static constexpr std::size_t kLine = 8;      // none that fits into one line lies in two
  double x = 0, y = 0, z = 0;
  double limit = 0;
  TAMIS_HOST_DEVICE const std::uint64_t* filter() const {
    return reinterpret_cast<const std::uint64_t*>(this + 1);
  }
};

struct GridView {  // on the device
  const RankedAttribute* attributes;
  const RankedSlot* slots;
  const GridLevel* levels;    // [n_levels] the last one has no cells
  const std::uint8_t* terms;  // [n_levels][n_attributes] is the name in keys of this level?
  std::uint32_t* sizes;       // [n_buckets]
  std::uint32_t* starts;      // [n_buckets / kGridChunk * kGridStride]
  GridEntry* entries;         // [most_entries] by bucket
  GridRecord* records;        // each followed by that of its filter
  const GridHome* homes;      // [n_places]
  std::uint32_t n_attributes, n_levels, n_buckets, n_places, lane_bytes;
  std::uint32_t is_flat;
};

// A piece of a large run of entries, for one event.
struct alignas(16) GridTask {
  static constexpr std::uint32_t kMostEntries = 256;
  static constexpr std::uint32_t kNoEvent = ~std::uint32_t{0};  // there is nothing to do
  std::uint32_t event;
  std::uint32_t first, n_entries;
  GridLooking looking;
};
// Of an event in its block or of its launch.
struct alignas(8) GridCandidate {
  std::uint32_t event, record;
};
// Tasks are in segments, each with its counter: thousands of warps that add to one number wait for
// one another.
inline constexpr std::uint32_t kGridSegments = 16;
// Each in a line of its own: the cache does the atomic operations of a line one by one.
struct alignas(64) GridCounts {
  std::uint64_t n_tasks;
};

// From kernel to kernel.
struct GridWork {
  std::byte* events;   // [most_events] of GridEventData, of those with a task
  GridTask* tasks;     // [kGridSegments][most_tasks]
  GridCounts* counts;  // [kGridSegments] in: 0
  std::uint64_t most_tasks;
};

// What a candidate's test reads of its event.
template <bool kFlat, std::uint32_t kMost>
struct alignas(16) GridEventData {
  double point[kFlat ? 2 : 3];
  RankedValue values[kMost];
};
inline constexpr std::size_t kGridEventBytes = sizeof(GridEventData<false, kGridMostAttributes>);

// Two kernels: the places near each event and their filters; then those of large runs.
void launch_grid_match(const GridView& grid, const NumberEvents& events, const GridWork& work,
                       const MatchResults& results, void* stream);

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
