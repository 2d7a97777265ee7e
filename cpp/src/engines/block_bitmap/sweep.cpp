// Blocks of 512 filters in the order of the table. For each attribute of a block, the places among
// its ranks where a filter begins or ends to accept, in order: walking along them, one bit of a
// line flips at each place, and the line is always exactly the filters that accept.
//
//     block
//       column (a7)   line at rank 0        1 1 0 1 … 1      filters that do not ask for a7: 1
//         places      3    9    9    14  …                   u32, ranks
//         bits        17   402  2    17  …                   u16, which filter flips there
//         lines       the line before flip 0, 32, 64, …      for single events
//         steps       the places of these flips
//
// Many events are sorted by the ranks of each attribute once. A block then goes through them in
// that order, with the line in a register: each event ANDs it to a row of its own. After all
// columns the row is what matches. Few events take the line before their place and flip the rest.
//
// Patterns, areas and residuals are verified on the filter table for the bits that are left.
//
// Invariants: the flips of a column lead from line to line; a filter flips once at a place.
#include "sweep.hpp"

#include <algorithm>
#include <bit>

#include "common/simd.hpp"
#include "ranked_events.hpp"
#include "tamis/error.hpp"

namespace tamis::block_bitmap {
namespace {

constexpr std::size_t kWords = kLineBits / 64;
constexpr std::size_t kStep = 32;      // flips from a stored line to the next: 2 bytes a flip
constexpr std::size_t kMinSweep = 16;  // events; walking along all places for fewer costs more
// Rows of all blocks, where they must be handed over event by event.
constexpr std::size_t kMaxRowBytes = std::size_t{64} << 20;
// As many filters for a target, and settled targets save more than sweeping does.
constexpr std::size_t kFiltersPerTarget = 64;

struct Block {
  std::uint32_t first_column = 0, n_columns = 0;
};
struct BlockColumn {
  std::uint64_t first_flip = 0, first_line = 0;
  AttributeId attribute = 0;
  std::uint32_t n_flips = 0;
};
struct Deferred {
  std::uint32_t event = 0;
  FilterIdx filter = 0;
};

class SweepScratch final : public Scratch {
 public:
  RankedEvents events;
  ValueByAttribute event;
  std::vector<std::uint64_t> sorted;  // [tile] rank << 16 | event
  std::vector<std::uint32_t> keys;    // [n_attributes][tile] ranks in order
  std::vector<std::uint16_t> order;   // [n_attributes][tile] whose they are
  std::vector<Line> rows;             // [tile]
  std::vector<Line> all_rows;         // [tile][n_blocks]
  std::vector<Deferred> deferred;
};

class SweepIndex final : public Index {
 public:
  SweepIndex(std::shared_ptr<const FilterTable> table, Ranks ranks)
      : table_(std::move(table)), ranks_(std::move(ranks)) {}

  void build();
  void open(const SectionReader& sections);
  void save(SectionWriter& sections) const override;
  std::size_t n_bytes() const override;
  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<SweepScratch>();
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;

 private:
  struct Tally {
    std::uint64_t blocks = 0, lines = 0, candidates = 0;
  };

  template <typename Visit, typename Of>
  static void for_each_column(Visit visit, Of& index) {
    visit("blocks", index.blocks_);
    visit("columns", index.columns_);
    visit("places", index.places_);
    visit("flips", index.bits_);
    visit("lines", index.lines_);
    visit("steps", index.steps_);
    visit("needs_table", index.needs_table_);
  }

  std::size_t n_filters_of(std::size_t block) const {
    return std::min(kLineBits, table_->size() - block * kLineBits);
  }
  void and_column(const BlockColumn& column, std::uint32_t rank, Line& row) const;
  void match_one(const EventBatch& events, std::size_t event, std::size_t in_tile,
                 SweepScratch& scratch, Collector& out, Tally& tally) const;
  void sort_events(std::size_t n_events, SweepScratch& scratch) const;
  // Fills scratch.rows with what matches of a block.
  void sweep(std::size_t block, const Line& start, std::size_t n_events, SweepScratch& scratch,
             const SimdKernels& kernels, Tally& tally) const;
  void match_in_any_order(const EventBatch& events, std::size_t begin, std::size_t end,
                          SweepScratch& scratch, Collector& out, Tally& tally) const;
  void match_in_order(const EventBatch& events, std::size_t begin, std::size_t end,
                      SweepScratch& scratch, Collector& out, Tally& tally) const;
  // Verifies those of `row` that need the table and adds what matches of the event.
  void add_row(std::size_t block, Line& row, const EventBatch& events, std::size_t event,
               bool& is_loaded, SweepScratch& scratch, Collector& out, Tally& tally) const;

  std::shared_ptr<const FilterTable> table_;
  Ranks ranks_;
  Column<Block> blocks_;
  Column<BlockColumn> columns_;
  Column<std::uint32_t> places_;
  Column<std::uint16_t> bits_;
  Column<Line> lines_;           // of each column, before each step of flips
  Column<std::uint32_t> steps_;  // as lines_: the place of the first flip of the step
  Column<Line> needs_table_;     // [n_blocks]
};

void SweepIndex::build() {
  struct Flip {
    AttributeId attribute;
    std::uint32_t place;
    std::uint16_t bit;
    bool is_start;  // not a flip: the filter does not accept rank 0
  };
  const auto is_before = [](const Flip& a, const Flip& b) {
    if (a.attribute != b.attribute) return a.attribute < b.attribute;
    if (a.is_start != b.is_start) return a.is_start;
    return a.place != b.place ? a.place < b.place : a.bit < b.bit;
  };
  RankedFilter ranked(*table_, ranks_);
  std::vector<Flip> flips;
  const std::size_t n_blocks = (table_->size() + kLineBits - 1) / kLineBits;
  for (std::size_t block_idx = 0; block_idx < n_blocks; ++block_idx) {
    flips.clear();
    Line needs_table;
    for (std::size_t each = 0; each < n_filters_of(block_idx); ++each) {
      ranked.load(static_cast<FilterIdx>(block_idx * kLineBits + each));
      if (ranked.needs_table()) needs_table.set(each);
      const auto bit = static_cast<std::uint16_t>(each);
      for (const RankedFilter::Part& part : ranked.parts()) {
        const bool accepts_first = !part.accepted.empty() && part.accepted.front().low == 0;
        if (!accepts_first) flips.push_back({part.attribute, 0, bit, true});
        for (const RankInterval& interval : part.accepted) {
          if (interval.low > 0) flips.push_back({part.attribute, interval.low, bit, false});
          if (interval.high < ranks_.n_ranks(part.attribute)) {
            flips.push_back({part.attribute, interval.high, bit, false});
          }
        }
      }
    }
    needs_table_.push_back(needs_table);
    std::sort(flips.begin(), flips.end(), is_before);
    Block block{static_cast<std::uint32_t>(columns_.size()), 0};
    for (std::size_t at = 0; at < flips.size();) {
      BlockColumn column;
      column.attribute = flips[at].attribute;
      column.first_flip = places_.size();
      column.first_line = lines_.size();
      Line line = Line::first(kLineBits);
      for (; at < flips.size() && flips[at].attribute == column.attribute; ++at) {
        if (!flips[at].is_start) {
          if (column.n_flips++ % kStep == 0) {
            lines_.push_back(line);
            steps_.push_back(flips[at].place);
          }
          places_.push_back(flips[at].place);
          bits_.push_back(flips[at].bit);
        }
        line.flip(flips[at].bit);
      }
      if (column.n_flips == 0) {
        lines_.push_back(line);
        steps_.push_back(0);
      }
      columns_.push_back(column);
      ++block.n_columns;
    }
    blocks_.push_back(block);
  }
  places_.shrink();
  bits_.shrink();
  lines_.shrink();
  steps_.shrink();
}

// Counting where halving would do: no branch depends on a value, and a step is one cache line.
void SweepIndex::and_column(const BlockColumn& column, std::uint32_t rank, Line& row) const {
  const std::uint32_t* steps = steps_.data() + column.first_line;
  const std::size_t n_steps = (column.n_flips + kStep - 1) / kStep;
  std::size_t n_begun = 0;  // steps whose first flip is passed
  for (std::size_t step = 0; step < n_steps; ++step) n_begun += steps[step] <= rank;
  const std::size_t first = n_begun == 0 ? 0 : (n_begun - 1) * kStep;
  const std::size_t n_last = std::min<std::size_t>(kStep, column.n_flips - first);
  const std::uint32_t* places = places_.data() + column.first_flip + first;
  const std::uint16_t* bits = bits_.data() + column.first_flip + first;
  std::size_t n_passed = 0;
  for (std::size_t at = 0; at < n_last; ++at) n_passed += places[at] <= rank;
  Line line = lines_[column.first_line + first / kStep];
  for (std::size_t at = 0; at < n_passed; ++at) line.flip(bits[at]);
  for (std::size_t word = 0; word < kWords; ++word) row.words[word] &= line.words[word];
}

void SweepIndex::add_row(std::size_t block, Line& row, const EventBatch& events, std::size_t event,
                         bool& is_loaded, SweepScratch& scratch, Collector& out,
                         Tally& tally) const {
  const auto first = static_cast<FilterIdx>(block * kLineBits);
  const Line& needs_table = needs_table_[block];
  for (std::size_t word = 0; word < kWords; ++word) {
    std::uint64_t open = row.words[word] & needs_table.words[word];
    row.words[word] ^= open;
    for (; open != 0; open &= open - 1) {
      const FilterIdx idx = first + static_cast<FilterIdx>(64 * word) +
                            static_cast<FilterIdx>(std::countr_zero(open));
      ++tally.candidates;
      if (out.has(idx)) continue;
      if (!is_loaded) {
        scratch.event.load(events, event, table_->n_attributes(), table_->space());
        is_loaded = true;
      }
      if (table_->accepts(idx, scratch.event)) out.add(idx);
    }
  }
  out.add_words(first, row.words, kWords);
}

void SweepIndex::match_one(const EventBatch& events, std::size_t event, std::size_t in_tile,
                           SweepScratch& scratch, Collector& out, Tally& tally) const {
  const std::uint32_t* ranks = scratch.events.of(in_tile);
  bool is_loaded = false;
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    if (out.can_repeat() && out.has_all()) return;
    Line row = Line::first(n_filters_of(block));
    const BlockColumn* columns = columns_.data() + blocks_[block].first_column;
    for (std::uint32_t at = 0; at < blocks_[block].n_columns; ++at) {
      and_column(columns[at], ranks[columns[at].attribute], row);
    }
    ++tally.blocks;
    tally.lines += blocks_[block].n_columns;
    out.drop_dead(static_cast<FilterIdx>(block * kLineBits), row.words, kWords);
    add_row(block, row, events, event, is_loaded, scratch, out, tally);
  }
}

void SweepIndex::sort_events(std::size_t n_events, SweepScratch& scratch) const {
  static_assert(kMaxTile <= 1 << 16);
  const std::size_t n_attributes = table_->n_attributes();
  scratch.sorted.resize(n_events);
  scratch.rows.resize(n_events);
  scratch.keys.resize(n_events * n_attributes);
  scratch.order.resize(n_events * n_attributes);
  for (std::size_t attribute = 0; attribute < n_attributes; ++attribute) {
    for (std::size_t event = 0; event < n_events; ++event) {
      scratch.sorted[event] = std::uint64_t{scratch.events.of(event)[attribute]} << 16 | event;
    }
    std::sort(scratch.sorted.begin(), scratch.sorted.end());
    for (std::size_t at = 0; at < n_events; ++at) {
      scratch.keys[attribute * n_events + at] =
          static_cast<std::uint32_t>(scratch.sorted[at] >> 16);
      scratch.order[attribute * n_events + at] =
          static_cast<std::uint16_t>(scratch.sorted[at] & 0xFFFF);
    }
  }
}

void SweepIndex::sweep(std::size_t block, const Line& start, std::size_t n_events,
                       SweepScratch& scratch, const SimdKernels& kernels, Tally& tally) const {
  std::fill(scratch.rows.begin(), scratch.rows.end(), start);
  const BlockColumn* columns = columns_.data() + blocks_[block].first_column;
  for (std::uint32_t at = 0; at < blocks_[block].n_columns; ++at) {
    const BlockColumn& column = columns[at];
    kernels.sweep_line(lines_[column.first_line].words, places_.data() + column.first_flip,
                       bits_.data() + column.first_flip, column.n_flips,
                       scratch.keys.data() + column.attribute * n_events,
                       scratch.order.data() + column.attribute * n_events, n_events,
                       scratch.rows[0].words);
  }
  tally.blocks += n_events;
  tally.lines += n_events * blocks_[block].n_columns;
}

void SweepIndex::match_in_any_order(const EventBatch& events, std::size_t begin, std::size_t end,
                                    SweepScratch& scratch, Collector& out, Tally& tally) const {
  const SimdKernels& kernels = simd();
  const std::size_t n_events = end - begin;
  const std::size_t first_event = out.n_events();
  out.begin_events(n_events);
  scratch.deferred.clear();
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    const auto first = static_cast<FilterIdx>(block * kLineBits);
    Line start = Line::first(n_filters_of(block));
    out.drop_dead(first, start.words, kWords);
    sweep(block, start, n_events, scratch, kernels, tally);
    const Line& needs_table = needs_table_[block];
    if (needs_table.is_empty()) {
      for (std::size_t event = 0; event < n_events; ++event) {
        out.select_event(first_event + event);
        out.add_words(first, scratch.rows[event].words, kWords);
      }
      continue;
    }
    for (std::size_t event = 0; event < n_events; ++event) {
      Line& row = scratch.rows[event];
      for (std::size_t word = 0; word < kWords; ++word) {
        std::uint64_t open = row.words[word] & needs_table.words[word];
        row.words[word] ^= open;
        for (; open != 0; open &= open - 1) {
          scratch.deferred.push_back({static_cast<std::uint32_t>(event),
                                      first + static_cast<FilterIdx>(64 * word) +
                                          static_cast<FilterIdx>(std::countr_zero(open))});
        }
      }
      out.select_event(first_event + event);
      out.add_words(first, row.words, kWords);
    }
  }
  tally.candidates += scratch.deferred.size();
  std::stable_sort(scratch.deferred.begin(), scratch.deferred.end(),
                   [](const Deferred& a, const Deferred& b) { return a.event < b.event; });
  std::size_t loaded = n_events;
  for (const Deferred& each : scratch.deferred) {
    if (each.event != loaded) {
      loaded = each.event;
      out.select_event(first_event + loaded);
      scratch.event.load(events, begin + loaded, table_->n_attributes(), table_->space());
    }
    if (!out.has(each.filter) && table_->accepts(each.filter, scratch.event)) out.add(each.filter);
  }
  if (scratch.deferred.size() * sizeof(Deferred) > kMaxRowBytes) scratch.deferred = {};
}

void SweepIndex::match_in_order(const EventBatch& events, std::size_t begin, std::size_t end,
                                SweepScratch& scratch, Collector& out, Tally& tally) const {
  const SimdKernels& kernels = simd();
  const std::size_t n_events = end - begin;
  const std::size_t n_blocks = blocks_.size();
  scratch.all_rows.resize(n_events * n_blocks);
  for (std::size_t block = 0; block < n_blocks; ++block) {
    Line start = Line::first(n_filters_of(block));
    out.drop_dead(static_cast<FilterIdx>(block * kLineBits), start.words, kWords);
    sweep(block, start, n_events, scratch, kernels, tally);
    for (std::size_t event = 0; event < n_events; ++event) {
      scratch.all_rows[event * n_blocks + block] = scratch.rows[event];
    }
  }
  for (std::size_t event = 0; event < n_events; ++event) {
    out.begin_event();
    bool is_loaded = false;
    for (std::size_t block = 0; block < n_blocks; ++block) {
      add_row(block, scratch.all_rows[event * n_blocks + block], events, begin + event, is_loaded,
              scratch, out, tally);
    }
  }
}

void SweepIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                       Scratch& any_scratch, Collector& out) const {
  auto& scratch = static_cast<SweepScratch&>(any_scratch);
  const bool takes_any_order = out.takes_any_order();
  const bool exits_early =
      out.can_repeat() && out.n_reachable() * kFiltersPerTarget <= table_->size();
  std::size_t max_tile = RankedEvents::max_tile(table_->n_attributes());
  if (!takes_any_order) {
    const std::size_t n_row_bytes = std::max<std::size_t>(1, blocks_.size()) * sizeof(Line);
    max_tile = std::clamp(kMaxRowBytes / n_row_bytes, std::size_t{1}, max_tile);
  }
  Tally tally;
  while (begin < end) {
    const std::size_t tile_end = begin + std::min(end - begin, max_tile);
    scratch.events.load(ranks_, table_->n_attributes(), events, begin, tile_end,
                        [](std::size_t, std::uint32_t) {});
    if (tile_end - begin < kMinSweep || exits_early) {
      for (std::size_t event = begin; event < tile_end; ++event) {
        out.begin_event();
        match_one(events, event, event - begin, scratch, out, tally);
      }
    } else {
      sort_events(tile_end - begin, scratch);
      if (takes_any_order) {
        match_in_any_order(events, begin, tile_end, scratch, out, tally);
      } else {
        match_in_order(events, begin, tile_end, scratch, out, tally);
      }
    }
    scratch.events.clear(ranks_, [](std::size_t) {});
    begin = tile_end;
  }
  out.counters.nodes += tally.blocks;
  out.counters.cells += tally.lines;
  out.counters.bits += kWords * tally.lines;
  out.counters.candidates += tally.candidates;
}

std::size_t SweepIndex::n_bytes() const {
  std::size_t total = sizeof(*this) + ranks_.n_bytes();
  for_each_column([&](const char*, const auto& items) { total += items.n_bytes(); }, *this);
  return total;
}

void SweepIndex::save(SectionWriter& sections) const {
  const std::uint32_t layout = kSweep;
  sections.write("layout", &layout, sizeof layout);
  ranks_.save(sections);
  for_each_column([&](const char* name, const auto& items) { sections.write(name, items); }, *this);
}

void SweepIndex::open(const SectionReader& sections) {
  for_each_column(
      [&]<typename T>(const char* name, Column<T>& items) { items = sections.column<T>(name); },
      *this);
  if (blocks_.size() != (table_->size() + kLineBits - 1) / kLineBits ||
      needs_table_.size() != blocks_.size() || places_.size() != bits_.size()) {
    throw Error("the parts of an index of block-bitmap must fit one another; build it again");
  }
}

}  // namespace

std::unique_ptr<Index> build_sweep(std::shared_ptr<const FilterTable> table, Ranks ranks) {
  auto index = std::make_unique<SweepIndex>(std::move(table), std::move(ranks));
  index->build();
  return index;
}

std::unique_ptr<Index> open_sweep(std::shared_ptr<const FilterTable> table, Ranks ranks,
                                  const SectionReader& sections) {
  auto index = std::make_unique<SweepIndex>(std::move(table), std::move(ranks));
  index->open(sections);
  return index;
}

}  // namespace tamis::block_bitmap
