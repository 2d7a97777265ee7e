// The kernels of `spatial-grid-cuda`.
//
//     match     a thread for each event: ranks; then, row by row of the cells around it, the runs
//               of entries of its names there, and which of them are near on the lattice; those go
//               to a queue of the warp, out of which each thread takes one: the circle exactly, and
//               the record of its filter. Large runs become tasks
//     scan      a warp for each task: the same
//
//     count     a thread for each place: its bucket, and a ticket there
//     allot     a block for a chunk of buckets: where the entries of each begin
//     scatter   a thread for each place: its entry
//
// Nothing but tasks goes through memory from step to step, and blocks that are at different steps
// use a multiprocessor together, where a kernel for each step waits for its last threads.
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

  GridEvent() = default;
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

// The cells of an event on a level, row by row.
template <bool kFlat>
struct GridRows {
  Cell first, last;
  std::int32_t y = 0, z = 0;
  bool is_row;  // is there one at y and z?

  TAMIS_DEVICE GridRows(const GridLevel& of, const GridEvent& event, bool is_event) {
    is_row = is_event && (of.has_cells == 0 || event.has_position);
    if (of.has_cells == 0 || !is_row) return;
    const Level& level = of.level;
    const Point& at = event.point;
    const double reach = level.reach;
    first = {level.cell_of(at.x - reach), level.cell_of(at.y - reach),
             kFlat ? 0 : level.cell_of(at.z - reach)};
    last = {level.cell_of(at.x + reach), level.cell_of(at.y + reach),
            kFlat ? 0 : level.cell_of(at.z + reach)};
    y = first.y;
    z = first.z;
  }
  TAMIS_DEVICE void advance() {
    if (++y <= last.y) return;
    y = first.y;
    is_row = is_row && ++z <= last.z;
  }
};

template <bool kFlat>
TAMIS_DEVICE inline GridLooking grid_looking(const GridLevel& of, const GridEvent& event,
                                             const GridRows<kFlat>& rows, std::uint32_t missing) {
  GridLooking looking{{0, 0, 0}, 0x7FFFFFFF, missing};
  if (of.has_cells == 0 || rows.first.is_last() || rows.last.is_last()) return looking;
  using Lattice = GridLattice<kFlat>;
  const auto on_axis = [&](double at) {
    return Lattice::of(of.level, at) << (32 - Lattice::kBits);
  };
  looking.at[0] = on_axis(event.point.x);
  looking.at[1] = on_axis(event.point.y);
  if (!kFlat) looking.at[2] = on_axis(event.point.z);
  looking.limit = of.limit;
  return looking;
}

// Candidates on their way to be tested, and pairs on their way out, of a warp.
template <bool kFlat, typename Lane, std::uint32_t kMost, std::uint32_t kPushes>
struct GridTests {
  using Event = GridEventData<kFlat, kMost>;
  WarpQueue<GridCandidate, kPushes> candidates;
  PairOutput pairs;

  TAMIS_DEVICE static bool holds(const GridView& grid, const GridRecord& place,
                                 const RecordWords& record, const Event& event) {
    if ((record.flags() & GridRecord::kCircle) != 0) {
      Point point{event.point[0], event.point[1], 0};
      if constexpr (!kFlat) point.z = event.point[2];
      if (!is_within(point, {place.x, place.y, place.z}, place.limit)) return false;
    }
    return EventRanks<kMost>(event.values).template holds<Lane>(grid.slots, record);
  }

  // event_of(candidate.event) is what is known of it, `first_event` the number of the first.
  template <typename EventOf>
  TAMIS_DEVICE void take(bool is_last, const GridView& grid, const MatchResults& results,
                         std::uint32_t first_event, EventOf event_of) {
    candidates.take(is_last, [&](const GridCandidate& candidate, bool is_one) {
      MatchPair pair{};
      if (is_one) {
        const GridRecord& place = grid.records[candidate.record];
        const RecordWords record(place.filter());
        is_one = holds(grid, place, record, event_of(candidate.event));
        pair = record.pair_of(first_event + candidate.event);
      }
      pairs.add(is_one, pair, results);
    });
    if (is_last) pairs.finish(results);
  }
};

struct GridRun {
  std::uint32_t begin, end;  // of entries
};

// A run that is too long for one thread becomes tasks.
TAMIS_DEVICE inline bool grid_add_tasks(const GridWork& work, std::uint32_t segment,
                                        std::uint32_t event, GridRun run,
                                        const GridLooking& looking) {
  constexpr std::uint32_t kMostEntries = GridTask::kMostEntries;
  const std::uint32_t n_tasks = (run.end - run.begin + kMostEntries - 1) / kMostEntries;
  GridTask* const tasks = work.tasks + segment * work.most_tasks;
  std::uint64_t task = reserve(&work.counts[segment].n_tasks, n_tasks);
  if (task + n_tasks > work.most_tasks) {
    for (; task < work.most_tasks; ++task) tasks[task].event = GridTask::kNoEvent;
    return false;
  }
  for (; run.begin < run.end; run.begin += kMostEntries) {
    const std::uint32_t rest = run.end - run.begin;
    tasks[task++] = {event, run.begin, rest < kMostEntries ? rest : kMostEntries, looking};
  }
  return true;
}

template <bool kFlat, bool kPacked, std::uint32_t kMost, typename Lane>
__global__ void __launch_bounds__(kThreadsPerBlock)
    grid_match(GridView grid, NumberEvents events, GridWork work, MatchResults results) {
  constexpr std::uint32_t kEntries = 4;     // that a thread reads at once
  constexpr std::uint32_t kMostOfRun = 32;  // for one thread
  using Event = GridEventData<kFlat, kMost>;
  OfThreads<Event> shown;
  GridTests<kFlat, Lane, kMost, kEntries> tests;
  Event& shown_event = shown[threadIdx.x];
  const std::uint32_t first = blockIdx.x * blockDim.x, each = first + threadIdx.x;
  const std::uint32_t event = events.first_event + each;
  bool is_event = each < events.n_events;
  GridEvent placed;
  std::uint32_t attributes[kMost];
  std::uint32_t names = 0;
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) attributes[at] = RankedValue::kNone;
  if (is_event) {
    const EventCells<kPacked, kMost> cells(events, event);
    placed = GridEvent(events, event);
    bool is_taken = cells.n_cells <= kMost;
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      std::uint32_t rank = 0;
      if (cells.attributes[at] < grid.n_attributes) {
        const RankedAttribute& of = grid.attributes[cells.attributes[at]];
        if ((of.flags & RankedAttribute::kUsed) != 0) {
          attributes[at] = cells.attributes[at];
          rank = of.cuts.rank(cells.values[at], false);
          names |= grid_bloom(attributes[at]);
          is_taken &= (of.flags & RankedAttribute::kHost) == 0;
        }
      }
      shown_event.values[at] = {attributes[at], rank};
    }
    shown_event.point[0] = placed.point.x;
    shown_event.point[1] = placed.point.y;
    if constexpr (!kFlat) shown_event.point[2] = placed.point.z;
    if (!is_taken) {
      results.left[reserve(&results.counts->n_left, 1)] = event;
      is_event = false;
    }
  }
  shown.wait();
  const std::uint32_t missing = ~names & ((1u << kGridBloomBits) - 1);
  const auto test = [&](bool is_last) {
    tests.take(is_last, grid, results, events.first_event + first,
               [&](std::uint32_t thread) -> const Event& { return shown[thread]; });
  };

  bool has_tasks = false;
  for (std::uint32_t at = 0; at < grid.n_levels; ++at) {
    const GridLevel of = grid.levels[at];
    const GridTermSet<kMost> terms(grid, at, of, attributes);
    GridRows<kFlat> rows(of, placed, is_event);
    const GridLooking looking = grid_looking(of, placed, rows, missing);
    const auto n_cells = static_cast<std::uint32_t>(rows.last.x - rows.first.x + 1);
    for (; is_any_of_warp(rows.is_row); rows.advance()) {
      const std::uint32_t number = of.number_of(rows.first.x, rows.y, rows.z, 0);
      GridRun found[kMost + 1];  // all on their way at once
      TAMIS_UNROLL for (std::uint32_t term = 0; term <= kMost; ++term) {
        found[term] = {0, 0};
        if (!rows.is_row || !terms.has[term]) continue;
        const std::uint32_t* const start =
            grid.starts + grid_start(of.first_bucket + ((number + terms.numbers[term]) & of.mask));
        found[term] = {start[0], start[n_cells]};
      }
      GridRun runs[kMost + 1];
      std::uint32_t n_runs = 0;
      TAMIS_UNROLL for (std::uint32_t term = 0; term <= kMost; ++term) {
        const std::uint32_t size = found[term].end - found[term].begin;
        if (size > kMostOfRun) {
          has_tasks = true;
          const std::uint32_t segment = each / 32 % kGridSegments;  // one for a warp
          if (!grid_add_tasks(work, segment, each, found[term], looking)) {
            reserve(&results.counts->n_lost, 1);
          }
        } else if (size > 0) {
          runs[n_runs++] = found[term];
        }
      }
      std::uint32_t which = 0;
      GridRun run{0, 0};
      if (n_runs > 0) run = runs[0];
      while (is_any_of_warp(which < n_runs)) {
        GridEntry entries[kEntries];
        TAMIS_UNROLL for (std::uint32_t entry = 0; entry < kEntries; ++entry) {
          entries[entry] = {};
          if (run.begin + entry < run.end) entries[entry] = grid.entries[run.begin + entry];
        }
        TAMIS_UNROLL for (std::uint32_t entry = 0; entry < kEntries; ++entry) {
          const bool is_near =
              run.begin + entry < run.end && looking.is_near<kFlat>(entries[entry]);
          tests.candidates.push(is_near, {threadIdx.x, entries[entry].record()});
        }
        test(false);
        run.begin += kEntries;
        if (run.begin >= run.end && ++which < n_runs) run = runs[which];
      }
    }
  }
  if (has_tasks) reinterpret_cast<Event*>(work.events)[each] = shown_event;
  test(true);
}

// A warp for each task; each thread has several entries on their way at once.
template <bool kFlat, typename Lane, std::uint32_t kMost>
__global__ void __launch_bounds__(kThreadsPerBlock)
    grid_scan(GridView grid, std::uint32_t first_event, GridWork work, MatchResults results) {
  constexpr std::uint32_t kEntries = 4;
  using Event = GridEventData<kFlat, kMost>;
  const GridTask* const tasks = work.tasks + blockIdx.y * work.most_tasks;
  const std::uint64_t n_found = work.counts[blockIdx.y].n_tasks;
  const std::uint64_t n_tasks = n_found < work.most_tasks ? n_found : work.most_tasks;
  GridTests<kFlat, Lane, kMost, kEntries> tests;
  const auto test = [&](bool is_last) {
    tests.take(is_last, grid, results, first_event, [&](std::uint32_t event) -> const Event& {
      return reinterpret_cast<const Event*>(work.events)[event];
    });
  };
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t n_warps = gridDim.x * blockDim.x / kWarpThreads;
  for (std::uint64_t at = thread / kWarpThreads; at < n_tasks; at += n_warps) {
    const GridTask task = tasks[at];
    if (task.event == GridTask::kNoEvent) continue;
    for (std::uint32_t begin = 0; begin < task.n_entries; begin += kEntries * kWarpThreads) {
      GridEntry entries[kEntries];
      const auto place_of = [&](std::uint32_t entry) {
        return begin + entry * kWarpThreads + thread % kWarpThreads;
      };
      TAMIS_UNROLL for (std::uint32_t entry = 0; entry < kEntries; ++entry) {
        entries[entry] = {};
        if (place_of(entry) < task.n_entries) {
          entries[entry] = grid.entries[task.first + place_of(entry)];
        }
      }
      TAMIS_UNROLL for (std::uint32_t entry = 0; entry < kEntries; ++entry) {
        const bool is_near =
            place_of(entry) < task.n_entries && task.looking.is_near<kFlat>(entries[entry]);
        tests.candidates.push(is_near, {task.event, entries[entry].record()});
      }
      test(false);
    }
  }
  test(true);
}

__global__ void grid_move(GridView grid, GridMoves moves) {
  const std::uint32_t move = blockIdx.x * blockDim.x + threadIdx.x;
  if (move >= moves.n_moves) return;
  GridRecord& place = grid.records[grid.homes[moves.which[move]].record()];
  const double* const point = moves.points + 3 * std::size_t{move};
  place.x = point[0];
  place.y = point[1];
  place.z = point[2];
}

template <bool kFlat>
__global__ void grid_count(GridView grid, std::uint32_t first, std::uint32_t n_places,
                           const float* positions, GridTicket* tickets) {
  const std::uint32_t at_place = blockIdx.x * blockDim.x + threadIdx.x;
  if (at_place >= n_places) return;
  const std::uint32_t idx = first + at_place;
  const GridHome home = grid.homes[idx];
  const GridLevel& of = grid.levels[home.level()];
  GridTicket ticket{of.first_bucket + home.term(), 0, {home.bits}};
  if (of.has_cells != 0) {
    GridRecord& place = grid.records[home.record()];
    Point centre;
    if (kFlat && positions != nullptr) {
      centre = {positions[2 * std::size_t{idx}], positions[2 * std::size_t{idx} + 1], 0};
      place.x = centre.x;
      place.y = centre.y;
    } else {
      centre = {place.x, place.y, place.z};
    }
    ticket.bucket = of.bucket_of(of.level.cell_of(centre), home.term());
    ticket.entry = GridEntry::of<kFlat>(home, of.level, centre);
  }
  ticket.number = atomicAdd(&grid.sizes[ticket.bucket], 1u);
  tickets[idx] = ticket;
}

// The level of a chunk of buckets.
TAMIS_DEVICE inline const GridLevel& grid_level_of(const GridView& grid, std::uint32_t chunk) {
  std::uint32_t at = 0;
  while (chunk * kGridChunk > grid.levels[at].first_bucket + grid.levels[at].mask) ++at;
  return grid.levels[at];
}

struct GridAllot {
  static constexpr std::uint32_t kBuckets = kGridChunk / kThreadsPerBlock;  // of a thread
  static constexpr std::uint32_t kGroups = 16, kOfGroup = kThreadsPerBlock / kGroups;
  struct Shared {
    std::uint32_t before[kThreadsPerBlock];  // entries of the threads before; of its group
    std::uint32_t before_group[kGroups];
    std::uint32_t halo[kGridHalo + 1];  // where each begins, and their end
    std::uint32_t first;
  };
  static constexpr std::size_t kMostSharedBytes = sizeof(Shared);
  GridView grid;
  std::uint64_t* n_entries;

  TAMIS_DEVICE std::uint32_t n_phases() const { return 4; }
  TAMIS_DEVICE void run(std::uint32_t phase, void* memory) const {
    Shared& shared = *static_cast<Shared*>(memory);
    const std::uint32_t thread = threadIdx.x, chunk = blockIdx.x;
    const std::uint32_t first_bucket = chunk * kGridChunk + thread * kBuckets;
    if (phase == 0) {
      std::uint32_t n = 0;
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kBuckets; ++at) {
        n += grid.sizes[first_bucket + at];
      }
      shared.before[thread] = n;
    } else if (phase == 1 && thread < kGroups) {
      std::uint32_t n = 0;
      for (std::uint32_t at = thread * kOfGroup; at < (thread + 1) * kOfGroup; ++at) {
        const std::uint32_t n_of = shared.before[at];
        shared.before[at] = n;
        n += n_of;
      }
      shared.before_group[thread] = n;
    } else if (phase == 2 && thread == 0) {
      std::uint32_t n = 0;
      for (std::uint32_t group = 0; group < kGroups; ++group) {
        const std::uint32_t n_of = shared.before_group[group];
        shared.before_group[group] = n;
        n += n_of;
      }
      const GridLevel& of = grid_level_of(grid, chunk);
      const std::uint32_t next =
          of.first_bucket + (((chunk + 1) * kGridChunk - of.first_bucket) & of.mask);
      for (std::uint32_t at = 0; at < kGridHalo; ++at) {
        shared.halo[at] = n;
        if (of.has_cells != 0) n += grid.sizes[next + at];
      }
      shared.halo[kGridHalo] = n;
      shared.first = static_cast<std::uint32_t>(
          atomicAdd(reinterpret_cast<unsigned long long*>(n_entries), std::uint64_t{n}));
    } else if (phase == 3) {
      std::uint32_t* const starts = grid.starts + std::size_t{chunk} * kGridStride;
      std::uint32_t start =
          shared.first + shared.before_group[thread / kOfGroup] + shared.before[thread];
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kBuckets; ++at) {
        starts[thread * kBuckets + at] = start;
        start += grid.sizes[first_bucket + at];
      }
      if (thread <= kGridHalo) starts[kGridChunk + thread] = shared.first + shared.halo[thread];
    }
  }
};

__global__ void grid_scatter(GridView grid, const GridTicket* tickets) {
  const std::uint32_t idx = blockIdx.x * blockDim.x + threadIdx.x;
  if (idx >= grid.n_places) return;
  const GridTicket ticket = tickets[idx];
  grid.entries[grid.starts[grid_start(ticket.bucket)] + ticket.number] = ticket.entry;
  const std::uint32_t chunk = ticket.bucket / kGridChunk, place = ticket.bucket % kGridChunk;
  if (place >= kGridHalo) return;
  const GridLevel& of = grid_level_of(grid, chunk);
  if (of.has_cells == 0) return;
  const std::uint32_t before =
      of.first_bucket + (((chunk - 1) * kGridChunk - of.first_bucket) & of.mask);
  grid.entries[grid.starts[grid_start(before) + kGridChunk + place] + ticket.number] = ticket.entry;
}

template <bool kFlat, bool kPacked, std::uint32_t kMost>
void launch_grid_match(const GridView& grid, const NumberEvents& events, const GridWork& work,
                       const MatchResults& results, void* stream) {
  const auto match = [&]<typename Lane>(Lane) {
    launch(grid_match<kFlat, kPacked, kMost, Lane>, blocks_for(events.n_events), 1, stream, grid,
           events, work, results);
    constexpr std::uint32_t kBlocks = 48;  // of a segment: warps take tasks in turn
    launch(grid_scan<kFlat, Lane, kMost>, kBlocks, kGridSegments, stream, grid, events.first_event,
           work, results);
  };
  if (grid.lane_bytes == 1) return match(std::uint8_t{});
  if (grid.lane_bytes == 2) return match(std::uint16_t{});
  match(std::uint32_t{});
}

void launch_grid_match(const GridView& grid, const NumberEvents& events, const GridWork& work,
                       const MatchResults& results, void* stream) {
  constexpr std::uint32_t kFew = PackedCells::kCells, kMany = kGridMostAttributes;
  const bool is_flat = grid.is_flat != 0;
  if (events.packed == nullptr) {
    return is_flat ? launch_grid_match<true, false, kMany>(grid, events, work, results, stream)
                   : launch_grid_match<false, false, kMany>(grid, events, work, results, stream);
  }
  if (is_flat && events.n_packed == 1) {
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
  launch(grid.is_flat != 0 ? grid_count<true> : grid_count<false>, blocks_for(n_places), 1, stream,
         grid, first, n_places, positions, tickets);
}

void launch_grid_place(const GridView& grid, const GridTicket* tickets, std::uint64_t* n_entries,
                       void* stream) {
  launch_phases(GridAllot{grid, n_entries}, grid.n_buckets / kGridChunk,
                GridAllot::kMostSharedBytes, stream);
  launch(grid_scatter, blocks_for(grid.n_places), 1, stream, grid, tickets);
}

}  // namespace tamis::cuda
