// Builds, saves and opens what lines_index.hpp describes.
#include <algorithm>
#include <bit>
#include <cstring>

#include "lines_index.hpp"
#include "tamis/error.hpp"

namespace tamis::block_bitmap {
namespace {

// Of the filters of a block, one in so many must constrain an attribute for it to have lines there:
// lines of an attribute take 4 bytes a filter.
constexpr std::size_t kRareShare = 16;
constexpr std::size_t kColumnSample = 2048;  // filters of a tuple that decide about its columns
constexpr std::size_t kMaxLanes = 64;        // of a record; further intervals are left to the table
// Lanes of a record beyond these in a block of short ones would make all others long.
constexpr std::size_t kSpareLanes = 4;

}  // namespace

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
