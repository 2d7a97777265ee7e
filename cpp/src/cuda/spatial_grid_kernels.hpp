// The kernels of `spatial-grid-cuda`.
//
//     probe     a thread for each event: ranks, and the buckets of the cells and names around it;
//               each bucket with something in it is a task, a large one several
//     scan      eight threads for each task: which of its places are near on the lattice?
//     test      a thread for each of these: the circle exactly, then the record of its filter
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

// The terms of an event that buckets of a level have: that of each attribute, and any. Two
// attributes with one term are one.
template <std::uint32_t kMost>
struct GridTermSet {
  bool has[kMost + 1];
  std::uint32_t numbers[kMost + 1];  // term * term_factor

  TAMIS_DEVICE GridTermSet(const GridView& grid, std::uint32_t at, const GridLevel& level,
                           const std::uint32_t (&attributes)[kMost]) {
    TAMIS_UNROLL for (std::uint32_t each = 0; each < kMost; ++each) {
      has[each] = level.level.names != 0 && attributes[each] != RankedValue::kNone &&
                  grid.terms[std::size_t{at} * grid.n_attributes + attributes[each]] != 0;
      numbers[each] = grid_term(attributes[each]) * level.term_factor;
      TAMIS_UNROLL for (std::uint32_t before = 0; before < each; ++before) {
        if (has[before] && numbers[before] == numbers[each]) has[each] = false;
      }
    }
    has[kMost] = level.has_any != 0;
    numbers[kMost] = 0;
  }
};

// The cells of an event on a level.
template <bool kFlat>
struct GridCells {
  Cell first, last;

  TAMIS_DEVICE GridCells(const GridLevel& of, const GridEvent& event) {
    if (of.has_cells == 0) return;
    const Level& level = of.level;
    const Point& at = event.point;
    const double reach = level.reach;
    first = {level.cell_of(at.x - reach), level.cell_of(at.y - reach),
             kFlat ? 0 : level.cell_of(at.z - reach)};
    last = {level.cell_of(at.x + reach), level.cell_of(at.y + reach),
            kFlat ? 0 : level.cell_of(at.z + reach)};
  }
  template <typename Visit>
  TAMIS_DEVICE void for_each(Visit visit) const {
    for (Cell cell = first; cell.z <= last.z; ++cell.z) {
      for (cell.y = first.y; cell.y <= last.y; ++cell.y) {
        for (cell.x = first.x; cell.x <= last.x; ++cell.x) visit(cell);
      }
    }
  }
};

template <bool kFlat, bool kPacked, std::uint32_t kMost>
__global__ void grid_probe(GridView grid, NumberEvents events, GridWork work,
                           DeviceResults results) {
  const std::uint32_t each = blockIdx.x * blockDim.x + threadIdx.x;
  if (each >= events.n_events) return;
  const std::uint32_t event = events.first_event + each;
  EventCells<kPacked, kMost> cells(events, event);
  const GridEvent placed(events, event);
  GridEventData<kFlat, kMost> data;
  bool is_taken = cells.n_cells <= kMost;
  std::uint32_t names = 0;
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
    data.values[at] = {RankedValue::kNone, 0};
    if (cells.attributes[at] < grid.n_attributes) {
      const RankedAttribute& of = grid.attributes[cells.attributes[at]];
      if ((of.flags & RankedAttribute::kUsed) != 0) {
        data.values[at] = {cells.attributes[at], of.cuts.rank(cells.values[at], false)};
        names |= grid_bloom(of.hash);
        is_taken &= (of.flags & RankedAttribute::kHost) == 0;
      }
    }
    cells.attributes[at] = data.values[at].attribute;
  }
  if (!is_taken) {
    results.left[reserve(&results.counts->n_left, 1)] = event;
    return;
  }
  data.point[0] = placed.point.x;
  data.point[1] = placed.point.y;
  if constexpr (!kFlat) data.point[2] = placed.point.z;
  reinterpret_cast<GridEventData<kFlat, kMost>*>(work.events)[each] = data;
  work.missing[each] = ~names;

  constexpr std::uint32_t kMostEntries = GridTask::kMostEntries;
  const std::uint32_t segment = each / 32 % kGridSegments;  // one for a warp
  GridTask* const tasks = work.tasks + segment * work.most_tasks;
  for (std::uint32_t at = 0; at < grid.n_levels; ++at) {
    const GridLevel of = grid.levels[at];
    if (of.has_cells != 0 && !placed.has_position) continue;
    const GridTermSet<kMost> terms(grid, at, of, cells.attributes);
    GridCells<kFlat>(of, placed).for_each([&](const Cell& cell) {
      const Level& level = of.level;
      const std::uint32_t number = of.number_of(cell.x, cell.y, cell.z, 0);
      GridBucket buckets[kMost + 1];  // all on their way at once
      TAMIS_UNROLL for (std::uint32_t term = 0; term <= kMost; ++term) {
        buckets[term] = {};
        if (!terms.has[term]) continue;
        buckets[term] = grid.buckets[of.first_bucket + ((number + terms.numbers[term]) & of.mask)];
      }
      std::uint32_t n_tasks = 0;
      TAMIS_UNROLL for (std::uint32_t term = 0; term <= kMost; ++term) {
        n_tasks += (buckets[term].size + kMostEntries - 1) / kMostEntries;
      }
      std::uint64_t task = reserve(&work.counts[segment].n_tasks, n_tasks);
      if (task + n_tasks > work.most_tasks) {
        reserve(&results.counts->n_lost, 1);
        for (; task < work.most_tasks; ++task) tasks[task].event = GridTask::kNoEvent;
        return;
      }
      GridTask made{each, 0, 0, GridTask::kNoLattice << 16};
      if (of.has_cells != 0 && !cell.is_last()) {
        made.xy = Level::pack(level.lattice_of(placed.point.x, cell.x),
                              level.lattice_of(placed.point.y, cell.y));
        const std::int32_t z = kFlat ? 0 : level.lattice_of(placed.point.z, cell.z);
        made.z_and_level = Level::pack(z, static_cast<std::int32_t>(at));
      }
      TAMIS_UNROLL for (std::uint32_t term = 0; term <= kMost; ++term) {
        std::uint32_t start = buckets[term].start / kGridStep;
        for (std::uint32_t rest = buckets[term].size; rest > 0;) {
          const std::uint32_t size = rest < kMostEntries ? rest : kMostEntries;
          made.entries = start * kMostEntries + size - 1;
          tasks[task++] = made;
          start += kMostEntries / kGridStep;
          rest -= size;
        }
      }
    });
  }
}

// Eight threads share a task, so that its places are read side by side; each has several tasks on
// their way at once.
template <bool kFlat>
__global__ void grid_scan(GridView grid, GridWork work, DeviceResults results) {
  constexpr std::uint32_t kThreads = GridTask::kMostEntries;
  constexpr std::uint32_t kTasks = 4;
  const std::uint32_t segment = blockIdx.y;
  const GridTask* const tasks = work.tasks + segment * work.most_tasks;
  GridCandidate* const candidates = work.candidates + segment * work.most_candidates;
  GridCounts& counts = work.counts[segment];
  const std::uint64_t n_tasks = counts.n_tasks < work.most_tasks ? counts.n_tasks : work.most_tasks;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t which = thread % kThreads;  // of a task's places
  const std::uint64_t n_sharing = gridDim.x * blockDim.x / kThreads;
  const auto x_of = [](std::uint32_t xy) { return static_cast<std::int16_t>(xy & 0xFFFF); };
  const auto y_of = [](std::uint32_t xy) { return static_cast<std::int16_t>(xy >> 16); };
  for (std::uint64_t at = thread / kThreads; at < n_tasks; at += kTasks * n_sharing) {
    GridTask some[kTasks];
    GridEntry entries[kTasks];
    std::uint32_t missing[kTasks];
    TAMIS_UNROLL for (std::uint32_t each = 0; each < kTasks; ++each) {
      some[each] = {GridTask::kNoEvent, 0, 0, 0};
      if (at + each * n_sharing < n_tasks) some[each] = tasks[at + each * n_sharing];
    }
    TAMIS_UNROLL for (std::uint32_t each = 0; each < kTasks; ++each) {
      const GridTask& task = some[each];
      const bool is_here =
          task.event != GridTask::kNoEvent && which <= task.entries % GridTask::kMostEntries;
      entries[each] = {};
      missing[each] = 0;
      if (!is_here) some[each].event = GridTask::kNoEvent;
      if (is_here) {
        entries[each] = grid.entries[task.entries / GridTask::kMostEntries * kGridStep + which];
        missing[each] = work.missing[task.event];
      }
    }
    std::uint32_t near = 0;
    TAMIS_UNROLL for (std::uint32_t each = 0; each < kTasks; ++each) {
      const GridTask& task = some[each];
      if (task.event == GridTask::kNoEvent) continue;
      const GridEntry& entry = entries[each];
      const std::uint32_t level = task.z_and_level >> 16;
      const std::int32_t limit =
          level == GridTask::kNoLattice ? 0x7FFFFFFF : grid.levels[level].level.limit;
      const std::int32_t dx = x_of(entry.xy) - x_of(task.xy), dy = y_of(entry.xy) - y_of(task.xy);
      const std::int32_t dz = kFlat ? 0 : x_of(entry.z) - x_of(task.z_and_level);
      const bool is_near =
          (entry.bloom & missing[each]) == 0 && dx * dx + dy * dy + dz * dz <= limit;
      near |= static_cast<std::uint32_t>(is_near) << each;
    }
    std::uint64_t to = reserve(&counts.n_candidates, count_bits(near));
    TAMIS_UNROLL for (std::uint32_t each = 0; each < kTasks; ++each) {
      if ((near >> each & 1) == 0) continue;
      if (to < work.most_candidates) {
        candidates[to++] = {some[each].event, entries[each].place};
      } else {
        reserve(&results.counts->n_lost, 1);
      }
    }
  }
}

template <bool kFlat, typename Lane, std::uint32_t kMost>
__global__ void grid_test(GridView grid, std::uint32_t first_event, GridWork work,
                          DeviceResults results) {
  const std::uint64_t n_found = work.counts[blockIdx.y].n_candidates;
  const std::uint64_t n_candidates =
      n_found < work.most_candidates ? n_found : work.most_candidates;
  const GridCandidate* const candidates = work.candidates + blockIdx.y * work.most_candidates;
  PairOutput output;
  for (std::uint64_t at = blockIdx.x * blockDim.x + threadIdx.x; at < n_candidates;
       at += gridDim.x * blockDim.x) {
    const GridCandidate candidate = candidates[at];
    const GridPlace place = grid.places[candidate.place];
    const GridEventData<kFlat, kMost>& event =
        reinterpret_cast<const GridEventData<kFlat, kMost>*>(work.events)[candidate.event];
    if (place.has_circle != 0) {
      Point point{event.point[0], event.point[1], 0};
      if constexpr (!kFlat) point.z = event.point[2];
      const Point centre{place.x, place.y, kFlat ? 0 : grid.place_z[candidate.place]};
      if (!is_within(point, centre, place.limit)) continue;
    }
    const EventRanks<kMost> ranks(event.values, 1, 0);
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
                           const float* positions, GridTicket* tickets) {
  const std::uint32_t at_place = blockIdx.x * blockDim.x + threadIdx.x;
  if (at_place >= n_places) return;
  const std::uint32_t idx = first + at_place;
  const GridHome home = grid.homes[idx];
  const GridLevel& of = grid.levels[home.level()];
  GridTicket ticket{of.first_bucket + home.term(), 0, 0, 0};
  if (of.has_cells != 0) {
    Point centre;
    if (kFlat && positions != nullptr) {
      centre = {positions[2 * std::size_t{idx}], positions[2 * std::size_t{idx} + 1], 0};
      grid.places[idx].x = centre.x;
      grid.places[idx].y = centre.y;
    } else {
      centre = {grid.places[idx].x, grid.places[idx].y, 0};
      if (!kFlat) centre.z = grid.place_z[idx];
    }
    const Level& level = of.level;
    const Cell cell = level.cell_of(centre);
    const auto on_lattice = [&](double at, std::int32_t of_cell) {
      return Level::within(level.lattice_of(at, of_cell));
    };
    ticket.bucket = of.bucket_of(cell, home.term());
    ticket.xy = Level::pack(on_lattice(centre.x, cell.x), on_lattice(centre.y, cell.y));
    if (!kFlat) ticket.z = Level::pack(on_lattice(centre.z, cell.z), 0);
  }
  ticket.number = atomicAdd(&grid.buckets[ticket.bucket].size, 1u);
  tickets[idx] = ticket;
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

__global__ void grid_scatter(GridView grid, const GridTicket* tickets) {
  const std::uint32_t idx = blockIdx.x * blockDim.x + threadIdx.x;
  if (idx >= grid.n_places) return;
  const GridTicket ticket = tickets[idx];
  grid.entries[grid.buckets[ticket.bucket].start + ticket.number] = {ticket.xy, ticket.z, idx,
                                                                     grid.homes[idx].bloom};
}

template <bool kFlat, bool kPacked, std::uint32_t kMost>
void launch_grid_match(const GridView& grid, const NumberEvents& events, const GridWork& work,
                       const DeviceResults& results, void* stream) {
  launch(grid_probe<kFlat, kPacked, kMost>, blocks_for(events.n_events), 1, stream, grid, events,
         work, results);
  // Tasks are some for each event; what is more, threads take in turn.
  const auto blocks = [&](std::size_t n_threads, std::uint32_t most) {
    const std::uint32_t n_blocks = blocks_for(n_threads * events.n_events / kGridSegments + 1);
    return n_blocks < most ? n_blocks : most;
  };
  launch(grid_scan<kFlat>, blocks(32, 1024), kGridSegments, stream, grid, work, results);
  const auto test = [&]<typename Lane>(Lane) {
    launch(grid_test<kFlat, Lane, kMost>, blocks(4, 128), kGridSegments, stream, grid,
           events.first_event, work, results);
  };
  if (grid.lane_bytes == 1) return test(std::uint8_t{});
  if (grid.lane_bytes == 2) return test(std::uint16_t{});
  test(std::uint32_t{});
}

void launch_grid_match(const GridView& grid, const NumberEvents& events, const GridWork& work,
                       const DeviceResults& results, void* stream) {
  constexpr std::uint32_t kFew = 5, kMany = kGridMostAttributes;
  const bool is_flat = grid.place_z == nullptr;
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
                       const float* positions, GridTicket* tickets, void* stream) {
  launch(grid.place_z == nullptr ? grid_count<true> : grid_count<false>, blocks_for(n_places), 1,
         stream, grid, first, n_places, positions, tickets);
}

void launch_grid_place(const GridView& grid, const GridTicket* tickets, std::uint64_t* n_entries,
                       void* stream) {
  launch(grid_allot, blocks_for((grid.n_buckets + 7) / 8), 1, stream, grid, n_entries);
  launch(grid_scatter, blocks_for(grid.n_places), 1, stream, grid, tickets);
}

}  // namespace tamis::cuda
