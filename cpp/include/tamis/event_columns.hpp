// Events in the columns that they came in, for an engine on a device that reads them there. Nothing
// of them is decoded until somebody on the host needs it.
//
// All of them lie in pinned memory, hold nothing but numbers, and outlive the batch.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "tamis/event_batch.hpp"
#include "tamis/number_column.hpp"

namespace tamis {

class EventColumns {
 public:
  // Rows `begin` to `end` to an empty batch; throws EventError where a row is none.
  using Decode = std::function<void(std::size_t begin, std::size_t end, EventBatch& batch)>;

  EventColumns(std::size_t n_events, Decode decode)
      : n_events_(n_events), decode_(std::move(decode)) {}

  std::vector<NumberColumn> columns;      // each another attribute
  NumberMap map;                          // its attributes may be those of columns: an error
  std::vector<AttributeId> attribute_of;  // map.attribute_of
  std::vector<NumberColumn> position;     // [2], or [0]: they have none

  std::size_t size() const { return n_events_; }
  // All rows, decoded when they are first asked for. Of one thread.
  const EventBatch& rows() const;
  bool is_decoded() const { return rows_ != nullptr; }
  // The first `n_most` of them.
  EventBatch first_rows(std::size_t n_most) const;

 private:
  std::size_t n_events_;
  Decode decode_;
  mutable std::unique_ptr<EventBatch> rows_;
};

}  // namespace tamis
