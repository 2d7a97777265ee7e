// `hem`: hardware-aware event matching (papers/002, sections 4.2 and 4.3).
//
// The filters that an event does not satisfy are marked in a bitset, and what stays unmarked
// matches. Whole groups of cells are marked beforehand (the subscription pre-mark cache), so that
// most marking is an OR of bitsets; only the cells between the event's and the next group, fewer
// than c / g, are marked one by one.
//
// common/violation_cells.hpp has the cells, common/violation_groups.hpp the groups and a picture of
// both.
//
// Cost for n filters, event size e and d attributes with constraints: up to 2e + (d - e) bitsets of
// n bits, e / d * 1 / g of all pairs marked and 1 / c compared. docs/engines/hem.md has the
// formula.
#include "hem.hpp"

#include <algorithm>
#include <cmath>

#include "common/violation_cells.hpp"
#include "common/violation_groups.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

using Tile = ViolationCells::Tile;
using Pair = ViolationCells::Pair;

constexpr std::uint32_t kNone = ViolationCells::kNone;
struct Settings {
  std::size_t n_cells = 0;
  ViolationGroups::Settings groups;
};

using Step = ViolationGroups::Step;

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
      : cells_(std::move(table), settings.n_cells, n_first),
        groups_(cells_, settings.groups, n_first) {}

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
  ViolationCells cells_;
  ViolationGroups groups_;
};

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
      scratch.steps.push_back(groups_.step_of(place));
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
        if (step.high_bitset != kNone) sources.push_back(groups_.bitset(at, step.high_bitset));
        if (step.low_bitset != kNone && step.low_bitset != step.high_bitset) {
          sources.push_back(groups_.bitset(at, step.low_bitset));
        }
      }
      for (const AttributeId attribute : scratch.event.absent) {
        const std::uint32_t all = groups_.bitset_of_all(attribute);
        if (all != kNone) sources.push_back(groups_.bitset(at, all));
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
        if (groups_.bitset_of_all(attribute) != kNone) continue;
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
    groups_.mark(ViolationCells::tile_of(filter), pair, ViolationCells::id_of(filter));
  }
}

void HemIndex::erase(FilterIdx filter) {
  cells_.erase(filter);
  std::vector<Pair> pairs;
  std::vector<ViolationCells::Hole> holes;
  cells_.take_apart(filter, pairs, holes);
  const std::size_t tile = ViolationCells::tile_of(filter);
  const std::uint16_t id = ViolationCells::id_of(filter);
  for (const Pair& pair : pairs) groups_.unmark(tile, pair.attribute, id);
}

std::size_t HemIndex::n_bytes() const { return cells_.n_bytes() + groups_.n_bytes(); }

Settings settings_of(const Parameters& parameters) {
  const auto whole = [&](const char* name) {
    const double value = parameters.at(name);
    if (value != std::floor(value)) {
      throw ArgumentError("parameter " + std::string(name) +
                          " of engine hem must be a whole number, not " + std::to_string(value));
    }
    return static_cast<std::size_t>(value);
  };
  return {whole("c"),
          {whole("g"), whole("joined_ends") != 0, parameters.at("bytes_per_constraint")}};
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
