// `ocm`: Parallel Content Matching on a multicore CPU (papers/000 and 001, sections 3.1 and 3.2).
//
// Filters are divided by a small bit vector of their names, and an event visits the tables whose
// vector is included in its own. There it evaluates the constraints on its names and counts for
// each filter how many hold: a filter with as many as it has constraints matches.
//
//     NameVector ──► table                        one for each NameVector of a filter
//        0b0101        rows, by attribute         row_attributes_, row_begins_ (NumConstr)
//                        │  constraints of that attribute, side by side, in four columns:
//                        ├─ blooms_      u64      names of the filter, one bit each (ConstrBF)
//                        ├─ operators_   u8       (ConstrOp)
//                        ├─ operands_    u64      a double, or a place in one of the side arrays
//                        └─ filter_nos_  u32      the filter's number in its table
//                      infos_, by filter number   size, filter (FiltersInfo)
//     always_        filters without a countable constraint: verified for each event
//     Worker::counts u8 [filters of the largest table], 0 between tables (FiltersCount)
//
// Counted is a constraint that needs its attribute: one that accepts absence has no name to look
// for in the event. It, areas and residuals are verified when the count is reached.
//
// Invariants: a filter is in one table or in always_, a counted constraint in one row; tables, rows
// and filter numbers follow one another without gaps, and a sentinel ends each array of begins.
//
// Cost for an event with K bits: 2^K lookups or a scan over all NameVectors to select the tables;
// for each of them a search for each attribute; a Bloom test for each constraint of these rows, and
// an evaluation for each that passes. docs/engines/ocm.md has the formula.
#include "ocm.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "common/thread_pool.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

// A lookup in the map of NameVectors costs as much as a scan over about this many of them. With
// 220,000 tables (pcm-default, 13 and 16 attributes an event) an event took 0.8 times as long with
// 2^12 lookups as with the scan, and 3 times as long with 2^14 and more.
constexpr std::size_t kScansPerLookup = 32;
constexpr std::size_t kMaxCounted = 255;  // of a filter, so that a count is a byte
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// How an event's value lies to the constraint's: an operator is the set of those it accepts.
enum Order : std::uint8_t { kLess = 1, kEqual = 2, kGreater = 4, kAnyOrder = 7 };
enum Operator : std::uint8_t {
  // Below: a set of Order; the operand is the double.
  kBetween = 8,   // the operand is a place in ranges_
  kString = 16,   // and a set of Order; the operand is a place in strings_
  kGeneral = 32,  // the operand is a constraint of the filter table
};

// The first eight bytes, so that different keys are ordered as the strings are.
std::uint64_t string_key(std::string_view text) {
  std::array<unsigned char, 8> bytes{};
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size()));
  std::uint64_t key = 0;
  for (const unsigned char byte : bytes) key = key << 8 | byte;
  return key;
}

// The order of a value to numbers without residue; nothing for other kinds than numbers.
struct NumberKey {
  double nearest = std::numeric_limits<double>::quiet_NaN();
  std::uint8_t tie = 0;  // the order where the doubles are the same

  static NumberKey of(const EventValue& value) {
    if (value.kind != Kind::number) return {};
    const std::int16_t residue = value.residue;
    return {value.nearest, residue < 0 ? kLess : residue > 0 ? kGreater : kEqual};
  }
  std::uint8_t order_to(double other) const {
    if (nearest < other) return kLess;
    return nearest > other ? std::uint8_t{kGreater} : tie;
  }
};

struct StringOperand {
  std::uint64_t key = 0;
  std::uint32_t constraint = 0;  // decides where the keys are the same
};

struct Comparison {
  std::uint8_t orders = 0;  // 0: it is none
  double number = 0;
  std::string_view text;
};

// The bound as a number without residue, if it is one. A cut is just before or just after it.
bool is_plain(Cut cut) { return cut.fine == 0 || cut.fine == 1; }
bool is_after(Cut cut) { return cut.fine == 1; }

Comparison number_comparison(const NumberRange& range) {
  const Cut low = range.low_cut(), high = range.high_cut();
  const bool has_low = !(low == kLowest), has_high = !(high == kHighest);
  if (!has_low && !has_high) return {kAnyOrder, 0, {}};
  if (has_low && has_high) {
    const bool is_equality = is_plain(low) && is_plain(high) && low.nearest == high.nearest &&
                             !is_after(low) && is_after(high);
    return {static_cast<std::uint8_t>(is_equality ? kEqual : 0), low.nearest, {}};
  }
  const Cut bound = has_low ? low : high;
  if (!is_plain(bound)) return {};
  const bool accepts_bound = is_after(bound) == has_high;
  return {static_cast<std::uint8_t>((has_high ? kLess : kGreater) | (accepts_bound ? kEqual : 0)),
          bound.nearest,
          {}};
}

// x != 5: everything below and everything above.
Comparison number_inequality(const NumberRange& below, const NumberRange& above) {
  const Cut high = below.high_cut(), low = above.low_cut();
  if (!(below.low_cut() == kLowest) || !(above.high_cut() == kHighest)) return {};
  if (!is_plain(high) || !is_plain(low) || high.nearest != low.nearest) return {};
  if (is_after(high) || !is_after(low)) return {};
  return {kLess | kGreater, low.nearest, {}};
}

Comparison string_comparison(const FilterTable& table, const GeneralSet& set) {
  const auto low_text = [&](const FilterTable::StringRange& range) {
    return table.text(range.low_at, range.low_length);
  };
  const auto high_text = [&](const FilterTable::StringRange& range) {
    return table.text(range.high_at, range.high_length);
  };
  const FilterTable::StringRange& first = table.string(set.strings.first);
  const FilterTable::StringRange& last = table.string(set.strings.first + set.strings.count - 1);
  const bool has_low = first.low_length > 0 || first.low_is_after;
  const bool has_high = !last.high_is_unbounded;
  if (set.strings.count == 2) {
    const bool is_inequality = !has_low && !has_high && high_text(first) == low_text(last) &&
                               !first.high_is_after && last.low_is_after;
    return {static_cast<std::uint8_t>(is_inequality ? kLess | kGreater : 0), 0, low_text(last)};
  }
  if (!has_low && !has_high) return {kAnyOrder, 0, {}};
  if (has_low && has_high) {
    const bool is_equality =
        low_text(first) == high_text(first) && !first.low_is_after && first.high_is_after;
    return {static_cast<std::uint8_t>(is_equality ? kEqual : 0), 0, low_text(first)};
  }
  const bool accepts_bound = has_high ? first.high_is_after : !first.low_is_after;
  return {static_cast<std::uint8_t>((has_high ? kLess : kGreater) | (accepts_bound ? kEqual : 0)),
          0, has_high ? high_text(first) : low_text(first)};
}

// A table that an event visits, and the rows of its attributes there: the paper's Input.
struct Line {
  std::uint32_t begin = 0, end = 0;  // constraints
  std::uint32_t value_idx = 0;
};
struct Visit {
  std::uint32_t table = 0;
  std::uint32_t lines_end = 0;  // those of the table begin where the one before ends
};

struct PreparedValue {
  AttributeId attribute = 0;
  std::uint64_t vector_bit = 0;
  NumberKey number;
  std::uint64_t string_key = 0;
  EventValue value;
};

// What one thread needs to evaluate tables.
struct Worker {
  std::vector<std::uint8_t> counts;    // [filters of the largest table]
  std::vector<std::uint32_t> touched;  // [filters of the largest table] whose count is not 0
  std::size_t n_touched = 0;
  std::vector<std::uint32_t> reached;  // places in infos_ whose count is complete
  std::uint64_t n_blooms = 0, n_evaluated = 0;
};

class OcmScratch final : public Scratch {
 public:
  ValueByAttribute event;
  std::vector<PreparedValue> values;
  struct Place {
    std::uint64_t stamp = 0;
    std::uint32_t value_idx = 0;
  };
  std::vector<Place> place_of;  // [n_attributes]
  std::uint64_t stamp = 0;
  std::uint64_t vector = 0, bloom = 0;  // of the event
  std::vector<Visit> visits;
  std::vector<Line> lines;
  std::vector<Worker> workers;  // [table_threads]
};

struct Settings {
  std::size_t name_vector_bits = 0;
  bool has_filter_selection = true;
  std::size_t table_threads = 1;
};

class OcmIndex final : public Index {
 public:
  OcmIndex(std::shared_ptr<const FilterTable> table, const Settings& settings)
      : table_(std::move(table)), n_workers_(settings.table_threads) {
    map_names(settings);
    std::vector<std::uint32_t> places;  // filters by table
    divide_filters(places);
    fill_tables(places);
  }

  std::unique_ptr<Scratch> make_scratch() const override;
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override;

 private:
  struct Name {
    std::uint64_t vector_bit = 0, bloom_bit = 0;  // 0, 0: no constraint on it is counted
  };
  struct Table {
    std::uint32_t first_row = 0, first_filter = 0;
  };
  struct Slot {
    std::uint64_t vector = 0;
    std::uint32_t table = kNone;
  };
  struct FilterInfo {
    FilterIdx filter = 0;
    std::uint8_t size = 0;  // counted constraints
    bool has_rest = false;  // and what else must be verified
  };

  // Calls visit(constraint index) for the constraints of the filter that are counted.
  template <typename Visitor>
  void for_each_counted(const FilterTable::Filter& filter, Visitor visit) const {
    std::size_t n_counted = 0;
    for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
      const std::uint32_t constraint = filter.constraints.first + at;
      if (!table_->constraint(constraint).needs_attribute()) continue;
      visit(constraint);
      if (++n_counted == kMaxCounted) return;
    }
  }

  void map_names(const Settings& settings);
  void divide_filters(std::vector<std::uint32_t>& places);
  void fill_tables(const std::vector<std::uint32_t>& places);
  void append_constraint(std::uint32_t constraint);

  std::size_t slot_of(std::uint64_t vector) const {
    std::size_t slot = (vector * 0x9E3779B97F4A7C15u) >> slot_shift_;
    while (slots_[slot].table != kNone && slots_[slot].vector != vector) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }
  void resize_slots(std::size_t size);

  void prepare(const EventBatch& events, std::size_t event, OcmScratch& scratch) const;
  void select_tables(OcmScratch& scratch) const;
  void select_constraints(OcmScratch& scratch) const;
  void evaluate(const OcmScratch& scratch, std::size_t visits_begin, std::size_t visits_end,
                Worker& worker) const;
  void evaluate_row(const Line& line, const PreparedValue& value, std::uint64_t missing,
                    std::uint32_t first_filter, Worker& worker) const;
  bool accepts_special(std::uint8_t op, std::uint64_t operand, const PreparedValue& value) const;

  std::shared_ptr<const FilterTable> table_;
  std::size_t n_workers_;
  std::vector<Name> names_;             // [n_attributes]
  std::vector<std::uint64_t> vectors_;  // [n_tables]
  std::vector<Table> tables_;           // [n_tables + 1]
  std::vector<Slot> slots_;             // [a power of 2] table by NameVector
  int slot_shift_ = 0;
  std::vector<AttributeId> row_attributes_;  // [n_rows] in order within a table
  std::vector<std::uint32_t> row_begins_;    // [n_rows + 1]
  std::vector<std::uint64_t> blooms_;        // [n_counted]
  std::vector<std::uint8_t> operators_;      // [n_counted]
  std::vector<std::uint64_t> operands_;      // [n_counted]
  std::vector<std::uint32_t> filter_nos_;    // [n_counted]
  std::vector<NumberRange> ranges_;          // of kBetween, in the order of rows
  std::vector<StringOperand> strings_;       // of kString, in the order of rows
  std::vector<FilterInfo> infos_;            // [filters in tables] table after table
  std::vector<FilterIdx> always_;
  std::size_t largest_table_ = 0;
};

// Names are dealt to the bits so that each bit has the same number of constraints, the most
// frequent first; the paper leaves the mapping open. Names that share a bit of the NameVector get
// different bits of the Bloom filter, or the one test would let through what the other did.
void OcmIndex::map_names(const Settings& settings) {
  std::vector<std::uint64_t> n_constraints(table_->n_attributes());
  for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
    for_each_counted(table_->filter(idx), [&](std::uint32_t constraint) {
      ++n_constraints[table_->constraint(constraint).attribute];
    });
  }
  std::vector<AttributeId> order(table_->n_attributes());
  std::iota(order.begin(), order.end(), AttributeId{0});
  std::stable_sort(order.begin(), order.end(), [&](AttributeId a, AttributeId b) {
    return n_constraints[a] > n_constraints[b];
  });
  const auto least_loaded = [](const std::vector<std::uint64_t>& loads, std::uint64_t taken) {
    std::size_t best = loads.size();
    for (std::size_t bit = 0; bit < loads.size(); ++bit) {
      const bool is_free = ((taken >> bit) & 1) == 0;
      if (is_free && (best == loads.size() || loads[bit] < loads[best])) best = bit;
    }
    return best;
  };
  names_.resize(table_->n_attributes());
  std::vector<std::uint64_t> vector_loads(settings.name_vector_bits), bloom_loads(64);
  std::vector<std::uint64_t> taken_by(settings.name_vector_bits);  // Bloom bits of a bit's names
  for (const AttributeId attribute : order) {
    if (n_constraints[attribute] == 0) break;
    const std::size_t vector_bit =
        settings.has_filter_selection ? least_loaded(vector_loads, 0) : 0;
    std::uint64_t& taken = taken_by[vector_bit];
    if (taken == ~std::uint64_t{0}) taken = 0;
    const std::size_t bloom_bit = least_loaded(bloom_loads, taken);
    taken |= std::uint64_t{1} << bloom_bit;
    vector_loads[vector_bit] += n_constraints[attribute];
    bloom_loads[bloom_bit] += n_constraints[attribute];
    names_[attribute] = {settings.has_filter_selection ? std::uint64_t{1} << vector_bit : 0,
                         std::uint64_t{1} << bloom_bit};
  }
}

void OcmIndex::resize_slots(std::size_t size) {
  slots_.assign(size, Slot{});
  slot_shift_ = 64 - std::countr_zero(size);
  for (std::uint32_t each = 0; each < vectors_.size(); ++each) {
    slots_[slot_of(vectors_[each])] = {vectors_[each], each};
  }
}

// Finds the table of each filter and puts the filters in order of tables.
void OcmIndex::divide_filters(std::vector<std::uint32_t>& places) {
  std::vector<std::uint32_t> table_of(table_->size(), kNone);
  std::vector<std::uint32_t> n_filters;  // of each table
  resize_slots(2);
  for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
    std::uint64_t vector = 0;
    bool is_counted = false;
    for_each_counted(table_->filter(idx), [&](std::uint32_t constraint) {
      vector |= names_[table_->constraint(constraint).attribute].vector_bit;
      is_counted = true;
    });
    if (!is_counted) {
      always_.push_back(idx);
      continue;
    }
    Slot& slot = slots_[slot_of(vector)];
    if (slot.table == kNone) {
      slot = {vector, static_cast<std::uint32_t>(vectors_.size())};
      table_of[idx] = slot.table;
      vectors_.push_back(vector);
      n_filters.push_back(1);
      if (2 * vectors_.size() > slots_.size()) resize_slots(2 * slots_.size());
    } else {
      table_of[idx] = slot.table;
      ++n_filters[slot.table];
    }
  }
  vectors_.shrink_to_fit();
  always_.shrink_to_fit();
  tables_.resize(vectors_.size() + 1);
  for (std::size_t each = 0; each < vectors_.size(); ++each) {
    tables_[each + 1].first_filter = tables_[each].first_filter + n_filters[each];
    largest_table_ = std::max<std::size_t>(largest_table_, n_filters[each]);
  }
  places.resize(table_->size() - always_.size());
  for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
    const std::uint32_t table = table_of[idx];
    if (table == kNone) continue;
    places[tables_[table + 1].first_filter - n_filters[table]--] = idx;
  }
}

void OcmIndex::fill_tables(const std::vector<std::uint32_t>& places) {
  struct Entry {
    std::uint64_t row_and_filter;  // attribute, filter number
    std::uint32_t constraint;
  };
  std::vector<Entry> entries;
  std::size_t n_counted = 0;
  infos_.reserve(places.size());
  for (const FilterIdx idx : places) {
    const FilterTable::Filter& filter = table_->filter(idx);
    std::uint8_t size = 0;
    for_each_counted(filter, [&](std::uint32_t) { ++size; });
    infos_.push_back(
        {idx, size,
         size < filter.constraints.count || filter.areas.count > 0 || filter.residuals.count > 0});
    n_counted += size;
  }
  blooms_.reserve(n_counted);
  operators_.reserve(n_counted);
  operands_.reserve(n_counted);
  filter_nos_.reserve(n_counted);
  for (std::size_t each = 0; each < vectors_.size(); ++each) {
    const std::uint32_t first = tables_[each].first_filter;
    entries.clear();
    for (std::uint32_t at = first; at < tables_[each + 1].first_filter; ++at) {
      for_each_counted(table_->filter(infos_[at].filter), [&](std::uint32_t constraint) {
        const std::uint64_t attribute = table_->constraint(constraint).attribute;
        entries.push_back({attribute << 32 | (at - first), constraint});
      });
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.row_and_filter < b.row_and_filter; });
    tables_[each].first_row = static_cast<std::uint32_t>(row_attributes_.size());
    for (const Entry& entry : entries) {
      const auto attribute = static_cast<AttributeId>(entry.row_and_filter >> 32);
      const bool is_new_row =
          row_attributes_.size() == tables_[each].first_row || row_attributes_.back() != attribute;
      if (is_new_row) {
        row_attributes_.push_back(attribute);
        row_begins_.push_back(static_cast<std::uint32_t>(blooms_.size()));
      }
      const auto filter_no = static_cast<std::uint32_t>(entry.row_and_filter);
      std::uint64_t bloom = 0;
      for_each_counted(table_->filter(infos_[first + filter_no].filter),
                       [&](std::uint32_t constraint) {
                         bloom |= names_[table_->constraint(constraint).attribute].bloom_bit;
                       });
      blooms_.push_back(bloom);
      filter_nos_.push_back(filter_no);
      append_constraint(entry.constraint);
    }
  }
  tables_.back().first_row = static_cast<std::uint32_t>(row_attributes_.size());
  row_begins_.push_back(static_cast<std::uint32_t>(blooms_.size()));
  row_attributes_.shrink_to_fit();
  row_begins_.shrink_to_fit();
  ranges_.shrink_to_fit();
  strings_.shrink_to_fit();
}

// Operator and operand of a constraint: a comparison where it is one.
void OcmIndex::append_constraint(std::uint32_t idx) {
  const Constraint& constraint = table_->constraint(idx);
  const auto append = [&](std::uint8_t op, std::uint64_t operand) {
    operators_.push_back(op);
    operands_.push_back(operand);
  };
  if (constraint.is_interval()) {
    const NumberRange& range = table_->number(constraint.set);
    const Comparison comparison = number_comparison(range);
    if (comparison.orders != 0) {
      return append(comparison.orders, std::bit_cast<std::uint64_t>(comparison.number));
    }
    ranges_.push_back(range);
    return append(kBetween, ranges_.size() - 1);
  }
  const GeneralSet& set = table_->general(constraint);
  if (set.flags == 0 && set.numbers.count == 2 && set.strings.count == 0) {
    const Comparison comparison =
        number_inequality(table_->number(set.numbers.first), table_->number(set.numbers.first + 1));
    if (comparison.orders != 0) {
      return append(comparison.orders, std::bit_cast<std::uint64_t>(comparison.number));
    }
  }
  const bool is_strings_alone = set.flags == 0 && set.numbers.count == 0 && set.patterns.count == 0;
  if (is_strings_alone && (set.strings.count == 1 || set.strings.count == 2)) {
    const Comparison comparison = string_comparison(*table_, set);
    if (comparison.orders != 0) {
      strings_.push_back({string_key(comparison.text), idx});
      return append(static_cast<std::uint8_t>(kString | comparison.orders), strings_.size() - 1);
    }
  }
  append(kGeneral, idx);
}

std::unique_ptr<Scratch> OcmIndex::make_scratch() const {
  auto scratch = std::make_unique<OcmScratch>();
  scratch->place_of.resize(table_->n_attributes());
  scratch->workers.resize(n_workers_);
  for (Worker& worker : scratch->workers) {
    worker.counts.resize(largest_table_);
    worker.touched.resize(largest_table_);
  }
  return scratch;
}

void OcmIndex::prepare(const EventBatch& events, std::size_t event, OcmScratch& scratch) const {
  scratch.event.load(events, event, table_->n_attributes(), table_->space());
  scratch.values.clear();
  scratch.vector = scratch.bloom = 0;
  ++scratch.stamp;
  for (std::uint64_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
    const AttributeId attribute = events.attributes[at];
    if (attribute >= names_.size() || names_[attribute].bloom_bit == 0) continue;
    const Name& name = names_[attribute];
    const EventValue& value = events.values[at];
    scratch.vector |= name.vector_bit;
    scratch.bloom |= name.bloom_bit;
    scratch.place_of[attribute] = {scratch.stamp,
                                   static_cast<std::uint32_t>(scratch.values.size())};
    scratch.values.push_back({attribute, name.vector_bit, NumberKey::of(value),
                              value.kind == Kind::string ? string_key(value.string()) : 0, value});
  }
}

// Phase 1, filter selection: the tables whose NameVector is included in the event's.
void OcmIndex::select_tables(OcmScratch& scratch) const {
  scratch.visits.clear();
  const std::uint64_t vector = scratch.vector;
  const auto visit = [&](std::uint32_t table) {
    scratch.visits.push_back({table, 0});
    __builtin_prefetch(&tables_[table]);
  };
  const int n_bits = std::popcount(vector);
  if (n_bits < 32 && (std::size_t{1} << n_bits) * kScansPerLookup < vectors_.size()) {
    for (std::uint64_t subset = vector;; subset = (subset - 1) & vector) {
      const Slot& slot = slots_[slot_of(subset)];
      if (slot.table != kNone) visit(slot.table);
      if (subset == 0) break;
    }
    return;
  }
  const auto n_tables = static_cast<std::uint32_t>(vectors_.size());
  for (std::uint32_t table = 0; table < n_tables; ++table) {
    if ((vectors_[table] & ~vector) == 0) visit(table);
  }
}

// Phase 2, constraint selection: the rows of the event's attributes in these tables.
void OcmIndex::select_constraints(OcmScratch& scratch) const {
  scratch.lines.clear();
  const auto add = [&](std::size_t row, std::uint32_t value_idx) {
    const Line line{row_begins_[row], row_begins_[row + 1], value_idx};
    __builtin_prefetch(&blooms_[line.begin]);
    scratch.lines.push_back(line);
  };
  const auto n_values = static_cast<std::uint32_t>(scratch.values.size());
  for (Visit& visit : scratch.visits) {
    const std::uint32_t first = tables_[visit.table].first_row;
    const std::uint32_t last = tables_[visit.table + 1].first_row;
    if (last - first <= n_values) {
      for (std::uint32_t row = first; row < last; ++row) {
        const OcmScratch::Place& place = scratch.place_of[row_attributes_[row]];
        if (place.stamp == scratch.stamp) add(row, place.value_idx);
      }
    } else {
      const std::uint64_t vector = vectors_[visit.table];
      for (std::uint32_t at = 0; at < n_values; ++at) {
        const PreparedValue& value = scratch.values[at];
        if ((value.vector_bit & ~vector) != 0) continue;
        std::uint32_t row = first;
        for (std::uint32_t count = last - first; count > 1;) {
          const std::uint32_t half = count / 2;
          row = row_attributes_[row + half] <= value.attribute ? row + half : row;
          count -= half;
        }
        if (row_attributes_[row] == value.attribute) add(row, at);
      }
    }
    visit.lines_end = static_cast<std::uint32_t>(scratch.lines.size());
  }
}

bool OcmIndex::accepts_special(std::uint8_t op, std::uint64_t operand,
                               const PreparedValue& prepared) const {
  const EventValue& value = prepared.value;
  if (op == kGeneral) {
    return table_->accepts(table_->constraint(static_cast<std::uint32_t>(operand)), value);
  }
  if (op == kBetween) {
    return value.kind == Kind::number && ranges_[operand].contains(value.number().before());
  }
  if (value.kind != Kind::string) return false;
  const StringOperand& string = strings_[operand];
  if (prepared.string_key != string.key) {
    return (op & (prepared.string_key < string.key ? kLess : kGreater)) != 0;
  }
  return table_->accepts(table_->constraint(string.constraint), value);
}

inline void OcmIndex::evaluate_row(const Line& line, const PreparedValue& value,
                                   std::uint64_t missing, std::uint32_t first_filter,
                                   Worker& worker) const {
  const NumberKey number = value.number;
  std::uint8_t* const counts = worker.counts.data();
  for (std::uint32_t at = line.begin; at < line.end; ++at) {
    if ((blooms_[at] & missing) != 0) continue;
    ++worker.n_evaluated;
    const std::uint8_t op = operators_[at];
    const bool is_accepted = op <= kAnyOrder
                                 ? (op & number.order_to(std::bit_cast<double>(operands_[at]))) != 0
                                 : accepts_special(op, operands_[at], value);
    if (!is_accepted) continue;
    const std::uint32_t filter_no = filter_nos_[at];
    const std::uint8_t count = ++counts[filter_no];
    if (count == 1) worker.touched[worker.n_touched++] = filter_no;
    if (count == infos_[first_filter + filter_no].size) {
      worker.reached.push_back(first_filter + filter_no);
    }
  }
}

// Phase 3, evaluation and counting, on some of the tables.
void OcmIndex::evaluate(const OcmScratch& scratch, std::size_t visits_begin, std::size_t visits_end,
                        Worker& worker) const {
  const std::uint64_t missing = ~scratch.bloom;
  std::uint32_t line = visits_begin == 0 ? 0 : scratch.visits[visits_begin - 1].lines_end;
  for (std::size_t each = visits_begin; each < visits_end; ++each) {
    const Visit& visit = scratch.visits[each];
    const std::uint32_t first_filter = tables_[visit.table].first_filter;
    for (; line < visit.lines_end; ++line) {
      const Line& row = scratch.lines[line];
      worker.n_blooms += row.end - row.begin;
      evaluate_row(row, scratch.values[row.value_idx], missing, first_filter, worker);
    }
    for (std::size_t at = 0; at < worker.n_touched; ++at) worker.counts[worker.touched[at]] = 0;
    worker.n_touched = 0;
  }
}

void OcmIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                     Scratch& given_scratch, Collector& out) const {
  OcmScratch& scratch = static_cast<OcmScratch&>(given_scratch);
  Counters counters;
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    prepare(events, each, scratch);
    select_tables(scratch);
    select_constraints(scratch);
    const std::size_t n_visits = scratch.visits.size();
    const std::size_t n_tasks = std::min(n_workers_, n_visits);
    if (n_tasks <= 1) {
      evaluate(scratch, 0, n_visits, scratch.workers[0]);
    } else {
      // As OpenMP's static schedule: each thread has a run of tables of the same length.
      parallel_for(n_tasks, n_tasks, [this, &scratch](std::size_t task) {
        const std::size_t n_all = scratch.visits.size();
        const std::size_t n_parts = std::min(n_workers_, n_all);
        evaluate(scratch, task * n_all / n_parts, (task + 1) * n_all / n_parts,
                 scratch.workers[task]);
      });
    }
    for (const Visit& visit : scratch.visits) {
      counters.filters += tables_[visit.table + 1].first_filter - tables_[visit.table].first_filter;
    }
    counters.cells += n_visits;
    for (Worker& worker : scratch.workers) {
      for (const std::uint32_t place : worker.reached) {
        const FilterInfo& info = infos_[place];
        if (out.has(info.filter)) continue;
        if (!info.has_rest || table_->accepts(info.filter, scratch.event)) out.add(info.filter);
      }
      counters.candidates += worker.reached.size();
      counters.bits += std::exchange(worker.n_blooms, 0);
      counters.constraints += std::exchange(worker.n_evaluated, 0);
      worker.reached.clear();
    }
    for (const FilterIdx idx : always_) {
      if (!out.has(idx) && table_->accepts(idx, scratch.event)) out.add(idx);
    }
    counters.filters += always_.size();
    counters.candidates += always_.size();
  }
  out.counters += counters;
}

std::size_t OcmIndex::n_bytes() const {
  const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  return sizeof(*this) + bytes(names_) + bytes(vectors_) + bytes(tables_) + bytes(slots_) +
         bytes(row_attributes_) + bytes(row_begins_) + bytes(blooms_) + bytes(operators_) +
         bytes(operands_) + bytes(filter_nos_) + bytes(ranges_) + bytes(strings_) + bytes(infos_) +
         bytes(always_);
}

constexpr Parameter kParameters[] = {
    {"name_vector_bits", 64, 1, 64, "bits of a NameVector, which divides filters into tables"},
    {"filter_selection", 1, 0, 1, "0: all filters in one table"},
    {"table_threads", 1, 1, 256, "threads that share the tables of one event"},
};

std::size_t whole(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine ocm must be a whole number, not " + std::to_string(value));
  }
  return static_cast<std::size_t>(value);
}

}  // namespace

constinit const std::span<const Parameter> kOcmParameters = kParameters;

std::unique_ptr<Index> build_ocm(std::shared_ptr<const FilterTable> table,
                                 const Parameters& parameters) {
  const Settings settings{whole(parameters, "name_vector_bits"),
                          whole(parameters, "filter_selection") != 0,
                          whole(parameters, "table_threads")};
  return std::make_unique<OcmIndex>(std::move(table), settings);
}

}  // namespace tamis
