// The kernels of `tuple-key-cuda`.
//
//     match    a thread for each event: ranks, and every set of its attributes, whose hash is that
//              of its attributes, XORed; eight at a time in the bitmap; the runs of records that
//              are there go to a queue of the warp, out of which each thread takes one. Long runs
//              become tasks
//     scan     a thread for each task: its records
//
// Events differ in how many keys are there, and keys in how many records: the queue keeps the
// threads of a warp busy alike, and tasks keep few events with many records from having few
// threads. What belongs to an event lies in registers: no index into it depends on data, and an
// attribute that is not there leaves its place empty.
#pragma once

#include "engines/tuple_key/items.hpp"
#include "launch.hpp"
#include "pairs_kernels.hpp"
#include "ranked_kernels.hpp"
#include "tuple_key_launch.hpp"

namespace tamis::cuda {

template <std::uint32_t kMost>
struct TupleKeyThread {
  static constexpr std::uint32_t kStep = 8;  // keys that are probed together
  std::uint32_t attributes[kMost];
  std::uint32_t ranks[kMost];
  std::uint32_t hashes[kMost];
  std::uint32_t terms = 0;  // places of attributes that some filter needs

  // False: the host must take the event.
  TAMIS_DEVICE bool set(const TupleKeyIndexView& index, std::uint32_t place,
                        std::uint32_t attribute, double value) {
    attributes[place] = RankedValue::kNone;
    ranks[place] = hashes[place] = 0;
    if (attribute >= index.n_attributes) return true;
    const RankedAttribute& of = index.attributes[attribute];
    if ((of.flags & RankedAttribute::kUsed) == 0) return true;
    attributes[place] = attribute;
    ranks[place] = of.cuts.rank(value, false);
    hashes[place] = of.hash;
    if ((of.flags & RankedAttribute::kTerm) != 0) terms |= std::uint32_t{1} << place;
    return (of.flags & RankedAttribute::kHost) == 0;
  }

  TAMIS_DEVICE std::uint32_t hash_of(std::uint32_t places) const {
    std::uint32_t hash = 0;
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      hash ^= (places >> at & 1) != 0 ? hashes[at] : 0;
    }
    return hash;
  }
  TAMIS_DEVICE bool is_key(const TupleKeyIndexView& index, std::uint32_t places) const {
    return (places & ~terms) == 0 && (index.key_sizes >> count_bits(places) & 1) != 0;
  }

  // Calls visit(found) for every key whose bit is set.
  template <typename Visit>
  TAMIS_DEVICE void for_each_key(const TupleKeyIndexView& index, Visit visit) const {
    std::uint32_t low[kStep];
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) low[at] = hash_of(at);
    for (std::uint32_t first = 0; first <= terms; first += kStep) {
      if ((first & ~terms) != 0) continue;
      const std::uint32_t high = hash_of(first);
      std::uint32_t bits[kStep];  // all on their way at once
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) {
        bits[at] = 0;
        if (is_key(index, first + at)) {
          bits[at] = index.words[(high ^ low[at]) >> index.shift >> 5].bits;
        }
      }
      std::uint32_t found = 0;
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) {
        found |= (bits[at] >> ((high ^ low[at]) >> index.shift & 31) & 1) << at;
      }
      // Few are there. Their words are read again: code for each of the eight would have to be
      // fetched by every launch.
      for (; found != 0; found &= found - 1) {
        const std::uint32_t at = count_bits((found & (~found + 1)) - 1);
        const std::uint32_t hash = high ^ hash_of(at), bit = hash >> index.shift & 31;
        const tuple_key::KeyWord word = index.words[hash >> index.shift >> 5];
        const std::uint32_t key =
            word.n_before + count_bits(word.bits & ((std::uint32_t{1} << bit) - 1));
        visit(tuple_key::FoundKey{key, hash});
      }
    }
  }
};

// The keys of a thread that were found. Keys that share a bit of the bitmap may share a run: it is
// tested once.
struct TupleKeyFound {
  tuple_key::FoundKey keys[kTupleKeyMostFound];
  std::uint32_t n_keys = 0;

  TAMIS_DEVICE void add(const TupleKeyIndexView& index, const tuple_key::FoundKey& key) {
    for (std::uint32_t before = 0; before < n_keys && before < kTupleKeyMostFound; ++before) {
      if (keys[before].key != key.key) continue;
      const tuple_key::Run run = tuple_key::run_of(index.starts, index.start_mask, keys[before]);
      if (run.begin == run.end) keys[before] = key;
      return;
    }
    if (n_keys < kTupleKeyMostFound) keys[n_keys] = key;
    ++n_keys;
  }
};

template <std::uint32_t kMost>
struct TupleKeyEvent {
  RankedValue values[kMost];
};

struct TupleKeyRun {
  std::uint32_t thread, begin, end;
};

// The records of a run against an event, of which all threads of a warp have one each, or none.
template <typename Lane, std::uint32_t kMost>
TAMIS_DEVICE void tuple_key_test(const TupleKeyIndexView& index, const RankedValue* values,
                                 std::uint32_t event, tuple_key::Run run, PairOutput& pairs,
                                 const MatchResults& results) {
  EventRanks<kMost> ranks;
  if (run.begin < run.end) ranks = EventRanks<kMost>(values, 1, 0);
  while (is_any_of_warp(run.begin < run.end)) {
    bool holds = false;
    MatchPair pair{};
    if (run.begin < run.end) {
      const RecordWords record(index.records + run.begin);
      holds = ranks.template holds<Lane>(index.slots, record);
      pair = record.pair_of(event);
      run.begin += 1 + static_cast<std::uint32_t>((record.n_lanes() * 3 * sizeof(Lane) + 7) / 8);
    }
    pairs.add(holds, pair, results);
  }
}

template <bool kPacked, typename Lane, std::uint32_t kMost>
__global__ void __launch_bounds__(kThreadsPerBlock)
    tuple_key_match(TupleKeyIndexView index, NumberEvents events, TupleKeyWork work,
                    MatchResults results) {
  OfThreads<TupleKeyEvent<kMost>> shown;
  WarpQueue<TupleKeyRun, 1> runs;
  PairOutput pairs;
  TupleKeyEvent<kMost>& shown_event = shown[threadIdx.x];
  const std::uint32_t first = blockIdx.x * blockDim.x, each = first + threadIdx.x;
  const std::uint32_t event = events.first_event + each;
  TupleKeyFound found;
  std::uint32_t n_found = 0;  // with the filters that need nothing
  if (each < events.n_events) {
    TupleKeyThread<kMost> thread;
    bool is_taken = true;
    const EventCells<kPacked, kMost> cells(events, event);
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      is_taken &= thread.set(index, at, cells.attributes[at], cells.values[at]);
      shown_event.values[at] = {thread.attributes[at], thread.ranks[at]};
    }
    if (is_taken && cells.n_cells <= kMost) {
      thread.for_each_key(index, [&](const tuple_key::FoundKey& key) { found.add(index, key); });
    }
    if (!is_taken || cells.n_cells > kMost || found.n_keys > kTupleKeyMostFound) {
      results.left[reserve(&results.counts->n_left, 1)] = event;
    } else {
      n_found = found.n_keys + (index.always_end > 0);
    }
  }
  shown.wait();
  const auto test = [&](bool is_last) {
    runs.take(is_last, [&](const TupleKeyRun& run, bool is_one) {
      tuple_key_test<Lane, kMost>(
          index, shown[run.thread].values, events.first_event + first + run.thread,
          is_one ? tuple_key::Run{run.begin, run.end} : tuple_key::Run{}, pairs, results);
    });
  };
  bool has_tasks = false;
  for (std::uint32_t at = 0; is_any_of_warp(at < n_found); ++at) {
    tuple_key::Run run{0, 0};
    if (at < n_found) {
      run = at < found.n_keys ? tuple_key::run_of(index.starts, index.start_mask, found.keys[at])
                              : tuple_key::Run{0, index.always_end};
    }
    if (run.end - run.begin > kTupleKeyLongRun) {
      has_tasks = true;
      work.tasks[reserve(work.n_tasks, 1)] = {each, run.begin, run.end};
      run = {0, 0};
    }
    runs.push(run.begin < run.end, {threadIdx.x, run.begin, run.end});
    test(false);
  }
  test(true);
  pairs.finish(results);
  if (!has_tasks) return;
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
    work.values[std::size_t{each} * kTupleKeyMostAttributes + at] = shown_event.values[at];
  }
}

template <typename Lane, std::uint32_t kMost>
__global__ void tuple_key_scan(TupleKeyIndexView index, std::uint32_t first_event,
                               TupleKeyWork work, MatchResults results) {
  const std::uint64_t n_tasks = *work.n_tasks;
  PairOutput pairs;
  for (std::uint64_t at = blockIdx.x * blockDim.x + threadIdx.x; is_any_of_warp(at < n_tasks);
       at += gridDim.x * blockDim.x) {
    TupleKeyTask task{0, 0, 0};
    if (at < n_tasks) task = work.tasks[at];
    tuple_key_test<Lane, kMost>(index,
                                work.values + std::size_t{task.event} * kTupleKeyMostAttributes,
                                first_event + task.event, {task.begin, task.end}, pairs, results);
  }
  pairs.finish(results);
}

template <typename Lane, std::uint32_t kMost>
void launch_tuple_key(const TupleKeyIndexView& index, const NumberEvents& events,
                      const TupleKeyWork& work, const MatchResults& results, void* stream) {
  launch(events.packed != nullptr ? tuple_key_match<true, Lane, kMost>
                                  : tuple_key_match<false, Lane, kMost>,
         blocks_for(events.n_events), 1, stream, index, events, work, results);
  if (index.has_long_runs == 0) return;
  // Tasks are some for each event; what is more, threads take in turn.
  constexpr std::uint32_t kMostBlocks = 1024;
  const std::uint32_t n_blocks = blocks_for(std::size_t{4} * events.n_events);
  launch(tuple_key_scan<Lane, kMost>, n_blocks < kMostBlocks ? n_blocks : kMostBlocks, 1, stream,
         index, events.first_event, work, results);
}

template <typename Lane>
void launch_tuple_key(const TupleKeyIndexView& index, const NumberEvents& events,
                      const TupleKeyWork& work, const MatchResults& results, void* stream) {
  constexpr std::uint32_t kFew = PackedCells::kCells;
  if (events.packed != nullptr && events.n_packed == 1) {
    return launch_tuple_key<Lane, kFew>(index, events, work, results, stream);
  }
  launch_tuple_key<Lane, kTupleKeyMostAttributes>(index, events, work, results, stream);
}

void launch_tuple_key_match(const TupleKeyIndexView& index, const NumberEvents& events,
                            const TupleKeyWork& work, const MatchResults& results, void* stream) {
  const auto with = [&]<typename Lane>(Lane) {
    launch_tuple_key<Lane>(index, events, work, results, stream);
  };
  if (index.lane_bytes == 1) return with(std::uint8_t{});
  if (index.lane_bytes == 2) return with(std::uint16_t{});
  with(std::uint32_t{});
}

}  // namespace tamis::cuda
