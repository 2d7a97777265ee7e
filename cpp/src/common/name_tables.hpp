// Filters divided by the names of their constraints: the part of Parallel Content Matching
// (papers/000 and 001, section 3.1) that the CPU does in `ocm` and in the GPU's engines alike.
//
//     NameVector ──► table                   one for each NameVector of a filter
//        0b0101        rows, by attribute    row_attributes_, row_begins_ (NumConstr)
//                        │  constraints of that attribute, side by side, in columns:
//                        ├─ blooms()       u64   names of the filter, one bit each (ConstrBF)
//                        ├─ filter_nos()   u32   the filter's number in its table
//                        └─ constraints()  u32   which one it is in the filter table
//                      infos(), by filter number, table after table (FiltersInfo)
//     always()       filters without a countable constraint
//
// Counted is a constraint that needs its attribute: one that accepts absence has no name to look
// for in the event. It, areas and residuals are the rest of a filter.
//
// Invariants: a filter is in one table or in always(), a counted constraint in one row; tables,
// rows and filter numbers follow one another without gaps, and a sentinel ends each array of
// begins.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tamis/filter_table.hpp"

namespace tamis {

// What an event selects, and what it needs to be selected; kept between events.
struct NameSelection {
  struct Value {
    AttributeId attribute = 0;
    std::uint64_t vector_bit = 0;
    EventValue value;
  };
  // A row of a table that the event visits: the paper's Input.
  struct Line {
    std::uint32_t begin = 0, end = 0;  // constraints
    std::uint32_t value_idx = 0;
  };
  struct Visit {
    std::uint32_t table = 0;
    std::uint32_t lines_end = 0;  // those of the table begin where the one before ends
  };
  struct Place {
    std::uint64_t stamp = 0;
    std::uint32_t value_idx = 0;
  };

  std::uint64_t vector = 0, bloom = 0;  // of the event
  std::vector<Value> values;            // of names that some counted constraint has
  std::vector<Visit> visits;
  std::vector<Line> lines;
  std::vector<Place> place_of;  // [n_attributes]
  std::uint64_t stamp = 0;
};

class NameTables {
 public:
  struct Settings {
    std::size_t name_vector_bits = 64;
    bool has_filter_selection = true;  // false: all filters are in one table
    std::size_t n_most_counted = 255;  // of a filter; the others are its rest
  };
  struct Table {
    std::uint32_t first_row = 0, first_filter = 0;
  };
  struct FilterInfo {
    FilterIdx filter = 0;
    std::uint8_t size = 0;  // counted constraints
    bool has_rest = false;  // and what else must be verified
  };

  NameTables(const FilterTable& table, const Settings& settings);

  const std::vector<Table>& tables() const { return tables_; }                  // [n_tables + 1]
  const std::vector<std::uint64_t>& blooms() const { return blooms_; }          // [n_counted]
  const std::vector<std::uint32_t>& filter_nos() const { return filter_nos_; }  // [n_counted]
  const std::vector<FilterInfo>& infos() const { return infos_; }  // [filters in tables]
  const std::vector<FilterIdx>& always() const { return always_; }
  std::size_t largest_table() const { return largest_table_; }
  std::vector<std::uint32_t> places() const;  // [n_counted] of the filter in infos()
  // [n_counted] Only a build needs them: they are not kept.
  std::vector<std::uint32_t> take_constraints() { return std::move(constraints_); }
  // What the devices keep need not be kept here too.
  void drop_columns();
  std::size_t n_bytes() const;

  // The tables and rows that the event visits.
  void select(const EventBatch& events, std::size_t event, NameSelection& selection) const;
  // How many filters these tables hold.
  std::uint64_t n_filters(const NameSelection& selection) const;

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  struct Name {
    std::uint64_t vector_bit = 0, bloom_bit = 0;  // 0, 0: no constraint on it is counted
  };
  struct Slot {
    std::uint64_t vector = 0;
    std::uint32_t table = kNone;
  };

  // Calls visit(constraint index) for the constraints of the filter that are counted.
  template <typename Visitor>
  void for_each_counted(const FilterTable::Filter& filter, Visitor visit) const {
    std::size_t n_counted = 0;
    for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
      const std::uint32_t constraint = filter.constraints.first + at;
      if (!table_.constraint(constraint).needs_attribute()) continue;
      visit(constraint);
      if (++n_counted == n_most_counted_) return;
    }
  }

  void map_names(const Settings& settings);
  void divide_filters(std::vector<std::uint32_t>& places);
  void fill_tables(const std::vector<std::uint32_t>& places);
  std::size_t slot_of(std::uint64_t vector) const {
    std::size_t slot = (vector * 0x9E3779B97F4A7C15u) >> slot_shift_;
    while (slots_[slot].table != kNone && slots_[slot].vector != vector) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }
  void resize_slots(std::size_t size);
  void prepare(const EventBatch& events, std::size_t event, NameSelection& selection) const;
  void select_tables(NameSelection& selection) const;
  void select_constraints(NameSelection& selection) const;

  const FilterTable& table_;  // the index that has this keeps it alive
  std::size_t n_most_counted_;
  std::vector<Name> names_;             // [n_attributes]
  std::vector<std::uint64_t> vectors_;  // [n_tables]
  std::vector<Table> tables_;           // [n_tables + 1]
  std::vector<Slot> slots_;             // [a power of 2] table by NameVector
  int slot_shift_ = 0;
  std::vector<AttributeId> row_attributes_;  // [n_rows] in order within a table
  std::vector<std::uint32_t> row_begins_;    // [n_rows + 1]
  std::vector<std::uint64_t> blooms_;
  std::vector<std::uint32_t> filter_nos_;
  std::vector<std::uint32_t> constraints_;
  std::vector<FilterInfo> infos_;
  std::vector<FilterIdx> always_;
  std::size_t largest_table_ = 0;
};

}  // namespace tamis
