// The kernel of `tuple-key-cuda`, in which a block takes 256 events:
//
//     probe    a thread for each event: ranks, and every set of its attributes, whose hash is that
//              of its attributes, XORed; eight at a time in the bitmap; what is there is a task
//     test     a thread for each task: the records of its key
//     bring    pairs to pinned memory, side by side: the bus takes whole lines
//
// Events differ in how many keys are there, and keys in how many records: tasks of their own keep
// the threads of a warp busy alike. What is handed on from step to step lies in shared memory, so
// that a batch is one launch: each further one takes as long as thousands of events.
//
// What belongs to an event lies in registers: no index into it depends on data, and an attribute
// that is not there leaves its place empty.
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
      // Few are there. Their words are read again: code for each of the eight would be longer than
      // what a multiprocessor keeps of it.
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

template <bool kPacked, std::uint32_t kMost, typename Lane>
struct TupleKeyMatch {
  static constexpr std::uint32_t kThreads = kThreadsPerBlock, kEvents = kThreads;
  static constexpr std::uint32_t kBlocks =
      6;  // more threads at once are worth some spilled registers
  static constexpr std::uint32_t kMostTasks = 4 * kEvents;
  static constexpr std::uint32_t kAlways = ~std::uint32_t{0};  // a key: filters that need nothing
  struct Shared {
    RankedValue values[kMost][kEvents];
    tuple_key::FoundKey keys[kMostTasks];  // of tasks
    std::uint16_t events[kMostTasks];
    std::uint32_t n_tasks;
    BlockPairs<4 * kEvents> pairs;
  };
  static constexpr std::size_t kMostSharedBytes = sizeof(Shared);

  TupleKeyIndexView index;
  NumberEvents events;
  StraightResults results;

  enum Phase : std::uint32_t { kBegin, kProbe, kTest, kTakePlaces, kBring, kEnd };
  TAMIS_DEVICE bool is_over(std::uint32_t phase, const void*) const { return phase == kEnd; }

  TAMIS_DEVICE void run(std::uint32_t phase, void* memory) const {
    Shared& shared = *static_cast<Shared*>(memory);
    switch (phase) {
      case kBegin:
        if (threadIdx.x == 0) shared.n_tasks = 0;
        if (threadIdx.x == 0) shared.pairs.clear();
        return;
      case kProbe:
        return probe(shared);
      case kTest: {
        const std::uint32_t n_tasks = shared.n_tasks < kMostTasks ? shared.n_tasks : kMostTasks;
        for (std::uint32_t task = threadIdx.x; task < n_tasks; task += kThreads) {
          test(shared, shared.events[task], shared.keys[task]);
        }
        return;
      }
      case kTakePlaces:
        if (threadIdx.x == 0) shared.pairs.take_places(results);
        return;
      default:
        shared.pairs.bring(results);
    }
  }

  TAMIS_DEVICE void probe(Shared& shared) const {
    const std::uint32_t each = blockIdx.x * kEvents + threadIdx.x;
    if (each >= events.n_events) return;
    const std::uint32_t event = events.first_event + each;
    TupleKeyThread<kMost> thread;
    bool is_taken = true;
    const EventCells<kPacked, kMost> cells(events, event);
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      is_taken &= thread.set(index, at, cells.attributes[at], cells.values[at]);
      shared.values[at][threadIdx.x] = {thread.attributes[at], thread.ranks[at]};
    }
    TupleKeyFound found;
    if (is_taken && cells.n_cells <= kMost) {
      thread.for_each_key(index, [&](const tuple_key::FoundKey& key) { found.add(index, key); });
    }
    if (!is_taken || cells.n_cells > kMost || found.n_keys > kTupleKeyMostFound) {
      return leave(event, results);
    }
    const std::uint32_t n_always = index.always_end > 0;
    std::uint32_t task = reserve(&shared.n_tasks, found.n_keys + n_always);
    for (std::uint32_t at = 0; at < found.n_keys + n_always; ++at) {
      const tuple_key::FoundKey key =
          at < found.n_keys ? found.keys[at] : tuple_key::FoundKey{kAlways, 0};
      if (task < kMostTasks) {
        shared.keys[task] = key;
        shared.events[task++] = static_cast<std::uint16_t>(threadIdx.x);
      } else {  // there is no room: here, then
        test(shared, threadIdx.x, key);
      }
    }
  }

  // `which`: of the block's events.
  TAMIS_INLINE void test(Shared& shared, std::uint32_t which,
                         const tuple_key::FoundKey& key) const {
    const EventRanks<kMost, kEvents> ranks{shared.values, which};
    const std::uint32_t event = events.first_event + blockIdx.x * kEvents + which;
    tuple_key::Run run{0, index.always_end};
    if (key.key != kAlways) run = tuple_key::run_of(index.starts, index.start_mask, key);
    while (run.begin < run.end) {
      const RecordWords record(index.records + run.begin);
      if (ranks.template holds<Lane>(index.slots, record)) {
        shared.pairs.add({event | record.verify(), record.filter()}, results);
      }
      run.begin += 1 + static_cast<std::uint32_t>((record.n_lanes() * 3 * sizeof(Lane) + 7) / 8);
    }
  }
};

void launch_tuple_key_match(const TupleKeyIndexView& index, const NumberEvents& events,
                            const StraightResults& results, void* stream) {
  constexpr std::uint32_t kFew = 5, kMany = kTupleKeyMostAttributes;
  const auto start = [&](const auto& match) {
    launch_phases(match, blocks_for(events.n_events, match.kThreads), match.kMostSharedBytes,
                  stream);
  };
  const auto with = [&]<typename Lane>(Lane) {
    if (events.cells == nullptr) {
      return start(TupleKeyMatch<false, kMany, Lane>{index, events, results});
    }
    if (events.n_cells <= kFew) {
      return start(TupleKeyMatch<true, kFew, Lane>{index, events, results});
    }
    start(TupleKeyMatch<true, kMany, Lane>{index, events, results});
  };
  if (index.lane_bytes == 1) return with(std::uint8_t{});
  if (index.lane_bytes == 2) return with(std::uint16_t{});
  with(std::uint32_t{});
}

}  // namespace tamis::cuda
