#include "tamis/filter_summary.hpp"

#include <algorithm>

#include "snapshot.hpp"

namespace tamis {
namespace {

void add_kinds(const FilterTable& table, const Constraint& constraint, AttributeSummary& to) {
  if (constraint.is_interval()) {
    to.accepts_numbers = true;
    return;
  }
  const GeneralSet& set = table.general(constraint);
  to.accepts_numbers |= set.numbers.count > 0 || (set.flags & GeneralSet::kNan) != 0;
  to.accepts_strings |= set.strings.count > 0 || set.patterns.count > 0;
  to.accepts_booleans |= (set.flags & (GeneralSet::kFalse | GeneralSet::kTrue)) != 0;
}

void add_hull(const FilterTable& table, const Constraint& constraint, AttributeSummary& to) {
  const auto add = [&](const NumberRange& range) {
    to.low = std::min(to.low, range.low_cut().nearest);
    to.high = std::max(to.high, range.high_cut().nearest);
  };
  if (constraint.is_interval()) {
    add(table.number(constraint.place()));
    return;
  }
  const GeneralSet& set = table.general(constraint);
  for (std::uint32_t idx = 0; idx < set.numbers.count; ++idx) {
    add(table.number(set.numbers.first + idx));
  }
  if ((set.flags & GeneralSet::kNan) != 0) {
    to.low = -std::numeric_limits<double>::infinity();
    to.high = std::numeric_limits<double>::infinity();
  }
}

void add_filters(const SegmentFilters& filters, FilterSummary& to) {
  const FilterTable& table = *filters.table;
  to.n_filters += table.size();
  for (std::uint32_t idx = 0; idx < table.n_constraints(); ++idx) {
    const Constraint& constraint = table.constraint(idx);
    add_kinds(table, constraint, to.attributes[constraint.attribute]);
  }
  for (FilterIdx idx = 0; idx < table.size(); ++idx) {
    const FilterTable::Filter& filter = table.filter(idx);
    for (std::uint32_t each = 0; each < filter.constraints.count; ++each) {
      const Constraint& constraint = table.constraint(filter.constraints.first + each);
      if (!constraint.needs_attribute()) continue;
      AttributeSummary& attribute = to.attributes[constraint.attribute];
      ++attribute.n_needing;
      add_hull(table, constraint, attribute);
    }
    for (std::uint32_t each = 0; each < filter.areas.count; ++each) {
      const Area& area = table.area(filter.areas.first + each);
      if (area.is_negated) continue;
      const double reach = table.space() == Space::plane ? area.radius : 0;
      Centre centre{.x = area.x, .y = area.y, .point = {}};
      if (filters.centres) filters.centres->read(filters.slot_of[idx], centre);
      to.min_x = std::min(to.min_x, centre.x - reach);
      to.max_x = std::max(to.max_x, centre.x + reach);
      to.min_y = std::min(to.min_y, centre.y - reach);
      to.max_y = std::max(to.max_y, centre.y + reach);
      to.max_radius = std::max(to.max_radius, area.radius);
      ++to.n_with_area;
      break;  // one is enough to leave an event out
    }
  }
}

}  // namespace

FilterSummary summarize(const View& view) {
  const Snapshot& snapshot = *view.snapshot;
  FilterSummary summary;
  for (AttributeId id = 0; id < snapshot.names->size(); ++id) {
    summary.attributes.emplace_back().name = snapshot.names->name(id);
  }
  for (const auto& segment : snapshot.segments) {
    for (const Group& group : segment->groups()) add_filters(group.filters(), summary);
  }
  return summary;
}

}  // namespace tamis
