// A batch of events in the form that every engine reads.
//
//     offsets     [n_events + 1]     values of event e are offsets[e] .. offsets[e + 1]
//     attributes  [n_values]         catalogue ids, each at most once in an event, in no order
//     values      [n_values]         never absent
//     x, y        [n_events] or [0]  positions; NaN in x: this event has none
//
// Only attributes of the catalogue at the time of encoding are there (`n_known` of them): a batch
// answers for subscriptions that mention no others, and the matcher refuses it otherwise.
// Strings point into `owners`, which the batch keeps alive.
//
// Instead of all that a batch may have `columns`, which are not decoded yet: then rows() has the
// form above, and only an Index that reads_columns() is given anything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tamis/catalogue.hpp"
#include "tamis/reused_vector.hpp"
#include "tamis/value.hpp"

namespace tamis {

// Bytes that stay where they are while the batch grows.
class StringArena {
 public:
  StringArena() = default;
  StringArena(StringArena&& other) noexcept
      : blocks_(std::move(other.blocks_)),
        next_(std::exchange(other.next_, nullptr)),
        room_(std::exchange(other.room_, 0)) {}
  StringArena& operator=(StringArena&& other) noexcept {
    blocks_ = std::move(other.blocks_);
    next_ = std::exchange(other.next_, nullptr);
    room_ = std::exchange(other.room_, 0);
    return *this;
  }

  // Room for `n_bytes`, valid until the arena goes.
  char* allocate(std::size_t n_bytes) {
    if (n_bytes > room_) grow(n_bytes);
    char* place = next_;
    next_ += n_bytes;
    room_ -= n_bytes;
    return place;
  }
  // Gives the last `n_bytes` of the latest allocation back.
  void give_back(std::size_t n_bytes) {
    next_ -= n_bytes;
    room_ += n_bytes;
  }
  std::string_view copy(std::string_view text) {
    char* place = allocate(text.size());
    if (!text.empty()) std::memcpy(place, text.data(), text.size());
    return {place, text.size()};
  }

 private:
  static constexpr std::size_t kBlockBytes = 64 * 1024;
  void grow(std::size_t n_bytes) {
    const std::size_t size = n_bytes > kBlockBytes ? n_bytes : kBlockBytes;
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(size));
    next_ = blocks_.back().get();
    room_ = size;
  }
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* next_ = nullptr;
  std::size_t room_ = 0;
};

class EventColumns;

struct EventBatch {
  ReusedVector<std::uint64_t> offsets{0};
  ReusedVector<AttributeId> attributes;
  ReusedVector<EventValue> values;
  ReusedVector<double> x, y;
  std::size_t n_known = 0;
  std::uint64_t catalogue_id = 0;  // whose attribute ids these are
  StringArena arena;
  std::vector<std::shared_ptr<const void>> owners;  // of borrowed strings
  std::shared_ptr<const EventColumns> columns;
  std::size_t n_in_columns = 0;

  std::size_t size() const { return n_in_columns + offsets.size() - 1; }
  const EventBatch& rows() const;
  void keep(std::shared_ptr<const EventColumns> given);  // of a batch that is empty
  bool has_positions() const { return !x.empty(); }
  bool has_position(std::size_t event) const { return has_positions() && x[event] == x[event]; }

  void encode_for(const Names& names) {
    n_known = names.size();
    catalogue_id = names.catalogue_id();
  }

  // Without events, and with the room it had.
  void clear() {
    offsets.resize(1);
    attributes.clear();
    values.clear();
    x.clear();
    y.clear();
    n_known = 0;
    catalogue_id = 0;
    arena = StringArena();
    owners.clear();
    columns.reset();
    n_in_columns = 0;
  }

  // Building, one event after the other.
  void add(AttributeId attribute, EventValue value) {
    attributes.push_back(attribute);
    values.push_back(value);
  }
  void end_event() { offsets.push_back(values.size()); }
  // Drops what was added since the last end_event().
  void abandon_event() {
    attributes.resize(offsets.back());
    values.resize(offsets.back());
  }
  // The position of the event that ends next. Call for all events of a batch or for none.
  void add_position(double at_x, double at_y) {
    const bool is_known = at_x == at_x && at_y == at_y;
    x.push_back(is_known ? at_x : std::numeric_limits<double>::quiet_NaN());
    y.push_back(is_known ? at_y : std::numeric_limits<double>::quiet_NaN());
  }
};

}  // namespace tamis
