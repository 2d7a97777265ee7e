// Blocks of 512 filters that lie close in some tuple of attributes; for each attribute of a block
// and each cell of its ranks a line of bits: the filters that may match an event in that cell.
//
//     tuple (a3, a7, a12)      3 x 129 rows of bits over the words of its blocks: which of them can
//       │                        match at all
//       │                        row(a3, cell) & row(a7, cell) & row(a12, cell) ──► blocks to visit
//       ├─ columns               attributes of its filters, the most selective first
//       └─ block                 512 filters, neighbours by k-d split
//            lines               for each column 32 cells and "absent", 64 bytes each
//                                  line(a12) & line(a5) & line(a3) & … ──► candidates
//            records             for each filter its intervals of ranks: attributes, lows, widths
//
// A candidate is verified by its record, all intervals at once, and then on the filter table where
// ranks do not say all (several intervals, patterns, areas, residuals). The records of a block have
// one size, up to 64 bytes a power of two: no list says where they are, and few share a cache line.
//
// Many events go block by block: for each tuple first all of them through its summary, then each
// block with all events that visit it, so that its lines come to the cache once. Candidates are
// verified when their records have come. What events find is put in their order afterwards.
//
// Invariants: a filter stands in one block; the bits behind the last filter of a block are zero in
// all of its lines; a line has the bit of every filter that accepts some rank of the cell.
#include "lines.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "common/simd.hpp"
#include "ranked_events.hpp"
#include "tamis/error.hpp"
#include "tamis/prefetch.hpp"
#include "tamis/reused_vector.hpp"

namespace tamis::block_bitmap {
namespace {

constexpr std::size_t kCells = LinesView::kCells;
constexpr std::size_t kRows = LinesView::kRows;
// Of the filters of a block, one in so many must constrain an attribute for it to have lines there:
// lines of an attribute take 4 bytes a filter.
constexpr std::size_t kRareShare = 16;
// Fewer events than this go one by one: nothing would be shared.
constexpr std::size_t kMinBlockMajor = 8;
constexpr std::size_t kColumnSample = 2048;  // filters of a tuple that decide about its columns
constexpr std::size_t kMaxPending = std::size_t{1} << 22;
// Blocks of one event whose lines are fetched ahead, to the second cache: the first one can wait
// for some 24 lines at a time, and an event of hem-default then took 37 us instead of 25.
constexpr std::size_t kPrefetchBlocks = 8;
// Events that visit a block, from which on all of its lines are worth to be fetched beforehand.
constexpr std::size_t kMinStream = 32;
constexpr std::size_t kPrefetchColumns = 16;
constexpr std::size_t kMaxLanes = 64;  // of a record; further intervals are left to the table
// While filters are added: the runs whose targets are fetched, those that are fetched themselves,
// and the filters of one event whose targets are.
constexpr std::size_t kRunsAhead = 4, kRunsFarAhead = 16, kTargetsAhead = 16;
// Candidates whose records are fetched together: of many events, and those of one event that wait
// until the older half is verified. Fewer where each may be the last one that is needed, and no
// more than the second cache keeps beside lines.
constexpr std::size_t kFetchedOfTile = 48, kMinWaiting = 32, kMaxWaiting = 256;
// As many filters for a target, and settled targets save more than block by block does.
constexpr std::size_t kFiltersPerTarget = 64;

// Lanes of a record beyond these in a block of short ones would make all others long.
constexpr std::size_t kSpareLanes = 4;

// Which of the eight bytes have a bit?
inline std::uint8_t bytes_with_bits(std::uint64_t word) {
  constexpr std::uint64_t kLow = 0x7F7F'7F7F'7F7F'7F7F;
  const std::uint64_t highs = (((word & kLow) + kLow) | word) & ~kLow;
  return static_cast<std::uint8_t>((highs >> 7) * 0x0102'0408'1020'4080 >> 56);
}

class LinesScratch final : public Scratch {
 public:
  RankedEvents events;
  std::vector<std::uint8_t> rows, cells;  // [tile][n_attributes] of the summaries and of the lines
  ValueByAttribute event;
  struct Visit {
    std::uint32_t block = 0;
    std::uint16_t tuple = 0;
    std::uint8_t words = 0;  // that take part
  };
  struct Visitor {
    std::uint16_t event = 0;
    std::uint8_t words = 0;
  };
  ReusedVector<Visit> visits;
  std::vector<std::uint16_t> line_places;  // [tile][kMaxColumns], or [tuples][kMaxColumns]
  std::vector<std::uint32_t> visit_ends;   // [blocks of a tuple + 1]
  ReusedVector<Visitor> visitors;          // by block
  struct Run {                             // what an event has found in a block
    std::uint32_t event = 0, begin = 0, end = 0;
  };
  struct Candidates {
    std::vector<std::uint32_t> places;  // of records
    std::vector<Run> runs;
    void clear() {
      places.clear();
      runs.clear();
    }
  };
  Candidates fetched, fetching;       // of a tile: these are verified while those are on their way
  std::vector<std::uint32_t> places;  // of one event
  struct Open {                       // still to be verified on the filter table
    std::uint32_t event = 0;
    FilterIdx filter = 0;
  };
  std::vector<std::uint64_t> heads;  // of the records that hold
  ReusedVector<FilterIdx> found;
  ReusedVector<Run> runs, by_event;
  std::vector<Open> open;
  std::vector<std::uint32_t> run_ends;  // [n_events + 1]
  std::size_t tile = 64;                // grows while what is pending stays small
  std::size_t n_most_visits = 0;        // of a tuple in the tile
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
  LinesView view() const {
    return {ranks_,          scales_,
            tuples_.span(),  summaries_.span(),
            columns_.span(), n_filters_of_.span(),
            lines_.span(),   block_records_.span(),
            records_.span()};
  }
  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<LinesScratch>();
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;

 private:
  struct Tally {
    std::uint64_t lines = 0, words = 0, blocks = 0, filters = 0, candidates = 0;
  };

  std::uint32_t row_of(AttributeId attribute, std::uint32_t rank) const {
    return scales_[attribute].row_of(rank);
  }
  static std::size_t words_of(const Tuple& tuple) { return LinesView::words_of(tuple); }

  template <typename Visit, typename Of>
  static void for_each_column(Visit visit, Of& index) {
    visit("tuples", index.tuples_);
    visit("summaries", index.summaries_);
    visit("columns", index.columns_);
    visit("n_filters_of", index.n_filters_of_);
    visit("lines", index.lines_);
    visit("block_records", index.block_records_);
    visit("records", index.records_);
  }

  std::uint64_t cells_of(const RankedFilter::Part& part) const;
  void choose_columns(const Arrangement& arrangement, Tuple& tuple, RankedFilter& ranked);
  void build_block(std::span<const FilterIdx> filters, const Tuple& tuple, std::size_t in_tuple,
                   RankedFilters& ranked, std::vector<std::uint64_t>& rows);
  void build_records(std::span<const FilterIdx> filters, const RankedFilters& ranked);
  void find_long_records() {
    constexpr std::size_t kOfLine = std::size(RecordLine{}.words) / kPlaceWords;
    const std::span<const BlockRecords> blocks = block_records_.span();
    has_long_records_ = std::any_of(blocks.begin(), blocks.end(), [](const BlockRecords& block) {
      return block.stride > kOfLine;
    });
  }

  // Where the lines of an event lie in any block of the tuple.
  void find_places(const Tuple& tuple, const std::uint8_t* cells, std::uint16_t* places) const {
    const AttributeId* columns = columns_.data() + tuple.first_column;
    for (std::uint32_t at = 0; at < tuple.n_columns; ++at) {
      places[at] = static_cast<std::uint16_t>(at * kCells + cells[columns[at]]);
    }
  }
  const Line* lines_of(const Tuple& tuple, std::uint32_t block) const {
    return lines_.data() + tuple.first_line +
           std::size_t{block - tuple.first_block} * tuple.n_columns * kCells;
  }
  bool find_left(const Tuple& tuple, std::uint32_t block, std::uint8_t words,
                 const std::uint16_t* places, const SimdKernels& kernels, Line& left,
                 Tally& tally) const {
    ++tally.blocks;
    tally.filters += kWordBits * static_cast<std::size_t>(std::popcount(words));
    if (tuple.n_columns == 0) {
      left = Line::first(n_filters_of_[block]);
      return true;
    }
    return kernels.and_lines(lines_of(tuple, block)->words, places, tuple.n_columns, words,
                             left.words, &tally.lines);
  }
  // Calls visit(block, words) for each block of the tuple that the event must visit.
  template <typename Visit>
  void summarize(const Tuple& tuple, const std::uint8_t* rows, Tally& tally, Visit visit) const;
  void prefetch_summary(const Tuple& tuple, const std::uint8_t* rows) const {
    const std::uint64_t* summary = summaries_.data() + tuple.first_summary;
    for (std::uint32_t at = 0; at < tuple.n_attributes; ++at) {
      prefetch_line(summary + (at * kRows + rows[tuple.attributes[at]]) * words_of(tuple));
    }
  }
  // Appends the records of the filters that are left.
  void add_places(std::uint32_t block, const Line& left, std::vector<std::uint32_t>& places) const;
  void prefetch_records(std::span<const std::uint32_t> places) const {
    for (const std::uint32_t place : places) {
      const std::uint32_t* record = records_.data()->words + kPlaceWords * std::size_t{place};
      prefetch_line_far(record);
      if (has_long_records_) prefetch_line_far(record + std::size(RecordLine{}.words));
    }
  }
  // Writes the heads of the records that hold to scratch.heads.
  std::size_t find_records(std::span<const std::uint32_t> places, const std::uint32_t* ranks,
                           const SimdKernels& kernels, LinesScratch& scratch, Tally& tally) const {
    tally.candidates += places.size();
    if (scratch.heads.size() < places.size()) scratch.heads.resize(places.size());
    return kernels.find_records(records_.data()->words, places.data(), places.size(), ranks,
                                table_->n_attributes(), scratch.heads.data());
  }

  void load(const EventBatch& events, std::size_t begin, std::size_t end,
            LinesScratch& scratch) const;
  void match_one(const EventBatch& events, std::size_t event, std::size_t in_tile,
                 LinesScratch& scratch, Collector& out, Tally& tally) const;
  void verify(const EventBatch& events, std::size_t event, std::size_t in_tile,
              std::size_t n_places, bool& is_loaded, LinesScratch& scratch, Collector& out,
              Tally& tally) const;
  void match_tile(const EventBatch& events, std::size_t begin, std::size_t end,
                  LinesScratch& scratch, Collector& out, Tally& tally) const;
  void find_visitors(std::uint16_t at_tuple, std::size_t n_events, LinesScratch& scratch,
                     Tally& tally) const;
  void verify_fetched(LinesScratch& scratch, Tally& tally) const;

  std::shared_ptr<const FilterTable> table_;
  Ranks ranks_;
  std::vector<Scale> scales_;  // [n_attributes]
  Column<Tuple> tuples_;
  Column<std::uint64_t> summaries_;     // of each tuple: [n_attributes][kRows][words]
  Column<AttributeId> columns_;         // of each tuple
  Column<std::uint16_t> n_filters_of_;  // [n_blocks]
  Column<Line> lines_;                  // of each block: [columns of its tuple][kCells]
  Column<BlockRecords> block_records_;  // [n_blocks]
  Column<RecordLine> records_;          // of each block: [filters], as SimdKernels has them
  bool has_long_records_ = false;       // of more than a line
};

void LinesIndex::build(std::size_t tuple_size) {
  Arrangement arrangement = arrange(*table_, ranks_, tuple_size);
  RankedFilter sampled(*table_, ranks_);
  RankedFilters ranked(*table_, ranks_);
  std::vector<std::uint64_t> rows;
  std::size_t block = 0;
  for (Tuple& tuple : arrangement.tuples) {
    tuple.first_summary = summaries_.size();
    tuple.first_line = lines_.size();
    choose_columns(arrangement, tuple, sampled);
    rows.assign(tuple.n_attributes * kRows * words_of(tuple), 0);
    for (; block < tuple.first_block + tuple.n_blocks; ++block) {
      build_block(
          {arrangement.filter_of.data() + block * kLineBits, arrangement.n_filters_of[block]},
          tuple, block - tuple.first_block, ranked, rows);
    }
    summaries_.append(rows);
  }
  tuples_ = std::move(arrangement.tuples);
  n_filters_of_ = std::move(arrangement.n_filters_of);
  lines_.shrink();
  records_.shrink();
  block_records_.shrink();
  find_long_records();
}

std::uint64_t LinesIndex::cells_of(const RankedFilter::Part& part) const {
  static_assert(kCells <= 64);
  std::uint64_t cells = 0;
  for (const RankInterval& interval : part.accepted) {
    const std::size_t first = cell_of(row_of(part.attribute, interval.low));
    const std::size_t last = cell_of(row_of(part.attribute, interval.high - 1));
    cells |= (~std::uint64_t{0} >> (63 - last)) & (~std::uint64_t{0} << first);
  }
  return cells;
}

// The attributes that enough filters of the tuple constrain, the most selective first. They are the
// same for all blocks of a tuple, so that an event finds the places of its lines once.
//
// By what they leave of a word that is visited: the summary has let an event pass by the attributes
// of the tuple already, and neighbours differ little in them.
void LinesIndex::choose_columns(const Arrangement& arrangement, Tuple& tuple,
                                RankedFilter& ranked) {
  struct Use {
    std::size_t n_filters = 0, n_cells = 0;  // of the sample
    std::size_t n_live = 0;                  // cells where a word has a bit, of all of its filters
    std::uint64_t cells_of_word = 0;
  };
  std::vector<Use> uses(table_->n_attributes());
  std::vector<AttributeId> seen;
  std::size_t n_sampled = 0;
  const std::size_t n_words = tuple.n_blocks * std::size(Line{}.words);
  const std::size_t step = std::max<std::size_t>(1, n_words * kWordBits / kColumnSample);
  for (std::size_t word = 0; word < n_words; word += step) {
    const std::size_t block = tuple.first_block + word * kWordBits / kLineBits;
    const std::size_t first = word * kWordBits % kLineBits;
    if (first >= arrangement.n_filters_of[block]) continue;
    const std::size_t n_here = std::min(kWordBits, arrangement.n_filters_of[block] - first);
    for (std::size_t each = 0; each < n_here; ++each) {
      ranked.load(arrangement.filter_of[block * kLineBits + first + each]);
      for (const RankedFilter::Part& part : ranked.parts()) {
        Use& use = uses[part.attribute];
        if (use.n_filters++ == 0) seen.push_back(part.attribute);
        use.n_cells += static_cast<std::size_t>(std::popcount(cells_of(part)));
        use.cells_of_word |= cells_of(part);
      }
    }
    n_sampled += n_here;
    for (std::uint32_t at = 0; at < tuple.n_attributes; ++at) {
      Use& use = uses[tuple.attributes[at]];
      use.n_live += n_here * static_cast<std::size_t>(std::popcount(use.cells_of_word));
      use.cells_of_word = 0;
    }
  }
  // The share of bits that are set in its lines: those of filters without a constraint, too.
  const auto share_of = [&](AttributeId attribute) {
    const Use& use = uses[attribute];
    const std::size_t n_bits = use.n_cells + (n_sampled - use.n_filters) * kCells;
    return static_cast<double>(n_bits) /
           static_cast<double>(use.n_live > 0 ? use.n_live : n_sampled * kCells);
  };
  std::erase_if(seen, [&](AttributeId attribute) {
    return uses[attribute].n_filters * kRareShare < n_sampled;
  });
  std::sort(seen.begin(), seen.end(), [&](AttributeId a, AttributeId b) {
    return share_of(a) != share_of(b) ? share_of(a) < share_of(b) : a < b;
  });
  seen.resize(std::min(seen.size(), kMaxColumns));
  tuple.first_column = static_cast<std::uint32_t>(columns_.size());
  tuple.n_columns = static_cast<std::uint32_t>(seen.size());
  columns_.append(seen);
}

// `rows` are the summary of the tuple, where the block is number `in_tuple`.
void LinesIndex::build_block(std::span<const FilterIdx> filters, const Tuple& tuple,
                             std::size_t in_tuple, RankedFilters& ranked,
                             std::vector<std::uint64_t>& rows) {
  const AttributeId* columns = columns_.data() + tuple.first_column;
  std::vector<Line> lines(tuple.n_columns * kCells);
  std::vector<Line> others(tuple.n_columns, Line::first(filters.size()));
  const std::size_t n_words = words_of(tuple);
  ranked.load(filters);
  for (std::size_t each = 0; each < filters.size(); ++each) {
    for (const RankedFilter::Part& part : ranked.parts(each)) {
      const auto column = static_cast<std::size_t>(
          std::find(columns, columns + tuple.n_columns, part.attribute) - columns);
      if (column < tuple.n_columns) {
        others[column].flip(each);
        for (std::uint64_t cells = cells_of(part); cells != 0; cells &= cells - 1) {
          lines[column * kCells + static_cast<std::size_t>(std::countr_zero(cells))].set(each);
        }
      }
      const AttributeId* last = tuple.attributes + tuple.n_attributes;
      const auto of_tuple = static_cast<std::size_t>(
          std::find(tuple.attributes, last, part.attribute) - tuple.attributes);
      for (const RankInterval& interval : part.accepted) {
        if (of_tuple == tuple.n_attributes) break;
        const std::size_t last_row = row_of(part.attribute, interval.high - 1);
        for (std::size_t row = row_of(part.attribute, interval.low); row <= last_row; ++row) {
          rows[(of_tuple * kRows + row) * n_words + in_tuple / 8] |=
              std::uint64_t{1} << (in_tuple % 8 * 8 + each / kWordBits);
        }
      }
    }
  }
  for (std::size_t line = 0; line < lines.size(); ++line) {
    for (std::size_t word = 0; word < std::size(lines[line].words); ++word) {
      lines[line].words[word] |= others[line / kCells].words[word];
    }
  }
  lines_.append(lines);
  build_records(filters, ranked);
}

void LinesIndex::build_records(std::span<const FilterIdx> filters, const RankedFilters& ranked) {
  const auto is_lane = [](const RankedFilter::Part& part) {
    return part.accepted.size() == 1 && part.attribute <= 0xFFFF;
  };
  std::size_t n_all = 0, n_most = 0;
  for (std::size_t each = 0; each < filters.size(); ++each) {
    const std::span<const RankedFilter::Part> parts = ranked.parts(each);
    const auto n_lanes =
        static_cast<std::size_t>(std::count_if(parts.begin(), parts.end(), is_lane));
    n_all += n_lanes;
    n_most = std::max(n_most, n_lanes);
  }
  n_most = std::min(
      {n_most, kMaxLanes, 2 * n_all / std::max<std::size_t>(1, filters.size()) + kSpareLanes});
  const auto n_words_of = [](std::size_t n_lanes) { return 2 + (n_lanes + 1) / 2 + 2 * n_lanes; };
  constexpr std::size_t kLineWords = std::size(RecordLine{}.words);
  std::size_t n_words = std::max(kPlaceWords, std::bit_ceil(n_words_of(n_most)));
  if (n_words > kLineWords)
    n_words = (n_words_of(n_most) + kLineWords - 1) / kLineWords * kLineWords;
  const BlockRecords block{static_cast<std::uint32_t>(records_.size()),
                           static_cast<std::uint32_t>(n_words / kPlaceWords)};
  block_records_.push_back(block);
  records_.append((filters.size() * n_words + kLineWords - 1) / kLineWords, RecordLine{});
  std::uint32_t* record = records_.own()[block.first].words;
  std::vector<const RankedFilter::Part*> lanes;
  for (std::size_t each = 0; each < filters.size(); ++each) {
    bool needs_table = ranked.needs_table(each);
    lanes.clear();
    for (const RankedFilter::Part& part : ranked.parts(each)) {
      if (is_lane(part) && lanes.size() < n_most) {
        lanes.push_back(&part);
      } else {
        needs_table = true;
      }
    }
    record[0] = filters[each];
    record[1] = static_cast<std::uint32_t>(lanes.size()) |
                (needs_table ? static_cast<std::uint32_t>(kNeedsTable >> 32) : 0);
    std::uint32_t* lows = record + 2 + (lanes.size() + 1) / 2;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      const RankInterval& only = lanes[lane]->accepted.front();
      const auto slot = static_cast<std::uint16_t>(lanes[lane]->attribute);
      std::memcpy(reinterpret_cast<char*>(record + 2) + lane * sizeof slot, &slot, sizeof slot);
      lows[lane] = only.low;
      lows[lanes.size() + lane] = only.high - only.low - 1;
    }
    record += n_words;
  }
}

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
  const auto prefetch = [&](const LinesScratch::Visit& visit) {
    const Tuple& tuple = tuples_[visit.tuple];
    const Line* lines = lines_of(tuple, visit.block);
    const std::uint16_t* places = scratch.line_places.data() + visit.tuple * kMaxColumns;
    const std::size_t n_columns = std::min<std::size_t>(tuple.n_columns, kPrefetchColumns);
    for (std::size_t at = 0; at < n_columns; ++at) prefetch_line_far(lines + places[at]);
  };
  const std::size_t n_visits = scratch.visits.size();
  for (std::size_t at = 0; at < std::min(kPrefetchBlocks, n_visits); ++at) {
    prefetch(scratch.visits[at]);
  }
  const std::size_t n_waiting = out.can_repeat() ? kMinWaiting : kMaxWaiting;
  bool is_loaded = false;
  Line left;
  for (std::size_t at = 0; at < n_visits; ++at) {
    if (at + kPrefetchBlocks < n_visits) prefetch(scratch.visits[at + kPrefetchBlocks]);
    const LinesScratch::Visit& visit = scratch.visits[at];
    if (!find_left(tuples_[visit.tuple], visit.block, visit.words,
                   scratch.line_places.data() + visit.tuple * kMaxColumns, kernels, left, tally)) {
      continue;
    }
    const std::size_t n_before = scratch.places.size();
    add_places(visit.block, left, scratch.places);
    prefetch_records(std::span<const std::uint32_t>(scratch.places).subspan(n_before));
    if (scratch.places.size() < n_waiting) continue;
    verify(events, event, in_tile, scratch.places.size() - n_waiting / 2, is_loaded, scratch, out,
           tally);
    if (out.can_repeat() && out.has_all()) {
      scratch.places.clear();
      return;
    }
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
                       scratch.line_places.data() + event * kMaxColumns, kernels, left, tally)) {
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
  if (block_records_.size() != n_filters_of_.size()) {
    throw Error("the parts of an index of block-bitmap must fit one another; build it again");
  }
  find_long_records();
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

LinesView view_of(const Index& lines) { return static_cast<const LinesIndex&>(lines).view(); }

}  // namespace tamis::block_bitmap
