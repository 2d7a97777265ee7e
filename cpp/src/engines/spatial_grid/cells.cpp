#include "engines/spatial_grid/cells.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <vector>

namespace tamis::spatial_grid {
namespace {

constexpr std::size_t kSample = 8192;  // areas that stand for all of a level
constexpr std::size_t kEvents = 256;   // of them: where events are supposed to be
constexpr int kMostHalvings = 20;

// The range of most of them on the widest axis: a few far away must not make the cells large.
double extent_of(std::vector<Point> sample) {
  double widest = 0;
  for (double Point::* axis : {&Point::x, &Point::y, &Point::z}) {
    std::sort(sample.begin(), sample.end(),
              [&](const Point& a, const Point& b) { return a.*axis < b.*axis; });
    const std::size_t low = sample.size() / 20;
    widest = std::max(widest, sample[sample.size() - 1 - low].*axis - sample[low].*axis);
  }
  return widest;
}

}  // namespace

SideChoice choose_side(std::span<const Point> centres, double reach, bool is_flat,
                       double probe_cost, const GridCosts& costs) {
  const std::size_t step = centres.size() / kSample + 1;
  std::vector<Point> sample;
  for (std::size_t at = 0; at < centres.size(); at += step) sample.push_back(centres[at]);
  const double extent = extent_of(sample);
  std::vector<double> sides;
  for (double side = reach / 2; sides.size() < 8; side *= 2) sides.push_back(side);
  double side = 2 * extent;
  for (int halving = 0; halving < kMostHalvings && side > reach / 2; ++halving, side /= 2) {
    if (std::isfinite(side)) sides.push_back(side);
  }
  // Where all lie at one place, a side that does not make its cell the last one.
  double farthest = 0;
  for (const Point& centre : sample) {
    farthest = std::max({farthest, std::abs(centre.x), std::abs(centre.y), std::abs(centre.z)});
  }
  if (farthest > reach / 2) sides.push_back(farthest);
  SideChoice best;
  double least = std::numeric_limits<double>::infinity();
  std::unordered_map<std::uint64_t, std::uint32_t> n_in_cell;
  for (const double each : sides) {
    const Level level = Level::make(reach, each);
    n_in_cell.clear();
    for (const Point& centre : sample) ++n_in_cell[hash_cell(0, level.cell_of(centre))];
    std::size_t n_probes = 0, n_events = 0;
    double n_areas = 0;
    for (std::size_t at = 0; at < sample.size(); at += sample.size() / kEvents + 1) {
      ++n_events;
      const std::int32_t first_of_row = level.cell_of(sample[at].x - reach);
      for_each_cell(level, sample[at], is_flat, [&](const Cell& cell) {
        n_probes += !costs.is_by_row || cell.x == first_of_row;
        const auto found = n_in_cell.find(hash_cell(0, cell));
        if (found != n_in_cell.end()) n_areas += found->second;
      });
    }
    n_areas *= static_cast<double>(step);
    const double cost = probe_cost * static_cast<double>(n_probes) + costs.area * n_areas;
    if (cost < least) {
      least = cost;
      best = {each, n_areas / static_cast<double>(n_events)};
    }
  }
  return best;
}

}  // namespace tamis::spatial_grid
