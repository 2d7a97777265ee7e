// `bit-vector`: distinct constraints to a bit vector, filters by their first one (papers/004,
// section II; there a distinct constraint is called a predicate and a filter a subscription).
//
// A constraint that many filters share is evaluated once, and its bit says whether it holds. A
// filter stands in the list of its first constraint; if that one holds, the filter's other
// constraints are looked up in the bit vector.
//
//     event ──► T(a→p)                           by attribute
//                points_   value ─► terms        equalities and IN: by hash
//                ranges_   low, width, term      intervals of numbers, as places among the
//                                                attribute's cuts_: each is evaluated
//                others_   term                  all else: each is evaluated on the filter table
//                  │ terms that hold
//                  ▼
//               bits       [n_terms]  0 1 0 0 1 1 0 ...       and the list of those set
//                  │ for each that is set
//                  ▼
//               T(p→s)     list_begins_[term] ─► filters_     the filters whose first term it is
//                                                  │ the record: as the place in that list
//                                                  │ (inline), or as the filter (by id)
//               S          second_ │ third_ │ tail_begins_ ─► tails_    the filter's other terms
//
// A term is the number of a distinct constraint, in 16 bits where there are few enough. The second
// and third terms are columns of their own, because two tests rule almost everything out. A filter
// with fewer terms has its first one there again: that bit is set.
//
// Constraints that accept a missing value have no attribute to be found by: they, areas and
// residuals are verified when all terms hold. A filter without terms is in always_.
//
// Invariants: a filter is in one list or in always_; a term is in as many points or ranges as its
// set has parts, which are disjoint, so that it is set at most once; bits are 0 between events.
//
// Cost of an event: a lookup for each attribute and an evaluation for each term that is no
// equality; then each filter whose first term holds. docs/engines/bit-vector.md has the formula.
#include "bit_vector.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "tamis/error.hpp"

namespace tamis {
namespace {

using Term = std::uint32_t;
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
// Records that passed the second term, before the third is tested: enough that short lists share a
// pass, and small enough for the first cache.
constexpr std::size_t kPassed = 2048;

struct Hash {
  std::uint64_t value = 0x9E3779B97F4A7C15u;
  void add(std::uint64_t word) {
    const auto product = static_cast<unsigned __int128>(value ^ word) * 0xD6E8FEB86659FD93u;
    value = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number + 0.0)); }
};

// Gives equal constraints the same number.
class DistinctConstraints {
 public:
  explicit DistinctConstraints(const FilterTable& table) : table_(table), slots_(1024) {}

  Term number_of(std::uint32_t idx) {
    const Constraint& constraint = table_.constraint(idx);
    const std::uint32_t hash = hash_of(constraint);
    for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[at];
      if (slot.term == kNone) {
        const Term term = static_cast<Term>(examples_.size());
        slot = {hash, term};
        examples_.push_back(idx);
        if (2 * examples_.size() > slots_.size()) grow();
        return term;
      }
      if (slot.hash == hash && is_same(table_.constraint(examples_[slot.term]), constraint)) {
        return slot.term;
      }
    }
  }
  const std::vector<std::uint32_t>& examples() const { return examples_; }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    Term term = kNone;
  };

  static void add(Hash& hash, const NumberRange& range) {
    hash.add(range.low);
    hash.add(range.high);
    hash.add(static_cast<std::uint64_t>(static_cast<std::uint16_t>(range.low_fine)) << 16 |
             static_cast<std::uint16_t>(range.high_fine));
  }
  std::uint32_t hash_of(const Constraint& constraint) const {
    Hash hash;
    hash.add(std::uint64_t{constraint.attribute});
    if (constraint.is_interval()) {
      add(hash, table_.number(constraint.set));
    } else {
      const GeneralSet& set = table_.general(constraint);
      hash.add(std::uint64_t{set.flags} << 32 | set.patterns.count);
      for (std::uint32_t at = 0; at < set.numbers.count; ++at) {
        add(hash, table_.number(set.numbers.first + at));
      }
      for (std::uint32_t at = 0; at < set.strings.count; ++at) {
        const FilterTable::StringRange& range = table_.string(set.strings.first + at);
        hash.add(hash_name(table_.text(range.low_at, range.low_length)));
        hash.add(hash_name(table_.text(range.high_at, range.high_length)));
      }
    }
    return static_cast<std::uint32_t>(hash.value >> 32);
  }

  static bool is_same(const NumberRange& a, const NumberRange& b) {
    return a.low_cut() == b.low_cut() && a.high_cut() == b.high_cut();
  }
  bool is_same(const FilterTable::StringRange& a, const FilterTable::StringRange& b) const {
    return a.low_is_after == b.low_is_after && a.high_is_after == b.high_is_after &&
           a.high_is_unbounded == b.high_is_unbounded &&
           table_.text(a.low_at, a.low_length) == table_.text(b.low_at, b.low_length) &&
           table_.text(a.high_at, a.high_length) == table_.text(b.high_at, b.high_length);
  }
  bool is_same(const FilterTable::PatternTest& a, const FilterTable::PatternTest& b) const {
    return a.is_negated == b.is_negated &&
           table_.text(a.at, a.length) == table_.text(b.at, b.length);
  }
  bool is_same(const Constraint& a, const Constraint& b) const {
    if (a.attribute != b.attribute || a.is_interval() != b.is_interval()) return false;
    if (a.is_interval()) return is_same(table_.number(a.set), table_.number(b.set));
    const GeneralSet& left = table_.general(a);
    const GeneralSet& right = table_.general(b);
    if (left.flags != right.flags || left.numbers.count != right.numbers.count ||
        left.strings.count != right.strings.count || left.patterns.count != right.patterns.count) {
      return false;
    }
    for (std::uint32_t at = 0; at < left.numbers.count; ++at) {
      if (!is_same(table_.number(left.numbers.first + at),
                   table_.number(right.numbers.first + at))) {
        return false;
      }
    }
    for (std::uint32_t at = 0; at < left.strings.count; ++at) {
      if (!is_same(table_.string(left.strings.first + at),
                   table_.string(right.strings.first + at))) {
        return false;
      }
    }
    for (std::uint32_t at = 0; at < left.patterns.count; ++at) {
      if (!is_same(table_.pattern_test(left.patterns.first + at),
                   table_.pattern_test(right.patterns.first + at))) {
        return false;
      }
    }
    return true;
  }

  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.term == kNone) continue;
      std::size_t at = slot.hash & (slots_.size() - 1);
      while (slots_[at].term != kNone) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }

  const FilterTable& table_;
  std::vector<Slot> slots_;              // [a power of 2]
  std::vector<std::uint32_t> examples_;  // [n_terms] a constraint of each
};

// T(a→p): which terms hold for a value of an attribute.
class TermsByAttribute {
 public:
  TermsByAttribute(const FilterTable& table, std::vector<std::uint32_t> examples, bool has_hash)
      : table_(table), has_hash_(has_hash), examples_(std::move(examples)) {
    for (Term term = 0; term < examples_.size(); ++term) divide(term);
    close_points();
    close_ranges();
  }

  // Appends the terms that hold to `terms`, which has room for all; gives back how many were
  // evaluated or found by hash.
  std::uint64_t find(AttributeId attribute, const EventValue& value, std::uint32_t* terms,
                     std::size_t& n_terms) const {
    std::uint64_t n_evaluated = 0;
    if (!slots_.empty()) {
      const std::uint32_t point = slots_[slot_of(attribute, value)];
      if (point != kNone) {
        const std::uint32_t begin = point_begins_[point], end = point_begins_[point + 1];
        std::copy(point_terms_.begin() + begin, point_terms_.begin() + end, terms + n_terms);
        n_terms += end - begin;
        n_evaluated += end - begin;
      }
    }
    const Lists& lists = lists_[attribute];
    const Lists& next = lists_[attribute + 1];
    if (value.kind == Kind::number && lists.first_range < next.first_range) {
      const auto cuts_begin = cuts_.begin() + lists.first_cut;
      const auto cuts_end = cuts_.begin() + next.first_cut;
      const auto place = static_cast<std::uint32_t>(
          std::upper_bound(cuts_begin, cuts_end, value.number().before()) - cuts_begin);
      std::size_t n_found = n_terms;
      for (std::uint32_t at = lists.first_range; at < next.first_range; ++at) {
        const RangeTerm& range = ranges_[at];
        terms[n_found] = range.term;
        n_found += place - range.low < range.width ? 1 : 0;
      }
      n_terms = n_found;
      n_evaluated += next.first_range - lists.first_range;
    }
    for (std::uint32_t at = lists.first_other; at < next.first_other; ++at) {
      const Term term = others_[at];
      if (table_.accepts(table_.constraint(examples_[term]), value)) terms[n_terms++] = term;
    }
    return n_evaluated + next.first_other - lists.first_other;
  }

  std::size_t n_bytes() const {
    const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
    return bytes(examples_) + bytes(points_) + bytes(point_begins_) + bytes(point_terms_) +
           bytes(slots_) + bytes(lists_) + bytes(cuts_) + bytes(ranges_) + bytes(others_);
  }

 private:
  struct Point {
    EventValue value;  // strings lie in the filter table
    AttributeId attribute = 0;
  };
  struct RangeTerm {
    std::uint32_t low = 0, width = 0;  // accepted are places from low on
    Term term = 0;
  };
  struct Lists {
    std::uint32_t first_cut = 0, first_range = 0, first_other = 0;
  };
  struct Unsorted {
    AttributeId attribute = 0;
    Term term = 0;
    std::uint32_t number = 0;  // of the filter table
  };

  static bool is_point(const NumberRange& range) {
    return range.low == range.high && range.low_fine % 2 == 0 &&
           range.high_fine == range.low_fine + 1;
  }
  static Number number_of(const NumberRange& range) {
    return {range.low, static_cast<std::int16_t>(range.low_fine / 2)};
  }
  bool is_point(const FilterTable::StringRange& range) const {
    return !range.high_is_unbounded && !range.low_is_after && range.high_is_after &&
           table_.text(range.low_at, range.low_length) ==
               table_.text(range.high_at, range.high_length);
  }

  void divide(Term term) {
    const Constraint& constraint = table_.constraint(examples_[term]);
    if (constraint.is_interval()) {
      add_number(constraint.attribute, term, constraint.set);
      return;
    }
    const GeneralSet& set = table_.general(constraint);
    const std::uint8_t booleans = set.flags & (GeneralSet::kTrue | GeneralSet::kFalse);
    bool is_divided = set.flags == booleans && set.patterns.count == 0 &&
                      (has_hash_ || (booleans == 0 && set.strings.count == 0));
    for (std::uint32_t at = 0; is_divided && at < set.strings.count; ++at) {
      is_divided = is_point(table_.string(set.strings.first + at));
    }
    if (!is_divided) {
      unsorted_others_.push_back({constraint.attribute, term, 0});
      return;
    }
    for (std::uint32_t at = 0; at < set.numbers.count; ++at) {
      add_number(constraint.attribute, term, set.numbers.first + at);
    }
    for (std::uint32_t at = 0; at < set.strings.count; ++at) {
      const FilterTable::StringRange& range = table_.string(set.strings.first + at);
      add_point(constraint.attribute, term,
                EventValue::of(table_.text(range.low_at, range.low_length)));
    }
    if (booleans & GeneralSet::kTrue) add_point(constraint.attribute, term, EventValue::of(true));
    if (booleans & GeneralSet::kFalse) add_point(constraint.attribute, term, EventValue::of(false));
  }

  void add_number(AttributeId attribute, Term term, std::uint32_t number) {
    const NumberRange& range = table_.number(number);
    if (has_hash_ && is_point(range)) {
      add_point(attribute, term, EventValue::of(number_of(range)));
    } else {
      unsorted_ranges_.push_back({attribute, term, number});
    }
  }

  static std::uint64_t hash_of(AttributeId attribute, const EventValue& value) {
    Hash hash;
    hash.add(std::uint64_t{attribute} << 32 | static_cast<std::uint64_t>(value.kind) << 17 |
             static_cast<std::uint64_t>(value.boolean) << 16 |
             static_cast<std::uint16_t>(value.residue));
    if (value.kind == Kind::number) hash.add(value.nearest);
    if (value.kind == Kind::string) hash.add(hash_name(value.string()));
    return hash.value;
  }
  static bool is_same(const EventValue& a, const EventValue& b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
      case Kind::number:
        return a.nearest == b.nearest && a.residue == b.residue;
      case Kind::string:
        return a.string() == b.string();
      case Kind::boolean:
        return a.boolean == b.boolean;
      default:
        return false;  // NaN and absence are never points
    }
  }
  std::size_t slot_of(AttributeId attribute, const EventValue& value) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = (hash_of(attribute, value) >> 32) & mask;
    while (slots_[slot] != kNone && !(points_[slots_[slot]].attribute == attribute &&
                                      is_same(points_[slots_[slot]].value, value))) {
      slot = (slot + 1) & mask;
    }
    return slot;
  }
  void add_point(AttributeId attribute, Term term, const EventValue& value) {
    if (2 * (points_.size() + 1) > slots_.size()) {
      slots_.assign(std::max<std::size_t>(64, 4 * slots_.size()), kNone);
      for (std::uint32_t point = 0; point < points_.size(); ++point) {
        slots_[slot_of(points_[point].attribute, points_[point].value)] = point;
      }
    }
    std::uint32_t& slot = slots_[slot_of(attribute, value)];
    if (slot == kNone) {
      slot = static_cast<std::uint32_t>(points_.size());
      points_.push_back({value, attribute});
    }
    unsorted_points_.push_back({slot, term});
  }

  void close_points() {
    point_begins_.assign(points_.size() + 1, 0);
    for (const auto& [point, term] : unsorted_points_) ++point_begins_[point + 1];
    std::partial_sum(point_begins_.begin(), point_begins_.end(), point_begins_.begin());
    point_terms_.resize(unsorted_points_.size());
    std::vector<std::uint32_t> next(point_begins_.begin(), point_begins_.end() - 1);
    for (const auto& [point, term] : unsorted_points_) point_terms_[next[point]++] = term;
    unsorted_points_ = {};
    points_.shrink_to_fit();
  }

  void close_ranges() {
    const std::size_t n_attributes = table_.n_attributes();
    const auto by_attribute = [](const Unsorted& a, const Unsorted& b) {
      return a.attribute < b.attribute;
    };
    std::stable_sort(unsorted_ranges_.begin(), unsorted_ranges_.end(), by_attribute);
    std::stable_sort(unsorted_others_.begin(), unsorted_others_.end(), by_attribute);
    ranges_.reserve(unsorted_ranges_.size());
    others_.reserve(unsorted_others_.size());
    lists_.resize(n_attributes + 1);
    std::vector<Cut> cuts;
    auto range = unsorted_ranges_.begin();
    auto other = unsorted_others_.begin();
    for (AttributeId attribute = 0; attribute < n_attributes; ++attribute) {
      lists_[attribute] = {static_cast<std::uint32_t>(cuts_.size()),
                           static_cast<std::uint32_t>(ranges_.size()),
                           static_cast<std::uint32_t>(others_.size())};
      const auto begin = range;
      cuts.clear();
      for (; range != unsorted_ranges_.end() && range->attribute == attribute; ++range) {
        cuts.push_back(table_.number(range->number).low_cut());
        cuts.push_back(table_.number(range->number).high_cut());
      }
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
      // A value's place is the number of cuts at or before it.
      const auto place_of = [&cuts](Cut cut) {
        return static_cast<std::uint32_t>(std::lower_bound(cuts.begin(), cuts.end(), cut) -
                                          cuts.begin() + 1);
      };
      for (auto each = begin; each != range; ++each) {
        const NumberRange& number = table_.number(each->number);
        const std::uint32_t low = place_of(number.low_cut());
        ranges_.push_back({low, place_of(number.high_cut()) - low, each->term});
      }
      cuts_.insert(cuts_.end(), cuts.begin(), cuts.end());
      for (; other != unsorted_others_.end() && other->attribute == attribute; ++other) {
        others_.push_back(other->term);
      }
    }
    lists_[n_attributes] = {static_cast<std::uint32_t>(cuts_.size()),
                            static_cast<std::uint32_t>(ranges_.size()),
                            static_cast<std::uint32_t>(others_.size())};
    cuts_.shrink_to_fit();
    unsorted_ranges_ = {};
    unsorted_others_ = {};
  }

  const FilterTable& table_;
  bool has_hash_;
  std::vector<std::uint32_t> examples_;      // [n_terms] a constraint of each
  std::vector<Point> points_;                // [n_points]
  std::vector<std::uint32_t> point_begins_;  // [n_points + 1]
  std::vector<Term> point_terms_;
  std::vector<std::uint32_t> slots_;  // [a power of 2, or 0] point by attribute and value
  std::vector<Lists> lists_;          // [n_attributes + 1]
  std::vector<Cut> cuts_;             // in order within an attribute
  std::vector<RangeTerm> ranges_;
  std::vector<Term> others_;
  std::vector<std::pair<std::uint32_t, Term>> unsorted_points_;  // while building
  std::vector<Unsorted> unsorted_ranges_, unsorted_others_;
};

struct Settings {
  bool is_inline = true;
  bool is_by_rarity = false;
  bool has_hash = true;
};

// The terms of filters, in the order in which they are tested. They are looked up whenever they are
// asked for: to keep them would take more memory than the index.
class FilterTerms {
 public:
  FilterTerms(const FilterTable& table, bool is_by_rarity) : table_(table), distinct_(table) {
    for (FilterIdx idx = 0; idx < table.size(); ++idx) {
      for_each_term(idx, [this, is_by_rarity](Term term) {
        if (!is_by_rarity) return;
        if (term == n_filters_.size()) n_filters_.push_back(0);
        ++n_filters_[term];
      });
    }
  }

  const std::vector<std::uint32_t>& examples() const { return distinct_.examples(); }

  std::uint32_t count(FilterIdx idx) const {
    const Range& constraints = table_.filter(idx).constraints;
    std::uint32_t n_terms = 0;
    for (std::uint32_t at = 0; at < constraints.count; ++at) {
      n_terms += table_.constraint(constraints.first + at).needs_attribute() ? 1 : 0;
    }
    return n_terms;
  }
  // kNone: there is none.
  Term first(FilterIdx idx) {
    if (!n_filters_.empty()) {
      read(idx, terms_);
      return terms_.empty() ? kNone : terms_[0];
    }
    const Range& constraints = table_.filter(idx).constraints;
    for (std::uint32_t at = 0; at < constraints.count; ++at) {
      const std::uint32_t constraint = constraints.first + at;
      if (table_.constraint(constraint).needs_attribute()) {
        return distinct_.number_of(constraint);
      }
    }
    return kNone;
  }
  // Replaces what `terms` holds.
  void read(FilterIdx idx, std::vector<Term>& terms) {
    terms.clear();
    for_each_term(idx, [&terms](Term term) { terms.push_back(term); });
    if (n_filters_.empty()) return;
    std::stable_sort(terms.begin(), terms.end(),
                     [this](Term a, Term b) { return n_filters_[a] < n_filters_[b]; });
  }

 private:
  template <typename Visitor>
  void for_each_term(FilterIdx idx, Visitor visit) {
    const Range& constraints = table_.filter(idx).constraints;
    for (std::uint32_t at = 0; at < constraints.count; ++at) {
      const std::uint32_t constraint = constraints.first + at;
      if (table_.constraint(constraint).needs_attribute()) {
        visit(distinct_.number_of(constraint));
      }
    }
  }

  const FilterTable& table_;
  DistinctConstraints distinct_;
  std::vector<Term> terms_;
  std::vector<std::uint32_t> n_filters_;  // [n_terms] that have the term; empty: order as it is
};

class BitVectorScratch final : public Scratch {
 public:
  ValueByAttribute event;
  std::vector<std::uint64_t> bits;    // [n_terms / 64 + 1], 0 between events
  std::vector<Term> set;              // [n_terms + 1] terms that hold
  std::vector<std::uint32_t> passed;  // [kPassed] records whose second term holds
};

template <typename Id>
class BitVectorIndex final : public Index {
 public:
  BitVectorIndex(std::shared_ptr<const FilterTable> table, FilterTerms& all,
                 const Settings& settings)
      : table_(std::move(table)),
        is_inline_(settings.is_inline),
        n_terms_(all.examples().size()),
        terms_by_attribute_(*table_, all.examples(), settings.has_hash) {
    const std::vector<Term> firsts = fill_lists(all);
    fill_records(all, firsts);
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    auto scratch = std::make_unique<BitVectorScratch>();
    scratch->bits.resize(n_terms_ / 64 + 1);
    scratch->set.resize(n_terms_ + 1);
    scratch->passed.resize(kPassed);
    return scratch;
  }

  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;

  std::size_t n_bytes() const override {
    const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
    return sizeof(*this) + terms_by_attribute_.n_bytes() + bytes(list_begins_) + bytes(filters_) +
           bytes(second_) + bytes(third_) + bytes(tail_begins_) + bytes(tails_) + bytes(rest_) +
           bytes(always_);
  }

 private:
  // Gives back the first term of each filter, kNone where there is none.
  std::vector<Term> fill_lists(FilterTerms& all) {
    const auto n_filters = static_cast<FilterIdx>(table_->size());
    std::vector<Term> firsts(n_filters);
    list_begins_.assign(n_terms_ + 1, 0);
    rest_.resize(n_filters / 64 + 1);
    for (FilterIdx idx = 0; idx < n_filters; ++idx) {
      const FilterTable::Filter& filter = table_->filter(idx);
      if (all.count(idx) < filter.constraints.count || filter.areas.count > 0 ||
          filter.residuals.count > 0) {
        rest_[idx / 64] |= std::uint64_t{1} << (idx % 64);
      }
      firsts[idx] = all.first(idx);
      if (firsts[idx] == kNone) {
        always_.push_back(idx);
      } else {
        ++list_begins_[firsts[idx] + 1];
      }
    }
    std::partial_sum(list_begins_.begin(), list_begins_.end(), list_begins_.begin());
    filters_.resize(n_filters - always_.size());
    std::vector<std::uint32_t> next(list_begins_.begin(), list_begins_.end() - 1);
    for (FilterIdx idx = 0; idx < n_filters; ++idx) {
      if (firsts[idx] != kNone) filters_[next[firsts[idx]]++] = idx;
    }
    return firsts;
  }

  void fill_records(FilterTerms& all, const std::vector<Term>& firsts) {
    const std::size_t n_records = is_inline_ ? filters_.size() : table_->size();
    second_.resize(n_records);
    third_.resize(n_records);
    tail_begins_.resize(n_records + 1);
    // In the order of the filter table, which is then read in sequence: within a list, records are
    // in that order.
    std::vector<std::uint32_t> next(list_begins_.begin(), list_begins_.end() - 1);
    const auto record_of = [&](FilterIdx idx) { return is_inline_ ? next[firsts[idx]]++ : idx; };
    for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
      if (firsts[idx] == kNone) continue;
      const std::uint32_t count = all.count(idx);
      tail_begins_[record_of(idx) + 1] = count > 3 ? count - 3 : 0;
    }
    std::partial_sum(tail_begins_.begin(), tail_begins_.end(), tail_begins_.begin());
    tails_.resize(tail_begins_.back());
    next.assign(list_begins_.begin(), list_begins_.end() - 1);
    std::vector<Term> terms;
    for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
      if (firsts[idx] == kNone) continue;
      const std::size_t record = record_of(idx);
      all.read(idx, terms);
      second_[record] = static_cast<Id>(terms[terms.size() > 1 ? 1 : 0]);
      third_[record] = static_cast<Id>(terms[terms.size() > 2 ? 2 : 0]);
      for (std::size_t at = 3; at < terms.size(); ++at) {
        tails_[tail_begins_[record] + at - 3] = static_cast<Id>(terms[at]);
      }
    }
  }

  bool has_rest(FilterIdx idx) const { return (rest_[idx / 64] >> (idx % 64)) & 1; }

  // Tests the third and further terms of the records that passed the second.
  void finish(BitVectorScratch& scratch, std::size_t n_passed, Counters& counters,
              Collector& out) const;
  template <bool kInline>
  void visit_lists(BitVectorScratch& scratch, std::size_t n_set, Counters& counters,
                   Collector& out) const;

  std::shared_ptr<const FilterTable> table_;
  bool is_inline_;
  std::size_t n_terms_;
  TermsByAttribute terms_by_attribute_;
  std::vector<std::uint32_t> list_begins_;  // [n_terms + 1]
  std::vector<FilterIdx> filters_;          // list after list
  std::vector<Id> second_, third_;          // [n_records]
  std::vector<std::uint32_t> tail_begins_;  // [n_records + 1]
  std::vector<Id> tails_;
  std::vector<std::uint64_t> rest_;  // [n_filters / 64 + 1] must more be verified?
  std::vector<FilterIdx> always_;
};

inline std::uint64_t bit_at(const std::uint64_t* bits, std::size_t term) {
  return (bits[term / 64] >> (term % 64)) & 1;
}

template <typename Id>
void BitVectorIndex<Id>::finish(BitVectorScratch& scratch, std::size_t n_passed, Counters& counters,
                                Collector& out) const {
  const std::uint64_t* const bits = scratch.bits.data();
  std::uint32_t* const passed = scratch.passed.data();
  std::size_t n_left = 0;
  for (std::size_t at = 0; at < n_passed; ++at) {
    const std::uint32_t record = passed[at];
    passed[n_left] = record;
    n_left += bit_at(bits, third_[record]);
  }
  std::uint64_t n_tests = n_passed;
  for (std::size_t at = 0; at < n_left; ++at) {
    const std::uint32_t record = passed[at];
    std::uint32_t tail = tail_begins_[record];
    const std::uint32_t tails_end = tail_begins_[record + 1];
    while (tail < tails_end && bit_at(bits, tails_[tail]) != 0) ++tail;
    n_tests += tail - tail_begins_[record] + (tail < tails_end ? 1 : 0);
    if (tail < tails_end) continue;
    ++counters.candidates;
    const FilterIdx idx = is_inline_ ? filters_[record] : record;
    if (out.has(idx)) continue;
    if (!has_rest(idx) || table_->accepts(idx, scratch.event)) out.add(idx);
  }
  counters.bits += n_tests;
}

template <typename Id>
template <bool kInline>
void BitVectorIndex<Id>::visit_lists(BitVectorScratch& scratch, std::size_t n_set,
                                     Counters& counters, Collector& out) const {
  const std::uint64_t* const bits = scratch.bits.data();
  const Id* const second = second_.data();
  std::uint32_t* const passed = scratch.passed.data();
  std::size_t n_passed = 0;
  for (std::size_t each = 0; each < n_set; ++each) {
    const Term term = scratch.set[each];
    std::uint32_t at = list_begins_[term];
    const std::uint32_t list_end = list_begins_[term + 1];
    counters.filters += list_end - at;
    counters.cells += at < list_end ? 1 : 0;
    while (at < list_end) {
      const std::uint32_t part_end =
          at + static_cast<std::uint32_t>(std::min<std::size_t>(list_end - at, kPassed - n_passed));
      for (; at < part_end; ++at) {
        const std::uint32_t record = kInline ? at : filters_[at];
        passed[n_passed] = record;
        n_passed += bit_at(bits, second[record]);
      }
      if (n_passed == kPassed) {
        finish(scratch, n_passed, counters, out);
        n_passed = 0;
      }
    }
  }
  finish(scratch, n_passed, counters, out);
}

template <typename Id>
void BitVectorIndex<Id>::match(const EventBatch& events, std::size_t begin, std::size_t end,
                               Scratch& given_scratch, Collector& out) const {
  BitVectorScratch& scratch = static_cast<BitVectorScratch&>(given_scratch);
  std::uint64_t* const bits = scratch.bits.data();
  Counters counters;
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    scratch.event.load(events, each, table_->n_attributes(), table_->space());
    std::size_t n_set = 0;
    for (std::uint64_t at = events.offsets[each]; at < events.offsets[each + 1]; ++at) {
      if (events.attributes[at] >= table_->n_attributes()) continue;
      counters.constraints += terms_by_attribute_.find(events.attributes[at], events.values[at],
                                                       scratch.set.data(), n_set);
    }
    for (std::size_t at = 0; at < n_set; ++at) {
      bits[scratch.set[at] / 64] |= std::uint64_t{1} << (scratch.set[at] % 64);
    }
    const std::uint64_t n_looked_at = counters.filters;
    if (is_inline_) {
      visit_lists<true>(scratch, n_set, counters, out);
    } else {
      visit_lists<false>(scratch, n_set, counters, out);
    }
    counters.bits += counters.filters - n_looked_at;
    for (std::size_t at = 0; at < n_set; ++at) bits[scratch.set[at] / 64] = 0;
    for (const FilterIdx idx : always_) {
      if (!out.has(idx) && table_->accepts(idx, scratch.event)) out.add(idx);
    }
    counters.filters += always_.size();
    counters.candidates += always_.size();
  }
  out.counters += counters;
}

constexpr Parameter kParameters[] = {
    {"inline", 1, 0, 1, "1: constraints beside the list of the first one; 0: by filter"},
    {"rarity", 0, 0, 1, "1: a filter's rarest constraint is its first; 0: as written"},
    {"hash", 1, 0, 1, "0: equalities are evaluated too, instead of looked up"},
};

bool is_on(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine bit-vector must be a whole number, not " +
                        std::to_string(value));
  }
  return value != 0;
}

}  // namespace

constinit const std::span<const Parameter> kBitVectorParameters = kParameters;

std::unique_ptr<Index> build_bit_vector(std::shared_ptr<const FilterTable> table,
                                        const Parameters& parameters) {
  const Settings settings{is_on(parameters, "inline"), is_on(parameters, "rarity"),
                          is_on(parameters, "hash")};
  FilterTerms all(*table, settings.is_by_rarity);
  if (all.examples().size() <= std::numeric_limits<std::uint16_t>::max()) {
    return std::make_unique<BitVectorIndex<std::uint16_t>>(std::move(table), all, settings);
  }
  return std::make_unique<BitVectorIndex<std::uint32_t>>(std::move(table), all, settings);
}

}  // namespace tamis
