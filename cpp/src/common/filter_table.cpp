#include "tamis/filter_table.hpp"

#include "tamis/error.hpp"
#include "tamis/normal_form.hpp"

namespace tamis {
namespace {

template <typename Items>
std::uint32_t size_of(const Items& items) {
  return static_cast<std::uint32_t>(items.size());
}

}  // namespace

void ValueByAttribute::load(const EventBatch& events, std::size_t event, std::size_t n_attributes,
                            Space space) {
  if (slots_.size() < n_attributes) slots_.resize(n_attributes);
  ++stamp_;
  for (std::uint64_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
    const AttributeId attribute = events.attributes[at];
    if (attribute >= n_attributes) continue;
    slots_[attribute] = {events.values[at], stamp_};
  }
  has_position_ = events.has_position(event);
  if (has_position_) position_ = to_point(space, events.x[event], events.y[event]);
}

bool FilterTable::accepts(const GeneralSet& set, const EventValue& value) const {
  switch (value.kind) {
    case Kind::absent:
      return (set.flags & GeneralSet::kAbsent) != 0;
    case Kind::nan:
      return (set.flags & GeneralSet::kNan) != 0;
    case Kind::boolean:
      return (set.flags & (value.boolean ? GeneralSet::kTrue : GeneralSet::kFalse)) != 0;
    case Kind::number: {
      const Cut cut = value.number().before();
      // The last interval that begins at or before the value.
      std::uint32_t first = set.numbers.first;
      std::uint32_t count = set.numbers.count;
      while (count > 1) {
        const std::uint32_t half = count / 2;
        if (!(cut < numbers_[first + half].low_cut())) first += half;
        count -= half;
      }
      return count == 1 && numbers_[first].contains(cut);
    }
    case Kind::string: {
      const std::string_view given = value.string();
      const auto begins_after = [&](const StringRange& range) {
        const int order = given.compare(text(range.low_at, range.low_length));
        return order < 0 || (order == 0 && range.low_is_after);
      };
      std::uint32_t first = set.strings.first;
      std::uint32_t count = set.strings.count;
      while (count > 1) {
        const std::uint32_t half = count / 2;
        if (!begins_after(strings_[first + half])) first += half;
        count -= half;
      }
      if (count == 0 || begins_after(strings_[first])) return false;
      const StringRange& range = strings_[first];
      if (!range.high_is_unbounded) {
        const int order = given.compare(text(range.high_at, range.high_length));
        if (order > 0 || (order == 0 && !range.high_is_after)) return false;
      }
      for (std::uint32_t at = 0; at < set.patterns.count; ++at) {
        const PatternTest& test = pattern_tests_[set.patterns.first + at];
        if (Pattern::matches(text(test.at, test.length), given) == test.is_negated) return false;
      }
      return true;
    }
  }
  return false;
}

bool FilterTable::residual_holds(std::uint32_t node, const ValueByAttribute& event) const {
  const Residual& residual = residuals_[node];
  switch (residual.kind) {
    case Residual::Kind::constraint: {
      const Constraint& constraint = constraints_[residual.children.first];
      return accepts(constraint, event[constraint.attribute]);
    }
    case Residual::Kind::area:
      return accepts_area(residual.children.first, event);
    default:
      break;
  }
  const bool is_any = residual.kind == Residual::Kind::any;
  for (std::uint32_t at = 0; at < residual.children.count; ++at) {
    if (residual_holds(residual_children_[residual.children.first + at], event) == is_any) {
      return is_any;
    }
  }
  return !is_any;
}

bool FilterTable::verify_rest(const Filter& filter, const ValueByAttribute& event) const {
  for (std::uint32_t at = 0; at < filter.areas.count; ++at) {
    if (!accepts_area(filter.areas.first + at, event)) return false;
  }
  for (std::uint32_t at = 0; at < filter.residuals.count; ++at) {
    if (!residual_holds(residual_roots_[filter.residuals.first + at], event)) return false;
  }
  return true;
}

bool FilterTable::accepts(FilterIdx idx, const ValueByAttribute& event) const {
  const Filter& filter = filters_[idx];
  for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
    const Constraint& constraint = constraints_[filter.constraints.first + at];
    if (!accepts(constraint, event[constraint.attribute])) return false;
  }
  return verify_rest(filter, event);
}

// Writes the parts of a normal form behind the arrays of a table.
class FilterWriter {
 public:
  FilterWriter(FilterTable& table, const NormalForm& form, Catalogue& names)
      : table_(table),
        form_(form),
        names_(names),
        residual_of_(form.residuals.size(), kUnwritten) {}

  void write() {
    for (const NormalFilter& filter : form_.filters) {
      // Residuals first: their constraints and areas must not lie within the filter's ranges.
      FilterTable::Filter flat;
      std::vector<std::uint32_t> roots;
      roots.reserve(filter.residuals.size());
      for (const std::uint32_t root : filter.residuals) roots.push_back(residual(root));
      flat.residuals = {size_of(table_.residual_roots_), size_of(roots)};
      table_.residual_roots_.append(roots);
      flat.constraints = {size_of(table_.constraints_), size_of(filter.constraints)};
      for (const NormalConstraint& each : filter.constraints) constraint(each);
      flat.areas = {size_of(table_.areas_), size_of(filter.areas)};
      for (const NormalArea& each : filter.areas) area(each);
      table_.filters_.push_back(flat);
    }
  }

 private:
  static constexpr std::uint32_t kUnwritten = ~std::uint32_t{0};

  std::uint32_t constraint(const NormalConstraint& source) {
    const ValueSet& set = source.set;
    Constraint flat;
    flat.attribute = names_.intern(source.name);
    table_.use(flat.attribute);
    const Range numbers{size_of(table_.numbers_), size_of(set.numbers)};
    for (const NumberInterval& interval : set.numbers) {
      table_.numbers_.push_back(NumberRange::from(interval));
    }
    const auto flags = static_cast<std::uint8_t>(set.booleans | (set.nan ? GeneralSet::kNan : 0) |
                                                 (set.absent ? GeneralSet::kAbsent : 0));
    if (numbers.count == 1 && flags == 0 && set.strings.empty()) {
      flat.set = numbers.first;
    } else {
      flat.set = FilterTable::general_place(table_.sets_.size(), flags);
      table_.sets_.push_back({flags, numbers, strings(set.strings), patterns(source.patterns)});
    }
    table_.constraints_.push_back(flat);
    return size_of(table_.constraints_) - 1;
  }

  Range strings(const std::vector<StringInterval>& intervals) {
    const Range range{size_of(table_.strings_), size_of(intervals)};
    for (const StringInterval& interval : intervals) {
      table_.strings_.push_back({add_bytes(interval.low.text), add_bytes(interval.high.text),
                                 static_cast<std::uint32_t>(interval.low.text.size()),
                                 static_cast<std::uint32_t>(interval.high.text.size()),
                                 interval.low.is_after, interval.high.is_after,
                                 interval.high.is_unbounded});
    }
    return range;
  }

  Range patterns(const std::vector<NormalConstraint::PatternTest>& tests) {
    const Range range{size_of(table_.pattern_tests_), size_of(tests)};
    for (const NormalConstraint::PatternTest& test : tests) {
      const std::string& compiled = test.pattern->compiled();
      table_.pattern_tests_.push_back({add_bytes(compiled), size_of(compiled), test.is_negated});
    }
    return range;
  }

  std::uint64_t add_bytes(const std::string& text) {
    const std::uint64_t at = table_.bytes_.size();
    table_.bytes_.append(text);
    return at;
  }

  std::uint32_t area(const NormalArea& source) {
    table_.areas_.push_back(Area::make(table_.space_, source.x, source.y, source.radius,
                                       source.is_negated, source.is_only));
    return size_of(table_.areas_) - 1;
  }

  std::uint32_t residual(std::uint32_t source) {
    if (residual_of_[source] != kUnwritten) return residual_of_[source];
    const NormalResidual& from = form_.residuals[source];
    FilterTable::Residual flat;
    switch (from.kind) {
      case NormalResidual::Kind::constraint:
        flat.kind = FilterTable::Residual::Kind::constraint;
        flat.children = {constraint(from.constraint), 1};
        break;
      case NormalResidual::Kind::area:
        flat.kind = FilterTable::Residual::Kind::area;
        flat.children = {area(from.area), 1};
        break;
      default: {
        flat.kind = from.kind == NormalResidual::Kind::all ? FilterTable::Residual::Kind::all
                                                           : FilterTable::Residual::Kind::any;
        std::vector<std::uint32_t> children;
        children.reserve(from.children.size());
        for (const std::uint32_t child : from.children) children.push_back(residual(child));
        flat.children = {size_of(table_.residual_children_), size_of(children)};
        table_.residual_children_.append(children);
      }
    }
    table_.residuals_.push_back(flat);
    return residual_of_[source] = size_of(table_.residuals_) - 1;
  }

  FilterTable& table_;
  const NormalForm& form_;
  Catalogue& names_;
  std::vector<std::uint32_t> residual_of_;
};

void FilterTable::check_room() const {
  constexpr std::size_t kMost = std::size_t{1} << 29;  // one predicate more must still fit 2^30
  if (filters_.size() > kMost || constraints_.size() > kMost || numbers_.size() > kMost ||
      strings_.size() > kMost || residual_children_.size() > kMost) {
    throw ArgumentError("a segment must not hold more than 2^29 constraints or intervals");
  }
}

void FilterTable::append(const NormalForm& form, Catalogue& names) {
  check_room();
  FilterWriter(*this, form, names).write();
}

std::uint32_t FilterTable::append_constraint(const FilterTable& other, const Constraint& source,
                                             const std::vector<AttributeId>& attribute_of) {
  Constraint flat = source;
  if (!attribute_of.empty()) flat.attribute = attribute_of[source.attribute];
  use(flat.attribute);
  if (source.is_interval()) {
    flat.set = size_of(numbers_);
    numbers_.push_back(other.numbers_[source.set]);
  } else {
    const std::uint8_t flags = other.general(source).flags;
    flat.set = general_place(append_set(other, other.general(source)), flags);
  }
  constraints_.push_back(flat);
  return size_of(constraints_) - 1;
}

std::uint32_t FilterTable::append_set(const FilterTable& other, const GeneralSet& source) {
  GeneralSet flat = source;
  flat.numbers.first = size_of(numbers_);
  numbers_.append({other.numbers_.data() + source.numbers.first, source.numbers.count});
  const auto copy_text = [&](std::uint64_t& text_at, std::uint32_t length) {
    const std::uint64_t copied_to = bytes_.size();
    bytes_.append(other.text(text_at, length));
    text_at = copied_to;
  };
  flat.strings.first = size_of(strings_);
  for (std::uint32_t at = 0; at < source.strings.count; ++at) {
    StringRange range = other.strings_[source.strings.first + at];
    copy_text(range.low_at, range.low_length);
    copy_text(range.high_at, range.high_length);
    strings_.push_back(range);
  }
  flat.patterns.first = size_of(pattern_tests_);
  for (std::uint32_t at = 0; at < source.patterns.count; ++at) {
    PatternTest test = other.pattern_tests_[source.patterns.first + at];
    copy_text(test.at, test.length);
    pattern_tests_.push_back(test);
  }
  sets_.push_back(flat);
  return size_of(sets_) - 1;
}

std::uint32_t FilterTable::append_residual(const FilterTable& other, std::uint32_t node,
                                           const std::vector<AttributeId>& attribute_of,
                                           CopiedResiduals& copied) {
  if (const auto known = copied.find(node); known != copied.end()) return known->second;
  const Residual& source = other.residuals_[node];
  Residual flat{source.kind, source.children};
  if (source.kind == Residual::Kind::constraint) {
    flat.children.first =
        append_constraint(other, other.constraints_[source.children.first], attribute_of);
  } else if (source.kind == Residual::Kind::area) {
    areas_.push_back(other.areas_[source.children.first]);
    flat.children.first = size_of(areas_) - 1;
  } else {
    std::vector<std::uint32_t> children;
    for (std::uint32_t at = 0; at < source.children.count; ++at) {
      children.push_back(append_residual(
          other, other.residual_children_[source.children.first + at], attribute_of, copied));
    }
    flat.children.first = size_of(residual_children_);
    residual_children_.append(children);
  }
  residuals_.push_back(flat);
  return copied[node] = size_of(residuals_) - 1;
}

void FilterTable::append(const FilterTable& other, FilterIdx begin, FilterIdx end,
                         const std::vector<AttributeId>& attribute_of) {
  check_room();
  // Filters of one predicate share residuals, and stay sharing them: the copy is never larger.
  CopiedResiduals copied;
  for (FilterIdx idx = begin; idx < end; ++idx) {
    const Filter& source = other.filters_[idx];
    Filter flat = source;
    std::vector<std::uint32_t> roots;
    for (std::uint32_t at = 0; at < source.residuals.count; ++at) {
      roots.push_back(append_residual(other, other.residual_roots_[source.residuals.first + at],
                                      attribute_of, copied));
    }
    flat.residuals.first = size_of(residual_roots_);
    residual_roots_.append(roots);
    flat.constraints.first = size_of(constraints_);
    for (std::uint32_t at = 0; at < source.constraints.count; ++at) {
      append_constraint(other, other.constraints_[source.constraints.first + at], attribute_of);
    }
    flat.areas.first = size_of(areas_);
    for (std::uint32_t at = 0; at < source.areas.count; ++at) {
      areas_.push_back(other.areas_[source.areas.first + at]);
    }
    filters_.push_back(flat);
  }
}

void FilterTable::reserve(std::size_t n_filters) {
  // Measured on the workloads: 4 to 10 constraints a filter, the rest is rare.
  filters_.reserve(n_filters);
  constraints_.reserve(8 * n_filters);
  numbers_.reserve(8 * n_filters);
  sets_.reserve(2 * n_filters);
  strings_.reserve(2 * n_filters);
  bytes_.reserve(32 * n_filters);
  pattern_tests_.reserve(n_filters / 2);
  areas_.reserve(n_filters);
  residual_roots_.reserve(n_filters / 2);
  residuals_.reserve(n_filters / 2);
  residual_children_.reserve(n_filters / 2);
}

bool FilterTable::has_room_for(const FilterTable& more) const {
  bool has_room = true;
  for_each_column(
      [&](const char*, const auto& items, const auto& added) {
        has_room = has_room && items.size() + added.size() <= items.capacity();
      },
      *this, more);
  return has_room;
}

void FilterTable::reserve_more(const FilterTable& more) {
  for_each_column([](const char*, auto& items,
                     const auto& added) { items.reserve(items.capacity() + added.size()); },
                  *this, more);
}

void FilterTable::shrink() {
  for_each_column([](const char*, auto& items) { items.shrink(); }, *this);
}

void FilterTable::translate(const std::vector<AttributeId>& attribute_of) {
  n_attributes_ = 0;
  for (Constraint& constraint : constraints_.own()) {
    constraint.attribute = attribute_of[constraint.attribute];
    use(constraint.attribute);
  }
}

void FilterTable::move_areas(FilterIdx idx, double x, double y) {
  if (areas_.own().size() != areas_.size())
    areas_ = std::vector<Area>(areas_.begin(), areas_.end());
  const Filter& filter = filters_[idx];
  for (std::uint32_t at = 0; at < filter.areas.count; ++at) {
    Area& area = areas_.own()[filter.areas.first + at];
    area = Area::make(space_, x, y, area.radius, area.is_negated, area.is_only);
  }
}

std::size_t FilterTable::n_bytes() const {
  std::size_t total = 0;
  for_each_column([&](const char*, const auto& items) { total += items.n_bytes(); }, *this);
  return total;
}

std::string FilterTable::find_damage() const {
  const auto fits = [](const Range& range, const auto& items) {
    return std::uint64_t{range.first} + range.count <= items.size();
  };
  const auto is_text = [&](std::uint64_t at, std::uint64_t length) {
    return at <= bytes_.size() && length <= bytes_.size() - at;
  };
  for (const Filter& filter : filters_) {
    if (!fits(filter.constraints, constraints_) || !fits(filter.areas, areas_) ||
        !fits(filter.residuals, residual_roots_)) {
      return "a filter";
    }
  }
  for (const Constraint& constraint : constraints_) {
    const std::size_t most = constraint.is_interval() ? numbers_.size() : sets_.size();
    if (constraint.place() >= most || constraint.attribute >= n_attributes_) {
      return "a constraint";
    }
  }
  for (const GeneralSet& set : sets_) {
    if (!fits(set.numbers, numbers_) || !fits(set.strings, strings_) ||
        !fits(set.patterns, pattern_tests_)) {
      return "a set of values";
    }
  }
  for (const StringRange& range : strings_) {
    if (!is_text(range.low_at, range.low_length) || !is_text(range.high_at, range.high_length)) {
      return "an interval of strings";
    }
  }
  for (const PatternTest& test : pattern_tests_) {
    if (!is_text(test.at, test.length)) return "a pattern";
  }
  for (const std::uint32_t root : residual_roots_) {
    if (root >= residuals_.size()) return "a residual";
  }
  for (std::size_t node = 0; node < residuals_.size(); ++node) {
    const Residual& residual = residuals_[node];
    if (residual.kind == Residual::Kind::constraint) {
      if (residual.children.first >= constraints_.size()) return "a residual";
    } else if (residual.kind == Residual::Kind::area) {
      if (residual.children.first >= areas_.size()) return "a residual";
    } else {
      if (!fits(residual.children, residual_children_)) return "a residual";
      for (std::uint32_t at = 0; at < residual.children.count; ++at) {
        // Children are written before their parents, so there is no way around in a circle.
        if (residual_children_[residual.children.first + at] >= node) return "a residual";
      }
    }
  }
  return {};
}

}  // namespace tamis
