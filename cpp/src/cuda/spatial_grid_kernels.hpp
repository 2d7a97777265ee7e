// The kernels of `spatial-grid-cuda`. In the one that matches, a block takes 32 events:
//
//     begin     a thread for each event: ranks of its numbers
//     look      a thread for each event: the buckets of its next cell and of its names there; each
//               with something in it is a task, a large one several      ) in rounds, until no
//     scan      eight threads for each task: which of its places are     ) event has a cell left
//               near on the lattice?                                     )
//     test      a thread for each of these: the circle exactly, then     ) once there are many, or
//               the record of its filter                                 ) no more will come
//     bring     pairs to pinned memory
//
//     count     a thread for each place: its bucket, and a ticket there
//     allot     a thread for some buckets: where the entries of each begin
//     scatter   a thread for each place: its entry
//
// Events differ in how many buckets they have, buckets in how many places: tasks of their own keep
// the threads of a warp busy alike. They lie in shared memory; blocks that are at different steps
// use the multiprocessor together, where a kernel for each step waited for its last threads.
#pragma once

#include "launch.hpp"
#include "pairs_kernels.hpp"
#include "ranked_kernels.hpp"
#include "spatial_grid_launch.hpp"

namespace tamis::cuda {

using spatial_grid::Cell;
using spatial_grid::Level;

// Where an event is; not a number: it has no position.
TAMIS_DEVICE inline Point grid_point(const NumberEvents& events, std::uint32_t event) {
  if (events.flat_positions != nullptr) {
    const float* const at = events.flat_positions + 2 * std::size_t{event};
    return {at[0], at[1], 0};
  }
  if (events.points != nullptr) {
    const double* const at = events.points + 3 * std::size_t{event};
    return {at[0], at[1], at[2]};
  }
  return {__builtin_nan(""), 0, 0};
}

// Of a cell among those of an event on a level.
struct GridCellPlace {
  std::int16_t x, y, z;
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

// The cells of an event on a level, and one of them by its place there.
template <bool kFlat>
struct GridCells {
  Cell first, last;

  TAMIS_DEVICE GridCells(const GridLevel& of, const Point& at) {
    if (of.has_cells == 0) return;
    const Level& level = of.level;
    const double reach = level.reach;
    first = {level.cell_of(at.x - reach), level.cell_of(at.y - reach),
             kFlat ? 0 : level.cell_of(at.z - reach)};
    last = {level.cell_of(at.x + reach), level.cell_of(at.y + reach),
            kFlat ? 0 : level.cell_of(at.z + reach)};
  }
  TAMIS_DEVICE Cell operator[](const GridCellPlace& place) const {
    return {first.x + place.x, first.y + place.y, first.z + place.z};
  }
  // False: it was the last one.
  TAMIS_DEVICE bool advance(GridCellPlace& place) const {
    if (first.x + place.x < last.x) return ++place.x, true;
    place.x = 0;
    if (first.y + place.y < last.y) return ++place.y, true;
    place.y = 0;
    if (first.z + place.z < last.z) return ++place.z, true;
    place.z = 0;
    return false;
  }
};

template <bool kFlat, bool kPacked, std::uint32_t kMost, typename Lane>
struct GridMatch {
  // A warp: those of larger blocks wait for one another. 256 threads gave 658 M events/s and 64
  // 737 M in one run, 64 715 M and 32 717 M in another.
  static constexpr std::uint32_t kThreads = 32, kEvents = kThreads;
  static constexpr std::uint32_t kBlocks = 1;
  static constexpr std::uint32_t kMostTasks = 6 * kEvents;
  static constexpr std::uint32_t kMostCandidates = 4 * kEvents;
  static constexpr std::uint32_t kMostEntries = 2 * kGridStep;  // of a task
  static constexpr std::int32_t kNoLimit = 0x7FFFFFFF;

  struct Next {  // what an event has to look at
    std::uint32_t level;
    GridCellPlace cell;
    std::uint32_t n_done;  // tasks of the cell
  };
  struct alignas(16) Looking {  // what a task reads of its event
    std::uint32_t xy, z;        // on the lattice of the cell at which it looks
    std::int32_t limit;         // there
    std::uint32_t missing;      // bits that no name of the event has
  };
  struct Shared {
    Looking looking[kEvents];
    RankedValue values[kMost][kEvents];
    double points[kFlat ? 2 : 3][kEvents];
    Next next[kEvents];
    std::uint32_t
        entries[kMostTasks];  // where they begin / kGridStep * kMostEntries + how many - 1
    std::uint32_t places[kMostCandidates];
    std::uint16_t task_events[kMostTasks];
    std::uint16_t candidate_events[kMostCandidates];
    std::uint32_t n_tasks, n_candidates;  // with those that had no room
    std::uint32_t n_waiting[2];           // events that have more to look at, by round
    std::uint32_t is_through;
    BlockPairs<4 * kEvents> pairs;
  };
  static constexpr std::size_t kMostSharedBytes = sizeof(Shared);

  GridView grid;
  NumberEvents events;
  StraightResults results;

  enum Step : std::uint32_t { kLook, kScan, kTest, kSteps };

  TAMIS_DEVICE bool is_over(std::uint32_t phase, const void* memory) const {
    if (phase == 0 || (phase - 1) % kSteps != kTest) return false;
    return static_cast<const Shared*>(memory)->is_through != 0;
  }

  TAMIS_DEVICE void run(std::uint32_t phase, void* memory) const {
    Shared& shared = *static_cast<Shared*>(memory);
    if (phase == 0) return begin(shared);
    const std::uint32_t round = (phase - 1) / kSteps;
    const bool is_first = threadIdx.x == 0;
    switch ((phase - 1) % kSteps) {
      case kLook:
        if (round > 0 && shared.n_waiting[(round - 1) % 2] == 0) {
          if (is_first) shared.pairs.take_places(results);
          if (is_first) shared.is_through = 1;
          return;
        }
        if (is_first && is_time_to_test(shared)) shared.n_candidates = 0;  // they were tested
        return look(shared, round);
      case kScan:
        if (shared.is_through != 0) return shared.pairs.bring(results);
        if (is_first) shared.n_waiting[(round + 1) % 2] = 0;
        return scan(shared);
      default:
        if (is_first) shared.n_tasks = 0;
        if (shared.n_waiting[round % 2] != 0 && !is_time_to_test(shared)) return;
        for (std::uint32_t at = threadIdx.x; at < shared.n_candidates && at < kMostCandidates;
             at += kThreads) {
          test(shared, shared.candidate_events[at], shared.places[at]);
        }
    }
  }
  TAMIS_DEVICE static bool is_time_to_test(const Shared& shared) {
    return shared.n_candidates >= kMostCandidates / 2;
  }

  TAMIS_DEVICE void begin(Shared& shared) const {
    if (threadIdx.x == 0) {
      shared.n_tasks = shared.n_candidates = shared.is_through = 0;
      shared.n_waiting[0] = shared.n_waiting[1] = 0;
      shared.pairs.clear();
    }
    shared.next[threadIdx.x] = {grid.n_levels, {0, 0, 0}, 0};
    const std::uint32_t each = blockIdx.x * kEvents + threadIdx.x;
    if (each >= events.n_events) return;
    const std::uint32_t event = events.first_event + each;
    const EventCells<kPacked, kMost> cells(events, event);
    const Point point = grid_point(events, event);
    bool is_taken = cells.n_cells <= kMost;
    std::uint32_t names = 0;
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      RankedValue value{RankedValue::kNone, 0};
      if (cells.attributes[at] < grid.n_attributes) {
        const RankedAttribute& of = grid.attributes[cells.attributes[at]];
        if ((of.flags & RankedAttribute::kUsed) != 0) {
          value = {cells.attributes[at], of.cuts.rank(cells.values[at], false)};
          names |= grid_bloom(of.hash);
          is_taken &= (of.flags & RankedAttribute::kHost) == 0;
        }
      }
      shared.values[at][threadIdx.x] = value;
    }
    if (!is_taken) return leave(event, results);
    shared.points[0][threadIdx.x] = point.x;
    shared.points[1][threadIdx.x] = point.y;
    if constexpr (!kFlat) shared.points[2][threadIdx.x] = point.z;
    shared.looking[threadIdx.x].missing = ~names;
    shared.next[threadIdx.x].level = 0;
  }
  TAMIS_DEVICE static Point point_of(const Shared& shared, std::uint32_t which) {
    Point point{shared.points[0][which], shared.points[1][which], 0};
    if constexpr (!kFlat) point.z = shared.points[2][which];
    return point;
  }

  // The next cell that has something in it.
  TAMIS_DEVICE void look(Shared& shared, std::uint32_t round) const {
    Next next = shared.next[threadIdx.x];
    if (next.level == grid.n_levels) return;
    const Point point = point_of(shared, threadIdx.x);
    std::uint32_t attributes[kMost];
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      attributes[at] = shared.values[at][threadIdx.x].attribute;
    }
    bool has_found = false;
    while (!has_found && next.level < grid.n_levels) {
      const GridLevel& of = grid.levels[next.level];
      if (of.has_cells != 0 && point.x != point.x) {  // it has no position
        ++next.level;
        continue;
      }
      const GridCells<kFlat> cells(of, point);
      const Cell cell = cells[next.cell];
      const GridTermSet<kMost> terms(grid, next.level, of, attributes);
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
      has_found = n_tasks > 0;
      if (has_found) add_tasks(shared, of, cell, point, buckets, n_tasks, next.n_done);
      if (next.n_done < n_tasks) break;  // the rest when there is room
      next.n_done = 0;
      if (!cells.advance(next.cell)) ++next.level;
    }
    shared.next[threadIdx.x] = next;
    if (next.level < grid.n_levels) reserve(&shared.n_waiting[round % 2], 1);
  }

  // Those of a cell from the first that was not added yet, as many as there is room for.
  TAMIS_DEVICE void add_tasks(Shared& shared, const GridLevel& of, const Cell& cell,
                              const Point& point, const GridBucket (&buckets)[kMost + 1],
                              std::uint32_t n_tasks, std::uint32_t& n_done) const {
    Looking& looking = shared.looking[threadIdx.x];
    looking.xy = looking.z = 0;
    looking.limit = kNoLimit;
    if (of.has_cells != 0 && !cell.is_last()) {
      const Level& level = of.level;
      looking.xy =
          Level::pack(level.lattice_of(point.x, cell.x), level.lattice_of(point.y, cell.y));
      if (!kFlat) looking.z = Level::pack(level.lattice_of(point.z, cell.z), 0);
      looking.limit = level.limit;
    }
    const std::uint32_t n_wanted = n_tasks - n_done < kMostTasks ? n_tasks - n_done : kMostTasks;
    std::uint32_t task = reserve(&shared.n_tasks, n_wanted);
    const std::uint32_t end = task + n_wanted < kMostTasks ? task + n_wanted : kMostTasks;
    std::uint32_t n_before = 0;  // tasks of the buckets before
    TAMIS_UNROLL for (std::uint32_t term = 0; term <= kMost; ++term) {
      const std::uint32_t size = buckets[term].size;
      const std::uint32_t n_of = (size + kMostEntries - 1) / kMostEntries;
      for (std::uint32_t at = n_done - n_before; at < n_of && task < end; ++at) {
        const std::uint32_t rest = size - at * kMostEntries;
        shared.entries[task] =
            (buckets[term].start / kGridStep + at * (kMostEntries / kGridStep)) * kMostEntries +
            (rest < kMostEntries ? rest : kMostEntries) - 1;
        shared.task_events[task++] = static_cast<std::uint16_t>(threadIdx.x);
        ++n_done;
      }
      n_before += n_of;
    }
  }

  // Eight threads share a task, so that its places are read side by side; each has several tasks on
  // their way at once.
  TAMIS_DEVICE void scan(Shared& shared) const {
    constexpr std::uint32_t kTasks = 4, kSharing = kThreads / kMostEntries;
    constexpr std::uint32_t kNobody = ~std::uint32_t{0};
    const std::uint32_t n_tasks = shared.n_tasks < kMostTasks ? shared.n_tasks : kMostTasks;
    const std::uint32_t which = threadIdx.x % kMostEntries;  // of a task's places
    const auto x_of = [](std::uint32_t xy) { return static_cast<std::int16_t>(xy & 0xFFFF); };
    const auto y_of = [](std::uint32_t xy) { return static_cast<std::int16_t>(xy >> 16); };
    for (std::uint32_t at = threadIdx.x / kMostEntries; at < n_tasks; at += kTasks * kSharing) {
      std::uint32_t event_of[kTasks];
      GridEntry entries[kTasks];
      TAMIS_UNROLL for (std::uint32_t each = 0; each < kTasks; ++each) {
        const std::uint32_t task = at + each * kSharing;
        event_of[each] = kNobody;
        entries[each] = {};
        if (task >= n_tasks || which > shared.entries[task] % kMostEntries) continue;
        event_of[each] = shared.task_events[task];
        entries[each] = grid.entries[shared.entries[task] / kMostEntries * kGridStep + which];
      }
      std::uint32_t near = 0;
      TAMIS_UNROLL for (std::uint32_t each = 0; each < kTasks; ++each) {
        if (event_of[each] == kNobody) continue;
        const GridEntry& entry = entries[each];
        const Looking& from = shared.looking[event_of[each]];
        const std::int32_t dx = x_of(entry.xy) - x_of(from.xy), dy = y_of(entry.xy) - y_of(from.xy);
        const std::int32_t dz = kFlat ? 0 : x_of(entry.z) - x_of(from.z);
        const bool is_near =
            (entry.bloom & from.missing) == 0 && dx * dx + dy * dy + dz * dz <= from.limit;
        near |= static_cast<std::uint32_t>(is_near) << each;
      }
      std::uint32_t to = reserve(&shared.n_candidates, count_bits(near));
      TAMIS_UNROLL for (std::uint32_t each = 0; each < kTasks; ++each) {
        if ((near >> each & 1) == 0) continue;
        if (to < kMostCandidates) {
          shared.places[to] = entries[each].place;
          shared.candidate_events[to++] = static_cast<std::uint16_t>(event_of[each]);
        } else {  // there is no room: here, then
          test(shared, event_of[each], entries[each].place);
        }
      }
    }
  }

  // `which`: of the block's events.
  TAMIS_INLINE void test(Shared& shared, std::uint32_t which, std::uint32_t of_place) const {
    const GridPlace place = grid.places[of_place];
    if (place.has_circle != 0) {
      const Point centre{place.x, place.y, kFlat ? 0 : grid.place_z[of_place]};
      if (!is_within(point_of(shared, which), centre, place.limit)) return;
    }
    const EventRanks<kMost, kEvents> ranks{shared.values, which};
    const RecordWords record(grid.records + place.record);
    if (!ranks.template holds<Lane>(grid.slots, record)) return;
    const std::uint32_t event = events.first_event + blockIdx.x * kEvents + which;
    shared.pairs.add({event | record.verify(), record.filter()}, results);
  }
};

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
  const std::uint32_t first = (blockIdx.x * blockDim.x + threadIdx.x) * kBuckets;
  std::uint32_t sizes[kBuckets];
  std::uint32_t n_all = 0;
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kBuckets; ++at) {
    const std::uint32_t bucket = first + at;
    const std::uint32_t size = bucket < grid.n_buckets ? grid.buckets[bucket].size : 0;
    sizes[at] = (size + kGridStep - 1) / kGridStep * kGridStep;
    n_all += sizes[at];
  }
  auto start = static_cast<std::uint32_t>(reserve(n_entries, n_all));
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kBuckets; ++at) {
    const std::uint32_t bucket = first + at;
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

void launch_grid_match(const GridView& grid, const NumberEvents& events,
                       const StraightResults& results, void* stream) {
  constexpr std::uint32_t kFew = 5, kMany = kGridMostAttributes;
  const bool is_flat = grid.place_z == nullptr;
  const auto start = [&](const auto& match) {
    launch_phases(match, blocks_for(events.n_events, match.kThreads), match.kMostSharedBytes,
                  stream);
  };
  const auto with = [&]<typename Lane>(Lane) {
    if (events.cells == nullptr) {
      return is_flat ? start(GridMatch<true, false, kMany, Lane>{grid, events, results})
                     : start(GridMatch<false, false, kMany, Lane>{grid, events, results});
    }
    if (is_flat && events.n_cells <= kFew) {
      return start(GridMatch<true, true, kFew, Lane>{grid, events, results});
    }
    is_flat ? start(GridMatch<true, true, kMany, Lane>{grid, events, results})
            : start(GridMatch<false, true, kMany, Lane>{grid, events, results});
  };
  if (grid.lane_bytes == 1) return with(std::uint8_t{});
  if (grid.lane_bytes == 2) return with(std::uint16_t{});
  with(std::uint32_t{});
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
