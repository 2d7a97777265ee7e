// `hem`: hardware-aware event matching (papers/002, sections 4.2 and 4.3).
//
// The filters that an event does not satisfy are marked in a bitset, and what stays unmarked
// matches. Whole groups of cells are marked beforehand (the subscription pre-mark cache), so that
// most marking is an OR of bitsets; only the cells between the event's and the next group, fewer
// than c / g, are marked one by one.
//
//     attribute   cells (common/violation_cells.hpp)     event's cell j, between bounds k and k + 1
//                 0        bound 1      bound 2   j  bound 3                     n_ordered  n_cells
//     high end    ├────────────┼────────────┼─xxxx?┐                              pairs below j
//                 └──── OR: group of bound 2 ┘ mark
//     low end                                      └?xx┼──────────────┼──────────────┼──────┤
//                                                  mark└── OR: group of bound 3 ────────────┘
//
//     bitsets of a tile [groups of all attributes][n_words]:
//         attribute: low, high of bound 1; low, high of bound 2; …; all filters of the high end
//
// The last one, B_g of the paper, is for events that lack the attribute. Bounds are k * n_ordered /
// g, rounded down: of 1000 cells and 32 groups, every fourth interval has 32 cells, the others 31.
//
// Invariants: a bit of a group is set if and only if a pair of the filter lies in its cells; an
// attribute has no groups if marking all its filters costs less than an OR.
//
// Cost for n filters, event size e and d attributes with constraints: up to 2e + (d - e) bitsets of
// n bits, e / d * 1 / g of all pairs marked and 1 / c compared. docs/engines/hem.md has the
// formula.
#include "hem.hpp"

#include <algorithm>
#include <cmath>

#include "common/violation_cells.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

using Tile = ViolationCells::Tile;
using Pair = ViolationCells::Pair;

constexpr std::uint32_t kNone = ViolationCells::kNone;
// Marking a filter takes 0.9 ns, ORing n bits from memory n / 128 ns (hem-default, 16 GB/s): with
// fewer constraints than a filter in this many, an attribute's bitsets cost more than they save.
constexpr double kMaxSpread = 128;

struct Settings {
  std::size_t n_cells = 0;
  std::size_t n_groups = 0;
  bool are_joined = false;
  double bytes_per_constraint = 0;
};

// What an event does on one attribute, the same in every tile.
struct Step {
  ViolationCells::Place place;
  std::uint32_t begin_cell = 0, end_cell = 0;  // to be marked: up to the cell, and behind it
  std::uint32_t low_bitset = kNone, high_bitset = kNone;
};

class HemScratch final : public Scratch {
 public:
  ViolationCells::Event event;
  std::vector<Step> steps;
  std::vector<ViolationCells::Run> runs;  // of one tile: high and low of each step
  std::vector<const std::uint64_t*> sources;
};

class HemIndex final : public UpdatableIndex {
 public:
  HemIndex(std::shared_ptr<const FilterTable> table, const Settings& settings, FilterIdx n_first)
      : cells_(std::move(table), settings.n_cells, n_first), are_joined_(settings.are_joined) {
    choose_groups(settings);
    mark_groups(n_first);
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    auto scratch = std::make_unique<HemScratch>();
    scratch->event = cells_.make_event();
    return scratch;
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override;

  void insert(FilterIdx filter) override;
  void erase(FilterIdx filter) override;

 private:
  struct Groups {
    std::uint32_t count = 0;  // 0: no bitsets
    std::uint32_t first_bitset = 0;
  };

  void choose_groups(const Settings& settings);
  void mark_groups(FilterIdx n_first);
  std::uint32_t bound(AttributeId attribute, std::uint32_t group) const {
    return static_cast<std::uint32_t>(std::uint64_t{group} * cells_.axis(attribute).n_ordered /
                                      groups_[attribute].count);
  }
  std::uint32_t bitset_of(const Groups& groups, std::uint32_t group,
                          ViolationCells::End end) const {
    if (are_joined_) return groups.first_bitset + group - (end == ViolationCells::kLow);
    return groups.first_bitset + 2 * (group - 1) + end;
  }
  std::uint32_t bitset_of_all(const Groups& groups) const {
    return groups.first_bitset + n_group_bitsets(groups.count);
  }
  std::uint32_t n_group_bitsets(std::uint32_t n_groups) const {
    return are_joined_ ? n_groups : 2 * (n_groups - 1);
  }
  std::uint64_t* bitset(std::size_t tile, std::uint32_t idx) {
    return bitsets_[tile][std::size_t{idx} * (cells_.tiles()[tile].n_words / 8)].words;
  }
  const std::uint64_t* bitset(std::size_t tile, std::uint32_t idx) const {
    return bitsets_[tile][std::size_t{idx} * (cells_.tiles()[tile].n_words / 8)].words;
  }
  void mark_pair(std::size_t tile, const Pair& pair, std::uint16_t id);
  Step step_of(const ViolationCells::Place& place) const;

  ViolationCells cells_;
  bool are_joined_;
  std::vector<Groups> groups_;  // [n_attributes]
  std::uint32_t n_bitsets_ = 0;
  std::vector<std::vector<BitLine>> bitsets_;  // [n_tiles][n_bitsets * n_words / 8]
};

void HemIndex::choose_groups(const Settings& settings) {
  const double n_filters = static_cast<double>(cells_.table()->size());
  groups_.resize(cells_.n_attributes());
  for (std::size_t each = 0; each < groups_.size(); ++each) {
    const ViolationCells::Axis& axis = cells_.axis(static_cast<AttributeId>(each));
    const double n_constraints = axis.n_constraints;
    if (n_constraints == 0 || n_constraints < n_filters / kMaxSpread) continue;
    // One group would cover all cells and never serve: it covers half of them, as two do.
    const double wanted = std::max<double>(2, static_cast<double>(settings.n_groups));
    const double n_ends = are_joined_ ? 1 : 2;
    const double affordable =
        std::floor(settings.bytes_per_constraint * n_constraints / (n_ends * n_filters / 8));
    groups_[each].count = static_cast<std::uint32_t>(
        std::min({wanted, std::max(2.0, affordable), std::max<double>(2, axis.n_ordered)}));
    groups_[each].first_bitset = n_bitsets_;
    n_bitsets_ += n_group_bitsets(groups_[each].count) + 1;
  }
}

void HemIndex::mark_pair(std::size_t tile, const Pair& pair, std::uint16_t id) {
  const Groups& groups = groups_[pair.attribute];
  if (groups.count == 0) return;
  const std::uint64_t bit = std::uint64_t{1} << (id & 63);
  for (std::uint32_t group = 1; group < groups.count; ++group) {
    const bool is_before = pair.cell < bound(pair.attribute, group);
    if (is_before == (pair.end == ViolationCells::kHigh)) {
      bitset(tile, bitset_of(groups, group, pair.end))[id >> 6] |= bit;
    }
  }
  if (pair.end == ViolationCells::kHigh) bitset(tile, bitset_of_all(groups))[id >> 6] |= bit;
}

// From the cells of each tile rather than pair by pair: a group is the one before it and the cells
// between, so that n pairs and g groups cost n + g bitsets, not n * g.
void HemIndex::mark_groups(FilterIdx n_first) {
  const SimdKernels& kernels = simd();
  const std::vector<Tile>& tiles = cells_.tiles();
  bitsets_.resize(tiles.size());
  for (std::size_t each = 0; each < tiles.size(); ++each) {
    const Tile& tile = tiles[each];
    bitsets_[each].resize(std::size_t{n_bitsets_} * (tile.n_words / 8));
    if (tile.first >= n_first) continue;
    std::vector<std::uint64_t> marked(tile.n_words);
    for (std::size_t at = 0; at < groups_.size(); ++at) {
      const auto attribute = static_cast<AttributeId>(at);
      const Groups& groups = groups_[at];
      if (groups.count == 0) continue;
      const std::uint32_t n_cells = cells_.axis(attribute).n_cells;
      const auto mark = [&](ViolationCells::End end, std::uint32_t first_cell,
                            std::uint32_t end_cell, std::uint32_t idx) {
        const std::uint32_t* begins = tile.begins.data() + tile.sides[2 * at + end];
        kernels.mark_bits(marked.data(), tile.ids.data() + begins[first_cell],
                          begins[end_cell] - begins[first_cell]);
        std::uint64_t* words = bitset(each, idx);
        for (std::size_t word = 0; word < tile.n_words; ++word) words[word] |= marked[word];
      };
      if (tile.sides[2 * at + ViolationCells::kHigh] != kNone) {
        std::fill(marked.begin(), marked.end(), 0);
        std::uint32_t first_cell = 0;
        for (std::uint32_t group = 1; group < groups.count; ++group) {
          const std::uint32_t end_cell = bound(attribute, group);
          mark(ViolationCells::kHigh, first_cell, end_cell,
               bitset_of(groups, group, ViolationCells::kHigh));
          first_cell = end_cell;
        }
        mark(ViolationCells::kHigh, first_cell, n_cells, bitset_of_all(groups));
      }
      if (tile.sides[2 * at + ViolationCells::kLow] != kNone) {
        std::fill(marked.begin(), marked.end(), 0);
        std::uint32_t end_cell = n_cells;
        for (std::uint32_t group = groups.count - 1; group >= 1; --group) {
          const std::uint32_t first_cell = bound(attribute, group);
          mark(ViolationCells::kLow, first_cell, end_cell,
               bitset_of(groups, group, ViolationCells::kLow));
          end_cell = first_cell;
        }
      }
    }
  }
}

Step HemIndex::step_of(const ViolationCells::Place& place) const {
  const ViolationCells::Axis& axis = cells_.axis(place.attribute);
  const Groups& groups = groups_[place.attribute];
  Step step{place, 0, axis.n_cells, kNone, kNone};
  if (groups.count == 0) return step;
  // The last bound at or before the cell.
  auto group = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      std::uint64_t{place.cell} * groups.count / axis.n_ordered, groups.count - std::uint64_t{1}));
  while (group + 1 < groups.count && bound(place.attribute, group + 1) <= place.cell) ++group;
  if (group > 0) {
    step.begin_cell = bound(place.attribute, group);
    step.high_bitset = bitset_of(groups, group, ViolationCells::kHigh);
  }
  if (group + 1 < groups.count) {
    step.end_cell = bound(place.attribute, group + 1);
    step.low_bitset = bitset_of(groups, group + 1, ViolationCells::kLow);
  }
  return step;
}

void HemIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                     Scratch& scratch_base, Collector& out) const {
  auto& scratch = static_cast<HemScratch&>(scratch_base);
  const SimdKernels& kernels = simd();
  const std::vector<Tile>& tiles = cells_.tiles();
  std::vector<const std::uint64_t*>& sources = scratch.sources;
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    cells_.locate(events, each, scratch.event);
    scratch.steps.clear();
    for (const ViolationCells::Place& place : scratch.event.present) {
      scratch.steps.push_back(step_of(place));
    }
    Counters counters;
    for (std::size_t at = 0; at < tiles.size(); ++at) {
      const Tile& tile = tiles[at];
      sources.clear();
      scratch.runs.clear();
      if (tile.n_vacant > 0) sources.push_back(tile.vacant[0].words);
      for (const Step& step : scratch.steps) {
        scratch.runs.push_back(cells_.high_run(tile, step.place, step.begin_cell, counters));
        scratch.runs.push_back(cells_.low_run(tile, step.place, step.end_cell, counters));
        if (step.high_bitset != kNone) sources.push_back(bitset(at, step.high_bitset));
        if (step.low_bitset != kNone && step.low_bitset != step.high_bitset) {
          sources.push_back(bitset(at, step.low_bitset));
        }
      }
      for (const AttributeId attribute : scratch.event.absent) {
        const Groups& groups = groups_[attribute];
        if (groups.count > 0) sources.push_back(bitset(at, bitset_of_all(groups)));
      }
      kernels.or_words(scratch.event.words(), sources.data(), sources.size(), tile.n_words);
      counters.bits += sources.size() * tile.n_words;
      for (std::size_t idx = 0; idx < scratch.steps.size(); ++idx) {
        const Step& step = scratch.steps[idx];
        cells_.mark_high(tile, step.place, scratch.runs[2 * idx], scratch.event, kernels);
        cells_.mark_low(tile, step.place, scratch.runs[2 * idx + 1], scratch.event, kernels);
        cells_.mark_holes(tile, step.place, scratch.event, counters);
      }
      for (const AttributeId attribute : scratch.event.absent) {
        if (groups_[attribute].count > 0) continue;
        cells_.mark_absent(tile, attribute, scratch.event, kernels, counters);
      }
      cells_.collect(tile, scratch.event, out);
    }
    out.counters += counters;
  }
}

void HemIndex::insert(FilterIdx filter) {
  cells_.insert(filter);
  std::vector<Pair> pairs;
  std::vector<ViolationCells::Hole> holes;
  cells_.take_apart(filter, pairs, holes);
  for (const Pair& pair : pairs) {
    mark_pair(ViolationCells::tile_of(filter), pair, ViolationCells::id_of(filter));
  }
}

void HemIndex::erase(FilterIdx filter) {
  cells_.erase(filter);
  std::vector<Pair> pairs;
  std::vector<ViolationCells::Hole> holes;
  cells_.take_apart(filter, pairs, holes);
  const std::size_t tile = ViolationCells::tile_of(filter);
  const std::uint16_t id = ViolationCells::id_of(filter);
  for (const Pair& pair : pairs) {
    const Groups& groups = groups_[pair.attribute];
    if (groups.count == 0) continue;
    for (std::uint32_t idx = groups.first_bitset; idx <= bitset_of_all(groups); ++idx) {
      bitset(tile, idx)[id >> 6] &= ~(std::uint64_t{1} << (id & 63));
    }
  }
}

std::size_t HemIndex::n_bytes() const {
  std::size_t total = sizeof(*this) + cells_.n_bytes() + groups_.capacity() * sizeof(groups_[0]);
  for (const auto& lines : bitsets_) total += lines.capacity() * sizeof(BitLine);
  return total;
}

Settings settings_of(const Parameters& parameters) {
  const auto whole = [&](const char* name) {
    const double value = parameters.at(name);
    if (value != std::floor(value)) {
      throw ArgumentError("parameter " + std::string(name) +
                          " of engine hem must be a whole number, not " + std::to_string(value));
    }
    return static_cast<std::size_t>(value);
  };
  return {whole("c"), whole("g"), whole("joined_ends") != 0, parameters.at("bytes_per_constraint")};
}

constexpr Parameter kParameters[] = {
    {"c", 1000, 1, 65536, "cells of an attribute"},
    {"g", 32, 1, 4096, "groups of cells with a bitset at each end; 1 covers half the cells"},
    {"joined_ends", 1, 0, 1, "1: one bitset for the groups of both ends, not the paper's two"},
    {"bytes_per_constraint", 32, 0, 65536,
     "most bytes of bitsets for each constraint on an attribute; where g groups would take more, "
     "there are fewer"},
};

}  // namespace

const std::span<const Parameter> kHemParameters = kParameters;

std::unique_ptr<Index> build_hem(std::shared_ptr<const FilterTable> table,
                                 const Parameters& parameters) {
  const auto n_filters = static_cast<FilterIdx>(table->size());
  return build_updatable_hem(std::move(table), parameters, n_filters);
}

std::unique_ptr<UpdatableIndex> build_updatable_hem(std::shared_ptr<const FilterTable> table,
                                                    const Parameters& parameters,
                                                    FilterIdx n_first) {
  return std::make_unique<HemIndex>(std::move(table), settings_of(parameters), n_first);
}

}  // namespace tamis
