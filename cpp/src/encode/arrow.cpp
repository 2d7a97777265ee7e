// An Arrow record batch to events.
//
// Columns come by column, events go out by row. A block of rows at a time, every column decodes
// into its place in a row-major block that stays in the cache:
//
//              column 0   column 1   ...   column k-1
//     row r    value      value            value        <- decode(column, rows, first place, k)
//     row r+1  value      absent           value
//
// Where no column can have nulls and there is no map, that block is the output itself; otherwise
// the values that are present move to the output, followed by the row's entries of each map column
// (those of a map that is the only column are decoded to the output, and close ranks there).
// Each decode function is one template instance for one type: the loop inside has no call.
//
// What comes from outside is checked before it is used (counts of buffers and children, missing
// buffers, lengths, offsets, dictionary indices, UTF-8). The sizes of buffers are not told by the
// C data interface, except for string views, where they are checked too. Only columns that somebody
// mentions are looked into, but a type that events cannot hold is refused in any column: whether
// a table is accepted does not depend on the subscriptions of the day.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "encode/arrow/open.hpp"
#include "encode/key_cache.hpp"
#include "encode/seen_attributes.hpp"
#include "tamis/encode.hpp"
#include "tamis/error.hpp"
#include "tamis/event_columns.hpp"

namespace tamis {

namespace {

using namespace arrow;

// The block of row-major values: big enough to amortise the calls, small enough for the L2 cache.
constexpr std::size_t kBlockValues = 8192;
constexpr std::size_t kMaxBlockRows = 1024;
constexpr std::size_t kMinBlockRows = 16;

// Entries of a map that are looked at together, however many there are.
constexpr std::size_t kFewEntries = 8;

class Encoder {
 public:
  Encoder(const ArrowArray& array, const ArrowSchema& schema, const Names& names,
          const PositionNames& position, EventBatch& batch)
      : array_(array), schema_(schema), names_(names), batch_(batch), seen_(names.size()) {
    open(position);
  }

  // True if the batch now has strings that lie in the array's buffers.
  bool encode();
  // Can a device read all columns where they are? Then this says where that is.
  bool find_columns(IsForDevice is_for_device, EventColumns& columns) const;

 private:
  struct FlatColumn {
    std::string_view name;
    AttributeId id;
    Column column;
  };
  struct Coordinate {
    std::string_view name;
    Column column;
  };

  void open(const PositionNames& position);
  Coordinate open_coordinate(const std::string& name) const;
  std::string_view name_of(std::int64_t column_idx) const {
    const char* name = schema_.children[column_idx]->name;
    return name == nullptr ? std::string_view() : std::string_view(name);
  }

  bool is_valid_row(std::int64_t row) const {
    const std::int64_t bit = array_.offset + row;
    return (validity_[bit >> 3] >> (bit & 7) & 1) != 0;
  }
  void encode_rows(std::int64_t begin, std::int64_t end);
  void encode_dense_block(std::int64_t begin, std::int64_t end);
  void encode_block(std::int64_t begin, std::int64_t end);
  void encode_coordinate(const Coordinate& coordinate, std::int64_t begin, std::int64_t end,
                         ReusedVector<double>& out);
  struct MapBlock;
  void count_entries(const MapColumn& map, std::int64_t begin, std::int64_t end,
                     MapBlock& block) const;
  bool take_whole_rows(const MapColumn& map, const MapBlock& block, std::int64_t begin,
                       std::int64_t end);
  // An entry of the event.
  void insert(const MapColumn& map, std::int64_t row, AttributeId id) {
    if (seen_.insert(id)) return;
    throw_at(map.name, row,
             "attribute " + quote(names_.name(id)) + " must come once in an event, not twice");
  }
  void decode_map(const MapColumn& map, std::int64_t begin, std::int64_t end,
                  const MapBlock& block);
  void decode_entries(const MapColumn& map, std::int64_t begin, std::int64_t end,
                      const MapBlock& block);
  [[noreturn]] void throw_at(std::string_view column, std::int64_t row,
                             const std::string& reason) const {
    const auto row_of_table = static_cast<std::int64_t>(n_rows_before_) + row;
    throw EventError("column " + quote(column) + ", row " + std::to_string(row_of_table) + ": " +
                     reason);
  }
  void decode(const FlatColumn& flat, std::int64_t begin, std::int64_t end, EventValue* out) {
    try {
      flat.column.decode(flat.column, begin, end, out, flat_.size());
    } catch (const Fault& fault) {
      throw_at(flat.name, fault.index, fault.reason);
    }
  }

  const ArrowArray& array_;
  const ArrowSchema& schema_;
  const Names& names_;
  EventBatch& batch_;
  const std::size_t n_rows_before_ = batch_.size();  // of the same table, in earlier record batches
  SeenAttributes seen_;
  const std::uint8_t* validity_ = nullptr;  // of rows
  std::vector<FlatColumn> flat_;
  std::vector<MapColumn> maps_;
  std::vector<Coordinate> position_;  // [2] or [0]
  bool is_dense_ = true;              // every row has every flat column, and there is no map
  bool is_one_map_ = false;           // there is nothing else
  std::size_t block_rows_ = kMaxBlockRows;

  std::vector<EventValue> block_;  // [block_rows, n_flat]
  std::vector<AttributeId> ids_;   // [n_flat], [block_rows * n_flat] if dense
  struct MapBlock {                // entries of the rows, also of those that are left out
    std::int64_t first_entry = 0;
    std::size_t n_entries = 0;
    AttributeId* ids = nullptr;    // [n_entries], in `own_ids` or in the batch
    EventValue* values = nullptr;  // the same
    ReusedVector<AttributeId> own_ids;
    ReusedVector<EventValue> own_values;
  };
  std::vector<MapBlock> map_blocks_;     // [n_maps]
  std::vector<EventValue> coordinates_;  // [n_rows of the block]
  KeyCache* cache_ = nullptr;            // null: there is no map
};

void Encoder::open(const PositionNames& position) {
  const std::string what = "the record batch";
  const std::string_view format = format_of(&schema_, what);
  if (format != "+s" || schema_.dictionary != nullptr) {
    throw EventError("events must be a record batch (a struct array), not an array of type " +
                     describe_type(format).name);
  }
  if (schema_.n_children < 0) malformed(what, "the number of columns must not be negative");
  check_array(&array_, 0, 1, schema_.n_children, what);
  validity_ = validity_of(array_, what);
  seen_.begin_event();
  for (std::int64_t column_idx = 0; column_idx < schema_.n_children; ++column_idx) {
    const ArrowSchema* schema = child_of(&schema_, column_idx, what);
    const ArrowArray* array = array_.children[column_idx];
    const std::string_view name = name_of(column_idx);
    const std::string column = as_what(name);
    if (format_of(schema, column) == "+m" && schema->dictionary == nullptr) {
      maps_.push_back(open_map(schema, array, array_.offset, array_.length, name));
      is_dense_ = false;
      continue;
    }
    check_type(schema, column);
    const AttributeId id = names_.find(name);
    if (id == kNoAttribute) continue;
    if (!seen_.insert(id)) {
      throw EventError("attribute " + quote(name) + " must be one column, not two of that name");
    }
    flat_.push_back(
        {name, id,
         open_column(schema, array, array_.offset, array_.length, array_.length, column)});
    is_dense_ &= !flat_.back().column.may_be_absent;
  }
  is_one_map_ = flat_.empty() && maps_.size() == 1;
  if (position) {
    position_.push_back(open_coordinate(position->first));
    position_.push_back(open_coordinate(position->second));
  }
  if (batch_.size() > 0 && batch_.has_positions() != position.has_value()) {
    throw ArgumentError("either all or none of the events in a batch must have position columns");
  }
}

Encoder::Coordinate Encoder::open_coordinate(const std::string& name) const {
  std::int64_t found = -1;
  std::string all;
  for (std::int64_t column_idx = 0; column_idx < schema_.n_children; ++column_idx) {
    all += (column_idx == 0 ? "" : ", ") + quote(name_of(column_idx));
    if (name_of(column_idx) != name) continue;
    if (found >= 0) {
      throw EventError("position " + quote(name) + " must be one column, not two of that name");
    }
    found = column_idx;
  }
  if (found < 0) {
    throw EventError("position " + quote(name) + " must be a column, one of " +
                     (all.empty() ? "none" : all));
  }
  const ArrowSchema* schema = schema_.children[found];
  const std::string_view format =
      format_of(schema->dictionary != nullptr ? schema->dictionary : schema, as_what(name));
  const TypeInfo* type = find_type(format);
  if (type == nullptr || !type->is_numeric) {
    throw EventError("position column " + quote(name) +
                     " must be of an integer or float type, not " + describe_type(format).name);
  }
  return {name_of(found), open_column(schema, array_.children[found], array_.offset, array_.length,
                                      array_.length, as_what(name))};
}

bool Encoder::encode() {
  const auto n_rows = static_cast<std::size_t>(array_.length);
  if (!flat_.empty()) {
    block_rows_ = std::clamp(kBlockValues / flat_.size(), kMinBlockRows, kMaxBlockRows);
  }
  for (const FlatColumn& flat : flat_) ids_.push_back(flat.id);
  if (is_dense_) {
    ids_.reserve(block_rows_ * flat_.size());
    for (std::size_t place = flat_.size(); place < block_rows_ * flat_.size(); ++place) {
      ids_.push_back(ids_[place - flat_.size()]);
    }
  } else {
    block_.resize(block_rows_ * flat_.size());
  }
  map_blocks_.resize(maps_.size());
  if (!maps_.empty()) cache_ = &KeyCache::of_thread(names_);

  // Never less than doubled: many small batches may be appended to one.
  const auto make_room = [](auto& vector, std::size_t n_more) {
    const std::size_t n_needed = vector.size() + n_more;
    if (n_needed > vector.capacity()) vector.reserve(std::max(n_needed, 2 * vector.capacity()));
  };
  std::size_t n_values = n_rows * flat_.size();
  for (const MapColumn& map : maps_) n_values += map.n_read;
  make_room(batch_.offsets, n_rows);
  make_room(batch_.attributes, n_values + kFewEntries);
  make_room(batch_.values, n_values);
  if (!position_.empty()) {
    make_room(batch_.x, n_rows);
    make_room(batch_.y, n_rows);
  }

  if (validity_ == nullptr) {
    encode_rows(0, array_.length);
  } else {
    // What lies under a null row means nothing and is not looked at.
    for (std::int64_t row = 0; row < array_.length;) {
      std::int64_t end = row;
      while (end < array_.length && is_valid_row(end)) ++end;
      encode_rows(row, end);
      for (row = end; row < array_.length && !is_valid_row(row); ++row) {
        if (!position_.empty()) {
          batch_.add_position(std::numeric_limits<double>::quiet_NaN(), 0);
        }
        batch_.end_event();
      }
    }
  }

  const auto has_strings = [](const Column& column) { return column.is_string; };
  return std::any_of(flat_.begin(), flat_.end(),
                     [&](const FlatColumn& flat) { return has_strings(flat.column); }) ||
         std::any_of(maps_.begin(), maps_.end(),
                     [&](const MapColumn& map) { return has_strings(map.values); });
}

// Where the column's numbers lie, if a device can read them there.
bool find_numbers(const Column& column, AttributeId attribute, IsForDevice is_for_device,
                  NumberColumn& found) {
  const std::size_t size = size_of(column.number);
  if (size == 0 || reinterpret_cast<std::uintptr_t>(column.values) % size != 0) return false;
  if (!is_for_device(column.values)) return false;
  if (column.validity != nullptr && !is_for_device(column.validity)) return false;
  found = {column.values, column.validity, column.offset, attribute, column.number};
  return true;
}

// Its names are looked up once for all rows.
bool find_map(const MapColumn& map, KeyCache& cache, IsForDevice is_for_device,
              EventColumns& columns) {
  constexpr std::size_t kMostKeys = 1 << 16;
  const std::size_t n_keys = map.keys.dictionary_values.size();
  if (map.validity != nullptr || map.entry_validity != nullptr || map.keys.may_be_absent ||
      n_keys == 0 || n_keys > kMostKeys || map.values.dictionary != nullptr ||
      reinterpret_cast<std::uintptr_t>(map.offsets) % sizeof(std::int32_t) != 0 ||
      !is_for_device(map.offsets)) {
    return false;
  }
  if (!find_numbers(map.keys, 0, is_for_device, columns.map.keys) ||
      !find_numbers(map.values, 0, is_for_device, columns.map.values)) {
    return false;
  }
  for (const EventValue& key : map.keys.dictionary_values) {
    columns.attribute_of.push_back(cache.find(key.string()));
  }
  columns.map.offsets = static_cast<const std::int32_t*>(map.offsets) + map.offset;
  columns.map.n_entries = map.n_entries;
  columns.map.n_keys = static_cast<std::uint32_t>(n_keys);
  return true;
}

bool Encoder::find_columns(IsForDevice is_for_device, EventColumns& columns) const {
  if (validity_ != nullptr || maps_.size() > 1 || array_.length == 0) return false;
  if (maps_.empty() && flat_.empty()) return false;
  for (const FlatColumn& flat : flat_) {
    if (flat.column.dictionary != nullptr ||
        !find_numbers(flat.column, flat.id, is_for_device, columns.columns.emplace_back())) {
      return false;
    }
  }
  for (const Coordinate& coordinate : position_) {
    if (coordinate.column.dictionary != nullptr ||
        !find_numbers(coordinate.column, 0, is_for_device, columns.position.emplace_back())) {
      return false;
    }
  }
  return maps_.empty() || find_map(maps_[0], KeyCache::of_thread(names_), is_for_device, columns);
}

void Encoder::encode_rows(std::int64_t begin, std::int64_t end) {
  const auto step = static_cast<std::int64_t>(block_rows_);
  for (std::int64_t row = begin; row < end; row += step) {
    const std::int64_t block_end = std::min(end, row + step);
    if (is_dense_) {
      encode_dense_block(row, block_end);
    } else {
      encode_block(row, block_end);
    }
    if (position_.empty()) continue;
    const std::size_t n_before = batch_.x.size();
    encode_coordinate(position_[0], row, block_end, batch_.x);
    encode_coordinate(position_[1], row, block_end, batch_.y);
    for (std::size_t event = n_before; event < batch_.x.size(); ++event) {
      // Half a position is none.
      if (batch_.x[event] != batch_.x[event] || batch_.y[event] != batch_.y[event]) {
        batch_.x[event] = batch_.y[event] = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
}

void Encoder::encode_coordinate(const Coordinate& coordinate, std::int64_t begin, std::int64_t end,
                                ReusedVector<double>& out) {
  coordinates_.resize(static_cast<std::size_t>(end - begin));
  try {
    coordinate.column.decode(coordinate.column, begin, end, coordinates_.data(), 1);
  } catch (const Fault& fault) {
    throw_at(coordinate.name, fault.index, fault.reason);
  }
  for (const EventValue& value : coordinates_) {
    out.push_back(value.kind == Kind::number ? value.nearest
                                             : std::numeric_limits<double>::quiet_NaN());
  }
}

void Encoder::encode_dense_block(std::int64_t begin, std::int64_t end) {
  const auto n_rows = static_cast<std::size_t>(end - begin);
  const std::size_t n_before = batch_.values.size();
  batch_.values.resize(n_before + n_rows * flat_.size());
  for (std::size_t column_idx = 0; column_idx < flat_.size(); ++column_idx) {
    decode(flat_[column_idx], begin, end, batch_.values.data() + n_before + column_idx);
  }
  batch_.attributes.insert(batch_.attributes.end(), ids_.begin(),
                           ids_.begin() + static_cast<std::ptrdiff_t>(n_rows * flat_.size()));
  for (std::size_t row = 1; row <= n_rows; ++row) {
    batch_.offsets.push_back(n_before + row * flat_.size());
  }
}

void Encoder::encode_block(std::int64_t begin, std::int64_t end) {
  const std::size_t n_flat = flat_.size();
  std::size_t n_most = static_cast<std::size_t>(end - begin) * n_flat;
  for (std::size_t column_idx = 0; column_idx < n_flat; ++column_idx) {
    decode(flat_[column_idx], begin, end, block_.data() + column_idx);
  }
  for (std::size_t map_idx = 0; map_idx < maps_.size(); ++map_idx) {
    count_entries(maps_[map_idx], begin, end, map_blocks_[map_idx]);
    n_most += map_blocks_[map_idx].n_entries;
  }
  const std::size_t n_before = batch_.values.size();
  batch_.values.resize(n_before + n_most);
  batch_.attributes.resize(n_before + n_most + kFewEntries);
  EventValue* const first_value = batch_.values.data();
  AttributeId* const first_id = batch_.attributes.data();
  for (std::size_t map_idx = 0; map_idx < maps_.size(); ++map_idx) {
    MapBlock& block = map_blocks_[map_idx];
    if (is_one_map_) {  // to their place, or just behind it
      block.ids = first_id + n_before;
      block.values = first_value + n_before;
    } else {
      block.own_ids.resize(block.n_entries);
      block.own_values.resize(block.n_entries);
      block.ids = block.own_ids.data();
      block.values = block.own_values.data();
    }
    decode_map(maps_[map_idx], begin, end, block);
  }

  std::size_t next = n_before;
  const EventValue* flat_value = block_.data();
  if (is_one_map_ && take_whole_rows(maps_[0], map_blocks_[0], begin, end)) {
    batch_.attributes.resize(n_before + n_most);
    return;
  }
  for (std::int64_t row = begin; row < end; ++row) {
    const std::size_t row_begin = next;
    for (std::size_t column_idx = 0; column_idx < n_flat; ++column_idx, ++flat_value) {
      first_value[next] = *flat_value;
      first_id[next] = ids_[column_idx];
      next += flat_value->kind != Kind::absent;
    }
    if (!maps_.empty()) {
      seen_.begin_event();
      for (std::size_t place = row_begin; place < next; ++place) seen_.insert(first_id[place]);
    }
    for (std::size_t map_idx = 0; map_idx < maps_.size(); ++map_idx) {
      const MapColumn& map = maps_[map_idx];
      if (!map.is_valid(row)) continue;
      const MapBlock& block = map_blocks_[map_idx];
      const auto entries_end =
          static_cast<std::size_t>(map.first_entry(row + 1) - block.first_entry);
      for (auto entry = static_cast<std::size_t>(map.first_entry(row) - block.first_entry);
           entry < entries_end; ++entry) {
        const AttributeId id = block.ids[entry];
        if (id == kNoAttribute) continue;
        insert(map, row, id);
        if (block.values[entry].kind == Kind::absent) continue;
        first_value[next] = block.values[entry];
        first_id[next] = id;
        ++next;
      }
    }
    batch_.offsets.push_back(next);
  }
  batch_.values.resize(next);
  batch_.attributes.resize(next);
}

// The events of these rows, if their one map has nothing but attributes, whose entries stand where
// they belong. False: some must be left out.
//
// How many entries a row has is a surprise to the processor, which costs more than to look at all
// that a row with few can have. If the last bits of their ids differ, so do the ids.
bool Encoder::take_whole_rows(const MapColumn& map, const MapBlock& block, std::int64_t begin,
                              std::int64_t end) {
  bool is_whole = map.validity == nullptr && !map.values.may_be_absent;
  for (std::size_t at = 0; at < block.n_entries; ++at) is_whole &= block.ids[at] != kNoAttribute;
  if (!is_whole) return false;
  const std::size_t n_before = batch_.offsets.back();
  std::size_t first = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    const auto last = static_cast<std::size_t>(map.first_entry(row + 1) - block.first_entry);
    const std::size_t n_entries = last - first;
    std::uint64_t last_bits = 0;
    for (std::size_t at = 0; at < kFewEntries; ++at) {
      last_bits |= std::uint64_t{at < n_entries} << block.ids[first + at] % 64;
    }
    if (static_cast<std::size_t>(std::popcount(last_bits)) != n_entries) [[unlikely]] {
      seen_.begin_event();
      for (std::size_t at = first; at < last; ++at) insert(map, row, block.ids[at]);
    }
    batch_.offsets.push_back(n_before + last);
    first = last;
  }
  return true;
}

void Encoder::count_entries(const MapColumn& map, std::int64_t begin, std::int64_t end,
                            MapBlock& block) const {
  std::int64_t previous = map.first_entry(begin);
  block.first_entry = previous;
  bool is_monotone = previous >= 0;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t next = map.first_entry(row + 1);
    is_monotone &= previous <= next;
    previous = next;
  }
  if (!is_monotone || previous > map.n_entries) {
    throw_at(map.name, begin, "the offsets of a map must never fall, and lie within its entries");
  }
  block.n_entries = static_cast<std::size_t>(previous - block.first_entry);
}

// The entries of the maps of these rows, to the map's block. Entries of a null map are left alone:
// they mean nothing.
void Encoder::decode_map(const MapColumn& map, std::int64_t begin, std::int64_t end,
                         const MapBlock& block) {
  try {
    for (std::int64_t row = begin; row < end;) {
      std::int64_t run_end = row;
      while (run_end < end && map.is_valid(run_end)) ++run_end;
      decode_entries(map, map.first_entry(row), map.first_entry(run_end), block);
      row = run_end;
      while (row < end && !map.is_valid(row)) ++row;
    }
  } catch (const Fault& fault) {
    std::int64_t row = begin;
    while (map.first_entry(row + 1) <= fault.index) ++row;
    throw_at(map.name, row, fault.reason);
  }
}

void Encoder::decode_entries(const MapColumn& map, std::int64_t begin, std::int64_t end,
                             const MapBlock& block) {
  if (begin == end) return;
  if (map.entry_validity != nullptr) {
    for (std::int64_t entry = begin; entry < end; ++entry) {
      const std::int64_t bit = map.entry_offset + entry;
      if ((map.entry_validity[bit >> 3] >> (bit & 7) & 1) == 0) {
        throw Fault{entry, "an entry of a map must not be null"};
      }
    }
  }
  const std::int64_t place = begin - block.first_entry;
  map.find_keys(map.keys, begin, end, *cache_, block.ids + place);
  map.values.decode(map.values, begin, end, block.values + place, 1);
}

}  // namespace

void encode_arrow(ArrowArray* array, const ArrowSchema* schema, const Names& names,
                  const PositionNames& position, EventBatch& batch) {
  if (array == nullptr || array->release == nullptr) {
    throw EventError("the record batch must be an Arrow array, not one that was released");
  }
  const auto release = [](ArrowArray* owned) {
    if (owned->release != nullptr) owned->release(owned);
    delete owned;
  };
  // Moved as the interface has it: a bitwise copy, and the source is marked as released.
  std::shared_ptr<ArrowArray> owner(new ArrowArray(*array), release);
  array->release = nullptr;
  if (schema == nullptr || schema->release == nullptr) {
    throw EventError(
        "the type of the record batch must be an Arrow schema, not one that was released");
  }
  batch.encode_for(names);
  if (Encoder(*owner, *schema, names, position, batch).encode()) {
    batch.owners.push_back(std::move(owner));
  }
}

namespace {

// Owns nothing.
ArrowArray rows_of(const ArrowArray& array, std::size_t begin, std::size_t end) {
  ArrowArray rows = array;
  rows.offset += static_cast<std::int64_t>(begin);
  rows.length = static_cast<std::int64_t>(end - begin);
  rows.private_data = nullptr;
  rows.release = [](ArrowArray* held) { held->release = nullptr; };
  return rows;
}

}  // namespace

void encode_arrow_rows(const ArrowArray& array, const ArrowSchema* schema, std::size_t begin,
                       std::size_t end, const Names& names, const PositionNames& position,
                       EventBatch& batch) {
  ArrowArray rows = rows_of(array, begin, end);
  encode_arrow(&rows, schema, names, position, batch);
}

void keep_arrow_rows(const ArrowArray& array, const ArrowSchema* schema, std::size_t begin,
                     std::size_t end, const Names& names, const PositionNames& position,
                     IsForDevice is_for_device, EventBatch& batch) {
  const ArrowArray rows = rows_of(array, begin, end);
  batch.encode_for(names);
  Encoder encoder(rows, *schema, names, position, batch);
  auto columns = std::make_shared<EventColumns>(
      end - begin, [=, &array, &names](std::size_t first, std::size_t last, EventBatch& to) {
        encode_arrow_rows(array, schema, begin + first, begin + last, names, position, to);
      });
  if (encoder.find_columns(is_for_device, *columns)) {
    batch.keep(std::move(columns));
  } else {
    encoder.encode();  // the array outlives the batch
  }
}

}  // namespace tamis
