// A column of an Arrow array, opened: where its values lie and what decodes them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "encode/key_cache.hpp"
#include "tamis/number_column.hpp"
#include "tamis/value.hpp"

namespace tamis::arrow {

// A value that cannot be read; turned into an EventError with the column and the row.
struct Fault {
  std::int64_t index;  // in the column, as decode counts
  std::string reason;
};

struct Column;
// Values begin .. end of the column to out[0], out[stride], ... Throws Fault.
using DecodeFunction = void (*)(const Column&, std::int64_t begin, std::int64_t end,
                                EventValue* out, std::size_t stride);

struct Column {
  DecodeFunction decode = nullptr;
  const std::uint8_t* validity = nullptr;  // null: no nulls
  const void* values = nullptr;            // numbers, bits, offsets, views or dictionary indices
  const char* data = nullptr;              // bytes of strings
  std::int64_t offset = 0;                 // of value 0 in the buffers
  std::int64_t length = 0;
  bool is_numeric = false;
  NumberType number = NumberType::none;  // of plain numbers, or of indices into a dictionary
  bool is_string = false;
  bool may_be_absent = false;

  // String views
  const void* const* view_buffers = nullptr;
  const std::int64_t* view_sizes = nullptr;
  std::int64_t n_view_buffers = 0;

  // Dictionaries
  std::unique_ptr<Column> dictionary;
  std::vector<EventValue> dictionary_values;  // [dictionary->length], or none: one by one

  bool is_valid(std::int64_t index) const {
    const std::int64_t bit = offset + index;
    return validity == nullptr || (validity[bit >> 3] >> (bit & 7) & 1) != 0;
  }
};

// Buffers should be aligned, but those out of files and sockets are not always.
template <class T>
inline T load(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

// The attributes of keys begin .. end of the column to out[0], out[1], ... Throws Fault.
using KeyFunction = void (*)(const Column&, std::int64_t begin, std::int64_t end, KeyCache& cache,
                             AttributeId* out);

}  // namespace tamis::arrow
