// `rein`: event matching by marking what does not match (Qian et al., INFOCOM 2014; the baseline of
// papers/002, where sections 2 and 4.2 describe it).
//
// Each attribute has two arrays of cells, one for the low and one for the high values of intervals.
// An event marks all filters in the cells above its value at the low end and below it at the high
// end, compares the pairs of its own cell one by one, and what stays unmarked matches.
//
//     attribute   cells (common/violation_cells.hpp)            event's cell
//     low end     . . . . . . . . . . . . . . . . . . ? x x x x x x x      x marked, ? compared
//     high end    x x x x x x x x x x x x x x x x x x ? . . . . . . .
//     lacking     x x x x x x x x x x x x x x x x x x x x x x x x x x      of the high end
//
// Cost for n filters of s constraints of which an event violates a share v: n * s * v marks, and
// 1 / c of all pairs compared. docs/engines/rein.md has the formula.
#include "rein.hpp"

#include <cmath>

#include "common/violation_cells.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

class ReinScratch final : public Scratch {
 public:
  ViolationCells::Event event;
};

class ReinIndex final : public UpdatableIndex {
 public:
  ReinIndex(std::shared_ptr<const FilterTable> table, std::size_t n_cells, FilterIdx n_first)
      : cells_(std::move(table), n_cells, n_first) {}

  std::unique_ptr<Scratch> make_scratch() const override {
    auto scratch = std::make_unique<ReinScratch>();
    scratch->event = cells_.make_event();
    return scratch;
  }

  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override {
    ViolationCells::Event& event = static_cast<ReinScratch&>(scratch).event;
    const SimdKernels& kernels = simd();
    for (std::size_t each = begin; each < end; ++each) {
      out.begin_event();
      cells_.locate(events, each, event);
      Counters counters;
      for (const ViolationCells::Tile& tile : cells_.tiles()) {
        const std::uint64_t* vacant = tile.vacant[0].words;
        kernels.or_words(event.words(), &vacant, tile.n_vacant > 0, tile.n_words);
        for (const ViolationCells::Place& place : event.present) {
          const std::uint32_t n_cells = cells_.axis(place.attribute).n_cells;
          const auto high = cells_.high_run(tile, place, 0, counters);
          const auto low = cells_.low_run(tile, place, n_cells, counters);
          cells_.mark_high(tile, place, high, event, kernels);
          cells_.mark_low(tile, place, low, event, kernels);
          cells_.mark_holes(tile, place, event, counters);
        }
        for (const AttributeId attribute : event.absent) {
          cells_.mark_absent(tile, attribute, event, kernels, counters);
        }
        cells_.collect(tile, event, out);
      }
      out.counters += counters;
    }
  }

  std::size_t n_bytes() const override { return sizeof(*this) + cells_.n_bytes(); }

  void insert(FilterIdx filter) override { cells_.insert(filter); }
  void erase(FilterIdx filter) override { cells_.erase(filter); }

 private:
  ViolationCells cells_;
};

constexpr Parameter kParameters[] = {{"c", 1000, 1, 65536, "cells of an attribute"}};

}  // namespace

const std::span<const Parameter> kReinParameters = kParameters;

std::unique_ptr<Index> build_rein(std::shared_ptr<const FilterTable> table,
                                  const Parameters& parameters) {
  const auto n_filters = static_cast<FilterIdx>(table->size());
  return build_updatable_rein(std::move(table), parameters, n_filters);
}

std::unique_ptr<UpdatableIndex> build_updatable_rein(std::shared_ptr<const FilterTable> table,
                                                     const Parameters& parameters,
                                                     FilterIdx n_first) {
  const double n_cells = parameters.at("c");
  if (n_cells != std::floor(n_cells)) {
    throw ArgumentError("parameter c of engine rein must be a whole number, not " +
                        std::to_string(n_cells));
  }
  return std::make_unique<ReinIndex>(std::move(table), static_cast<std::size_t>(n_cells), n_first);
}

}  // namespace tamis
