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
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "common/simd.hpp"
#include "lines.hpp"
#include "ranked_events.hpp"
#include "ranked_filter.hpp"
#include "tamis/prefetch.hpp"
#include "tamis/reused_vector.hpp"

namespace tamis::block_bitmap {

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
  static constexpr std::size_t kCells = LinesView::kCells, kRows = LinesView::kRows;
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
  // By its first n_columns columns.
  bool find_left(const Tuple& tuple, std::uint32_t block, std::uint8_t words,
                 const std::uint16_t* places, std::size_t n_columns, const SimdKernels& kernels,
                 Line& left, Tally& tally) const {
    ++tally.blocks;
    tally.filters += kWordBits * static_cast<std::size_t>(std::popcount(words));
    if (tuple.n_columns == 0) {
      left = Line::first(n_filters_of_[block]);
      return true;
    }
    return kernels.and_lines(lines_of(tuple, block)->words, places, n_columns, words, left.words,
                             &tally.lines);
  }
  // By the columns after these.
  bool find_left_further(const Tuple& tuple, std::uint32_t block, std::uint8_t words,
                         const std::uint16_t* places, std::size_t n_columns,
                         const SimdKernels& kernels, Line& left, Tally& tally) const {
    Line further;
    if (!kernels.and_lines(lines_of(tuple, block)->words, places + n_columns,
                           tuple.n_columns - n_columns, words, further.words, &tally.lines)) {
      return false;
    }
    std::uint64_t any = 0;
    for (std::size_t word = 0; word < std::size(left.words); ++word) {
      any |= left.words[word] &= further.words[word];
    }
    return any != 0;
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

}  // namespace tamis::block_bitmap
