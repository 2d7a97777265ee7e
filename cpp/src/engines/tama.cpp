// `tama`: TAMA (table match), a baseline of papers/002 (section 5); by Zhao and Wu, "Towards
// Approximate Event Processing in a Large-Scale Content-Based Network", ICDCS 2011.
//
// Each attribute's domain is cut into layers of ever smaller cells, and an interval is put together
// from the largest cells that fit, at most two of a layer. An event's value lies in one cell of
// each layer; the filters of these cells have one more constraint that holds, and are counted.
//
//     attribute, ranks 0 .. n-1           layers 0 .. depth, depth <= level
//       layer 0  │               1               │       cells are numbered as in a heap: the cell
//       layer 1  │       2       │       3       │       above cell i is i / 2
//       layer 2  │   4   │   5   │   6   │   7   │
//                        └── [2, 7) of 8 ranks = cell 5, cell 6 and rank 6 alone in layer 3
//     cells_     where the filter numbers of each cell begin, attribute after attribute, and how
//     many
//                they are
//     filters_   filter numbers, cell after cell; a cell has room for all filters of the table that
//                may ever be in it
//     always_    filters without a counted constraint: verified for each event
//
// A leaf holds 2^shift ranks, one if the attribute has no more ranks than 2^level. An interval that
// ends within a leaf counts for the whole of it, which is where the paper is approximate: here the
// filter is marked, and verified when its count is complete. common/counting.hpp has the counters.
//
// Invariants: the cells of one constraint are disjoint, so that it counts once for an event; they
// cover what it accepts, and nothing else unless its filter is marked.
//
// Cost for an event of k attributes: k rank lookups, depth + 1 cells for each, and one addition for
// each filter in them. docs/engines/tama.md has the formula.
#include "tama.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "common/counting.hpp"
#include "common/ranks.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

class TamaScratch final : public Scratch {
 public:
  explicit TamaScratch(std::uint32_t n_filters) : counts(n_filters) {}
  ValueByAttribute event;
  Counts counts;
};

class TamaIndex final : public UpdatableIndex {
 public:
  // With the first `n_first` filters of the table.
  TamaIndex(std::shared_ptr<const FilterTable> table, std::uint32_t level, FilterIdx n_first)
      : table_(std::move(table)), ranks_(*table_), counted_(*table_) {
    build(level, n_first);
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<TamaScratch>(counted_.largest_partition());
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override;

  void insert(FilterIdx filter) override;
  void erase(FilterIdx filter) override;
  // Nothing will be inserted or erased.
  void freeze() {
    numbers_ = {};
    is_in_ = {};
  }

 private:
  struct Cell {
    std::uint64_t begin = 0;
    std::uint64_t count = 0;
  };
  struct Layers {
    std::uint64_t first_cell = 0;  // in cells_; cells are counted from 1, the whole domain
    std::uint8_t depth = 0, shift = 0;

    std::uint32_t leaf_of(std::uint32_t rank) const {
      return (std::uint32_t{1} << depth) + (rank >> shift);
    }
  };

  struct Leaves {  // [low, high), numbered as cells are
    AttributeId attribute;
    std::uint32_t low, high;
    std::uint32_t number;  // of the filter
  };

  void build(std::uint32_t level, FilterIdx n_first);
  std::vector<Leaves> leaves_of(FilterIdx filter) const;
  void put(const Leaves& leaves) {
    for_each_cell(leaves, [&](std::uint64_t at) {
      Cell& cell = cells_[at];
      filters_[cell.begin + cell.count++] = leaves.number;
    });
  }
  // Appends the leaves that the constraint covers; gives back whether they cover more than it
  // accepts.
  bool append_leaves(const Constraint& constraint, std::uint32_t number,
                     std::vector<RankInterval>& intervals, std::vector<Leaves>& out) const;
  template <typename Visitor>
  void for_each_cell(const Leaves& leaves, Visitor visit) const {
    const std::uint64_t first_cell = layers_[leaves.attribute].first_cell;
    for (std::uint32_t low = leaves.low, high = leaves.high; low < high; low /= 2, high /= 2) {
      if (low & 1) visit(first_cell + low++);
      if (high & 1) visit(first_cell + --high);
    }
  }

  std::shared_ptr<const FilterTable> table_;
  Ranks ranks_;
  CountedFilters counted_;
  std::vector<std::uint32_t> numbers_;  // [n_filters] while something may be inserted or erased
  std::vector<bool> is_in_;             // likewise
  std::vector<Layers> layers_;          // [n_attributes]
  std::vector<Cell> cells_;
  std::vector<std::uint32_t> filters_;  // numbers, cell after cell
  std::vector<FilterIdx> always_;
};

bool TamaIndex::append_leaves(const Constraint& constraint, std::uint32_t number,
                              std::vector<RankInterval>& intervals,
                              std::vector<Leaves>& out) const {
  const Layers& layers = layers_[constraint.attribute];
  const std::uint32_t inside = (std::uint32_t{1} << layers.shift) - 1;  // of a leaf
  const std::size_t n_before = out.size();
  bool covers_more = false;
  ranks_.intervals(constraint, intervals);
  for (const RankInterval& each : intervals) {
    covers_more |= (each.low & inside) != 0 || (each.high & inside) != 0;
    const std::uint32_t low = layers.leaf_of(each.low), high = layers.leaf_of(each.high - 1) + 1;
    // Intervals that meet in a leaf are one: no leaf counts twice.
    if (out.size() > n_before && low < out.back().high) {
      out.back().high = high;
    } else {
      out.push_back({constraint.attribute, low, high, number});
    }
  }
  return covers_more;
}

void TamaIndex::build(std::uint32_t level, FilterIdx n_first) {
  std::uint64_t n_cells = 0;
  layers_.reserve(table_->n_attributes());
  for (AttributeId attribute = 0; attribute < table_->n_attributes(); ++attribute) {
    const auto n_bits = static_cast<std::uint32_t>(std::bit_width(ranks_.n_ranks(attribute) - 1));
    const std::uint32_t depth = std::min(level, n_bits);
    layers_.push_back(
        {n_cells, static_cast<std::uint8_t>(depth), static_cast<std::uint8_t>(n_bits - depth)});
    n_cells += std::uint64_t{2} << depth;
  }
  numbers_ = counted_.take_numbers();
  is_in_.assign(table_->size(), false);
  std::fill(is_in_.begin(), is_in_.begin() + n_first, true);
  std::vector<RankInterval> intervals;
  std::vector<Leaves> leaves;
  leaves.reserve(table_->n_constraints());
  std::size_t n_first_leaves = 0;
  for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
    bool covers_more = false;
    for_each_counted(*table_, idx, [&](const Constraint& constraint) {
      covers_more |= append_leaves(constraint, numbers_[idx], intervals, leaves);
    });
    if (covers_more) counted_.must_verify(0, numbers_[idx]);
    if (idx < n_first) n_first_leaves = leaves.size();
    if (idx < n_first && numbers_[idx] == CountedFilters::kUncounted) always_.push_back(idx);
  }
  cells_.resize(n_cells);
  for (const Leaves& each : leaves) {
    for_each_cell(each, [&](std::uint64_t cell) { ++cells_[cell].count; });
  }
  std::uint64_t n_places = 0;
  for (Cell& cell : cells_) {
    cell.begin = n_places;
    n_places += std::exchange(cell.count, 0);
  }
  filters_.resize(n_places);
  for (std::size_t at = 0; at < n_first_leaves; ++at) put(leaves[at]);
}

std::vector<TamaIndex::Leaves> TamaIndex::leaves_of(FilterIdx filter) const {
  std::vector<RankInterval> intervals;
  std::vector<Leaves> leaves;
  for_each_counted(*table_, filter, [&](const Constraint& constraint) {
    append_leaves(constraint, numbers_[filter], intervals, leaves);
  });
  return leaves;
}

void TamaIndex::insert(FilterIdx filter) {
  if (filter >= is_in_.size() || is_in_[filter]) {
    throw ArgumentError("a filter to insert must be of the table and not in the index, not " +
                        std::to_string(filter));
  }
  is_in_[filter] = true;
  if (numbers_[filter] == CountedFilters::kUncounted) always_.push_back(filter);
  for (const Leaves& leaves : leaves_of(filter)) put(leaves);
}

void TamaIndex::erase(FilterIdx filter) {
  if (filter >= is_in_.size() || !is_in_[filter]) {
    throw ArgumentError("a filter to erase must be in the index, not " + std::to_string(filter));
  }
  is_in_[filter] = false;
  if (numbers_[filter] == CountedFilters::kUncounted) std::erase(always_, filter);
  for (const Leaves& leaves : leaves_of(filter)) {
    for_each_cell(leaves, [&](std::uint64_t at) {
      Cell& cell = cells_[at];
      std::uint32_t* const first = filters_.data() + cell.begin;
      *std::find(first, first + cell.count, leaves.number) = first[cell.count - 1];
      --cell.count;
    });
  }
}

void TamaIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                      Scratch& given_scratch, Collector& out) const {
  TamaScratch& scratch = static_cast<TamaScratch&>(given_scratch);
  const CountedFilters::Filter* const filters = counted_.filters(0);
  Counters counters;
  const auto complete = [&](std::uint32_t number) {
    ++counters.candidates;
    const CountedFilters::Filter filter = filters[number];
    if (out.has(filter.idx)) return true;
    if (filter.has_rest && !table_->accepts(filter.idx, scratch.event)) return true;
    out.add(filter.idx);
    return !out.has_all();
  };
  const auto count_cells = [&](const Layers& layers, std::uint32_t leaf) {
    for (std::uint32_t cell = leaf; cell > 0; cell /= 2) {
      const Cell& of = cells_[layers.first_cell + cell];
      const std::uint32_t* const first = filters_.data() + of.begin;
      ++counters.cells;
      counters.filters += of.count;
      if (!scratch.counts.add(first, first + of.count, complete)) return;
    }
  };
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    scratch.event.load(events, each, table_->n_attributes(), table_->space());
    scratch.counts.begin(counted_.limits(0));
    for (std::uint64_t at = events.offsets[each]; at < events.offsets[each + 1]; ++at) {
      const AttributeId attribute = events.attributes[at];
      if (attribute >= layers_.size()) continue;
      if (out.has_all()) break;
      const Layers& layers = layers_[attribute];
      count_cells(layers, layers.leaf_of(ranks_.rank(attribute, events.values[at])));
    }
    for (const FilterIdx idx : always_) {
      if (out.has_all()) break;
      ++counters.candidates;
      if (!out.has(idx) && table_->accepts(idx, scratch.event)) out.add(idx);
    }
  }
  out.counters += counters;
}

std::size_t TamaIndex::n_bytes() const {
  const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  return sizeof(*this) + ranks_.n_bytes() + counted_.n_bytes() + bytes(numbers_) + bytes(layers_) +
         bytes(cells_) + bytes(filters_) + bytes(always_);
}

std::uint32_t level_of(const Parameters& parameters) {
  const double level = parameters.at("level");
  if (level != std::floor(level)) {
    throw ArgumentError("parameter level of engine tama must be a whole number, not " +
                        std::to_string(level));
  }
  return static_cast<std::uint32_t>(level);
}

constexpr Parameter kParameters[] = {
    {"level", 13, 1, 24, "layers of cells below the whole domain of an attribute"},
};

}  // namespace

constinit const std::span<const Parameter> kTamaParameters = kParameters;

std::unique_ptr<Index> build_tama(std::shared_ptr<const FilterTable> table,
                                  const Parameters& parameters) {
  const auto n_filters = static_cast<FilterIdx>(table->size());
  auto index = std::make_unique<TamaIndex>(std::move(table), level_of(parameters), n_filters);
  index->freeze();
  return index;
}

std::unique_ptr<UpdatableIndex> build_updatable_tama(std::shared_ptr<const FilterTable> table,
                                                     const Parameters& parameters,
                                                     FilterIdx n_first) {
  return std::make_unique<TamaIndex>(std::move(table), level_of(parameters), n_first);
}

}  // namespace tamis
