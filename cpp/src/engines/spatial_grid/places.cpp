#include "engines/spatial_grid/places.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include "common/placed_filter.hpp"

namespace tamis::spatial_grid {
namespace {

// An event that looks at more areas than this pays less for the buckets of its names.
constexpr double kManyAreas = 256;
// Radii with a smaller share of the places share the cells of larger ones.
constexpr std::size_t kFewOfAll = 64;
constexpr std::size_t kFew = 64;
constexpr std::uint32_t kAboutAsRare = 4;  // 1 / 4 more

class Maker {
 public:
  Maker(const FilterTable& table, std::span<const std::uint32_t> owners, bool is_flat,
        const GridCosts& costs)
      : table_(table),
        owners_(owners),
        is_flat_(is_flat),
        costs_(costs),
        n_naming_(table.n_attributes()),
        n_placed_(table.n_attributes()) {}

  Places make() {
    gather();
    make_levels();
    choose_terms();
    return std::move(made_);
  }

 private:
  void gather();
  void make_levels();
  void choose_terms();
  // The attributes that all filters of the place need, in common_.
  void find_common(const Place& place);

  const FilterTable& table_;
  std::span<const std::uint32_t> owners_;
  bool is_flat_;
  GridCosts costs_;
  Places made_;
  std::vector<std::uint32_t> n_naming_;  // [n_attributes] filters that need it
  std::vector<std::uint32_t> n_placed_;  // [n_attributes] places under its name
  std::vector<std::uint32_t> common_;    // constraints of the place's first filter
};

void Maker::gather() {
  const auto n_filters = static_cast<FilterIdx>(table_.size());
  std::uint32_t last_area = kNoArea;  // of the filter before
  for (FilterIdx idx = 0; idx < n_filters; ++idx) {
    const FilterTable::Filter& filter = table_.filter(idx);
    for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
      const Constraint& constraint = table_.constraint(filter.constraints.first + at);
      n_naming_[constraint.attribute] += constraint.needs_attribute();
    }
    const std::uint32_t area = smallest_area(table_, filter);
    const bool is_same = area != kNoArea && last_area != kNoArea && !owners_.empty() &&
                         owners_[idx] == owners_[idx - 1] &&
                         table_.area(area).x == table_.area(last_area).x &&
                         table_.area(area).y == table_.area(last_area).y &&
                         table_.area(area).radius == table_.area(last_area).radius;
    last_area = area;
    if (is_same) {
      ++made_.places.back().n_filters;
      continue;
    }
    Place& place = made_.places.emplace_back();
    place.first = idx;
    place.n_filters = 1;
    place.owner = owners_.empty() ? idx : owners_[idx];
    place.has_circle = area != kNoArea;
    place.limit = std::numeric_limits<double>::infinity();
    if (area != kNoArea) {
      place.centre = table_.area(area).centre;
      place.limit = table_.area(area).limit;
    }
  }
}

void Maker::make_levels() {
  std::map<int, std::vector<PlaceIdx>> by_size;
  std::size_t n_placed = 0;
  for (PlaceIdx idx = 0; idx < made_.places.size(); ++idx) {
    const double limit = made_.places[idx].limit;
    if (!std::isfinite(limit)) continue;
    by_size[std::ilogb(reach_of(limit))].push_back(idx);
    ++n_placed;
  }
  std::vector<PlaceIdx> members;
  std::vector<Point> centres;
  for (auto each = by_size.begin(); each != by_size.end(); ++each) {
    members.insert(members.end(), each->second.begin(), each->second.end());
    const bool is_few = members.size() < std::max(kFew, n_placed / kFewOfAll);
    if (is_few && std::next(each) != by_size.end()) continue;
    double reach = 0;
    centres.clear();
    for (const PlaceIdx idx : members) {
      reach = std::max(reach, reach_of(made_.places[idx].limit));
      centres.push_back(made_.places[idx].centre);
      made_.places[idx].level = static_cast<std::uint32_t>(made_.levels.size());
    }
    SideChoice choice = choose_side(centres, reach, is_flat_, costs_.probe, costs_);
    const bool is_crowded = choice.n_looked_at > kManyAreas;
    if (is_crowded && costs_.crowded_probe != costs_.probe) {
      choice = choose_side(centres, reach, is_flat_, costs_.crowded_probe, costs_);
    }
    Level& level = made_.levels.emplace_back(Level::make(reach, choice.side));
    level.names = is_crowded;
    members.clear();
  }
  made_.levels.emplace_back();
  made_.levels.back().names = 1;
  for (Place& place : made_.places) {
    if (!std::isfinite(place.limit)) place.level = made_.everywhere();
  }
}

void Maker::find_common(const Place& place) {
  common_.clear();
  const FilterTable::Filter& first = table_.filter(place.first);
  for (std::uint32_t at = 0; at < first.constraints.count; ++at) {
    if (table_.constraint(first.constraints.first + at).needs_attribute()) {
      common_.push_back(first.constraints.first + at);
    }
  }
  for (FilterIdx idx = place.first + 1; idx < place.first + place.n_filters && !common_.empty();
       ++idx) {
    const FilterTable::Filter& other = table_.filter(idx);
    std::erase_if(common_, [&](std::uint32_t constraint) {
      const AttributeId attribute = table_.constraint(constraint).attribute;
      for (std::uint32_t at = 0; at < other.constraints.count; ++at) {
        const Constraint& each = table_.constraint(other.constraints.first + at);
        if (each.attribute == attribute && each.needs_attribute()) return false;
      }
      return true;
    });
  }
}

void Maker::choose_terms() {
  std::unordered_map<std::uint32_t, std::uint32_t> n_with_value;
  const std::size_t n_attributes = table_.n_attributes();
  made_.terms.resize(made_.levels.size() * n_attributes);
  made_.pivots.resize(made_.places.size(), kNoPivot);
  for (PlaceIdx idx = 0; idx < made_.places.size(); ++idx) {
    Place& place = made_.places[idx];
    if (!made_.levels[place.level].names) continue;
    find_common(place);
    if (common_.empty()) continue;
    constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
    std::uint32_t fewest = kNone;
    AttributeId best = 0;
    TermKind kind = kNameTerm;
    for (const std::uint32_t at : common_) {
      fewest = std::min(fewest, n_naming_[table_.constraint(at).attribute]);
    }
    // Of names that are about as rare, the one with the fewest places: buckets are of one size.
    std::uint32_t fewest_places = kNone;
    for (const std::uint32_t at : common_) {
      const AttributeId attribute = table_.constraint(at).attribute;
      const bool is_rare = n_naming_[attribute] <= fewest + fewest / kAboutAsRare;
      if (!is_rare || n_placed_[attribute] >= fewest_places) continue;
      fewest_places = n_placed_[attribute];
      best = attribute;
      place.term = name_term(attribute);
    }
    // Without cells, values divide further.
    fewest = kNone;
    const bool takes_values = place.level == made_.everywhere() && place.n_filters == 1;
    for (const std::uint32_t at : common_) {
      if (!takes_values) break;
      const Constraint& constraint = table_.constraint(at);
      const std::optional<std::uint64_t> value = hash_only_value(table_, constraint);
      if (!value) continue;
      const std::uint32_t term = value_term(constraint.attribute, *value);
      if (n_with_value[term] >= fewest) continue;
      fewest = n_with_value[term];
      best = constraint.attribute;
      kind = kValueTerm;
      place.term = term;
    }
    if (kind == kValueTerm) ++n_with_value[place.term];
    made_.terms[place.level * n_attributes + best] |= kind;
    made_.pivots[idx] = best;
    ++n_placed_[best];
  }
}

}  // namespace

Places make_places(const FilterTable& table, std::span<const std::uint32_t> owners, bool is_flat,
                   const GridCosts& costs) {
  return Maker(table, owners, is_flat, costs).make();
}

Entry make_entry(const Level& level, const Place& place, const Point& centre, PlaceIdx idx) {
  // Not as a Cell: two halves that are written and then read as one wait for all writes before.
  const std::int32_t x = level.cell_of(centre.x), y = level.cell_of(centre.y),
                     z = level.cell_of(centre.z);
  const auto on_lattice = [&](double at, std::int32_t of_cell) {
    return Level::within(level.lattice_of(at, of_cell));
  };
  return {{{x, y, z}, place.level, place.term},
          Level::pack(on_lattice(centre.x, x), on_lattice(centre.y, y)),
          Level::pack(on_lattice(centre.z, z), 0),
          idx};
}

}  // namespace tamis::spatial_grid
