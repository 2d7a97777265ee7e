// The kernels of `tuple-key-cuda`.
//
//     probe    a thread for each event: ranks, and every set of its attributes, whose hash is that
//              of its attributes, XORed; eight at a time in the bitmap; what is there is a task
//     test     a thread for each task: the records of its key
//     bring    pairs to pinned memory, side by side: the bus takes whole lines
//
// Events differ in how many keys are there, and keys in how many records: tasks of their own keep
// the threads of a warp busy alike. What belongs to an event lies in registers: no index into it
// depends on data, and an attribute that is not there leaves its place empty.
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
      tuple_key::KeyWord words[kStep];
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) {
        words[at] = {0, 0};
        if (is_key(index, first + at)) {
          words[at] = index.words[(high ^ low[at]) >> index.shift >> 5];
        }
      }
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) {
        const std::uint32_t hash = high ^ low[at], bit = hash >> index.shift & 31;
        if ((words[at].bits >> bit & 1) == 0) continue;
        const std::uint32_t key =
            words[at].n_before + count_bits(words[at].bits & ((std::uint32_t{1} << bit) - 1));
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

template <bool kPacked, std::uint32_t kMost>
__global__ void tuple_key_probe(TupleKeyIndexView index, NumberEvents events, TupleKeyWork work,
                                DeviceResults results) {
  const std::uint32_t each = blockIdx.x * blockDim.x + threadIdx.x;
  if (each >= events.n_events) return;
  const std::uint32_t event = events.first_event + each;
  TupleKeyThread<kMost> thread;
  bool is_taken = true;
  const EventCells<kPacked, kMost> cells(events, event);
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
    is_taken &= thread.set(index, at, cells.attributes[at], cells.values[at]);
    work.values[std::size_t{at} * work.most_events + each] = {thread.attributes[at],
                                                              thread.ranks[at]};
  }
  TupleKeyFound found;
  if (is_taken && cells.n_cells <= kMost) {
    thread.for_each_key(index, [&](const tuple_key::FoundKey& key) { found.add(index, key); });
  }
  if (!is_taken || cells.n_cells > kMost || found.n_keys > kTupleKeyMostFound) {
    results.left[reserve(&results.counts->n_left, 1)] = event;
    return;
  }
  const std::uint32_t n_always = index.always_end > 0;
  if (found.n_keys + n_always == 0) return;
  std::uint64_t task = reserve(work.n_tasks, found.n_keys + n_always);
  if (n_always != 0) {
    work.events[task] = each;
    work.keys[task++] = TupleKeyWork::kAlways;
  }
  for (std::uint32_t at = 0; at < found.n_keys; ++at, ++task) {
    work.events[task] = each;
    work.keys[task] = found.keys[at].key;
    work.hashes[task] = found.keys[at].hash;
  }
}

template <typename Lane, std::uint32_t kMost>
__global__ void tuple_key_test(TupleKeyIndexView index, std::uint32_t first_event,
                               TupleKeyWork work, DeviceResults results) {
  const std::uint64_t n_tasks = *work.n_tasks;
  PairOutput output;
  for (std::uint64_t task = blockIdx.x * blockDim.x + threadIdx.x; task < n_tasks;
       task += gridDim.x * blockDim.x) {
    const std::uint32_t each = work.events[task], key = work.keys[task];
    const EventRanks<kMost> ranks(work.values, work.most_events, each);
    tuple_key::Run run{0, index.always_end};
    if (key != TupleKeyWork::kAlways) {
      run = tuple_key::run_of(index.starts, index.start_mask, {key, work.hashes[task]});
    }
    while (run.begin < run.end) {
      const RecordWords record(index.records + run.begin);
      if (ranks.template holds<Lane>(index.slots, record)) {
        output.add(record.pair_of(first_event + each), results);
      }
      run.begin += 1 + static_cast<std::uint32_t>((record.n_lanes() * 3 * sizeof(Lane) + 7) / 8);
    }
  }
  if (output.n_pairs > 0) output.flush(results);
}

template <typename Lane, std::uint32_t kMost>
void launch_tuple_key(const TupleKeyIndexView& index, const NumberEvents& events,
                      const TupleKeyWork& work, const DeviceResults& results, void* stream) {
  launch(events.cells != nullptr ? tuple_key_probe<true, kMost> : tuple_key_probe<false, kMost>,
         blocks_for(events.n_events), 1, stream, index, events, work, results);
  // Tasks are some for each event; what is more, threads take in turn.
  constexpr std::uint32_t kMostBlocks = 2048;
  const std::uint32_t n_blocks = blocks_for(std::size_t{2} * events.n_events);
  launch(tuple_key_test<Lane, kMost>, n_blocks < kMostBlocks ? n_blocks : kMostBlocks, 1, stream,
         index, events.first_event, work, results);
}

template <typename Lane>
void launch_tuple_key(const TupleKeyIndexView& index, const NumberEvents& events,
                      const TupleKeyWork& work, const DeviceResults& results, void* stream) {
  constexpr std::uint32_t kFew = 5;
  if (events.cells != nullptr && events.n_cells <= kFew) {
    return launch_tuple_key<Lane, kFew>(index, events, work, results, stream);
  }
  launch_tuple_key<Lane, kTupleKeyMostAttributes>(index, events, work, results, stream);
}

void launch_tuple_key_match(const TupleKeyIndexView& index, const NumberEvents& events,
                            const TupleKeyWork& work, const DeviceResults& results, void* stream) {
  const auto with = [&]<typename Lane>(Lane) {
    launch_tuple_key<Lane>(index, events, work, results, stream);
  };
  if (index.lane_bytes == 1) return with(std::uint8_t{});
  if (index.lane_bytes == 2) return with(std::uint16_t{});
  with(std::uint32_t{});
}

}  // namespace tamis::cuda
