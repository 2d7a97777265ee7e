#include "tamis/event_columns.hpp"

#include <algorithm>

namespace tamis {

const EventBatch& EventColumns::rows() const {
  if (!rows_) {
    auto rows = std::make_unique<EventBatch>();
    decode_(0, n_events_, *rows);
    rows_ = std::move(rows);
  }
  return *rows_;
}

EventBatch EventColumns::first_rows(std::size_t n_most) const {
  EventBatch rows;
  decode_(0, std::min(n_most, n_events_), rows);
  return rows;
}

const EventBatch& EventBatch::rows() const { return columns ? columns->rows() : *this; }

void EventBatch::keep(std::shared_ptr<const EventColumns> given) {
  columns = std::move(given);
  n_in_columns = columns->size();
}

}  // namespace tamis
