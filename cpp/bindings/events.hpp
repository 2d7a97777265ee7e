// Encoders of Python objects, for the matcher's binding.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "encode/arrow_abi.h"
#include "tamis/encode.hpp"

namespace tamis {

// Adds one event, a dict of attributes. Attributes that nobody mentions are not looked at.
void encode_dict(nb::handle event, const Names& names, EventBatch& batch);
std::optional<std::pair<double, double>> to_position(nb::handle at);

std::shared_ptr<EventBatch> encode_dicts(nb::handle events, const Names& names,
                                         const PositionNames& position);
// From an arrow_array_stream capsule; the GIL is released for the work.
std::shared_ptr<EventBatch> encode_stream(nb::handle capsule, const Names& names,
                                          const PositionNames& position);
// All record batches of such a stream, kept until this goes, and encoded where they are needed.
class EventStream {
 public:
  explicit EventStream(nb::handle capsule);  // the GIL is released for the reading
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;
  ~EventStream();

  std::size_t n_rows() const { return n_rows_; }
  // All of them: also those without rows are looked at, whether they are as they should be.
  void encode(const Names& names, const PositionNames& position, EventBatch& batch) const;
  // Rows, counted through all of them. Strings stay where they are.
  void encode(std::size_t begin, std::size_t end, const Names& names, const PositionNames& position,
              EventBatch& batch) const;

 private:
  EventStream() = default;  // from here on the destructor releases what was taken

  std::vector<ArrowArray> arrays_;
  ArrowSchema schema_{};
  std::size_t n_rows_ = 0;
};
PositionNames to_position_names(nb::handle position);

}  // namespace tamis
