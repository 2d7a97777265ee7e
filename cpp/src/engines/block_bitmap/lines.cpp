// Blocks of 512 filters that lie close in some tuple of attributes; for each attribute of a block
// and each cell of its ranks a line of bits: the filters that may match an event in that cell.
//
//     tuple (a3, a7, a12)      3 x 129 rows of bits over its blocks: which of them can match at all
//       │                        row(a3, cell) & row(a7, cell) & row(a12, cell) ──► blocks to visit
//       └─ block                 512 filters, neighbours by k-d split
//            columns             attributes, the most selective first
//            lines               for each column 32 cells and "absent", 64 bytes each
//                                  line(a12) & line(a5) & line(a3) & … ──► candidates
//            tests               for each filter its intervals of ranks: attribute, low, length
//
// A candidate is verified by its tests, or on the filter table where ranks do not say all
// (several intervals, patterns, areas, residuals).
//
// Many events go block by block: first all of them through the summaries, then each block with all
// events that visit it, so that its lines come to the cache once. What they find is put in order of
// events afterwards.
//
// Invariants: a filter stands in one block; the bits behind the last filter of a block are zero in
// all of its lines; a line has the bit of every filter that accepts some rank of the cell.
#include "lines.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "common/huge_pages.hpp"
#include "common/simd.hpp"
#include "ranked_events.hpp"
#include "tamis/error.hpp"

namespace tamis::block_bitmap {
namespace {

constexpr std::size_t kCells = kLineCells + 1;
constexpr std::size_t kRows = kSummaryCells + 1;
// Of the filters of a block, one in so many must constrain an attribute for it to have lines there:
// lines of an attribute take 4 bytes a filter.
constexpr std::size_t kRareShare = 16;
// Fewer events than this go one by one: nothing would be shared.
constexpr std::size_t kMinBlockMajor = 8;
constexpr std::size_t kMaxPending = std::size_t{1} << 22;
constexpr std::size_t kPrefetchBlocks = 5;
constexpr std::size_t kPrefetchColumns = 8;
constexpr std::size_t kPrefetchTests = 8;
// As many filters for a target, and settled targets save more than block by block does.
constexpr std::size_t kFiltersPerTarget = 64;

struct Test {  // accepts ranks from `low` on, `n_ranks` of them
  AttributeId attribute = 0;
  std::uint32_t low = 0, n_ranks = 0;
};

struct Block {
  std::uint64_t first_line = 0;
  std::uint32_t first_column = 0;
  std::uint16_t n_columns = 0, n_filters = 0;
};

struct Pending {  // a filter that matches an event of the tile, or is still to be verified
  std::uint32_t event = 0;
  FilterIdx filter = 0;
  bool needs_table = false;
};

class LinesScratch final : public Scratch {
 public:
  RankedEvents events;
  std::vector<std::uint8_t> rows, cells;  // [tile][n_attributes] of the summaries and of the lines
  ValueByAttribute event;
  std::vector<std::uint32_t> visits;      // blocks
  std::vector<std::uint32_t> places;      // candidates
  std::vector<std::uint64_t> visited;     // [tile][words of a tuple]
  std::vector<std::uint32_t> visit_ends;  // [n_blocks + 1]
  std::vector<std::uint16_t> visitors;    // events, by block
  std::vector<Pending> pending, by_event;
  std::vector<std::uint32_t> pending_ends;
  std::size_t tile = 64;  // grows while what is pending stays small
};

class LinesIndex final : public Index {
 public:
  LinesIndex(std::shared_ptr<const FilterTable> table, Ranks ranks)
      : table_(std::move(table)), ranks_(std::move(ranks)) {
    scales_.resize(table_->n_attributes());
    for (std::size_t attribute = 0; attribute < scales_.size(); ++attribute) {
      // At least 6; a damaged file is found out before it is used, but after this.
      const std::uint64_t n_ranks =
          std::max(1u, ranks_.n_ranks(static_cast<AttributeId>(attribute)));
      scales_[attribute] = {(std::uint64_t{kSummaryCells} << 32) / n_ranks,
                            static_cast<std::uint32_t>(n_ranks - 1)};
    }
  }

  void build(std::size_t tuple_size);
  void open(const SectionReader& sections);
  void save(SectionWriter& sections) const override;
  std::size_t n_bytes() const override;
  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<LinesScratch>();
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;

 private:
  struct Scale {
    std::uint64_t factor = 0;
    std::uint32_t absent = 0;
  };
  struct Tally {
    std::uint64_t lines = 0, words = 0, blocks = 0, candidates = 0;
  };

  // Cells of ranks, in order; "absent" has the last one to itself.
  std::size_t row_of(AttributeId attribute, std::uint32_t rank) const {
    const Scale& scale = scales_[attribute];
    return rank == scale.absent ? kSummaryCells : (rank * scale.factor) >> 32;
  }
  static std::size_t cell_of(std::size_t row) { return row / 4; }
  static std::size_t words_of(const Tuple& tuple) { return (tuple.n_blocks + 63) / 64; }

  template <typename Visit, typename Of>
  static void for_each_column(Visit visit, Of& index) {
    visit("tuples", index.tuples_);
    visit("summaries", index.summaries_);
    visit("blocks", index.blocks_);
    visit("columns", index.columns_);
    visit("lines", index.lines_);
    visit("needs_table", index.needs_table_);
    visit("filter_of", index.filter_of_);
    visit("test_begins", index.test_begins_);
    visit("tests", index.tests_);
  }

  void build_block(std::span<const FilterIdx> filters, const Tuple& tuple, RankedFilter& ranked);
  void build_summary(Tuple& tuple);

  bool passes(std::size_t place, const std::uint32_t* ranks) const {
    for (std::uint32_t at = test_begins_[place]; at < test_begins_[place + 1]; ++at) {
      const Test& test = tests_[at];
      if (ranks[test.attribute] - test.low >= test.n_ranks) return false;
    }
    return true;
  }
  bool find_left(std::uint32_t block_idx, const std::uint8_t* cells, const SimdKernels& kernels,
                 Line& left, Tally& tally) const {
    const Block& block = blocks_[block_idx];
    ++tally.blocks;
    if (block.n_columns == 0) {
      left = Line::first(block.n_filters);
      return true;
    }
    return kernels.and_lines(lines_[block.first_line].words, columns_.data() + block.first_column,
                             block.n_columns, cells, kCells, left.words, &tally.lines);
  }
  // Calls visit(words, first block) with the blocks of each tuple that the event must visit.
  template <typename Visit>
  void summarize(const std::uint8_t* rows, Tally& tally, Visit visit) const;
  template <typename Visit>
  static void for_each_place(std::uint32_t block, const Line& left, Visit visit);

  void load(const EventBatch& events, std::size_t begin, std::size_t end,
            LinesScratch& scratch) const;
  void match_one(const EventBatch& events, std::size_t event, std::size_t in_tile,
                 LinesScratch& scratch, Collector& out, Tally& tally) const;
  void verify(const EventBatch& events, std::size_t event, std::size_t in_tile, bool& is_loaded,
              LinesScratch& scratch, Collector& out, Tally& tally) const;
  void match_tile(const EventBatch& events, std::size_t begin, std::size_t end,
                  LinesScratch& scratch, Collector& out, Tally& tally) const;

  std::shared_ptr<const FilterTable> table_;
  Ranks ranks_;
  std::vector<Scale> scales_;  // [n_attributes]
  Column<Tuple> tuples_;
  Column<std::uint64_t> summaries_;  // of each tuple: [n_attributes][kRows][words]
  Column<Block> blocks_;
  Column<AttributeId> columns_;        // of each block
  Column<Line> lines_;                 // of each column: [kCells]
  Column<Line> needs_table_;           // [n_blocks] filters that tests do not decide
  Column<FilterIdx> filter_of_;        // [n_blocks * kLineBits]
  Column<std::uint32_t> test_begins_;  // [n_blocks * kLineBits + 1]
  Column<Test> tests_;
};

void LinesIndex::build(std::size_t tuple_size) {
  Arrangement arrangement = arrange(*table_, ranks_, tuple_size);
  RankedFilter ranked(*table_, ranks_);
  test_begins_.push_back(0);
  std::size_t n_blocks = 0;
  for (Tuple& tuple : arrangement.tuples) {
    for (; n_blocks < tuple.first_block + tuple.n_blocks; ++n_blocks) {
      build_block(
          {arrangement.filter_of.data() + n_blocks * kLineBits, arrangement.n_filters_of[n_blocks]},
          tuple, ranked);
    }
    build_summary(tuple);
  }
  tuples_ = std::move(arrangement.tuples);
  filter_of_ = std::move(arrangement.filter_of);
  filter_of_.shrink();
  lines_ = on_huge_pages(lines_);
  tests_ = on_huge_pages(tests_);
  test_begins_.shrink();
}

void LinesIndex::build_block(std::span<const FilterIdx> filters, const Tuple& tuple,
                             RankedFilter& ranked) {
  // Which cells each filter accepts, by attribute.
  struct Accepted {
    AttributeId attribute;
    std::uint16_t filter;
    std::uint64_t cells;  // bit kLineCells: absent
  };
  static_assert(kCells <= 64);
  std::vector<Accepted> accepted;
  Line needs_table;
  for (std::size_t each = 0; each < filters.size(); ++each) {
    ranked.load(filters[each]);
    bool is_simple = !ranked.needs_table();
    for (const RankedFilter::Part& part : ranked.parts()) {
      Accepted entry{part.attribute, static_cast<std::uint16_t>(each), 0};
      for (const RankInterval& interval : part.accepted) {
        const std::size_t first = cell_of(row_of(part.attribute, interval.low));
        const std::size_t last = cell_of(row_of(part.attribute, interval.high - 1));
        entry.cells |= (~std::uint64_t{0} >> (63 - last)) & (~std::uint64_t{0} << first);
      }
      accepted.push_back(entry);
      is_simple &= part.accepted.size() == 1;
      if (part.accepted.size() == 1) {
        const RankInterval& only = part.accepted.front();
        tests_.push_back({part.attribute, only.low, only.high - only.low});
      }
    }
    if (!is_simple) needs_table.set(each);
    test_begins_.push_back(static_cast<std::uint32_t>(tests_.size()));
  }
  for (std::size_t each = filters.size(); each < kLineBits; ++each) {
    test_begins_.push_back(static_cast<std::uint32_t>(tests_.size()));
  }
  needs_table_.push_back(needs_table);

  std::stable_sort(accepted.begin(), accepted.end(),
                   [](const Accepted& a, const Accepted& b) { return a.attribute < b.attribute; });
  struct Candidate {
    std::size_t begin, end;  // in `accepted`
    std::uint64_t n_bits;    // over all cells: fewer are more selective
    bool is_of_tuple;
  };
  std::vector<Candidate> candidates;
  for (std::size_t begin = 0, end = 0; begin < accepted.size(); begin = end) {
    Candidate candidate{begin, begin, 0, false};
    for (; end < accepted.size() && accepted[end].attribute == accepted[begin].attribute; ++end) {
      candidate.n_bits += static_cast<std::uint64_t>(std::popcount(accepted[end].cells));
    }
    candidate.end = end;
    candidate.n_bits += (filters.size() - (end - begin)) * kCells;
    const AttributeId* last = tuple.attributes + tuple.n_attributes;
    candidate.is_of_tuple = std::find(tuple.attributes, last, accepted[begin].attribute) != last;
    if (candidate.is_of_tuple || (end - begin) * kRareShare >= filters.size()) {
      candidates.push_back(candidate);
    }
  }
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    return a.n_bits != b.n_bits ? a.n_bits < b.n_bits : a.begin < b.begin;
  });
  // The tuple's attributes have lines in any case: the summaries are made from them.
  for (std::size_t at = candidates.size(); at > 0 && candidates.size() > kMaxColumns; --at) {
    if (!candidates[at - 1].is_of_tuple) {
      candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(at - 1));
    }
  }

  Block block;
  block.first_line = lines_.size();
  block.first_column = static_cast<std::uint32_t>(columns_.size());
  block.n_columns = static_cast<std::uint16_t>(candidates.size());
  block.n_filters = static_cast<std::uint16_t>(filters.size());
  blocks_.push_back(block);
  const Line everybody = Line::first(filters.size());
  for (const Candidate& candidate : candidates) {
    columns_.push_back(accepted[candidate.begin].attribute);
    std::array<Line, kCells> lines{};
    Line others = everybody;
    for (std::size_t at = candidate.begin; at < candidate.end; ++at) {
      const Accepted& entry = accepted[at];
      others.flip(entry.filter);
      for (std::uint64_t cells = entry.cells; cells != 0; cells &= cells - 1) {
        lines[static_cast<std::size_t>(std::countr_zero(cells))].set(entry.filter);
      }
    }
    for (Line& line : lines) {
      for (std::size_t word = 0; word < std::size(line.words); ++word) {
        line.words[word] |= others.words[word];
      }
    }
    lines_.append(lines);
  }
}

// From exact intervals and not from lines: a row is four times as fine.
void LinesIndex::build_summary(Tuple& tuple) {
  tuple.first_summary = summaries_.size();
  const std::size_t n_words = words_of(tuple);
  std::vector<std::uint64_t> rows(tuple.n_attributes * kRows * n_words);
  for (std::uint32_t block = 0; block < tuple.n_blocks; ++block) {
    const std::size_t first_place = (tuple.first_block + block) * kLineBits;
    for (std::uint32_t at = 0; at < tuple.n_attributes; ++at) {
      std::uint64_t* row = rows.data() + at * kRows * n_words + block / 64;
      const std::uint64_t bit = std::uint64_t{1} << (block % 64);
      const Block& of = blocks_[tuple.first_block + block];
      bool is_found = false;
      std::size_t lowest = kSummaryCells, highest = 0;
      for (std::size_t place = first_place; place < first_place + of.n_filters; ++place) {
        is_found = false;
        for (std::uint32_t test = test_begins_[place]; test < test_begins_[place + 1]; ++test) {
          if (tests_[test].attribute != tuple.attributes[at]) continue;
          const std::uint32_t low = tests_[test].low;
          lowest = std::min(lowest, row_of(tuple.attributes[at], low));
          highest =
              std::max(highest, row_of(tuple.attributes[at], low + (tests_[test].n_ranks - 1)));
          is_found = true;
        }
        if (!is_found) break;
      }
      if (is_found) {
        for (std::size_t cell = lowest; cell <= highest; ++cell) row[cell * n_words] |= bit;
        continue;
      }
      // Some filter accepts several intervals: as the lines say.
      const AttributeId* columns = columns_.data() + of.first_column;
      const AttributeId* column = std::find(columns, columns + of.n_columns, tuple.attributes[at]);
      if (column == columns + of.n_columns) {  // a constraint that accepts nothing at all
        for (std::size_t cell = 0; cell < kRows; ++cell) row[cell * n_words] |= bit;
        continue;
      }
      const Line* lines =
          lines_.data() + of.first_line + static_cast<std::size_t>(column - columns) * kCells;
      for (std::size_t cell = 0; cell < kRows; ++cell) {
        if (!lines[cell_of(cell)].is_empty()) row[cell * n_words] |= bit;
      }
    }
  }
  summaries_.append(rows);
}

template <typename Visit>
void LinesIndex::summarize(const std::uint8_t* rows, Tally& tally, Visit visit) const {
  for (const Tuple& tuple : tuples_) {
    const std::size_t n_words = words_of(tuple);
    const std::uint64_t* row_of_attribute[kMaxTupleSize];
    bool is_there = true;
    for (std::uint32_t at = 0; at < tuple.n_attributes; ++at) {
      const std::size_t row = rows[tuple.attributes[at]];
      is_there &= row != kSummaryCells;
      row_of_attribute[at] = summaries_.data() + tuple.first_summary + (at * kRows + row) * n_words;
    }
    if (!is_there) continue;  // the filters of a tuple need its attributes
    tally.words += tuple.n_attributes * n_words;
    for (std::size_t word = 0; word < n_words; ++word) {
      const std::size_t n_left = tuple.n_blocks - 64 * word;
      std::uint64_t bits = n_left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n_left) - 1;
      for (std::uint32_t at = 0; at < tuple.n_attributes; ++at) bits &= row_of_attribute[at][word];
      for (; bits != 0; bits &= bits - 1) {
        visit(tuple.first_block + static_cast<std::uint32_t>(
                                      64 * word + static_cast<unsigned>(std::countr_zero(bits))));
      }
    }
  }
}

template <typename Visit>
void LinesIndex::for_each_place(std::uint32_t block, const Line& left, Visit visit) {
  for (std::size_t word = 0; word < std::size(left.words); ++word) {
    for (std::uint64_t bits = left.words[word]; bits != 0; bits &= bits - 1) {
      visit(static_cast<std::uint32_t>(block * kLineBits + 64 * word +
                                       static_cast<unsigned>(std::countr_zero(bits))));
    }
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
        const std::size_t row = row_of(static_cast<AttributeId>(place % n_attributes), rank);
        scratch.rows[place] = static_cast<std::uint8_t>(row);
        scratch.cells[place] = static_cast<std::uint8_t>(cell_of(row));
      });
}

void LinesIndex::verify(const EventBatch& events, std::size_t event, std::size_t in_tile,
                        bool& is_loaded, LinesScratch& scratch, Collector& out,
                        Tally& tally) const {
  const std::uint32_t* ranks = scratch.events.of(in_tile);
  const std::size_t n_places = scratch.places.size();
  tally.candidates += n_places;
  for (std::size_t at = 0; at < n_places; ++at) {
    if (at + kPrefetchTests < n_places) {
      __builtin_prefetch(tests_.data() + test_begins_[scratch.places[at + kPrefetchTests]]);
    }
    const std::uint32_t place = scratch.places[at];
    const FilterIdx idx = filter_of_[place];
    if (out.has(idx)) continue;
    bool is_match = false;
    if (needs_table_[place / kLineBits].has(place % kLineBits)) {
      if (!is_loaded) {
        scratch.event.load(events, event, table_->n_attributes(), table_->space());
        is_loaded = true;
      }
      is_match = table_->accepts(idx, scratch.event);
    } else {
      is_match = passes(place, ranks);
    }
    if (is_match) out.add(idx);
  }
  scratch.places.clear();
}

void LinesIndex::match_one(const EventBatch& events, std::size_t event, std::size_t in_tile,
                           LinesScratch& scratch, Collector& out, Tally& tally) const {
  const SimdKernels& kernels = simd();
  const std::size_t n_attributes = table_->n_attributes();
  const std::uint8_t* cells = scratch.cells.data() + in_tile * n_attributes;
  scratch.visits.clear();
  summarize(scratch.rows.data() + in_tile * n_attributes, tally,
            [&](std::uint32_t block) { scratch.visits.push_back(block); });
  const auto prefetch = [&](std::uint32_t block_idx) {
    const Block& block = blocks_[block_idx];
    const AttributeId* columns = columns_.data() + block.first_column;
    const std::size_t n_columns = std::min<std::size_t>(block.n_columns, kPrefetchColumns);
    for (std::size_t at = 0; at < n_columns; ++at) {
      __builtin_prefetch(lines_.data() + block.first_line + at * kCells + cells[columns[at]]);
    }
  };
  const std::size_t n_visits = scratch.visits.size();
  bool is_loaded = false;
  Line left;
  for (std::size_t at = 0; at < n_visits; ++at) {
    if (at + kPrefetchBlocks < n_visits) prefetch(scratch.visits[at + kPrefetchBlocks]);
    if (!find_left(scratch.visits[at], cells, kernels, left, tally)) continue;
    for_each_place(scratch.visits[at], left, [&](std::uint32_t place) {
      __builtin_prefetch(test_begins_.data() + place);
      scratch.places.push_back(place);
    });
    if (out.can_repeat()) {
      verify(events, event, in_tile, is_loaded, scratch, out, tally);
      if (out.has_all()) return;
    }
  }
  verify(events, event, in_tile, is_loaded, scratch, out, tally);
}

void LinesIndex::match_tile(const EventBatch& events, std::size_t begin, std::size_t end,
                            LinesScratch& scratch, Collector& out, Tally& tally) const {
  const SimdKernels& kernels = simd();
  const std::size_t n_attributes = table_->n_attributes();
  const std::size_t n_events = end - begin;
  // Which events visit each block: counted, then filled in.
  scratch.visits.clear();
  scratch.pending_ends.assign(n_events + 1, 0);
  scratch.visit_ends.assign(blocks_.size() + 1, 0);
  for (std::size_t event = 0; event < n_events; ++event) {
    summarize(scratch.rows.data() + event * n_attributes, tally, [&](std::uint32_t block) {
      scratch.visits.push_back(block);
      ++scratch.visit_ends[block + 1];
    });
    scratch.pending_ends[event] = static_cast<std::uint32_t>(scratch.visits.size());
  }
  std::partial_sum(scratch.visit_ends.begin(), scratch.visit_ends.end(),
                   scratch.visit_ends.begin());
  scratch.visitors.resize(scratch.visits.size());
  for (std::size_t event = 0, at = 0; event < n_events; ++event) {
    for (; at < scratch.pending_ends[event]; ++at) {
      scratch.visitors[scratch.visit_ends[scratch.visits[at]]++] =
          static_cast<std::uint16_t>(event);
    }
  }

  scratch.pending.clear();
  Line left;
  std::uint32_t first = 0;
  for (std::uint32_t block = 0; block < blocks_.size(); ++block) {
    const std::uint32_t last = scratch.visit_ends[block];  // where the next block's begin
    for (std::uint32_t at = first; at < last; ++at) {
      const std::uint32_t event = scratch.visitors[at];
      if (!find_left(block, scratch.cells.data() + event * n_attributes, kernels, left, tally)) {
        continue;
      }
      const std::uint32_t* ranks = scratch.events.of(event);
      for_each_place(block, left, [&](std::uint32_t place) {
        ++tally.candidates;
        const bool needs_table = needs_table_[block].has(place % kLineBits);
        if (needs_table || passes(place, ranks)) {
          scratch.pending.push_back({event, filter_of_[place], needs_table});
        }
      });
    }
    first = last;
  }

  // By event.
  scratch.pending_ends.assign(n_events + 1, 0);
  for (const Pending& each : scratch.pending) ++scratch.pending_ends[each.event + 1];
  std::partial_sum(scratch.pending_ends.begin(), scratch.pending_ends.end(),
                   scratch.pending_ends.begin());
  scratch.by_event.resize(scratch.pending.size());
  for (const Pending& each : scratch.pending) {
    scratch.by_event[scratch.pending_ends[each.event]++] = each;
  }
  for (std::size_t event = 0, at = 0; event < n_events; ++event) {
    out.begin_event();
    bool is_loaded = false;
    for (; at < scratch.pending_ends[event]; ++at) {
      const Pending& each = scratch.by_event[at];
      if (each.needs_table) {
        if (out.has(each.filter)) continue;
        if (!is_loaded) {
          scratch.event.load(events, begin + event, n_attributes, table_->space());
          is_loaded = true;
        }
        if (!table_->accepts(each.filter, scratch.event)) continue;
      }
      out.add(each.filter);
    }
  }
}

void LinesIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                       Scratch& any_scratch, Collector& out) const {
  auto& scratch = static_cast<LinesScratch&>(any_scratch);
  const std::size_t max_tile = RankedEvents::max_tile(table_->n_attributes());
  const bool exits_early =
      out.can_repeat() && out.n_targets() * kFiltersPerTarget <= table_->size();
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
      const std::size_t n_most = std::max(scratch.pending.size(), scratch.visits.size() / 4);
      if (n_most > kMaxPending) {
        scratch.tile = std::max(kMinBlockMajor, scratch.tile / 4);
        // A tile that took too much is not to stay in memory.
        scratch.pending = {};
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
  out.counters.nodes += tally.blocks;
  out.counters.cells += tally.lines;
  out.counters.bits += tally.words + 8 * tally.lines;
  out.counters.candidates += tally.candidates;
}

std::size_t LinesIndex::n_bytes() const {
  std::size_t total = sizeof(*this) + ranks_.n_bytes() + scales_.capacity() * sizeof(Scale);
  for_each_column([&](const char*, const auto& items) { total += items.n_bytes(); }, *this);
  return total;
}

void LinesIndex::save(SectionWriter& sections) const {
  const std::uint32_t layout = kLines;
  sections.write("layout", &layout, sizeof layout);
  ranks_.save(sections);
  for_each_column([&](const char* name, const auto& items) { sections.write(name, items); }, *this);
}

void LinesIndex::open(const SectionReader& sections) {
  for_each_column(
      [&]<typename T>(const char* name, Column<T>& items) { items = sections.column<T>(name); },
      *this);
  const std::size_t n_places = blocks_.size() * kLineBits;
  if (filter_of_.size() != n_places || test_begins_.size() != n_places + 1 ||
      needs_table_.size() != blocks_.size()) {
    throw Error("the parts of an index of block-bitmap must fit one another; build it again");
  }
}

}  // namespace

std::unique_ptr<Index> build_lines(std::shared_ptr<const FilterTable> table, Ranks ranks,
                                   std::size_t tuple_size) {
  auto index = std::make_unique<LinesIndex>(std::move(table), std::move(ranks));
  index->build(tuple_size);
  return index;
}

std::unique_ptr<Index> open_lines(std::shared_ptr<const FilterTable> table, Ranks ranks,
                                  const SectionReader& sections) {
  auto index = std::make_unique<LinesIndex>(std::move(table), std::move(ranks));
  index->open(sections);
  return index;
}

}  // namespace tamis::block_bitmap
