#include "name_tables.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "tamis/prefetch.hpp"

namespace tamis {
namespace {

// A lookup in the map of NameVectors costs as much as a scan over about this many of them. With
// 220,000 tables (pcm-default, 13 and 16 attributes an event) an event took 0.8 times as long with
// 2^12 lookups as with the scan, and 3 times as long with 2^14 and more.
constexpr std::size_t kScansPerLookup = 32;

}  // namespace

NameTables::NameTables(const FilterTable& table, const Settings& settings)
    : table_(table), n_most_counted_(settings.n_most_counted) {
  map_names(settings);
  std::vector<std::uint32_t> places;  // filters by table
  divide_filters(places);
  fill_tables(places);
}

// Names are dealt to the bits so that each bit has the same number of constraints, the most
// frequent first; the paper leaves the mapping open. Names that share a bit of the NameVector get
// different bits of the Bloom filter, or the one test would let through what the other did.
void NameTables::map_names(const Settings& settings) {
  std::vector<std::uint64_t> n_constraints(table_.n_attributes());
  for (FilterIdx idx = 0; idx < table_.size(); ++idx) {
    for_each_counted(table_.filter(idx), [&](std::uint32_t constraint) {
      ++n_constraints[table_.constraint(constraint).attribute];
    });
  }
  std::vector<AttributeId> order(table_.n_attributes());
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
  names_.resize(table_.n_attributes());
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

void NameTables::resize_slots(std::size_t size) {
  slots_.assign(size, Slot{});
  slot_shift_ = 64 - std::countr_zero(size);
  for (std::uint32_t each = 0; each < vectors_.size(); ++each) {
    slots_[slot_of(vectors_[each])] = {vectors_[each], each};
  }
}

// Finds the table of each filter and puts the filters in order of tables.
void NameTables::divide_filters(std::vector<std::uint32_t>& places) {
  std::vector<std::uint32_t> table_of(table_.size(), kNone);
  std::vector<std::uint32_t> n_filters;  // of each table
  resize_slots(2);
  for (FilterIdx idx = 0; idx < table_.size(); ++idx) {
    std::uint64_t vector = 0;
    bool is_counted = false;
    for_each_counted(table_.filter(idx), [&](std::uint32_t constraint) {
      vector |= names_[table_.constraint(constraint).attribute].vector_bit;
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
  places.resize(table_.size() - always_.size());
  for (FilterIdx idx = 0; idx < table_.size(); ++idx) {
    const std::uint32_t table = table_of[idx];
    if (table == kNone) continue;
    places[tables_[table + 1].first_filter - n_filters[table]--] = idx;
  }
}

void NameTables::fill_tables(const std::vector<std::uint32_t>& places) {
  struct Entry {
    std::uint64_t row_and_filter;  // attribute, filter number
    std::uint32_t constraint;
  };
  std::vector<Entry> entries;
  std::size_t n_counted = 0;
  infos_.reserve(places.size());
  for (const FilterIdx idx : places) {
    const FilterTable::Filter& filter = table_.filter(idx);
    std::uint8_t size = 0;
    for_each_counted(filter, [&](std::uint32_t) { ++size; });
    infos_.push_back(
        {idx, size,
         size < filter.constraints.count || filter.areas.count > 0 || filter.residuals.count > 0});
    n_counted += size;
  }
  blooms_.reserve(n_counted);
  filter_nos_.reserve(n_counted);
  constraints_.reserve(n_counted);
  for (std::size_t each = 0; each < vectors_.size(); ++each) {
    const std::uint32_t first = tables_[each].first_filter;
    entries.clear();
    for (std::uint32_t at = first; at < tables_[each + 1].first_filter; ++at) {
      for_each_counted(table_.filter(infos_[at].filter), [&](std::uint32_t constraint) {
        const std::uint64_t attribute = table_.constraint(constraint).attribute;
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
      for_each_counted(table_.filter(infos_[first + filter_no].filter),
                       [&](std::uint32_t constraint) {
                         bloom |= names_[table_.constraint(constraint).attribute].bloom_bit;
                       });
      blooms_.push_back(bloom);
      filter_nos_.push_back(filter_no);
      constraints_.push_back(entry.constraint);
    }
  }
  tables_.back().first_row = static_cast<std::uint32_t>(row_attributes_.size());
  row_begins_.push_back(static_cast<std::uint32_t>(blooms_.size()));
  row_attributes_.shrink_to_fit();
  row_begins_.shrink_to_fit();
}

void NameTables::prepare(const EventBatch& events, std::size_t event,
                         NameSelection& selection) const {
  selection.place_of.resize(names_.size());
  selection.values.clear();
  selection.vector = selection.bloom = 0;
  ++selection.stamp;
  for (std::uint64_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
    const AttributeId attribute = events.attributes[at];
    if (attribute >= names_.size() || names_[attribute].bloom_bit == 0) continue;
    const Name& name = names_[attribute];
    selection.vector |= name.vector_bit;
    selection.bloom |= name.bloom_bit;
    selection.place_of[attribute] = {selection.stamp,
                                     static_cast<std::uint32_t>(selection.values.size())};
    selection.values.push_back({attribute, name.vector_bit, events.values[at]});
  }
}

// Phase 1, filter selection: the tables whose NameVector is included in the event's.
void NameTables::select_tables(NameSelection& selection) const {
  selection.visits.clear();
  const std::uint64_t vector = selection.vector;
  const auto visit = [&](std::uint32_t table) {
    selection.visits.push_back({table, 0});
    prefetch_line(&tables_[table]);
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
void NameTables::select_constraints(NameSelection& selection) const {
  selection.lines.clear();
  const auto add = [&](std::size_t row, std::uint32_t value_idx) {
    const NameSelection::Line line{row_begins_[row], row_begins_[row + 1], value_idx};
    prefetch_line(&blooms_[line.begin]);
    selection.lines.push_back(line);
  };
  const auto n_values = static_cast<std::uint32_t>(selection.values.size());
  for (NameSelection::Visit& visit : selection.visits) {
    const std::uint32_t first = tables_[visit.table].first_row;
    const std::uint32_t last = tables_[visit.table + 1].first_row;
    if (last - first <= n_values) {
      for (std::uint32_t row = first; row < last; ++row) {
        const NameSelection::Place& place = selection.place_of[row_attributes_[row]];
        if (place.stamp == selection.stamp) add(row, place.value_idx);
      }
    } else {
      const std::uint64_t vector = vectors_[visit.table];
      for (std::uint32_t at = 0; at < n_values; ++at) {
        const NameSelection::Value& value = selection.values[at];
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
    visit.lines_end = static_cast<std::uint32_t>(selection.lines.size());
  }
}

void NameTables::select(const EventBatch& events, std::size_t event,
                        NameSelection& selection) const {
  prepare(events, event, selection);
  select_tables(selection);
  select_constraints(selection);
}

std::uint64_t NameTables::n_filters(const NameSelection& selection) const {
  std::uint64_t n_all = 0;
  for (const NameSelection::Visit& visit : selection.visits) {
    n_all += tables_[visit.table + 1].first_filter - tables_[visit.table].first_filter;
  }
  return n_all;
}

std::vector<std::uint32_t> NameTables::places() const {
  std::vector<std::uint32_t> all(filter_nos_);
  for (std::size_t each = 0; each + 1 < tables_.size(); ++each) {
    const std::uint32_t end = row_begins_[tables_[each + 1].first_row];
    for (std::uint32_t at = row_begins_[tables_[each].first_row]; at < end; ++at) {
      all[at] += tables_[each].first_filter;
    }
  }
  return all;
}

void NameTables::drop_columns() {
  blooms_ = {};
  filter_nos_ = {};
}

std::size_t NameTables::n_bytes() const {
  const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  return sizeof(*this) + bytes(names_) + bytes(vectors_) + bytes(tables_) + bytes(slots_) +
         bytes(row_attributes_) + bytes(row_begins_) + bytes(blooms_) + bytes(filter_nos_) +
         bytes(constraints_) + bytes(infos_) + bytes(always_);
}

}  // namespace tamis
