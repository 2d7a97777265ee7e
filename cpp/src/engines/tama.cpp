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
//     begins_    where the filter numbers of each cell begin, attribute after attribute
//     filters_   filter numbers, cell after cell
//     always()   filters without a counted constraint: verified for each event
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

#include <bit>
#include <cmath>
#include <numeric>
#include <string>

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

class TamaIndex final : public Index {
 public:
  TamaIndex(std::shared_ptr<const FilterTable> table, std::uint32_t level)
      : table_(std::move(table)), ranks_(*table_), counted_(*table_) {
    build(level);
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<TamaScratch>(counted_.largest_partition());
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override;

 private:
  struct Layers {
    std::uint64_t first_cell = 0;  // in begins_; cells are counted from 1, the whole domain
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

  void build(std::uint32_t level);
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
  std::vector<Layers> layers_;          // [n_attributes]
  std::vector<std::uint64_t> begins_;   // [n_cells + 1]
  std::vector<std::uint32_t> filters_;  // numbers, cell after cell
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

void TamaIndex::build(std::uint32_t level) {
  std::uint64_t n_cells = 0;
  layers_.reserve(table_->n_attributes());
  for (AttributeId attribute = 0; attribute < table_->n_attributes(); ++attribute) {
    const auto n_bits = static_cast<std::uint32_t>(std::bit_width(ranks_.n_ranks(attribute) - 1));
    const std::uint32_t depth = std::min(level, n_bits);
    layers_.push_back(
        {n_cells, static_cast<std::uint8_t>(depth), static_cast<std::uint8_t>(n_bits - depth)});
    n_cells += std::uint64_t{2} << depth;
  }
  const std::vector<std::uint32_t> numbers = counted_.take_numbers();
  std::vector<RankInterval> intervals;
  std::vector<Leaves> leaves;
  leaves.reserve(table_->n_constraints());
  for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
    bool covers_more = false;
    for_each_counted(*table_, idx, [&](const Constraint& constraint) {
      covers_more |= append_leaves(constraint, numbers[idx], intervals, leaves);
    });
    if (covers_more) counted_.must_verify(0, numbers[idx]);
  }
  // How many each cell has, then where they end; filling goes down to where they begin.
  begins_.resize(n_cells + 1);
  for (const Leaves& each : leaves) {
    for_each_cell(each, [&](std::uint64_t cell) { ++begins_[cell]; });
  }
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  filters_.resize(begins_.back());
  for (const Leaves& each : leaves) {
    for_each_cell(each, [&](std::uint64_t cell) { filters_[--begins_[cell]] = each.number; });
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
      const std::uint64_t first = begins_[layers.first_cell + cell];
      const std::uint64_t last = begins_[layers.first_cell + cell + 1];
      ++counters.cells;
      counters.filters += last - first;
      if (!scratch.counts.add(filters_.data() + first, filters_.data() + last, complete)) return;
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
    for (const FilterIdx idx : counted_.always()) {
      if (out.has_all()) break;
      ++counters.candidates;
      if (!out.has(idx) && table_->accepts(idx, scratch.event)) out.add(idx);
    }
  }
  out.counters += counters;
}

std::size_t TamaIndex::n_bytes() const {
  const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  return sizeof(*this) + ranks_.n_bytes() + counted_.n_bytes() + bytes(layers_) + bytes(begins_) +
         bytes(filters_);
}

constexpr Parameter kParameters[] = {
    {"level", 13, 1, 24, "layers of cells below the whole domain of an attribute"},
};

}  // namespace

constinit const std::span<const Parameter> kTamaParameters = kParameters;

std::unique_ptr<Index> build_tama(std::shared_ptr<const FilterTable> table,
                                  const Parameters& parameters) {
  const double level = parameters.at("level");
  if (level != std::floor(level)) {
    throw ArgumentError("parameter level of engine tama must be a whole number, not " +
                        std::to_string(level));
  }
  return std::make_unique<TamaIndex>(std::move(table), static_cast<std::uint32_t>(level));
}

}  // namespace tamis
