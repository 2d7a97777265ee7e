#include "guessed_events.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace tamis {
namespace {

constexpr double kAllAttributesFrom = 0.25;  // of them, constrained by a filter
constexpr double kMoreThanFilter = 1.5;
constexpr double kMetresADegree = 111'000;
constexpr std::size_t kLooks = 20;  // for an attribute that the event has not yet, on average

using Random = std::mt19937;

double share(Random& random) { return static_cast<double>(random()) / 4294967296.0; }

EventValue number_in(const NumberRange& range, Random& random) {
  if (std::isinf(range.low) && std::isinf(range.high)) return EventValue::of(0.0);
  if (std::isinf(range.low)) return EventValue::of(range.high - 1);
  if (std::isinf(range.high)) return EventValue::of(range.low + 1);
  const double at = range.low + share(random) * (range.high - range.low);
  const bool is_whole = range.low == std::floor(range.low) && range.high == std::floor(range.high);
  return EventValue::of(is_whole ? std::floor(at) : at);
}

// A value that the constraint accepts, or nearly; absent if there is none to name.
EventValue value_for(const FilterTable& table, const Constraint& constraint, Random& random,
                     EventBatch& events) {
  if (constraint.is_interval()) return number_in(table.number(constraint.set), random);
  const GeneralSet& set = table.general(constraint);
  if (set.numbers.count > 0) {
    return number_in(
        table.number(set.numbers.first + static_cast<std::uint32_t>(random() % set.numbers.count)),
        random);
  }
  if (set.strings.count > 0) {
    const FilterTable::StringRange& range =
        table.string(set.strings.first + static_cast<std::uint32_t>(random() % set.strings.count));
    return EventValue::of(events.arena.copy(table.text(range.low_at, range.low_length)));
  }
  if (set.patterns.count > 0) return EventValue::of(std::string_view("text"));
  if (set.flags & GeneralSet::kTrue) return EventValue::of(true);
  if (set.flags & GeneralSet::kFalse) return EventValue::of(false);
  return {};
}

}  // namespace

EventBatch guess_events(const FilterTable& table, std::size_t n_events) {
  EventBatch events;
  events.n_known = table.n_attributes();
  if (table.size() == 0) return events;
  Random random(1);
  std::vector<bool> is_used(table.n_attributes());
  std::size_t n_used = 0, n_constrained = 0;
  for (FilterIdx idx = 0; idx < table.size(); ++idx) {
    const Range& constraints = table.filter(idx).constraints;
    n_constrained += constraints.count > 0;
    for (std::uint32_t at = 0; at < constraints.count; ++at) {
      const AttributeId attribute = table.constraint(constraints.first + at).attribute;
      n_used += !is_used[attribute];
      is_used[attribute] = true;
    }
  }
  const double n_usual = static_cast<double>(table.n_constraints()) /
                         static_cast<double>(std::max<std::size_t>(1, n_constrained));
  const bool has_all = n_usual >= kAllAttributesFrom * static_cast<double>(n_used);
  const auto width =
      has_all ? n_used : std::min(n_used, static_cast<std::size_t>(kMoreThanFilter * n_usual));

  std::vector<std::size_t> seen_in(table.n_attributes(), n_events);  // the event it is in already
  const auto any_filter = [&] {
    return table.filter(static_cast<FilterIdx>(random() % table.size()));
  };
  for (std::size_t event = 0; event < n_events; ++event) {
    std::size_t n_values = 0;
    const auto add = [&](const Constraint& constraint) {
      if (seen_in[constraint.attribute] == event) return;
      const EventValue value = value_for(table, constraint, random, events);
      if (value.kind == Kind::absent) return;
      seen_in[constraint.attribute] = event;
      events.add(constraint.attribute, value);
      ++n_values;
    };
    for (std::size_t look = 0; look < kLooks * width && n_values < width; ++look) {
      const Range constraints = any_filter().constraints;
      if (constraints.count == 0) continue;
      if (look == 0 && event % 2 == 0) {  // every other event has what some filter asks for
        for (std::uint32_t at = 0; at < constraints.count; ++at) {
          add(table.constraint(constraints.first + at));
        }
        continue;
      }
      add(table.constraint(constraints.first +
                           static_cast<std::uint32_t>(random() % constraints.count)));
    }
    const Range areas = any_filter().areas;
    if (table.n_areas() > 0) {
      const Area& area = table.area(
          areas.count > 0 ? areas.first : static_cast<std::uint32_t>(random() % table.n_areas()));
      const double reach = area.radius * 2 / (table.space() == Space::earth ? kMetresADegree : 1);
      double x = area.x + (share(random) - 0.5) * reach, y = area.y + (share(random) - 0.5) * reach;
      if (!is_place(table.space(), x, y)) {
        x = area.x;
        y = area.y;
      }
      events.add_position(x, y);
    }
    events.end_event();
  }
  return events;
}

}  // namespace tamis
