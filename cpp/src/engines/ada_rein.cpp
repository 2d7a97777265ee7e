// `ada-rein`: REIN that leaves out attributes (Qian et al., INFOCOM 2019; a baseline of papers/002,
// section 6.1, from which it is reconstructed).
//
// Marks as `rein` does, but not what the values of some attributes rule out. These are chosen so
// that of the filters that it reports, at most a share `rate` is expected not to match; it never
// misses a filter that does.
//
//     attribute   cells (common/violation_cells.hpp)
//     marked      ← as rein: low end, high end, absence →
//     skipped     absence only
//
// The expectation: values of events are independent and uniform over [min, max] of the bounds of
// their attribute, so that a constraint holds with a probability of its width w, and
//
//     rate(skipped) = 1 - sum over filters of Π w  /  sum over filters of Π w of attributes kept
//
// Attributes are tried in the order of what they add to the second sum for each mark that they
// save, and skipped if the rate allows it.
//
// Invariant: what is marked is marked by rein too. Cost: that of rein without the marks saved.
#include "ada_rein.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/violation_cells.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

// The share of the rate that is used up by expectation. Events are a sample: with all of it, half
// of the samples would lie above.
constexpr double kMargin = 0.75;

class AdaReinScratch final : public Scratch {
 public:
  ViolationCells::Event event;
};

class AdaReinIndex final : public Index {
 public:
  AdaReinIndex(std::shared_ptr<const FilterTable> table, std::size_t n_cells, double rate)
      : cells_(std::move(table), n_cells, std::numeric_limits<FilterIdx>::max()),
        is_skipped_(cells_.n_attributes()) {
    choose_skipped(rate);
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    auto scratch = std::make_unique<AdaReinScratch>();
    scratch->event = cells_.make_event();
    return scratch;
  }

  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override {
    ViolationCells::Event& event = static_cast<AdaReinScratch&>(scratch).event;
    const SimdKernels& kernels = simd();
    for (std::size_t each = begin; each < end; ++each) {
      out.begin_event();
      cells_.locate(events, each, event);
      std::erase_if(event.present, [&](const ViolationCells::Place& place) {
        return is_skipped_[place.attribute] != 0;
      });
      Counters counters;
      for (const ViolationCells::Tile& tile : cells_.tiles()) {
        kernels.or_words(event.words(), nullptr, 0, tile.n_words);
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

  std::size_t n_bytes() const override {
    return sizeof(*this) + cells_.n_bytes() + is_skipped_.capacity();
  }

 private:
  struct Term {
    FilterIdx filter = 0;
    float width = 0;
  };
  // The terms of all constraints by attribute; those of attribute a begin at begins[a].
  void list_terms(std::vector<Term>& terms, std::vector<std::uint32_t>& begins) const;
  void choose_skipped(double rate);

  ViolationCells cells_;
  std::vector<std::uint8_t> is_skipped_;  // [n_attributes]
};

// The share of an attribute's values that a constraint accepts: of its domain of numbers by length,
// and at least its share of the ranks, so that a point or a string is not nothing.
class Widths {
 public:
  Widths(const FilterTable& table, const Ranks& ranks)
      : table_(table),
        ranks_(ranks),
        lows_(table.n_attributes(), std::numeric_limits<double>::infinity()),
        highs_(table.n_attributes(), -std::numeric_limits<double>::infinity()) {
    for (std::uint32_t idx = 0; idx < table.n_constraints(); ++idx) {
      const AttributeId attribute = table.constraint(idx).attribute;
      for_each_range(table.constraint(idx), [&](const NumberRange& range) {
        for (const double value : {range.low, range.high}) {
          if (!std::isfinite(value)) continue;
          lows_[attribute] = std::min(lows_[attribute], value);
          highs_[attribute] = std::max(highs_[attribute], value);
        }
      });
    }
  }

  double of(const Constraint& constraint) {
    const double low = lows_[constraint.attribute], high = highs_[constraint.attribute];
    double length = 0;
    if (high > low && std::isfinite(high - low)) {
      for_each_range(constraint, [&](const NumberRange& range) {
        const Cut from = range.low_cut(), to = range.high_cut();
        length += std::max(0.0, std::min(to.nearest, high) - std::max(from.nearest, low));
      });
      length /= high - low;
    }
    ranks_.intervals(constraint, intervals_);
    std::uint64_t n_ranks = 0;
    for (const RankInterval& each : intervals_) n_ranks += each.high - each.low;
    const double share = static_cast<double>(n_ranks) / ranks_.n_ranks(constraint.attribute);
    // Where numbers have a length, the share of the ranks is only for what has none.
    return std::min(1.0, length > 0 ? length : share);
  }

 private:
  template <typename Visitor>
  void for_each_range(const Constraint& constraint, Visitor visit) const {
    if (constraint.is_interval()) {
      visit(table_.number(constraint.set));
      return;
    }
    const Range& numbers = table_.general(constraint).numbers;
    for (std::uint32_t each = 0; each < numbers.count; ++each) {
      visit(table_.number(numbers.first + each));
    }
  }

  const FilterTable& table_;
  const Ranks& ranks_;
  std::vector<double> lows_, highs_;
  std::vector<RankInterval> intervals_;
};

void AdaReinIndex::list_terms(std::vector<Term>& terms, std::vector<std::uint32_t>& begins) const {
  const FilterTable& table = *cells_.table();
  Widths widths(table, cells_.ranks());
  begins.assign(cells_.n_attributes() + 1, 0);
  for (std::size_t each = 0; each < cells_.n_attributes(); ++each) {
    begins[each + 1] = begins[each] + cells_.axis(static_cast<AttributeId>(each)).n_constraints;
  }
  terms.resize(begins.back());
  std::vector<std::uint32_t> next(begins.begin(), begins.end() - 1);
  for (FilterIdx filter = 0; filter < table.size(); ++filter) {
    const Range& constraints = table.filter(filter).constraints;
    for (std::uint32_t at = 0; at < constraints.count; ++at) {
      const Constraint& constraint = table.constraint(constraints.first + at);
      terms[next[constraint.attribute]++] = {filter, static_cast<float>(widths.of(constraint))};
    }
  }
}

void AdaReinIndex::choose_skipped(double rate) {
  std::vector<Term> terms;
  std::vector<std::uint32_t> begins;
  list_terms(terms, begins);
  // Of each filter, the probability that what is not skipped holds. Filters that are verified are
  // never false and do not count.
  std::vector<double> chances(cells_.table()->size(), 1);
  for (const ViolationCells::Tile& tile : cells_.tiles()) {
    for (std::uint32_t id = 0; id < tile.n_filters; ++id) {
      if (tile.verified[id / 512].words[id / 64 % 8] >> (id % 64) & 1) chances[tile.first + id] = 0;
    }
  }
  for (const Term& term : terms) chances[term.filter] *= term.width;
  const double truth = std::accumulate(chances.begin(), chances.end(), 0.0);
  if (!(truth > 0)) return;

  const auto added_by = [&](std::size_t attribute) {
    double added = 0;
    for (std::uint32_t at = begins[attribute]; at < begins[attribute + 1]; ++at) {
      const Term& term = terms[at];
      added += chances[term.filter] * (1 / double{term.width} - 1);
    }
    return added;
  };
  struct Candidate {
    std::size_t attribute = 0;
    double price = 0;
  };
  std::vector<Candidate> candidates;
  for (std::size_t attribute = 0; attribute < is_skipped_.size(); ++attribute) {
    double saved = 0;
    bool has_empty = false;  // a filter that never matches would always be reported
    for (std::uint32_t at = begins[attribute]; at < begins[attribute + 1]; ++at) {
      saved += 1 - double{terms[at].width};
      has_empty |= !(terms[at].width > 0);
    }
    if (saved > 0 && !has_empty) candidates.push_back({attribute, added_by(attribute) / saved});
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.price < b.price; });
  double reported = truth;
  for (const Candidate& each : candidates) {
    const double added = added_by(each.attribute);
    if (1 - truth / (reported + added) > kMargin * rate) continue;
    reported += added;
    is_skipped_[each.attribute] = 1;
    for (std::uint32_t at = begins[each.attribute]; at < begins[each.attribute + 1]; ++at) {
      chances[terms[at].filter] /= terms[at].width;
    }
  }
}

constexpr Parameter kParameters[] = {
    {"c", 1000, 1, 65536, "cells of an attribute"},
    {"rate", 0.05, 0, 1, "most false positives expected, as a share of the filters reported"},
};

}  // namespace

const std::span<const Parameter> kAdaReinParameters = kParameters;

std::unique_ptr<Index> build_ada_rein(std::shared_ptr<const FilterTable> table,
                                      const Parameters& parameters) {
  const double n_cells = parameters.at("c");
  if (n_cells != std::floor(n_cells)) {
    throw ArgumentError("parameter c of engine ada-rein must be a whole number, not " +
                        std::to_string(n_cells));
  }
  return std::make_unique<AdaReinIndex>(std::move(table), static_cast<std::size_t>(n_cells),
                                        parameters.at("rate"));
}

}  // namespace tamis
