// Matches events by the lines of lines_index.hpp.
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "lines_index.hpp"

namespace tamis::block_bitmap {
namespace {

// Fewer events than this go one by one: nothing would be shared.
constexpr std::size_t kMinBlockMajor = 8;
constexpr std::size_t kMaxPending = std::size_t{1} << 22;
// Blocks of one event whose lines are fetched ahead, to the second cache: the first one can wait
// for some 24 lines at a time, and an event of hem-default then took 37 us instead of 25.
constexpr std::size_t kPrefetchBlocks = 8;
// Events that visit a block, from which on all of its lines are worth to be fetched beforehand.
constexpr std::size_t kMinStream = 32;
// Columns of a block of one event that are fetched beforehand. Few blocks need more than these, but
// to wait for those few took a fifth of the time: their further lines are asked for when it turns
// out, and read so many blocks later.
constexpr std::size_t kFirstColumns = 16, kWaitingBlocks = 8;
// While filters are added: the runs whose targets are fetched, those that are fetched themselves,
// and the filters of one event whose targets are.
constexpr std::size_t kRunsAhead = 4, kRunsFarAhead = 16, kTargetsAhead = 16;
// Candidates whose records are fetched together: of many events, and those of one event that wait
// until the older half is verified. Fewer where each may be the last one that is needed, and no
// more than the second cache keeps beside lines.
constexpr std::size_t kFetchedOfTile = 48, kMinWaiting = 32, kMaxWaiting = 256;
// As many filters for a target, and settled targets save more than block by block does.
constexpr std::size_t kFiltersPerTarget = 64;

// Which of the eight bytes have a bit?
inline std::uint8_t bytes_with_bits(std::uint64_t word) {
  constexpr std::uint64_t kLow = 0x7F7F'7F7F'7F7F'7F7F;
  const std::uint64_t highs = (((word & kLow) + kLow) | word) & ~kLow;
  return static_cast<std::uint8_t>((highs >> 7) * 0x0102'0408'1020'4080 >> 56);
}

}  // namespace

// Nobody can foresee which words of a row have bits: the blocks to visit are gathered for 64 at a
// time, so that only the end of their loop is guessed wrong.
template <typename Visit>
void LinesIndex::summarize(const Tuple& tuple, const std::uint8_t* rows, Tally& tally,
                           Visit visit) const {
  const std::size_t n_words = words_of(tuple);
  const std::uint64_t* row_of_attribute[kMaxTupleSize];
  for (std::uint32_t at = 0; at < tuple.n_attributes; ++at) {
    const std::size_t row = rows[tuple.attributes[at]];
    if (row == kSummaryCells) return;  // the filters of a tuple need its attributes
    row_of_attribute[at] = summaries_.data() + tuple.first_summary + (at * kRows + row) * n_words;
  }
  tally.words += tuple.n_attributes * n_words;
  for (std::size_t first = 0; first < n_words; first += 8) {
    std::uint64_t bits[8];
    std::uint64_t blocks = 0;
    const std::size_t n_here = std::min<std::size_t>(8, n_words - first);
    for (std::size_t word = 0; word < n_here; ++word) {
      bits[word] = ~std::uint64_t{0};
      for (std::uint32_t at = 0; at < tuple.n_attributes; ++at) {
        bits[word] &= row_of_attribute[at][first + word];
      }
      blocks |= std::uint64_t{bytes_with_bits(bits[word])} << (8 * word);
    }
    const std::size_t n_blocks = tuple.n_blocks - 8 * first;
    if (n_blocks < 64) blocks &= (std::uint64_t{1} << n_blocks) - 1;
    for (; blocks != 0; blocks &= blocks - 1) {
      const auto block = static_cast<std::uint32_t>(std::countr_zero(blocks));
      visit(tuple.first_block + static_cast<std::uint32_t>(8 * first) + block,
            static_cast<std::uint8_t>(bits[block / 8] >> (block % 8 * 8)));
    }
  }
}

// Few bits of a line are left, in words that nobody can foresee: words without any are dropped and
// bits counted first, so that only the end of the loop is guessed wrong.
void LinesIndex::add_places(std::uint32_t block, const Line& left,
                            std::vector<std::uint32_t>& to) const {
  const BlockRecords& records = block_records_[block];
  std::uint64_t words[std::size(Line{}.words) + 1];
  std::uint32_t firsts[std::size(Line{}.words) + 1];
  std::size_t n_words = 0, n_bits = 0;
  for (std::uint32_t word = 0; word < std::size(left.words); ++word) {
    words[n_words] = left.words[word];
    firsts[n_words] = records.place_of(64 * word);
    n_words += left.words[word] != 0;
    n_bits += static_cast<std::size_t>(std::popcount(left.words[word]));
  }
  words[n_words] = 0;
  firsts[n_words] = 0;
  const std::size_t n_before = to.size();
  to.resize(n_before + n_bits);
  std::uint32_t* places = to.data() + n_before;
  std::size_t word = 0;
  std::uint64_t bits = words[0];
  for (std::size_t at = 0; at < n_bits; ++at) {
    places[at] = firsts[word] + static_cast<std::uint32_t>(std::countr_zero(bits)) * records.stride;
    bits &= bits - 1;
    word += bits == 0;
    bits = bits == 0 ? words[word] : bits;
  }
}

void LinesIndex::load(const EventBatch& events, std::size_t begin, std::size_t end,
                      LinesScratch& scratch) const {
  const std::size_t n_attributes = table_->n_attributes();
  if (scratch.rows.size() < (end - begin) * n_attributes) {
    scratch.rows.resize((end - begin) * n_attributes, kSummaryCells);
    scratch.cells.resize((end - begin) * n_attributes, kLineCells);
  }
  scratch.events.load(
      ranks_, n_attributes, events, begin, end, [&](std::size_t place, std::uint32_t rank) {
        const std::uint32_t row = row_of(static_cast<AttributeId>(place % n_attributes), rank);
        scratch.rows[place] = static_cast<std::uint8_t>(row);
        scratch.cells[place] = static_cast<std::uint8_t>(cell_of(row));
      });
}

// Of the candidates whose records were asked for, the first n_places.
void LinesIndex::verify(const EventBatch& events, std::size_t event, std::size_t in_tile,
                        std::size_t n_places, bool& is_loaded, LinesScratch& scratch,
                        Collector& out, Tally& tally) const {
  const std::size_t n_heads = find_records(std::span(scratch.places).first(n_places),
                                           scratch.events.of(in_tile), simd(), scratch, tally);
  const auto filter_at = [&](std::size_t at) { return static_cast<FilterIdx>(scratch.heads[at]); };
  for (std::size_t at = 0; at < std::min(kTargetsAhead, n_heads); ++at) out.prefetch(filter_at(at));
  for (std::size_t at = 0; at < n_heads; ++at) {
    if (at + kTargetsAhead < n_heads) out.prefetch(filter_at(at + kTargetsAhead));
    if (scratch.heads[at] & kNeedsTable) {
      if (out.has(filter_at(at))) continue;
      if (!is_loaded) {
        scratch.event.load(events, event, table_->n_attributes(), table_->space());
        is_loaded = true;
      }
      if (!table_->accepts(filter_at(at), scratch.event)) continue;
    }
    out.add(filter_at(at));
  }
  scratch.places.erase(scratch.places.begin(),
                       scratch.places.begin() + static_cast<std::ptrdiff_t>(n_places));
}

void LinesIndex::match_one(const EventBatch& events, std::size_t event, std::size_t in_tile,
                           LinesScratch& scratch, Collector& out, Tally& tally) const {
  const SimdKernels& kernels = simd();
  const std::size_t n_attributes = table_->n_attributes();
  const std::uint8_t* cells = scratch.cells.data() + in_tile * n_attributes;
  scratch.visits.clear();
  scratch.line_places.resize(std::max(scratch.line_places.size(), tuples_.size() * kMaxColumns));
  const std::uint8_t* rows = scratch.rows.data() + in_tile * n_attributes;
  for (const Tuple& tuple : tuples_.span()) prefetch_summary(tuple, rows);
  for (std::uint16_t at = 0; at < tuples_.size(); ++at) {
    const std::size_t n_before = scratch.visits.size();
    summarize(tuples_[at], rows, tally, [&](std::uint32_t block, std::uint8_t words) {
      scratch.visits.push_back({block, at, words});
    });
    if (scratch.visits.size() == n_before) continue;
    find_places(tuples_[at], cells, scratch.line_places.data() + at * kMaxColumns);
  }
  const auto prefetch = [&](const LinesScratch::Visit& visit, std::size_t first, std::size_t last) {
    const Tuple& tuple = tuples_[visit.tuple];
    const Line* lines = lines_of(tuple, visit.block);
    const std::uint16_t* places = scratch.line_places.data() + visit.tuple * kMaxColumns;
    const std::size_t end = std::min<std::size_t>(tuple.n_columns, last);
    for (std::size_t at = first; at < end; ++at) prefetch_line_far(lines + places[at]);
  };
  const std::size_t n_visits = scratch.visits.size();
  for (std::size_t at = 0; at < std::min(kPrefetchBlocks, n_visits); ++at) {
    prefetch(scratch.visits[at], 0, kFirstColumns);
  }
  const std::size_t n_waiting = out.can_repeat() ? kMinWaiting : kMaxWaiting;
  bool is_loaded = false;
  // False: all targets are settled.
  const auto take = [&](std::uint32_t block, const Line& left) {
    const std::size_t n_before = scratch.places.size();
    add_places(block, left, scratch.places);
    prefetch_records(std::span<const std::uint32_t>(scratch.places).subspan(n_before));
    if (scratch.places.size() < n_waiting) return true;
    verify(events, event, in_tile, scratch.places.size() - n_waiting / 2, is_loaded, scratch, out,
           tally);
    if (!out.can_repeat() || !out.has_all()) return true;
    scratch.places.clear();
    return false;
  };
  struct Waiting {
    LinesScratch::Visit visit;
    Line left;
  };
  std::array<Waiting, kWaitingBlocks> waiting;  // the n-th at n % kWaitingBlocks
  std::size_t n_begun = 0, n_ended = 0;
  const auto finish_next = [&] {
    Waiting& next = waiting[n_ended++ % kWaitingBlocks];
    const LinesScratch::Visit& visit = next.visit;
    return !find_left_further(tuples_[visit.tuple], visit.block, visit.words,
                              scratch.line_places.data() + visit.tuple * kMaxColumns, kFirstColumns,
                              kernels, next.left, tally) ||
           take(visit.block, next.left);
  };
  for (std::size_t at = 0; at < n_visits; ++at) {
    if (at + kPrefetchBlocks < n_visits) {
      prefetch(scratch.visits[at + kPrefetchBlocks], 0, kFirstColumns);
    }
    const LinesScratch::Visit& visit = scratch.visits[at];
    const Tuple& tuple = tuples_[visit.tuple];
    if (n_begun - n_ended == kWaitingBlocks && !finish_next()) return;
    Waiting& next = waiting[n_begun % kWaitingBlocks];
    if (!find_left(
            tuple, visit.block, visit.words, scratch.line_places.data() + visit.tuple * kMaxColumns,
            std::min<std::size_t>(tuple.n_columns, kFirstColumns), kernels, next.left, tally)) {
      continue;
    }
    if (tuple.n_columns <= kFirstColumns) {
      if (!take(visit.block, next.left)) return;
      continue;
    }
    prefetch(visit, kFirstColumns, tuple.n_columns);
    next.visit = visit;
    ++n_begun;
  }
  while (n_ended < n_begun) {
    if (!finish_next()) return;
  }
  verify(events, event, in_tile, scratch.places.size(), is_loaded, scratch, out, tally);
}

// Which events visit each block of the tuple, and where their lines lie there.
void LinesIndex::find_visitors(std::uint16_t at_tuple, std::size_t n_events, LinesScratch& scratch,
                               Tally& tally) const {
  const Tuple& tuple = tuples_[at_tuple];
  const std::size_t n_attributes = table_->n_attributes();
  scratch.visits.clear();
  scratch.visit_ends.assign(tuple.n_blocks + 1, 0);
  for (std::size_t event = 0; event < n_events; ++event) {
    const std::size_t n_before = scratch.visits.size();
    summarize(tuple, scratch.rows.data() + event * n_attributes, tally,
              [&](std::uint32_t block, std::uint8_t words) {
                scratch.visits.push_back({block - tuple.first_block, at_tuple, words});
                ++scratch.visit_ends[block - tuple.first_block + 1];
              });
    scratch.run_ends[event] = static_cast<std::uint32_t>(scratch.visits.size());
    if (scratch.visits.size() == n_before) continue;
    find_places(tuple, scratch.cells.data() + event * n_attributes,
                scratch.line_places.data() + event * kMaxColumns);
  }
  std::partial_sum(scratch.visit_ends.begin(), scratch.visit_ends.end(),
                   scratch.visit_ends.begin());
  scratch.visitors.resize(scratch.visits.size());
  for (std::size_t event = 0, at = 0; event < n_events; ++event) {
    for (; at < scratch.run_ends[event]; ++at) {
      const LinesScratch::Visit& visit = scratch.visits[at];
      scratch.visitors[scratch.visit_ends[visit.block]++] = {static_cast<std::uint16_t>(event),
                                                             visit.words};
    }
  }
  scratch.n_most_visits = std::max(scratch.n_most_visits, scratch.visits.size());
}

// Verifies the candidates whose records were asked for some time ago; what is being fetched now
// takes their place.
void LinesIndex::verify_fetched(LinesScratch& scratch, Tally& tally) const {
  for (const LinesScratch::Run& of : scratch.fetched.runs) {
    const std::size_t n_heads =
        find_records(std::span(scratch.fetched.places).subspan(of.begin, of.end - of.begin),
                     scratch.events.of(of.event), simd(), scratch, tally);
    if (n_heads == 0) continue;
    LinesScratch::Run run{of.event, static_cast<std::uint32_t>(scratch.found.size()), 0};
    for (std::size_t each = 0; each < n_heads; ++each) {
      const auto filter = static_cast<FilterIdx>(scratch.heads[each]);
      if (scratch.heads[each] & kNeedsTable) {
        scratch.open.push_back({of.event, filter});
      } else {
        scratch.found.push_back(filter);
      }
    }
    run.end = static_cast<std::uint32_t>(scratch.found.size());
    scratch.runs.push_back(run);
  }
  scratch.fetched.clear();
  std::swap(scratch.fetched, scratch.fetching);
}

void LinesIndex::match_tile(const EventBatch& events, std::size_t begin, std::size_t end,
                            LinesScratch& scratch, Collector& out, Tally& tally) const {
  const SimdKernels& kernels = simd();
  const std::size_t n_attributes = table_->n_attributes();
  const std::size_t n_events = end - begin;
  scratch.n_most_visits = 0;
  scratch.fetched.clear();  // a call that failed may have left some
  scratch.fetching.clear();
  scratch.found.clear();
  scratch.runs.clear();
  scratch.open.clear();
  scratch.run_ends.assign(n_events + 1, 0);
  scratch.line_places.resize(std::max(scratch.line_places.size(), n_events * kMaxColumns));
  Line left;
  for (std::uint16_t at_tuple = 0; at_tuple < tuples_.size(); ++at_tuple) {
    const Tuple& tuple = tuples_[at_tuple];
    find_visitors(at_tuple, n_events, scratch, tally);
    std::uint32_t first = 0;
    for (std::uint32_t at_block = 0; at_block < tuple.n_blocks; ++at_block) {
      const std::uint32_t block = tuple.first_block + at_block;
      const std::uint32_t last = scratch.visit_ends[at_block];  // where the next block's begin
      // Events touch the lines of a block in no order, which the machine cannot foresee: the next
      // block's are asked for, some with each event, while this one's are read.
      const Line* ahead = nullptr;
      std::size_t n_left = 0;
      if (at_block + 1 < tuple.n_blocks && scratch.visit_ends[at_block + 1] - last >= kMinStream) {
        ahead = lines_of(tuple, block + 1);
        n_left = tuple.n_columns * kCells;
      }
      const std::size_t n_ahead = n_left / (last - first + 1) + 1;
      for (std::uint32_t at = first; at < last; ++at) {
        for (std::size_t each = 0; each < n_ahead && n_left > 0; ++each, --n_left) {
          prefetch_line_far(ahead++);
        }
        const std::uint32_t event = scratch.visitors[at].event;
        if (!find_left(tuple, block, scratch.visitors[at].words,
                       scratch.line_places.data() + event * kMaxColumns, tuple.n_columns, kernels,
                       left, tally)) {
          continue;
        }
        LinesScratch::Candidates& candidates = scratch.fetching;
        const auto n_before = static_cast<std::uint32_t>(candidates.places.size());
        add_places(block, left, candidates.places);
        const auto n_places = static_cast<std::uint32_t>(candidates.places.size());
        prefetch_records(std::span(candidates.places).subspan(n_before));
        candidates.runs.push_back({event, n_before, n_places});
        if (n_places >= kFetchedOfTile) verify_fetched(scratch, tally);
      }
      first = last;
    }
  }
  verify_fetched(scratch, tally);
  verify_fetched(scratch, tally);

  // By event.
  scratch.run_ends.assign(n_events + 1, 0);
  for (const LinesScratch::Run& run : scratch.runs) ++scratch.run_ends[run.event + 1];
  std::partial_sum(scratch.run_ends.begin(), scratch.run_ends.end(), scratch.run_ends.begin());
  scratch.by_event.resize(scratch.runs.size());
  for (const LinesScratch::Run& run : scratch.runs) {
    scratch.by_event[scratch.run_ends[run.event]++] = run;
  }
  std::stable_sort(scratch.open.begin(), scratch.open.end(),
                   [](const auto& a, const auto& b) { return a.event < b.event; });
  auto open = scratch.open.begin();
  for (std::size_t event = 0, at = 0; event < n_events; ++event) {
    out.begin_event();
    for (; at < scratch.run_ends[event]; ++at) {
      const LinesScratch::Run& run = scratch.by_event[at];
      for (std::uint32_t each = run.begin; each < run.end; ++each) out.add(scratch.found[each]);
      if (at + kRunsFarAhead < scratch.by_event.size()) {
        prefetch_line(scratch.found.data() + scratch.by_event[at + kRunsFarAhead].begin);
      }
      if (at + kRunsAhead >= scratch.run_ends[event]) continue;
      const LinesScratch::Run& ahead = scratch.by_event[at + kRunsAhead];
      for (std::uint32_t each = ahead.begin; each < ahead.end; ++each) {
        out.prefetch(scratch.found[each]);
      }
    }
    bool is_loaded = false;
    for (; open != scratch.open.end() && open->event == event; ++open) {
      if (out.has(open->filter)) continue;
      if (!is_loaded) {
        scratch.event.load(events, begin + event, n_attributes, table_->space());
        is_loaded = true;
      }
      if (table_->accepts(open->filter, scratch.event)) out.add(open->filter);
    }
  }
}

void LinesIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                       Scratch& any_scratch, Collector& out) const {
  auto& scratch = static_cast<LinesScratch&>(any_scratch);
  const std::size_t max_tile = RankedEvents::max_tile(table_->n_attributes());
  const bool exits_early =
      out.can_repeat() && out.n_reachable() * kFiltersPerTarget <= table_->size();
  Tally tally;
  while (begin < end) {
    const std::size_t tile_end = begin + std::min({end - begin, scratch.tile, max_tile});
    load(events, begin, tile_end, scratch);
    if (tile_end - begin < kMinBlockMajor || exits_early) {
      for (std::size_t event = begin; event < tile_end; ++event) {
        out.begin_event();
        match_one(events, event, event - begin, scratch, out, tally);
      }
    } else {
      match_tile(events, begin, tile_end, scratch, out, tally);
      const std::size_t n_most =
          std::max({scratch.found.size(), 2 * scratch.open.size(), scratch.n_most_visits / 4});
      if (n_most > kMaxPending) {
        scratch.tile = std::max(kMinBlockMajor, scratch.tile / 4);
        // A tile that took too much is not to stay in memory.
        scratch.found = {};
        scratch.open = {};
        scratch.by_event = {};
      } else if (n_most < kMaxPending / 4 && tile_end - begin == scratch.tile) {
        scratch.tile = std::min(kMaxTile, 4 * scratch.tile);
      }
    }
    scratch.events.clear(ranks_, [&](std::size_t place) {
      scratch.rows[place] = kSummaryCells;
      scratch.cells[place] = kLineCells;
    });
    begin = tile_end;
  }
  out.counters.filters += tally.filters;
  out.counters.nodes += tally.blocks;
  out.counters.cells += tally.lines;
  out.counters.bits += tally.words + 8 * tally.lines;
  out.counters.candidates += tally.candidates;
}

}  // namespace tamis::block_bitmap
