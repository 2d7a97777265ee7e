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
#include "tuple_key_launch.hpp"

namespace tamis::cuda {

// Places for `count` more behind a counter, one atomic operation for all threads of a warp that
// are here together.
TAMIS_DEVICE inline std::uint64_t reserve(std::uint64_t* counter, std::uint32_t count) {
  auto* const number = reinterpret_cast<unsigned long long*>(counter);
#ifdef __CUDA_ARCH__
  const unsigned here = __activemask();
  const unsigned lane = threadIdx.x % 32;
  std::uint32_t before = 0, total = 0;
  for (unsigned rest = here; rest != 0; rest &= rest - 1) {
    const int from = __ffs(static_cast<int>(rest)) - 1;
    const std::uint32_t of_lane = __shfl_sync(here, count, from);
    if (static_cast<unsigned>(from) < lane) before += of_lane;
    total += of_lane;
  }
  const int leader = __ffs(static_cast<int>(here)) - 1;
  unsigned long long first = 0;
  if (lane == static_cast<unsigned>(leader)) first = atomicAdd(number, total);
  return __shfl_sync(here, first, leader) + before;
#else
  return atomicAdd(number, count);
#endif
}

template <std::uint32_t kMost>
struct TupleKeyThread {
  static constexpr std::uint32_t kStep = 8;  // keys that are probed together
  static constexpr std::uint32_t kNoAttribute = ~std::uint32_t{0};
  std::uint32_t attributes[kMost];
  std::uint32_t ranks[kMost];
  std::uint32_t hashes[kMost];
  std::uint32_t terms = 0;  // places of attributes that some filter needs

  // False: the host must take the event.
  TAMIS_DEVICE bool set(const TupleKeyIndexView& index, std::uint32_t place,
                        std::uint32_t attribute, double value) {
    attributes[place] = kNoAttribute;
    ranks[place] = hashes[place] = 0;
    if (attribute >= index.n_attributes) return true;
    const TupleKeyAttribute& of = index.attributes[attribute];
    if ((of.flags & TupleKeyAttribute::kUsed) == 0) return true;
    attributes[place] = attribute;
    ranks[place] = of.cuts.rank(value, false);
    hashes[place] = of.hash;
    if ((of.flags & TupleKeyAttribute::kTerm) != 0) terms |= std::uint32_t{1} << place;
    return (of.flags & TupleKeyAttribute::kHost) == 0;
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

// The ranks of an event, for its tasks.
template <std::uint32_t kMost>
struct TupleKeyRanks {
  TupleKeyWork::Place places[kMost];

  TAMIS_DEVICE std::uint32_t rank_of(const TupleKeySlot& slot) const {
    std::uint32_t rank = slot.preset;
    const std::uint32_t attribute = slot.attribute & ~TupleKeySlot::kStrings;
    const bool is_string = attribute != slot.attribute;
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      if (places[at].attribute == attribute)
        rank = is_string ? tuple_key::kNoRank : places[at].rank;
    }
    return rank;
  }

  template <typename Lane>
  TAMIS_DEVICE bool holds(const TupleKeyIndexView& index, const std::uint64_t* record,
                          std::uint32_t n_lanes) const {
    constexpr std::uint32_t kNegated = std::uint32_t{1} << (8 * sizeof(Lane) - 1);
    const Lane* slots = reinterpret_cast<const Lane*>(record + 1);
    for (std::uint32_t lane = 0; lane < n_lanes; ++lane) {
      const std::uint32_t rank = rank_of(index.slots[slots[lane] & (kNegated - 1)]);
      if (!tuple_key::lane_holds(rank, slots[n_lanes + lane], slots[2 * n_lanes + lane],
                                 (slots[lane] & kNegated) != 0)) {
        return false;
      }
    }
    return true;
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

// The pairs of a thread on their way out.
struct TupleKeyOutput {
  static constexpr std::uint32_t kMost = 4;
  TupleKeyPair pairs[kMost] = {};
  std::uint32_t n_pairs = 0;

  TAMIS_DEVICE void add(const TupleKeyPair& pair, const TupleKeyResults& results) {
    if (n_pairs == kMost) flush(results);
    pairs[n_pairs++] = pair;
  }
  TAMIS_DEVICE void flush(const TupleKeyResults& results) {
    const std::uint64_t first = reserve(&results.counts->n_pairs, n_pairs);
    for (std::uint32_t at = 0; at < n_pairs; ++at) {
      if (first + at < results.most_pairs) results.pairs[first + at] = pairs[at];
    }
    n_pairs = 0;
  }
};

template <bool kPacked, std::uint32_t kMost>
__global__ void tuple_key_probe(TupleKeyIndexView index, TupleKeyEvents events, TupleKeyWork work,
                                TupleKeyResults results) {
  const std::uint32_t each = blockIdx.x * blockDim.x + threadIdx.x;
  if (each >= events.n_events) return;
  const std::uint32_t event = events.first_event + each;
  TupleKeyThread<kMost> thread;
  bool is_taken = true;
  const std::uint32_t begin = kPacked ? 0 : events.offsets[event];
  const std::uint32_t n_cells = kPacked ? events.n_cells : events.offsets[event + 1] - begin;
  std::uint32_t attributes[kMost];
  double values[kMost];
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {  // all on their way at once
    attributes[at] = thread.kNoAttribute;
    values[at] = 0;
    if (at >= n_cells) continue;
    if constexpr (kPacked) {
      const std::uint32_t cell = events.cells[std::size_t{at} * events.stride + event];
      if (cell != TupleKeyEvents::kNoCell) attributes[at] = cell >> 16;
      values[at] = static_cast<std::int16_t>(cell & 0xFFFF);
    } else {
      attributes[at] = events.attributes[begin + at];
      values[at] = events.values[begin + at];
    }
  }
  TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
    is_taken &= thread.set(index, at, attributes[at], values[at]);
    work.places[std::size_t{at} * work.most_events + each] = {thread.attributes[at],
                                                              thread.ranks[at]};
  }
  TupleKeyFound found;
  if (is_taken && n_cells <= kMost) {
    thread.for_each_key(index, [&](const tuple_key::FoundKey& key) { found.add(index, key); });
  }
  if (!is_taken || n_cells > kMost || found.n_keys > kTupleKeyMostFound) {
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
                               TupleKeyWork work, TupleKeyResults results) {
  const std::uint64_t n_tasks = *work.n_tasks;
  TupleKeyOutput output;
  for (std::uint64_t task = blockIdx.x * blockDim.x + threadIdx.x; task < n_tasks;
       task += gridDim.x * blockDim.x) {
    const std::uint32_t each = work.events[task], key = work.keys[task];
    TupleKeyRanks<kMost> ranks;
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      ranks.places[at] = work.places[std::size_t{at} * work.most_events + each];
    }
    tuple_key::Run run{0, index.always_end};
    if (key != TupleKeyWork::kAlways) {
      run = tuple_key::run_of(index.starts, index.start_mask, {key, work.hashes[task]});
    }
    while (run.begin < run.end) {
      const std::uint64_t* const record = index.records + run.begin;
      const std::uint64_t head = *record;
      const auto n_lanes = static_cast<std::uint32_t>(head >> 32) & 0xFFFF;
      if (ranks.template holds<Lane>(index, record, n_lanes)) {
        const std::uint32_t verify = (head >> 48 & 1) != 0 ? TupleKeyPair::kVerify : 0;
        output.add({(first_event + each) | verify, static_cast<std::uint32_t>(head)}, results);
      }
      run.begin += 1 + static_cast<std::uint32_t>((n_lanes * 3 * sizeof(Lane) + 7) / 8);
    }
  }
  if (output.n_pairs > 0) output.flush(results);
}

__global__ void tuple_key_bring(TupleKeyResults from, TupleKeyPinned to, TupleKeyCounts* brought) {
  const std::uint32_t n_threads = gridDim.x * blockDim.x;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const TupleKeyCounts counts = *from.counts;
  if (thread == 0) *to.counts = brought[1] = counts;
  const std::uint64_t end = counts.n_pairs < from.most_pairs ? counts.n_pairs : from.most_pairs;
  for (std::uint64_t at = brought[0].n_pairs + thread; at < end; at += n_threads) {
    to.pairs[at] = from.pairs[at];
  }
  for (std::uint64_t at = brought[0].n_left + thread; at < counts.n_left; at += n_threads) {
    to.left[at] = from.left[at];
  }
}

template <typename Lane, std::uint32_t kMost>
void launch_tuple_key(const TupleKeyIndexView& index, const TupleKeyEvents& events,
                      const TupleKeyWork& work, const TupleKeyResults& results, void* stream) {
  launch(events.cells != nullptr ? tuple_key_probe<true, kMost> : tuple_key_probe<false, kMost>,
         blocks_for(events.n_events), 1, stream, index, events, work, results);
  // Tasks are some for each event; what is more, threads take in turn.
  constexpr std::uint32_t kMostBlocks = 2048;
  const std::uint32_t n_blocks = blocks_for(std::size_t{2} * events.n_events);
  launch(tuple_key_test<Lane, kMost>, n_blocks < kMostBlocks ? n_blocks : kMostBlocks, 1, stream,
         index, events.first_event, work, results);
}

template <typename Lane>
void launch_tuple_key(const TupleKeyIndexView& index, const TupleKeyEvents& events,
                      const TupleKeyWork& work, const TupleKeyResults& results, void* stream) {
  constexpr std::uint32_t kFew = 5;
  if (events.cells != nullptr && events.n_cells <= kFew) {
    return launch_tuple_key<Lane, kFew>(index, events, work, results, stream);
  }
  launch_tuple_key<Lane, kTupleKeyMostAttributes>(index, events, work, results, stream);
}

void launch_tuple_key_match(const TupleKeyIndexView& index, const TupleKeyEvents& events,
                            const TupleKeyWork& work, const TupleKeyResults& results,
                            void* stream) {
  const auto with = [&]<typename Lane>(Lane) {
    launch_tuple_key<Lane>(index, events, work, results, stream);
  };
  if (index.lane_bytes == 1) return with(std::uint8_t{});
  if (index.lane_bytes == 2) return with(std::uint16_t{});
  with(std::uint32_t{});
}

void launch_tuple_key_bring(const TupleKeyResults& from, const TupleKeyPinned& to,
                            TupleKeyCounts* brought, void* stream) {
  constexpr std::uint32_t kBlocks = 64;  // enough to fill the bus
  launch(tuple_key_bring, kBlocks, 1, stream, from, to, brought);
}

}  // namespace tamis::cuda
