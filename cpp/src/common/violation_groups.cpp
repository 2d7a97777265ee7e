#include "violation_groups.hpp"

#include <algorithm>
#include <cmath>

namespace tamis {
namespace {

// Marking a filter takes 0.9 ns, ORing n bits from memory n / 128 ns (hem-default, 16 GB/s): with
// fewer constraints than a filter in this many, an attribute's bitsets cost more than they save.
constexpr double kMaxSpread = 128;

}  // namespace

ViolationGroups::ViolationGroups(const ViolationCells& cells, const Settings& settings,
                                 FilterIdx n_first)
    : cells_(cells), are_joined_(settings.are_joined) {
  choose_groups(settings);
  mark_groups(n_first);
}

void ViolationGroups::choose_groups(const Settings& settings) {
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

void ViolationGroups::mark(std::size_t tile, const ViolationCells::Pair& pair, std::uint16_t id) {
  const Groups& groups = groups_[pair.attribute];
  if (groups.count == 0) return;
  const std::uint64_t bit = std::uint64_t{1} << (id & 63);
  for (std::uint32_t group = 1; group < groups.count; ++group) {
    const bool is_before = pair.cell < bound(pair.attribute, group);
    if (is_before == (pair.end == ViolationCells::kHigh)) {
      words_of(tile, bitset_of(groups, group, pair.end))[id >> 6] |= bit;
    }
  }
  if (pair.end == ViolationCells::kHigh) words_of(tile, last_bitset(groups))[id >> 6] |= bit;
}

void ViolationGroups::unmark(std::size_t tile, AttributeId attribute, std::uint16_t id) {
  const Groups& groups = groups_[attribute];
  if (groups.count == 0) return;
  for (std::uint32_t idx = groups.first_bitset; idx <= last_bitset(groups); ++idx) {
    words_of(tile, idx)[id >> 6] &= ~(std::uint64_t{1} << (id & 63));
  }
}

// From the cells of each tile rather than pair by pair: a group is the one before it and the cells
// between, so that n pairs and g groups cost n + g bitsets, not n * g.
void ViolationGroups::mark_groups(FilterIdx n_first) {
  const SimdKernels& kernels = simd();
  const std::vector<ViolationCells::Tile>& tiles = cells_.tiles();
  bitsets_.resize(tiles.size());
  for (std::size_t each = 0; each < tiles.size(); ++each) {
    const ViolationCells::Tile& tile = tiles[each];
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
        std::uint64_t* words = words_of(each, idx);
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
        mark(ViolationCells::kHigh, first_cell, n_cells, last_bitset(groups));
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

ViolationGroups::Step ViolationGroups::step_of(const ViolationCells::Place& place) const {
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

std::size_t ViolationGroups::n_bytes() const {
  std::size_t total = sizeof(*this) + groups_.capacity() * sizeof(groups_[0]);
  for (const auto& lines : bitsets_) total += lines.capacity() * sizeof(BitLine);
  return total;
}

}  // namespace tamis
