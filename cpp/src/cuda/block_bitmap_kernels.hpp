// The kernels of `block-bitmap-cuda`.
//
//     clear     a thread for each event and attribute: "absent"
//     rank      eight threads for each event: ranks of its numbers, and rows of the summaries
//     columns   a thread for each event and tuple: cells in the order of the tuple's columns
//     find      a block of threads for each block of filters and some thousand events, in phases:
//                 visitors    events for which the summary leaves a word of the block
//                 lines       of the block to shared memory, once, if there are visitors
//                 candidates  four threads for each visitor: lines ANDed, 128 filters a thread
//                 hand over   what is left, to global memory
//     verify    a thread for each candidate: its record against the ranks of the event
//
// Shared memory has 32 banks of 4 bytes, and eight threads read 16 bytes each at a time: two
// visitors, a line each. The lines of even columns lie in the first half of the banks and those of
// odd columns in the second; of two visitors one begins with an even column, the other with an odd
// one. So they never wait for one another, whatever their cells are:
//
//     banks      0 ........ 15  16 ....... 31
//     cell 0     column 0       column 1
//     cell 1     column 0       column 1
//     …
//     cell 0     column 2       column 3
#pragma once

#include "block_bitmap_launch.hpp"
#include "launch.hpp"
#include "pairs_kernels.hpp"

namespace tamis::cuda {

inline constexpr std::uint32_t kBlockChunk =  // events that look for their blocks together
    kBlockEventsPerThread * kThreadsPerBlock;
inline constexpr std::uint32_t kRankThreads = 8;  // for an event

// Places behind a counter in shared memory for up to 31 items of each thread.
TAMIS_DEVICE inline std::uint32_t reserve_few(std::uint32_t* counter, std::uint32_t count) {
#ifdef __CUDA_ARCH__
  const unsigned here = __activemask();
  const unsigned lane = threadIdx.x % 32;
  std::uint32_t before = 0, total = 0;
  TAMIS_UNROLL for (std::uint32_t bit = 0; bit < 5; ++bit) {
    const unsigned having = __ballot_sync(here, count >> bit & 1);
    before += static_cast<std::uint32_t>(__popc(having & ((1u << lane) - 1))) << bit;
    total += static_cast<std::uint32_t>(__popc(having)) << bit;
  }
  const int leader = __ffs(static_cast<int>(here)) - 1;
  std::uint32_t first = 0;
  if (lane == static_cast<unsigned>(leader) && total > 0) first = atomicAdd(counter, total);
  return __shfl_sync(here, first, leader) + before;
#else
  return atomicAdd(counter, count);
#endif
}

TAMIS_DEVICE inline std::uint32_t lowest_bit(std::uint32_t bits) {
  return count_bits((bits & (0 - bits)) - 1);
}

__global__ void block_bitmap_clear(BlockBitmapIndexView index, std::uint32_t n_events,
                                   BlockBitmapWork work) {
  const std::uint32_t n_padded = block_events_padded(n_events);
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread < n_padded) work.is_left[thread] = 0;
  if (thread >= n_padded * index.n_attributes) return;
  work.ranks[thread] = index.scales[thread % index.n_attributes].absent;
  const std::uint32_t attribute = thread / n_padded;
  work.rows[std::size_t{attribute} * work.most_events + thread % n_padded] =
      block_bitmap::kSummaryCells;
}

__global__ void block_bitmap_rank(BlockBitmapIndexView index, NumberEvents events,
                                  BlockBitmapWork work, MatchResults results) {
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t each = thread / kRankThreads;
  if (each >= events.n_events) return;
  const std::uint32_t event = events.first_event + each;
  const std::uint32_t end = events.offsets[event + 1];
  for (std::uint32_t at = events.offsets[event] + thread % kRankThreads; at < end;
       at += kRankThreads) {
    const std::uint32_t attribute = events.attributes[at];
    const double value = events.values[at];
    if (attribute >= index.n_attributes) continue;
    const RankedAttribute& of = index.attributes[attribute];
    if ((of.flags & RankedAttribute::kUsed) == 0) continue;
    if ((of.flags & RankedAttribute::kHost) != 0) {
      if (atomicOr(work.is_left + each, 1u) == 0) {
        results.left[reserve(&results.counts->n_left, 1)] = event;
      }
      continue;
    }
    const std::uint32_t rank = of.cuts.rank(value, false);
    work.ranks[std::size_t{each} * index.n_attributes + attribute] = rank;
    work.rows[std::size_t{attribute} * work.most_events + each] =
        static_cast<std::uint8_t>(index.scales[attribute].row_of(rank));
  }
}

__global__ void block_bitmap_columns(BlockBitmapIndexView index, std::uint32_t n_events,
                                     BlockBitmapWork work) {
  const std::uint32_t each = blockIdx.x * blockDim.x + threadIdx.x;
  if (each >= n_events) return;
  const BlockTuple& tuple = index.tuples[blockIdx.y];
  const std::uint32_t* const columns = index.columns + tuple.first_column;
  ColumnCells cells;
  TAMIS_UNROLL for (std::uint32_t at = 0; at < block_bitmap::kMaxColumns; ++at) {
    if (at % 4 == 0) cells.words[at / 4] = 0;
    if (at >= tuple.n_columns) continue;
    const std::uint32_t row = work.rows[std::size_t{columns[at]} * work.most_events + each];
    cells.words[at / 4] |= block_bitmap::cell_of(row) << (at % 4 * 8);
  }
  work.columns[std::size_t{blockIdx.y} * work.most_events + each] = cells;
}

// Writes the pair if the record of the candidate holds. Four lanes are on their way at once.
TAMIS_DEVICE inline bool block_bitmap_holds(const BlockBitmapIndexView& index,
                                            const BlockBitmapWork& work,
                                            const BlockCandidate& candidate,
                                            std::uint32_t first_event, MatchPair& pair) {
  if (work.is_left[candidate.event] != 0) return false;
  const FilterBlock& block = index.blocks[candidate.place / kBlockFilters];
  const std::uint32_t* const record =
      index.records +
      (block.first_record + std::size_t{candidate.place % kBlockFilters} * block.record_stride) *
          block_bitmap::kPlaceWords;
  const std::uint32_t head = record[1], n_lanes = head & 0xFFFF;
  const auto* const slots = reinterpret_cast<const std::uint16_t*>(record + 2);
  const std::uint32_t* const lows = record + 2 + (n_lanes + 1) / 2;
  const std::uint32_t* const ranks = work.ranks + std::size_t{candidate.event} * index.n_attributes;
  for (std::uint32_t first = 0; first < n_lanes; first += 4) {
    bool holds = true;
    TAMIS_UNROLL for (std::uint32_t lane = first; lane < first + 4; ++lane) {
      if (lane < n_lanes) holds &= ranks[slots[lane]] - lows[lane] <= lows[n_lanes + lane];
    }
    if (!holds) return false;
  }
  const bool needs_table =
      (head & static_cast<std::uint32_t>(block_bitmap::kNeedsTable >> 32)) != 0;
  pair = {(first_event + candidate.event) | (needs_table ? MatchPair::kVerify : 0), record[0]};
  return true;
}

__global__ void block_bitmap_verify(BlockBitmapIndexView index, std::uint32_t first_event,
                                    BlockBitmapWork work, MatchResults results) {
  const std::uint64_t n_candidates =
      *work.n_candidates < work.most_candidates ? *work.n_candidates : work.most_candidates;
  PairOutput output;
  for (std::uint64_t at = blockIdx.x * blockDim.x + threadIdx.x; is_any_of_warp(at < n_candidates);
       at += gridDim.x * blockDim.x) {
    MatchPair pair{};
    const bool holds = at < n_candidates &&
                       block_bitmap_holds(index, work, work.candidates[at], first_event, pair);
    output.add(holds, pair, results);
  }
  output.finish(results);
}

struct BlockBitmapFind {
  BlockBitmapIndexView index;
  BlockBitmapWork work;
  MatchResults results;
  std::uint32_t first_event, n_events;
  std::uint32_t n_parts, chunks_of_part;  // of the events: each is a block of threads

  static constexpr std::uint32_t kMostKept = 1024;  // candidates
  struct alignas(16) Shared {
    std::uint64_t first_candidate;  // where those that are kept go
    std::uint32_t n_visitors, n_kept, has_lines;
    std::uint32_t kept[kMostKept];  // event << 9 | place in the block
    std::uint16_t visitors[kBlockChunk];
    BlockSummary summary;
    // Behind it: lines of two columns, cell by cell, for each two columns.
  };
  static_assert(kBlockFilters == 1 << 9 && kBlockMostEvents <= std::uint32_t{1} << (32 - 9));

  // With columns up to a multiple of four, whose lines are ones.
  static constexpr std::size_t n_shared_bytes(std::uint32_t most_columns) {
    return sizeof(Shared) +
           std::size_t{(most_columns + 3) / 4 * 4} * kBlockCells * kLineParts * sizeof(LinePart);
  }
  static constexpr std::size_t kMostSharedBytes =
      sizeof(Shared) +
      std::size_t{block_bitmap::kMaxColumns} * kBlockCells * kLineParts * sizeof(LinePart);

  enum Step : std::uint32_t { kVisitors, kLines, kCandidates, kReserve, kHandOver, kSteps };

  TAMIS_DEVICE std::uint32_t n_chunks() const {
    const std::uint32_t all = (n_events + kBlockChunk - 1) / kBlockChunk;
    const std::uint32_t first = blockIdx.x % n_parts * chunks_of_part;
    return all - first < chunks_of_part ? all - first : chunks_of_part;
  }
  TAMIS_DEVICE std::uint32_t n_phases() const { return 1 + n_chunks() * kSteps; }

  TAMIS_DEVICE void run(std::uint32_t phase, void* memory) const {
    Shared& shared = *static_cast<Shared*>(memory);
    const std::uint32_t block = blockIdx.x / n_parts;
    if (phase == 0) return begin(block, shared);
    const std::uint32_t chunk = (phase - 1) / kSteps;
    const std::uint32_t first = (blockIdx.x % n_parts * chunks_of_part + chunk) * kBlockChunk;
    const bool is_last = chunk + 1 == n_chunks();
    switch ((phase - 1) % kSteps) {
      case kVisitors:
        // Nobody counts candidates in this phase.
        if (threadIdx.x == 0 && hands_over(shared, false)) shared.n_kept = 0;
        return find_visitors(index.tuples[index.blocks[block].tuple], first, shared);
      case kLines:
        if (shared.n_visitors > 0 && shared.has_lines == 0) bring_lines(block, shared);
        return;
      case kCandidates:
        if (threadIdx.x == 0 && shared.n_visitors > 0) shared.has_lines = 1;
        return find_candidates(block, first, shared);
      case kReserve:
        if (threadIdx.x != 0) return;
        shared.n_visitors = 0;
        if (hands_over(shared, is_last)) {
          shared.first_candidate = reserve(work.n_candidates, n_to_hand_over(shared));
        }
        return;
      default:
        if (hands_over(shared, is_last)) hand_over(block, shared);
    }
  }

 private:
  TAMIS_DEVICE static LinePart* lines_of(Shared& shared) {
    return reinterpret_cast<LinePart*>(&shared + 1);
  }
  TAMIS_DEVICE static LinePart& line_part(LinePart* lines, std::uint32_t column, std::uint32_t cell,
                                          std::uint32_t part) {
    return lines[(column / 2 * kBlockCells + cell) * 2 * kLineParts + column % 2 * kLineParts +
                 part];
  }
  TAMIS_DEVICE static std::uint32_t n_to_hand_over(const Shared& shared) {
    return shared.n_kept < kMostKept ? shared.n_kept : kMostKept;
  }
  TAMIS_DEVICE static bool hands_over(const Shared& shared, bool is_last) {
    return shared.n_kept > (is_last ? 0 : kMostKept / 2);
  }

  TAMIS_DEVICE void begin(std::uint32_t block, Shared& shared) const {
    if (threadIdx.x == 0) shared.n_visitors = shared.n_kept = shared.has_lines = 0;
    const auto* const from = reinterpret_cast<const std::uint8_t*>(index.summaries + block);
    auto* const to = reinterpret_cast<std::uint8_t*>(&shared.summary);
    for (std::uint32_t at = threadIdx.x; at < sizeof(BlockSummary); at += blockDim.x) {
      to[at] = from[at];
    }
  }

  // A thread looks at some neighbours, whose rows are on their way at once.
  TAMIS_DEVICE void find_visitors(const BlockTuple& tuple, std::uint32_t first_of_chunk,
                                  Shared& shared) const {
    const std::uint32_t at = kBlockEventsPerThread * threadIdx.x, first = first_of_chunk + at;
    if (first >= n_events) return;
    LinePart rows[kBlockTupleSize] = {};
    static_assert(sizeof rows[0] == kBlockEventsPerThread);
    TAMIS_UNROLL for (std::uint32_t of = 0; of < kBlockTupleSize; ++of) {
      if (of >= tuple.n_attributes) continue;
      rows[of] = *reinterpret_cast<const LinePart*>(
          work.rows + std::size_t{tuple.attributes[of]} * work.most_events + first);
    }
    std::uint32_t visiting = 0;
    TAMIS_UNROLL for (std::uint32_t each = 0; each < kBlockEventsPerThread; ++each) {
      std::uint32_t words = 0xFF;
      TAMIS_UNROLL for (std::uint32_t of = 0; of < kBlockTupleSize; ++of) {
        words &= shared.summary.words[of][rows[of].words[each / 4] >> (each % 4 * 8) & 0xFF];
      }
      if (words != 0 && first + each < n_events) visiting |= 1u << each;
    }
    std::uint32_t place = reserve_few(&shared.n_visitors, count_bits(visiting));
    for (; visiting != 0; visiting &= visiting - 1) {
      shared.visitors[place++] = static_cast<std::uint16_t>(at + lowest_bit(visiting));
    }
  }

  TAMIS_DEVICE void bring_lines(std::uint32_t block, Shared& shared) const {
    constexpr std::uint32_t kAtOnce = 4;
    LinePart* const lines = lines_of(shared);
    const std::uint32_t n_columns = index.tuples[index.blocks[block].tuple].n_columns;
    const std::uint32_t n_all = n_columns * kBlockCells * kLineParts;
    const LinePart* const from = index.lines + index.blocks[block].first_line * kLineParts;
    for (std::uint32_t first = threadIdx.x; first < n_all; first += kAtOnce * blockDim.x) {
      LinePart parts[kAtOnce];
      TAMIS_UNROLL for (std::uint32_t each = 0; each < kAtOnce; ++each) {
        const std::uint32_t at = first + each * blockDim.x;
        if (at < n_all) parts[each] = from[at];
      }
      TAMIS_UNROLL for (std::uint32_t each = 0; each < kAtOnce; ++each) {
        const std::uint32_t at = first + each * blockDim.x;
        if (at >= n_all) continue;
        const std::uint32_t line = at / kLineParts;
        line_part(lines, line / kBlockCells, line % kBlockCells, at % kLineParts) = parts[each];
      }
    }
    const std::uint32_t n_padding = (4 - n_columns % 4) % 4;
    if (threadIdx.x < n_padding * kLineParts) {
      line_part(lines, n_columns + threadIdx.x / kLineParts, 0,
                threadIdx.x % kLineParts) = {{~0u, ~0u, ~0u, ~0u}};
    }
  }

  // The part of a line that has the bits of `n_filters`. Of blocks without columns: in lines, the
  // bits of filters that are not there are zero.
  TAMIS_DEVICE static LinePart first_filters(std::uint32_t n_filters, std::uint32_t part) {
    LinePart all;
    TAMIS_UNROLL for (std::uint32_t word = 0; word < 4; ++word) {
      const std::uint32_t before = (4 * part + word) * 32;
      const std::uint32_t n_bits = n_filters > before ? n_filters - before : 0;
      all.words[word] = n_bits >= 32 ? ~0u : (1u << n_bits) - 1;
    }
    return all;
  }

  TAMIS_DEVICE void find_candidates(std::uint32_t block, std::uint32_t first_of_chunk,
                                    Shared& shared) const {
    const FilterBlock& of = index.blocks[block];
    const std::uint32_t n_words = (index.tuples[of.tuple].n_columns + 3) / 4;
    const ColumnCells* const columns =
        work.columns + std::size_t{of.tuple} * work.most_events + first_of_chunk;
    const std::uint32_t part = threadIdx.x % kLineParts;
    const std::uint32_t is_odd = threadIdx.x / kLineParts % 2;  // begins with an odd column
    const LinePart* const lines = lines_of(shared) + part;
    const LinePart* const firsts = lines + is_odd * kLineParts;
    const LinePart* const seconds = lines + (1 - is_odd) * kLineParts;
    constexpr std::uint32_t kPair = 2 * kLineParts;  // from cell to cell of two columns
    const std::uint32_t n_visitors = shared.n_visitors;
    for (std::uint32_t at = threadIdx.x / kLineParts; at < n_visitors;
         at += blockDim.x / kLineParts) {
      const std::uint32_t visitor = shared.visitors[at];
      const ColumnCells cells = columns[visitor];
      LinePart left{{~0u, ~0u, ~0u, ~0u}};
      TAMIS_UNROLL for (std::uint32_t word = 0; word < block_bitmap::kMaxColumns / 4; ++word) {
        if (word >= n_words) break;
        std::uint32_t four = cells.words[word];
        if (is_odd != 0) four = (four & 0x00FF00FF) << 8 | (four >> 8 & 0x00FF00FF);
        const std::uint32_t pair = 2 * word * kBlockCells * kPair;
        const std::uint32_t next = pair + kBlockCells * kPair;
        const LinePart a = firsts[pair + (four & 0xFF) * kPair];
        const LinePart b = seconds[pair + (four >> 8 & 0xFF) * kPair];
        const LinePart c = firsts[next + (four >> 16 & 0xFF) * kPair];
        const LinePart d = seconds[next + (four >> 24) * kPair];
        std::uint32_t any = 0;
        TAMIS_UNROLL for (std::uint32_t each = 0; each < 4; ++each) {
          left.words[each] &= a.words[each] & b.words[each];
          left.words[each] &= c.words[each] & d.words[each];
          any |= left.words[each];
        }
        if (any == 0) break;
      }
      if (n_words == 0) left = first_filters(of.n_filters, part);
      // Few have any: one loop, and no index that depends on data.
      while ((left.words[0] | left.words[1] | left.words[2] | left.words[3]) != 0) {
        std::uint32_t place = 0;
        bool is_found = false;
        TAMIS_UNROLL for (std::uint32_t word = 0; word < 4; ++word) {
          if (is_found || left.words[word] == 0) continue;
          is_found = true;
          place = (4 * part + word) * 32 + lowest_bit(left.words[word]);
          left.words[word] &= left.words[word] - 1;
        }
        add(block, first_of_chunk + visitor, place, shared);
      }
    }
  }

  TAMIS_DEVICE void add(std::uint32_t block, std::uint32_t event, std::uint32_t in_block,
                        Shared& shared) const {
    const std::uint32_t at = atomicAdd(&shared.n_kept, 1u);
    if (at < kMostKept) {
      shared.kept[at] = event << 9 | in_block;
    } else {
      verify({event, block * kBlockFilters + in_block});
    }
  }
  TAMIS_DEVICE void hand_over(std::uint32_t block, const Shared& shared) const {
    const std::uint32_t n_all = n_to_hand_over(shared);
    for (std::uint32_t at = threadIdx.x; at < n_all; at += blockDim.x) {
      const BlockCandidate candidate{shared.kept[at] >> 9,
                                     block * kBlockFilters + shared.kept[at] % kBlockFilters};
      if (shared.first_candidate + at < work.most_candidates) {
        work.candidates[shared.first_candidate + at] = candidate;
      } else {
        verify(candidate);
      }
    }
  }
  // Where there is no room for it.
  TAMIS_DEVICE void verify(const BlockCandidate& candidate) const {
    MatchPair pair;
    if (!block_bitmap_holds(index, work, candidate, first_event, pair)) return;
    const std::uint64_t at = reserve(&results.counts->n_pairs, 1);
    if (at < results.most_pairs) results.pairs[at] = pair;
  }
};

void launch_block_bitmap_rank(const BlockBitmapIndexView& index, const NumberEvents& events,
                              const BlockBitmapWork& work, const MatchResults& results,
                              void* stream) {
  const std::size_t n_padded = block_events_padded(events.n_events);
  launch(block_bitmap_clear,
         blocks_for(n_padded * (index.n_attributes > 0 ? index.n_attributes : 1)), 1, stream, index,
         events.n_events, work);
  launch(block_bitmap_rank, blocks_for(std::size_t{kRankThreads} * events.n_events), 1, stream,
         index, events, work, results);
  launch(block_bitmap_columns, blocks_for(events.n_events), index.n_tuples, stream, index,
         events.n_events, work);
}

void launch_block_bitmap_find(const BlockBitmapIndexView& index, const NumberEvents& events,
                              const BlockBitmapWork& work, const MatchResults& results,
                              void* stream) {
  if (index.n_blocks == 0 || events.n_events == 0) return;
  // Several to each multiprocessor, of which some have more to do than others.
  constexpr std::uint32_t kMostWanted = 8192;
  const std::uint32_t n_chunks = (events.n_events + kBlockChunk - 1) / kBlockChunk;
  const std::uint32_t n_wanted = (kMostWanted + index.n_blocks - 1) / index.n_blocks;
  const std::uint32_t chunks_of_part = (n_chunks + n_wanted - 1) / n_wanted;
  const std::uint32_t n_parts = (n_chunks + chunks_of_part - 1) / chunks_of_part;
  const BlockBitmapFind find{index,           work,    results,       events.first_event,
                             events.n_events, n_parts, chunks_of_part};
  launch_phases(find, index.n_blocks * n_parts, BlockBitmapFind::n_shared_bytes(index.most_columns),
                stream);
}

void launch_block_bitmap_verify(const BlockBitmapIndexView& index, const NumberEvents& events,
                                const BlockBitmapWork& work, const MatchResults& results,
                                void* stream) {
  // Candidates are some for each event; what is more, threads take in turn.
  constexpr std::uint32_t kMostBlocks = 2048;
  const std::uint32_t n_blocks = blocks_for(std::size_t{16} * events.n_events);
  launch(block_bitmap_verify, n_blocks < kMostBlocks ? n_blocks : kMostBlocks, 1, stream, index,
         events.first_event, work, results);
}

}  // namespace tamis::cuda
