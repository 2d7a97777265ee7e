// Encoders: events from outside, as an EventBatch. Python objects are encoded in the bindings.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tamis/event_batch.hpp"

struct ArrowArray;
struct ArrowSchema;

namespace tamis {

// The names of the two attributes (columns, keys) that hold a position. They are attributes too
// where a subscription mentions them.
using PositionNames = std::optional<std::pair<std::string, std::string>>;

struct LineError {
  std::size_t line;  // counted from 1 in the whole text
  std::string reason;
};

struct JsonOptions {
  PositionNames position;
  bool skip_bad_lines = false;  // otherwise the first bad line is an EventError
};

struct JsonResult {
  EventBatch events;
  std::vector<std::size_t> lines;  // [n_events] the line of each event, counted from 1
  std::vector<LineError> errors;   // at most kMaxLineErrors of them are kept
  std::size_t n_errors = 0;
};

inline constexpr std::size_t kMaxLineErrors = 1000;

// JSON lines: one object a line, empty lines are skipped. Nested objects give `a.b`; only
// attributes in `names` are decoded, the rest is checked for form and skipped.
JsonResult decode_json_lines(std::string_view text, const Names& names, const JsonOptions& options);

// One Arrow record batch (a struct array) through the C data interface. A map column with string
// keys carries attributes; every other column is one. Takes the array over (release is called when
// the batch goes, or at once on an error); the schema stays the caller's. Appends to `batch`.
void encode_arrow(ArrowArray* array, const ArrowSchema* schema, const Names& names,
                  const PositionNames& position, EventBatch& batch);

// Some of its rows. The array stays the caller's, and must outlive the batch.
void encode_arrow_rows(const ArrowArray& array, const ArrowSchema* schema, std::size_t begin,
                       std::size_t end, const Names& names, const PositionNames& position,
                       EventBatch& batch);

// The same to an empty batch, which keeps the columns as they are (EventBatch::columns) if they are
// numbers alone in memory that `is_for_device` says a device reads: then names must outlive it,
// too.
using IsForDevice = bool (*)(const void* memory);
void keep_arrow_rows(const ArrowArray& array, const ArrowSchema* schema, std::size_t begin,
                     std::size_t end, const Names& names, const PositionNames& position,
                     IsForDevice is_for_device, EventBatch& batch);

}  // namespace tamis
