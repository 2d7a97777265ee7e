// The kernels of `spatial-grid-cuda`.
//
//     probe     a thread for each event: ranks, and the buckets of the cells and names around it;
//               each bucket with something in it is a task, a large one several
//     scan      a thread for each task: which of its places are near on the lattice?
//     test      a thread for each of these: the circle exactly, then the records of its filters
//
//     count     a thread for each place: its bucket, and a ticket there
//     allot     a thread for some buckets: where the entries of each begin
//     scatter   a thread for each place: its entry
//
// Events differ in how many buckets they have, buckets in how many places: tasks of their own keep
// the threads of a warp busy alike.
#pragma once

#include "launch.hpp"
#include "pairs_kernels.hpp"
#include "ranked_kernels.hpp"
#include "spatial_grid_launch.hpp"

namespace tamis::cuda {

using spatial_grid::Cell;
using spatial_grid::Level;

struct GridEvent {
  Point point;
  bool has_position = false;

  TAMIS_DEVICE GridEvent(const NumberEvents& events, std::uint32_t event) {
    if (events.flat_positions != nullptr) {
      point = {events.flat_positions[2 * std::size_t{event}],
               events.flat_positions[2 * std::size_t{event} + 1], 0};
    } else if (events.points != nullptr) {
      const double* const at = events.points + 3 * std::size_t{event};
      point = {at[0], at[1], at[2]};
    } else {
      return;
    }
    has_position = point.x == point.x;
  }
};

// Calls visit(level, bucket, cell) for each bucket that the event looks at.
template <bool kFlat, std::uint32_t kMost, typename Visit>
TAMIS_DEVICE void for_each_bucket(const GridView& grid, const GridEvent& event,
                                  const std::uint32_t (&attributes)[kMost], Visit visit) {
  for (std::uint32_t at = 0; at < grid.n_levels; ++at) {
    const GridLevel& level = grid.levels[at];
    if (level.has_cells != 0 && !event.has_position) continue;
    std::uint64_t terms[2] = {1, 0};
    if (level.level.names != 0) {
      TAMIS_UNROLL for (std::uint32_t each = 0; each < kMost; ++each) {
        if (attributes[each] == RankedValue::kNone) continue;
        if (grid.terms[std::size_t{at} * grid.n_attributes + attributes[each]] == 0) continue;
        const std::uint32_t term = grid_term(attributes[each]);
        const std::uint64_t bit = std::uint64_t{1} << (term % 64);
        terms[0] |= term < 64 ? bit : 0;
        terms[1] |= term < 64 ? 0 : bit;
      }
    }
    const auto visit_terms = [&](const Cell& cell) {
      TAMIS_UNROLL for (std::uint32_t half = 0; half < 2; ++half) {
        for (std::uint64_t rest = terms[half]; rest != 0; rest &= rest - 1) {
          const std::uint32_t term = 64 * half + count_bits(~rest & (rest - 1));
          visit(level, grid.buckets[level.bucket_of(cell, term)], cell);
        }
      }
    };
    if (level.has_cells == 0) {
      visit_terms(Cell{});
      continue;
    }
    const auto low = [&](double of) { return level.level.cell_of(of - level.level.reach); };
    const auto high = [&](double of) { return level.level.cell_of(of + level.level.reach); };
    Cell first{low(event.point.x), low(event.point.y), kFlat ? 0 : low(event.point.z)};
    const Cell last{high(event.point.x), high(event.point.y), kFlat ? 0 : high(event.point.z)};
    for (Cell cell = first; cell.z <= last.z; ++cell.z) {
      for (cell.y = first.y; cell.y <= last.y; ++cell.y) {
        for (cell.x = first.x; cell.x <= last.x; ++cell.x) visit_terms(cell);
      }
    }
  }
}

template <bool kFlat, bool kPacked, std::uint32_t kMost>
__global__ void grid_probe(GridView grid, NumberEvents events, GridWork work,
                           DeviceResults results) {
  const std::uint32_t each = blockIdx.x * blockDim.x + threadIdx.x;
  if (each >= events.n_events) return;
  const std::uint32_t event = events.first_event + each;
  EventCells<kPacked, kMost> cells(events, event);
  const GridEvent placed(events, event);
  bool is_taken = cells.n_cells <= kMost;
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
    RankedValue value{RankedValue::kNone, 0};
    if (cells.attributes[at] < grid.n_attributes) {
      const RankedAttribute& of = grid.attributes[cells.attributes[at]];
      if ((of.flags & RankedAttribute::kUsed) != 0) {
        value = {cells.attributes[at], of.cuts.rank(cells.values[at], false)};
        is_taken &= (of.flags & RankedAttribute::kHost) == 0;
      }
    }
    cells.attributes[at] = value.attribute;
    work.values[std::size_t{at} * work.most_events + each] = value;
  }
  if (!is_taken) {
    results.left[reserve(&results.counts->n_left, 1)] = event;
    return;
  }
  work.points[each] = placed.point.x;
  work.points[std::size_t{work.most_events} + each] = placed.point.y;
  if (!kFlat) work.points[2 * std::size_t{work.most_events} + each] = placed.point.z;
  std::uint32_t n_tasks = 0;
  for_each_bucket<kFlat>(
      grid, placed, cells.attributes, [&](const GridLevel&, const GridBucket& bucket, const Cell&) {
        n_tasks += (bucket.size + GridTask::kMostEntries - 1) / GridTask::kMostEntries;
      });
  if (n_tasks == 0) return;
  std::uint64_t task = reserve(&work.counts->n_tasks, n_tasks);
  if (task + n_tasks > work.most_tasks) {
    reserve(&results.counts->n_lost, 1);
    for (; task < work.most_tasks; ++task) work.tasks[task].size = 0;
    return;
  }
  for_each_bucket<kFlat>(grid, placed, cells.attributes,
                         [&](const GridLevel& of, const GridBucket& bucket, const Cell& cell) {
                           const Level& level = of.level;
                           GridTask made{each, bucket.start, 0, 0x7FFFFFFF, 0, 0};
                           if (of.has_cells != 0 && bucket.size > 0) {
                             if (!cell.is_last()) made.limit = level.limit;
                             made.xy = Level::pack(level.lattice_of(placed.point.x, cell.x),
                                                   level.lattice_of(placed.point.y, cell.y));
                             if (!kFlat)
                               made.z = Level::pack(level.lattice_of(placed.point.z, cell.z), 0);
                           }
                           for (std::uint32_t rest = bucket.size; rest > 0; rest -= made.size) {
                             made.size =
                                 rest < GridTask::kMostEntries ? rest : GridTask::kMostEntries;
                             work.tasks[task++] = made;
                             made.start += made.size;
                           }
                         });
}

struct alignas(16) GridFour {
  std::uint32_t items[kGridStep];
};

template <bool kFlat>
__global__ void grid_scan(GridView grid, GridWork work, DeviceResults results) {
  const std::uint64_t n_tasks =
      work.counts->n_tasks < work.most_tasks ? work.counts->n_tasks : work.most_tasks;
  GridCandidate found[4];
  std::uint32_t n_found = 0;
  const auto flush = [&] {
    const std::uint64_t first = reserve(&work.counts->n_candidates, n_found);
    if (first + n_found > work.most_candidates) reserve(&results.counts->n_lost, 1);
    for (std::uint32_t at = 0; at < n_found; ++at) {
      if (first + at < work.most_candidates) work.candidates[first + at] = found[at];
    }
    n_found = 0;
  };
  const auto x_of = [](std::uint32_t xy) { return static_cast<std::int16_t>(xy & 0xFFFF); };
  const auto y_of = [](std::uint32_t xy) { return static_cast<std::int16_t>(xy >> 16); };
  for (std::uint64_t at = blockIdx.x * blockDim.x + threadIdx.x; at < n_tasks;
       at += gridDim.x * blockDim.x) {
    const GridTask task = work.tasks[at];
    const std::int32_t x = x_of(task.xy), y = y_of(task.xy), z = x_of(task.z);
    for (std::uint32_t first = 0; first < task.size; first += kGridStep) {
      const GridFour four = *reinterpret_cast<const GridFour*>(grid.xy + task.start + first);
      GridFour depths{};
      if (!kFlat) depths = *reinterpret_cast<const GridFour*>(grid.z + task.start + first);
      TAMIS_UNROLL for (std::uint32_t each = 0; each < kGridStep; ++each) {
        const std::int32_t dx = x_of(four.items[each]) - x, dy = y_of(four.items[each]) - y;
        const std::int32_t dz = kFlat ? 0 : x_of(depths.items[each]) - z;
        if (first + each >= task.size || dx * dx + dy * dy + dz * dz > task.limit) continue;
        if (n_found == 4) flush();
        found[n_found++] = {task.event, grid.place_of[task.start + first + each]};
      }
    }
  }
  if (n_found > 0) flush();
}

template <bool kFlat, typename Lane, std::uint32_t kMost>
__global__ void grid_test(GridView grid, std::uint32_t first_event, GridWork work,
                          DeviceResults results) {
  const std::uint64_t n_candidates = work.counts->n_candidates < work.most_candidates
                                         ? work.counts->n_candidates
                                         : work.most_candidates;
  PairOutput output;
  for (std::uint64_t at = blockIdx.x * blockDim.x + threadIdx.x; at < n_candidates;
       at += gridDim.x * blockDim.x) {
    const GridCandidate candidate = work.candidates[at];
    const GridPlace place = grid.places[candidate.place];
    if (place.has_circle != 0) {
      const double* const points = work.points + candidate.event;
      const Point point{points[0], points[work.most_events],
                        kFlat ? 0 : points[2 * std::size_t{work.most_events}]};
      const Point centre{place.x, place.y, kFlat ? 0 : grid.place_z[candidate.place]};
      if (!is_within(point, centre, place.limit)) continue;
    }
    const EventRanks<kMost> ranks(work.values, work.most_events, candidate.event);
    const std::uint64_t* const record = grid.records + place.record;
    const std::uint64_t head = *record;
    const auto n_lanes = static_cast<std::uint32_t>(head >> 32) & 0xFFFF;
    if (!ranks.template holds<Lane>(grid.slots, record, n_lanes)) continue;
    const std::uint32_t verify = (head >> 48 & 1) != 0 ? MatchPair::kVerify : 0;
    output.add({(first_event + candidate.event) | verify, static_cast<std::uint32_t>(head)},
               results);
  }
  if (output.n_pairs > 0) output.flush(results);
}

__global__ void grid_move(GridView grid, GridMoves moves) {
  const std::uint32_t move = blockIdx.x * blockDim.x + threadIdx.x;
  if (move >= moves.n_moves) return;
  const std::uint32_t place = moves.which[move];
  const double* const point = moves.points + 3 * std::size_t{move};
  grid.places[place].x = point[0];
  grid.places[place].y = point[1];
  if (grid.place_z != nullptr) grid.place_z[place] = point[2];
}

template <bool kFlat>
__global__ void grid_count(GridView grid, std::uint32_t first, std::uint32_t n_places,
                           const float* positions, GridEntry* entries) {
  const std::uint32_t at_place = blockIdx.x * blockDim.x + threadIdx.x;
  if (at_place >= n_places) return;
  const std::uint32_t idx = first + at_place;
  Point centre{grid.places[idx].x, grid.places[idx].y, 0};
  if (!kFlat) centre.z = grid.place_z[idx];
  const GridHome home = grid.homes[idx];
  const GridLevel& of = grid.levels[home.level];
  GridEntry entry{of.first_bucket + home.term, 0, 0, 0};
  if (of.has_cells != 0) {
    if (kFlat && positions != nullptr) {
      centre = {positions[2 * std::size_t{idx}], positions[2 * std::size_t{idx} + 1], 0};
      grid.places[idx].x = centre.x;
      grid.places[idx].y = centre.y;
    }
    const Level& level = of.level;
    const Cell cell = level.cell_of(centre);
    const auto on_lattice = [&](double at, std::int32_t of_cell) {
      return Level::within(level.lattice_of(at, of_cell));
    };
    entry.bucket = of.bucket_of(cell, home.term);
    entry.xy = Level::pack(on_lattice(centre.x, cell.x), on_lattice(centre.y, cell.y));
    if (!kFlat) entry.z = Level::pack(on_lattice(centre.z, cell.z), 0);
  }
  entry.ticket = atomicAdd(&grid.buckets[entry.bucket].size, 1u);
  entries[idx] = entry;
}

__global__ void grid_allot(GridView grid, std::uint64_t* n_entries) {
  constexpr std::uint32_t kBuckets = 8;
  const std::uint32_t n_threads = gridDim.x * blockDim.x;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  std::uint32_t sizes[kBuckets];
  std::uint32_t n_all = 0;
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kBuckets; ++at) {
    const std::uint32_t bucket = at * n_threads + thread;
    const std::uint32_t size = bucket < grid.n_buckets ? grid.buckets[bucket].size : 0;
    sizes[at] = (size + kGridStep - 1) / kGridStep * kGridStep;
    n_all += sizes[at];
  }
  auto start = static_cast<std::uint32_t>(reserve(n_entries, n_all));
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kBuckets; ++at) {
    const std::uint32_t bucket = at * n_threads + thread;
    if (bucket < grid.n_buckets) grid.buckets[bucket].start = start;
    start += sizes[at];
  }
}

template <bool kFlat>
__global__ void grid_scatter(GridView grid, const GridEntry* entries) {
  const std::uint32_t idx = blockIdx.x * blockDim.x + threadIdx.x;
  if (idx >= grid.n_places) return;
  const GridEntry entry = entries[idx];
  const std::uint32_t to = grid.buckets[entry.bucket].start + entry.ticket;
  grid.xy[to] = entry.xy;
  if (!kFlat) grid.z[to] = entry.z;
  grid.place_of[to] = idx;
}

template <bool kFlat, bool kPacked, std::uint32_t kMost>
void launch_grid_match(const GridView& grid, const NumberEvents& events, const GridWork& work,
                       const DeviceResults& results, void* stream) {
  launch(grid_probe<kFlat, kPacked, kMost>, blocks_for(events.n_events), 1, stream, grid, events,
         work, results);
  // Tasks are some for each event; what is more, threads take in turn.
  constexpr std::uint32_t kMostBlocks = 4096;
  const std::uint32_t n_blocks = blocks_for(std::size_t{8} * events.n_events);
  const std::uint32_t n_taken = n_blocks < kMostBlocks ? n_blocks : kMostBlocks;
  launch(grid_scan<kFlat>, n_taken, 1, stream, grid, work, results);
  const auto test = [&]<typename Lane>(Lane) {
    launch(grid_test<kFlat, Lane, kMost>, n_taken, 1, stream, grid, events.first_event, work,
           results);
  };
  if (grid.lane_bytes == 1) return test(std::uint8_t{});
  if (grid.lane_bytes == 2) return test(std::uint16_t{});
  test(std::uint32_t{});
}

void launch_grid_match(const GridView& grid, const NumberEvents& events, const GridWork& work,
                       const DeviceResults& results, void* stream) {
  constexpr std::uint32_t kFew = 5, kMany = kGridMostAttributes;
  const bool is_flat = grid.z == nullptr;
  if (events.cells == nullptr) {
    return is_flat ? launch_grid_match<true, false, kMany>(grid, events, work, results, stream)
                   : launch_grid_match<false, false, kMany>(grid, events, work, results, stream);
  }
  if (is_flat && events.n_cells <= kFew) {
    return launch_grid_match<true, true, kFew>(grid, events, work, results, stream);
  }
  is_flat ? launch_grid_match<true, true, kMany>(grid, events, work, results, stream)
          : launch_grid_match<false, true, kMany>(grid, events, work, results, stream);
}

void launch_grid_move(const GridView& grid, const GridMoves& moves, void* stream) {
  launch(grid_move, blocks_for(moves.n_moves), 1, stream, grid, moves);
}

void launch_grid_count(const GridView& grid, std::uint32_t first, std::uint32_t n_places,
                       const float* positions, GridEntry* entries, void* stream) {
  launch(grid.z == nullptr ? grid_count<true> : grid_count<false>, blocks_for(n_places), 1, stream,
         grid, first, n_places, positions, entries);
}

void launch_grid_place(const GridView& grid, const GridEntry* entries, std::uint64_t* n_entries,
                       void* stream) {
  launch(grid_allot, blocks_for((grid.n_buckets + 7) / 8), 1, stream, grid, n_entries);
  launch(grid.z == nullptr ? grid_scatter<true> : grid_scatter<false>, blocks_for(grid.n_places), 1,
         stream, grid, entries);
}

}  // namespace tamis::cuda
