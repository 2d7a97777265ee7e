// `block-bitmap`: bitmaps over blocks of 512 filters, for intervals on attributes that events have.
//
// Filters that lie close together share a block, and a cache line says which of them may match a
// value of an attribute: a few lines ANDed leave hardly a filter to verify. Where most filters
// match anyway, lines that follow the values exactly leave nothing to verify at all.
//
//     lines    block_bitmap/lines_index.hpp: cells of ranks, candidates verified; few filters match
//     sweep    block_bitmap/sweep.cpp: exact, built up event by event; many filters match
//
// Ours, from the figures of the prototypes; docs/engines/block-bitmap.md has layout and cost.
#include "block_bitmap.hpp"

#include <algorithm>
#include <cmath>

#include "block_bitmap/lines.hpp"
#include "block_bitmap/sweep.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

using namespace block_bitmap;

// From this share of filters that match an event on, the sweep is quicker.
constexpr double kSweepShare = 0.02;
constexpr std::size_t kSample = 1024;

constexpr Parameter kParameters[] = {
    {"layout", kByCost, kByCost, kSweep, "0: by cost; 1: lines, for few matches; 2: sweep"},
    {"tuple_size", 3, 1, 3, "attributes by which filters are divided into blocks, at most"},
};

std::size_t whole(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine block-bitmap must be a whole number, not " +
                        std::to_string(value));
  }
  return static_cast<std::size_t>(value);
}

// The share of filters that an event matches, if its values are spread as the boundaries are.
double expected_share(const FilterTable& table, const Ranks& ranks) {
  const std::size_t n_sampled = std::min(kSample, table.size());
  RankedFilter ranked(table, ranks);
  double total = 0;
  for (std::size_t at = 0; at < n_sampled; ++at) {
    ranked.load(static_cast<FilterIdx>(at * table.size() / n_sampled));
    double share = 1;
    for (const RankedFilter::Part& part : ranked.parts()) {
      std::uint64_t n_accepted = 0;
      for (const RankInterval& interval : part.accepted) n_accepted += interval.high - interval.low;
      share *= std::min(1.0, static_cast<double>(n_accepted) / (ranks.n_ranks(part.attribute) - 5));
    }
    total += share;
  }
  return n_sampled == 0 ? 0 : total / static_cast<double>(n_sampled);
}

}  // namespace

constinit const std::span<const Parameter> kBlockBitmapParameters = kParameters;

std::unique_ptr<Index> build_block_bitmap(std::shared_ptr<const FilterTable> table,
                                          const Parameters& parameters) {
  const std::size_t tuple_size = whole(parameters, "tuple_size");
  std::size_t layout = whole(parameters, "layout");
  Ranks ranks(*table);
  if (layout == kByCost) {
    layout = expected_share(*table, ranks) < kSweepShare ? kLines : kSweep;
  }
  if (layout == kLines) return build_lines(std::move(table), std::move(ranks), tuple_size);
  return build_sweep(std::move(table), std::move(ranks));
}

std::unique_ptr<Index> open_block_bitmap(std::shared_ptr<const FilterTable> table,
                                         const Parameters&, const SectionReader& sections) {
  Ranks ranks(*table, sections);
  const std::span<const std::uint32_t> layout = sections.span<std::uint32_t>("layout");
  if (layout.size() == 1 && layout[0] == kLines) {
    return open_lines(std::move(table), std::move(ranks), sections);
  }
  if (layout.size() == 1 && layout[0] == kSweep) {
    return open_sweep(std::move(table), std::move(ranks), sections);
  }
  throw Error("the layout of an index of block-bitmap must be lines or sweep; build it again");
}

}  // namespace tamis
