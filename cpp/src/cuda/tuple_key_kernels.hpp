// The kernels of `tuple-key-cuda`.
//
//     match    a thread for each event: ranks, and every set of its attributes, whose hash is that
//              of its attributes, XORed; eight at a time in the bitmap
//                the keys whose bit is set go to a queue of the warp; out of it each thread takes
//                one and looks up its run of records
//                records go to a second queue, out of which each thread tests one
//              Long runs become tasks
//     scan     a thread for each task: its records
//
// Events differ in how many keys are there, and keys in how many records: with the queues all
// threads of a warp are busy alike, and tasks keep few events with many records from having few
// threads. What belongs to an event lies in registers: no index into it depends on data, and an
// attribute that is not there leaves its place empty.
#pragma once

#include "engines/tuple_key/items.hpp"
#include "launch.hpp"
#include "pairs_kernels.hpp"
#include "ranked_kernels.hpp"
#include "tuple_key_launch.hpp"

namespace tamis::cuda {

// Empty where no filter has the key, or where the tag says that the bit is another key's.
TAMIS_DEVICE inline tuple_key::Run tuple_key_run(const TupleKeyIndexView& index,
                                                 std::uint32_t hash) {
  const std::uint32_t bit = hash >> index.shift;
  const tuple_key::KeyWord word = index.words[bit / 32];
  if ((word.bits >> (bit % 32) & 1) == 0) return {0, 0};
  const std::uint32_t below = (std::uint32_t{1} << (bit % 32)) - 1;
  return tuple_key::run_of(index.starts, index.start_mask,
                           {word.n_before + count_bits(word.bits & below), hash});
}

template <std::uint32_t kMost>
struct TupleKeyThread {
  static constexpr std::uint32_t kStep = 8;    // keys that are probed together
  static constexpr std::uint32_t kChunk = 32;  // keys that are pushed together
  std::uint32_t attributes[kMost];
  std::uint32_t ranks[kMost];
  std::uint32_t hashes[kMost];
  std::uint32_t terms = 0;  // places of attributes that some filter needs

  // False: the host must take the event.
  TAMIS_DEVICE bool set(const TupleKeyIndexView& index, std::uint32_t place,
                        std::uint32_t attribute, double value) {
    attributes[place] = RankedValue::kNone;
    ranks[place] = 0;
    hashes[place] = tuple_key::presence_hash(~place);  // of no attribute
    if (attribute >= index.n_attributes) return true;
    const RankedAttribute of = index.attributes[attribute];
    if ((of.flags & RankedAttribute::kUsed) == 0) return true;
    attributes[place] = attribute;
    ranks[place] = of.cuts.rank(value, false);
    if ((of.flags & RankedAttribute::kTerm) != 0) {
      hashes[place] = of.hash;
      terms |= std::uint32_t{1} << place;
    }
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

  // Of the keys from `first`, those whose bit is set, as bits.
  TAMIS_DEVICE std::uint32_t found(const TupleKeyIndexView& index, std::uint32_t first) const {
    std::uint32_t all = 0;
    TAMIS_UNROLL for (std::uint32_t step = 0; step < kChunk; step += kStep) {
      if (((first + step) & ~terms) != 0) continue;
      const std::uint32_t high = hash_of(first + step);
      std::uint32_t words[kStep];  // all on their way at once
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) {
        words[at] = 0;
        if (is_key(index, first + step + at)) {
          words[at] = index.words[(high ^ hash_of(at)) >> index.shift >> 5].bits;
        }
      }
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) {
        all |= (words[at] >> ((high ^ hash_of(at)) >> index.shift & 31) & 1) << (step + at);
      }
    }
    return all;
  }

  // May two of its keys have the same bit? Then what they differ in has the hash of the first bit.
  TAMIS_DEVICE bool may_repeat(const TupleKeyIndexView& index) const {
    std::uint32_t least = ~std::uint32_t{0};
    for (std::uint32_t first = 0; first <= terms; first += kStep) {
      const std::uint32_t high = hash_of(first);
      TAMIS_UNROLL for (std::uint32_t at = 0; at < kStep; ++at) {
        const std::uint32_t hash = first + at == 0 ? ~std::uint32_t{0} : high ^ hash_of(at);
        least = hash < least ? hash : least;
      }
    }
    return least >> index.shift == 0;
  }
  // Has one of the keys before this one the same run? Its records are tested once.
  TAMIS_DEVICE bool is_repeated(const TupleKeyIndexView& index, std::uint32_t places) const {
    const std::uint32_t bit = hash_of(places) >> index.shift;
    for (std::uint32_t before = 0; before < places; ++before) {
      if (!is_key(index, before) || hash_of(before) >> index.shift != bit) continue;
      const tuple_key::Run run = tuple_key_run(index, hash_of(before));
      if (run.begin < run.end) return true;
    }
    return false;
  }
};

template <std::uint32_t kMost>
struct TupleKeyEvent {
  RankedValue values[kMost];
};

// Of an event, which is that of a thread of the block.
struct alignas(8) TupleKeyHash {
  std::uint32_t thread, hash;
};
struct alignas(8) TupleKeyRecord {
  std::uint32_t thread, at;
};

// What the threads of a warp found, on its way to be looked up, tested and written. All call
// everything together.
template <typename Lane, std::uint32_t kMost>
struct TupleKeyTests {
  const TupleKeyIndexView& index;
  const TupleKeyWork& work;
  const MatchResults& results;
  std::uint32_t first_each, first_event;  // of the block, in the launch and in the call
  OfThreads<TupleKeyEvent<kMost>> events;
  WarpQueue<TupleKeyHash, 1> keys;
  WarpQueue<TupleKeyRecord, 1> records;
  PairOutput pairs;

  TAMIS_DEVICE TupleKeyTests(const TupleKeyIndexView& of, const TupleKeyWork& with,
                             const MatchResults& to, std::uint32_t each, std::uint32_t event)
      : index(of), work(with), results(to), first_each(each), first_event(event) {}

  TAMIS_DEVICE void add_key(bool is_one, std::uint32_t hash) {
    keys.push(is_one, {threadIdx.x, hash});
    look_up(false);
  }
  TAMIS_DEVICE void add_run(std::uint32_t thread, tuple_key::Run run) {
    if (run.end - run.begin > kTupleKeyLongRun) {
      const std::uint64_t task = reserve(work.n_tasks, 1);
      if (task < work.most_tasks) {
        work.tasks[task] = {first_each + thread, run.begin, run.end};
      } else {
        reserve(&results.counts->n_lost, 1);
      }
      run = {0, 0};
    }
    while (is_any_of_warp(run.begin < run.end)) {
      const bool is_one = run.begin < run.end;
      records.push(is_one, {thread, run.begin});
      // Where the next one begins is known only when this one has been read; mostly there is none.
      if (run.end - run.begin < 2 * index.least_record) {
        run.begin = run.end;
      } else if (is_one) {
        run.begin += RecordWords::size_of<Lane>(index.records[run.begin]);
      }
      test(false);
    }
  }
  TAMIS_DEVICE void finish() {
    look_up(true);
    test(true);
    pairs.finish(results);
  }

 private:
  TAMIS_DEVICE void look_up(bool is_last) {
    keys.take(is_last, [&](const TupleKeyHash& key, bool is_one) {
      add_run(key.thread, is_one ? tuple_key_run(index, key.hash) : tuple_key::Run{0, 0});
    });
  }
  TAMIS_DEVICE void test(bool is_last) {
    records.take(is_last, [&](const TupleKeyRecord& of, bool is_one) {
      MatchPair pair{};
      if (is_one) {
        const RecordWords record(index.records + of.at);
        is_one =
            EventRanks<kMost>(events[of.thread].values).template holds<Lane>(index.slots, record);
        pair = record.pair_of(first_event + of.thread);
      }
      pairs.add(is_one, pair, results);
    });
  }
};

// Of a multiprocessor: so many that what threads read is under way for many, and not so many that
// what belongs to an event no longer fits registers.
constexpr std::uint32_t tuple_key_blocks(std::uint32_t most_attributes) {
  return most_attributes <= PackedCells::kCells ? 4 : 3;
}

template <bool kPacked, typename Lane, std::uint32_t kMost>
__global__ void __launch_bounds__(kThreadsPerBlock, tuple_key_blocks(kMost))
    tuple_key_match(TupleKeyIndexView index, NumberEvents events, TupleKeyWork work,
                    MatchResults results) {
  const std::uint32_t first = blockIdx.x * blockDim.x, each = first + threadIdx.x;
  TupleKeyTests<Lane, kMost> tests(index, work, results, first, events.first_event + first);
  TupleKeyThread<kMost> thread;
  bool is_taken = each < events.n_events;
  if (is_taken) {
    const std::uint32_t event = events.first_event + each;
    const EventCells<kPacked, kMost> cells(events, event);
    is_taken = cells.n_cells <= kMost;
    TAMIS_UNROLL for (std::uint32_t at = 0; at < kMost; ++at) {
      is_taken &= thread.set(index, at, cells.attributes[at], cells.values[at]);
      const RankedValue value{thread.attributes[at], thread.ranks[at]};
      tests.events[threadIdx.x].values[at] = value;
      if (index.has_long_runs != 0) {
        work.values[std::size_t{each} * kTupleKeyMostAttributes + at] = value;
      }
    }
    if (!is_taken) results.left[reserve(&results.counts->n_left, 1)] = event;
  }
  if (!is_taken) thread.terms = 0;
  tests.events.wait();
  const bool may_repeat = is_taken && thread.may_repeat(index);
  for (std::uint32_t chunk = 0; is_any_of_warp(is_taken && chunk <= thread.terms);
       chunk += TupleKeyThread<kMost>::kChunk) {
    std::uint32_t found = 0;
    if (is_taken && (chunk & ~thread.terms) == 0) found = thread.found(index, chunk);
    while (is_any_of_warp(found != 0)) {
      const std::uint32_t places = chunk + count_bits((found & (~found + 1)) - 1);
      const bool is_one = found != 0 && !(may_repeat && thread.is_repeated(index, places));
      tests.add_key(is_one, thread.hash_of(places));
      found &= found - 1;
    }
  }
  if (index.always_end > 0) {
    tests.add_run(threadIdx.x, {0, is_taken ? index.always_end : 0});
  }
  tests.finish();
}

template <typename Lane, std::uint32_t kMost>
__global__ void tuple_key_scan(TupleKeyIndexView index, std::uint32_t first_event,
                               TupleKeyWork work, MatchResults results) {
  const std::uint64_t n_found = *work.n_tasks;
  const std::uint64_t n_tasks = n_found < work.most_tasks ? n_found : work.most_tasks;
  PairOutput pairs;
  for (std::uint64_t at = blockIdx.x * blockDim.x + threadIdx.x; is_any_of_warp(at < n_tasks);
       at += gridDim.x * blockDim.x) {
    TupleKeyTask task{0, 0, 0};
    EventRanks<kMost> ranks;
    if (at < n_tasks) {
      task = work.tasks[at];
      ranks = EventRanks<kMost>(work.values + std::size_t{task.event} * kTupleKeyMostAttributes);
    }
    while (is_any_of_warp(task.begin < task.end)) {
      bool holds = false;
      MatchPair pair{};
      if (task.begin < task.end) {
        const RecordWords record(index.records + task.begin);
        holds = ranks.template holds<Lane>(index.slots, record);
        pair = record.pair_of(first_event + task.event);
        task.begin += RecordWords::size_of<Lane>(record.head);
      }
      pairs.add(holds, pair, results);
    }
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
