// Filters in flat arrays: what every engine is built from.
//
//     filters      [n]   ranges of constraints, areas and residuals; all of them must hold
//     constraints        attribute and the set of values it accepts, 8 bytes
//                        set without kGeneral: the one number interval at that place of `numbers`
//                        set with kGeneral: a record of `sets`, with kOptional one that accepts
//                        a missing value
//     sets               flags, ranges of number intervals, string intervals and patterns
//     numbers, strings   the intervals, disjoint and in order; a value must lie in one of them
//     pattern_tests      LIKE tests; each must hold (or, negated, not hold), on strings only
//     bytes              the texts of string intervals and patterns
//     areas              circles around positions
//     residuals          AND/OR trees over constraints and areas, verified on candidates only
//
// A filter accepts an event if each constraint accepts its attribute's value, each area the
// position, and each residual evaluates to true. Every leaf is two-valued here ("is true"): the
// normal form has pushed NOT down to the leaves, where unknown and false are both "not true".
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tamis/catalogue.hpp"
#include "tamis/column.hpp"
#include "tamis/event_batch.hpp"
#include "tamis/pattern.hpp"
#include "tamis/space.hpp"
#include "tamis/value_set.hpp"

namespace tamis {

using FilterIdx = std::uint32_t;
struct NormalForm;

struct Range {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct Constraint {
  static constexpr std::uint32_t kGeneral = std::uint32_t{1} << 31;
  static constexpr std::uint32_t kOptional = std::uint32_t{1} << 30;
  AttributeId attribute = 0;
  std::uint32_t set = 0;

  bool is_interval() const { return (set & kGeneral) == 0; }  // one of numbers, and nothing else
  bool needs_attribute() const { return (set & kOptional) == 0; }  // a missing value is refused
  std::uint32_t place() const { return set & ~(kGeneral | kOptional); }  // in numbers or sets
};

struct GeneralSet {
  // What is accepted besides intervals.
  enum Flag : std::uint8_t { kFalse = 1, kTrue = 2, kNan = 4, kAbsent = 8 };
  std::uint8_t flags = 0;
  Range numbers, strings, patterns;
};

// A NumberInterval in 20 bytes: there is one for nearly every constraint.
struct __attribute__((packed, aligned(4))) NumberRange {
  double low = 0, high = 0;
  std::int16_t low_fine = 0, high_fine = 0;

  static NumberRange from(const NumberInterval& interval) {
    return {interval.low.nearest, interval.high.nearest, interval.low.fine, interval.high.fine};
  }
  Cut low_cut() const { return {low, low_fine}; }
  Cut high_cut() const { return {high, high_fine}; }
  bool contains(Cut cut) const { return !(cut < low_cut()) && cut < high_cut(); }
};
static_assert(sizeof(NumberRange) == 20);

// The values of an event by attribute. Stamps make `clear` free: no O(attributes) work per event.
class ValueByAttribute {
 public:
  void load(const EventBatch& events, std::size_t event, std::size_t n_attributes, Space space);
  const EventValue& operator[](AttributeId attribute) const {
    const Slot& slot = slots_[attribute];
    return slot.stamp == stamp_ ? slot.value : kAbsentValue;
  }
  bool has(AttributeId attribute) const { return slots_[attribute].stamp == stamp_; }
  bool has_position() const { return has_position_; }
  const Point& position() const { return position_; }

 private:
  static constexpr EventValue kAbsentValue{};
  struct Slot {
    EventValue value;
    std::uint64_t stamp = 0;
  };
  std::vector<Slot> slots_;
  std::uint64_t stamp_ = 0;
  bool has_position_ = false;
  Point position_;
};

class FilterTable {
 public:
  explicit FilterTable(Space space) : space_(space) {}

  struct Filter {
    Range constraints, areas, residuals;
  };
  struct PatternTest {  // a compiled pattern in `bytes`
    std::uint64_t at = 0;
    std::uint32_t length = 0;
    bool is_negated = false;
  };
  struct StringRange {  // an interval of strings, its texts in `bytes`
    std::uint64_t low_at = 0, high_at = 0;
    std::uint32_t low_length = 0, high_length = 0;
    bool low_is_after = false, high_is_after = false, high_is_unbounded = false;
  };
  struct Residual {
    enum class Kind : std::uint8_t { all, any, constraint, area };
    Kind kind = Kind::all;
    Range children;  // in residual_children; of a leaf: children.first is the constraint or area
  };

  Space space() const { return space_; }
  std::size_t size() const { return filters_.size(); }
  std::size_t n_constraints() const { return constraints_.size(); }
  std::size_t n_areas() const { return areas_.size(); }
  std::size_t n_attributes() const { return n_attributes_; }  // one above the largest id used
  const Filter& filter(FilterIdx idx) const { return filters_[idx]; }
  const Constraint& constraint(std::uint32_t idx) const { return constraints_[idx]; }
  const NumberRange& number(std::uint32_t idx) const { return numbers_[idx]; }
  // Of a constraint that is no single interval.
  const GeneralSet& general(const Constraint& constraint) const {
    return sets_[constraint.place()];
  }
  const StringRange& string(std::uint32_t idx) const { return strings_[idx]; }
  const PatternTest& pattern_test(std::uint32_t idx) const { return pattern_tests_[idx]; }
  const Area& area(std::uint32_t idx) const { return areas_[idx]; }
  std::uint32_t residual_root(std::uint32_t idx) const { return residual_roots_[idx]; }
  std::string_view text(std::uint64_t at, std::uint32_t length) const {
    return {bytes_.data() + at, length};
  }

  // Exact tests on typed values: the reference that all engines may fall back on.
  bool accepts(const Constraint& constraint, const EventValue& value) const {
    if (value.kind == Kind::absent) return !constraint.needs_attribute();
    if (!constraint.is_interval()) return accepts(general(constraint), value);
    return value.kind == Kind::number && numbers_[constraint.set].contains(value.number().before());
  }
  bool accepts_area(std::uint32_t area, const ValueByAttribute& event) const {
    return event.has_position() && areas_[area].holds(event.position());
  }
  // Areas and residuals of a filter whose constraints hold.
  bool verify_rest(const Filter& filter, const ValueByAttribute& event) const;
  bool accepts(FilterIdx filter, const ValueByAttribute& event) const;

  // Appends the filters of one predicate. Attribute ids are taken from `names`.
  void append(const NormalForm& form, Catalogue& names);
  // Appends filters of another table whose attribute ids are translated by `attribute_of` (empty:
  // they are the same).
  void append(const FilterTable& other, FilterIdx begin, FilterIdx end,
              const std::vector<AttributeId>& attribute_of);
  // Room so that `n_filters` usual filters can be appended without moving anything; and is there
  // room for all of `more`?
  void reserve(std::size_t n_filters);
  bool has_room_for(const FilterTable& more) const;
  // Adds room for all of `more` to the room that was reserved so far.
  void reserve_more(const FilterTable& more);
  void shrink();  // gives back room that is not used
  // Replaces each attribute id by attribute_of[id].
  void translate(const std::vector<AttributeId>& attribute_of);
  // Moves the areas of a filter, all of which are copies of one. Nobody may read them meanwhile.
  void move_areas(FilterIdx filter, double x, double y);
  std::size_t n_bytes() const;  // of memory of its own
  // What is wrong with columns that came from elsewhere; empty: every reference leads somewhere.
  std::string find_damage() const;

  // Calls visit(name, a column of each table...) for every column.
  template <typename Visit, typename... Tables>
  static void for_each_column(Visit visit, Tables&... tables) {
    visit("filters", tables.filters_...);
    visit("constraints", tables.constraints_...);
    visit("sets", tables.sets_...);
    visit("numbers", tables.numbers_...);
    visit("strings", tables.strings_...);
    visit("bytes", tables.bytes_...);
    visit("pattern_tests", tables.pattern_tests_...);
    visit("areas", tables.areas_...);
    visit("residual_roots", tables.residual_roots_...);
    visit("residuals", tables.residuals_...);
    visit("residual_children", tables.residual_children_...);
  }
  // Of columns that were filled from elsewhere.
  void set_n_attributes(std::size_t n_attributes) { n_attributes_ = n_attributes; }

 private:
  bool accepts(const GeneralSet& set, const EventValue& value) const;
  bool residual_holds(std::uint32_t node, const ValueByAttribute& event) const;
  std::uint32_t append_constraint(const FilterTable& other, const Constraint& source,
                                  const std::vector<AttributeId>& attribute_of);
  std::uint32_t append_set(const FilterTable& other, const GeneralSet& source);
  using CopiedResiduals = std::unordered_map<std::uint32_t, std::uint32_t>;
  std::uint32_t append_residual(const FilterTable& other, std::uint32_t node,
                                const std::vector<AttributeId>& attribute_of,
                                CopiedResiduals& copied);
  void check_room() const;
  static std::uint32_t general_place(std::size_t set, std::uint8_t flags) {
    return static_cast<std::uint32_t>(set) | Constraint::kGeneral |
           ((flags & GeneralSet::kAbsent) != 0 ? Constraint::kOptional : 0);
  }
  void use(AttributeId attribute) {
    if (attribute >= n_attributes_) n_attributes_ = attribute + std::size_t{1};
  }

  friend class FilterWriter;
  Space space_;
  std::size_t n_attributes_ = 0;
  Column<Filter> filters_;
  Column<Constraint> constraints_;
  Column<GeneralSet> sets_;
  Column<NumberRange> numbers_;
  Column<StringRange> strings_;
  Column<char> bytes_;
  Column<PatternTest> pattern_tests_;
  Column<Area> areas_;
  Column<std::uint32_t> residual_roots_;
  Column<Residual> residuals_;
  Column<std::uint32_t> residual_children_;
};

}  // namespace tamis
