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
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/simd.hpp"
#include "common/utf8.hpp"
#include "encode/arrow_abi.h"
#include "encode/key_cache.hpp"
#include "encode/seen_attributes.hpp"
#include "tamis/encode.hpp"
#include "tamis/error.hpp"

namespace tamis {

namespace {

// The block of row-major values: big enough to amortise the calls, small enough for the L2 cache.
constexpr std::size_t kBlockValues = 8192;
constexpr std::size_t kMaxBlockRows = 1024;
constexpr std::size_t kMinBlockRows = 16;

// Entries of a map that are looked at together, however many there are.
constexpr std::size_t kFewEntries = 8;

// No machine holds more; below it no sum or product of lengths overflows.
constexpr std::int64_t kMaxLength = std::int64_t{1} << 48;

// A dictionary up to this many times as long as its column (or up to kSmallDictionary) is decoded
// as a whole first; a few rows of a huge dictionary are looked up one by one.
constexpr std::int64_t kDictionaryFactor = 2;
constexpr std::int64_t kSmallDictionary = 1024;

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
T load(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

// -- decoding --

void decode_nulls(const Column&, std::int64_t begin, std::int64_t end, EventValue* out,
                  std::size_t stride) {
  for (std::int64_t index = begin; index < end; ++index, out += stride) *out = EventValue();
}

void decode_booleans(const Column& column, std::int64_t begin, std::int64_t end, EventValue* out,
                     std::size_t stride) {
  const auto* bits = static_cast<const std::uint8_t*>(column.values);
  for (std::int64_t index = begin; index < end; ++index, out += stride) {
    const std::int64_t bit = column.offset + index;
    *out = column.is_valid(index) ? EventValue::of((bits[bit >> 3] >> (bit & 7) & 1) != 0)
                                  : EventValue();
  }
}

template <class T>
struct AsInteger {
  using Stored = T;
  static bool convert(T stored, EventValue& value) {
    if constexpr (sizeof(T) < 8) {  // a double holds it
      value = EventValue::of(Number{static_cast<double>(stored), 0});
    } else {
      value = EventValue::of(stored);
    }
    return true;
  }
};

template <class T>
struct AsFloat {
  using Stored = T;
  static bool convert(T stored, EventValue& value) {
    value = EventValue::of(static_cast<double>(stored));
    return true;
  }
};

struct AsHalf {
  using Stored = std::uint16_t;
  static bool convert(std::uint16_t stored, EventValue& value) {
    // Sign 1, exponent 5, fraction 10. A double holds every half.
    const unsigned exponent = stored >> 10 & 0x1F;
    const auto fraction = static_cast<double>(stored & 0x3FF);
    double magnitude;
    if (exponent == 0) {
      magnitude = fraction * 0x1p-24;
    } else if (exponent == 0x1F) {
      magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                                : std::numeric_limits<double>::quiet_NaN();
    } else {
      magnitude = (1024 + fraction) * static_cast<double>(std::uint64_t{1} << exponent) * 0x1p-25;
    }
    value = EventValue::of((stored & 0x8000) != 0 ? -magnitude : magnitude);
    return true;
  }
};

// A time in units of kFactor microseconds.
template <class T, std::int64_t kFactor>
struct AsScaledTime {
  using Stored = T;
  static bool convert(T stored, EventValue& value) {
    std::int64_t microseconds;
    if (__builtin_mul_overflow(static_cast<std::int64_t>(stored), kFactor, &microseconds)) {
      return false;
    }
    value = EventValue::of(microseconds);
    return true;
  }
};

struct AsNanoseconds {
  using Stored = std::int64_t;
  static bool convert(std::int64_t stored, EventValue& value) {
    // Rounded down, before 1970 too.
    value = EventValue::of(stored / 1000 - (stored % 1000 < 0 ? 1 : 0));
    return true;
  }
};

template <class As>
void decode_fixed(const Column& column, std::int64_t begin, std::int64_t end, EventValue* out,
                  std::size_t stride) {
  using Stored = typename As::Stored;
  const auto read = [&](std::int64_t index) {
    EventValue value;
    if (!As::convert(load<Stored>(column.values, column.offset + index), value)) [[unlikely]] {
      throw Fault{index, "a time must be within 64 bits of microseconds since 1970"};
    }
    return value;
  };
  if (column.validity == nullptr) {
    for (std::int64_t index = begin; index < end; ++index, out += stride) *out = read(index);
  } else {
    for (std::int64_t index = begin; index < end; ++index, out += stride) {
      *out = column.is_valid(index) ? read(index) : EventValue();
    }
  }
}

void check_utf8(const Column& column, std::int64_t index, std::string_view text) {
  if (column.is_valid(index) && !is_valid_utf8(text)) {
    throw Fault{index, "a string must be valid UTF-8"};
  }
}

// Calls visit(index, text) for each; the text of an invalid one is null.
template <class Offset, class Visit>
void visit_strings(const Column& column, std::int64_t begin, std::int64_t end, Visit visit) {
  if (begin == end) return;
  const auto offset_at = [&](std::int64_t index) {
    return load<Offset>(column.values, column.offset + index);
  };
  const Offset first = offset_at(begin);
  const Offset last = offset_at(end);
  bool is_monotone = first >= 0;
  for (std::int64_t index = begin; index < end; ++index) {
    is_monotone &= offset_at(index) <= offset_at(index + 1);
  }
  if (!is_monotone) throw Fault{begin, "the offsets of strings must be positive and never fall"};
  const char* const data = column.data;
  const auto text_at = [&](std::int64_t index) {
    return std::string_view(data + offset_at(index),
                            static_cast<std::size_t>(offset_at(index + 1) - offset_at(index)));
  };
  if (data == nullptr) {
    if (last != 0) throw Fault{begin, "the buffer of strings must not be missing"};
  } else if (!simd().is_ascii(data + first, static_cast<std::size_t>(last - first))) {
    for (std::int64_t index = begin; index < end; ++index) {
      check_utf8(column, index, text_at(index));
    }
  }
  for (std::int64_t index = begin; index < end; ++index) {
    if (!column.is_valid(index)) {
      visit(index, nullptr);
      continue;
    }
    const std::string_view text = text_at(index);
    if constexpr (sizeof(Offset) == 8) {
      if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
        throw Fault{index, "a string must be shorter than 4 GiB"};
      }
    }
    visit(index, &text);
  }
}

template <class Offset>
void decode_strings(const Column& column, std::int64_t begin, std::int64_t end, EventValue* out,
                    std::size_t stride) {
  visit_strings<Offset>(column, begin, end, [&](std::int64_t, const std::string_view* text) {
    *out = text == nullptr ? EventValue() : EventValue::of(*text);
    out += stride;
  });
}

// A view: length, then either up to 12 bytes in place, or 4 bytes of prefix, buffer and offset.
void decode_views(const Column& column, std::int64_t begin, std::int64_t end, EventValue* out,
                  std::size_t stride) {
  constexpr std::int32_t kMaxInPlace = 12;
  for (std::int64_t index = begin; index < end; ++index, out += stride) {
    if (!column.is_valid(index)) {
      *out = EventValue();
      continue;
    }
    const char* view = static_cast<const char*>(column.values) + 16 * (column.offset + index);
    const auto length = load<std::int32_t>(view, 0);
    if (length < 0) throw Fault{index, "the length of a string must not be negative"};
    const char* text = view + 4;
    if (length > kMaxInPlace) {
      const auto buffer = load<std::int32_t>(view, 2);
      const auto offset = load<std::int32_t>(view, 3);
      if (buffer < 0 || buffer >= column.n_view_buffers || offset < 0 ||
          column.view_buffers[buffer] == nullptr ||
          load<std::int64_t>(column.view_sizes, buffer) < std::int64_t{offset} + length) {
        throw Fault{index, "a string view must lie within its buffers"};
      }
      text = static_cast<const char*>(column.view_buffers[buffer]) + offset;
    }
    const std::string_view string(text, static_cast<std::size_t>(length));
    if (!is_valid_utf8(string)) throw Fault{index, "a string must be valid UTF-8"};
    *out = EventValue::of(string);
  }
}

template <class Index>
void decode_dictionary(const Column& column, std::int64_t begin, std::int64_t end, EventValue* out,
                       std::size_t stride) {
  const Column& dictionary = *column.dictionary;
  const bool is_decoded = !column.dictionary_values.empty();
  for (std::int64_t index = begin; index < end; ++index, out += stride) {
    if (!column.is_valid(index)) {
      *out = EventValue();
      continue;
    }
    const auto stored = load<Index>(column.values, column.offset + index);
    // A negative index, or one beyond int64, becomes a huge one.
    const auto place = static_cast<std::uint64_t>(stored);
    if (place >= static_cast<std::uint64_t>(dictionary.length)) [[unlikely]] {
      throw Fault{index, "a dictionary index must be below " + std::to_string(dictionary.length) +
                             ", not " + std::to_string(stored)};
    }
    if (is_decoded) {
      *out = column.dictionary_values[place];
    } else {
      try {
        const auto at = static_cast<std::int64_t>(place);
        dictionary.decode(dictionary, at, at + 1, out, 1);
      } catch (Fault& fault) {
        fault.index = index;
        throw;
      }
    }
  }
}

// -- keys of maps --

// The attributes of keys begin .. end of the column to out[0], out[1], ... Throws Fault.
using KeyFunction = void (*)(const Column&, std::int64_t begin, std::int64_t end, KeyCache& cache,
                             AttributeId* out);

[[noreturn]] void throw_null_key(std::int64_t index) {
  throw Fault{index, "a key of a map must not be null"};
}

template <class Offset>
void find_string_keys(const Column& column, std::int64_t begin, std::int64_t end, KeyCache& cache,
                      AttributeId* out) {
  visit_strings<Offset>(column, begin, end, [&](std::int64_t index, const std::string_view* key) {
    if (key == nullptr) throw_null_key(index);
    *out++ = cache.find(*key);
  });
}

// Of views and dictionaries.
void find_decoded_keys(const Column& column, std::int64_t begin, std::int64_t end, KeyCache& cache,
                       AttributeId* out) {
  std::array<EventValue, 256> keys;
  while (begin < end) {
    const std::int64_t n_keys = std::min<std::int64_t>(end - begin, keys.size());
    column.decode(column, begin, begin + n_keys, keys.data(), 1);
    for (std::int64_t at = 0; at < n_keys; ++at) {
      const EventValue& key = keys[static_cast<std::size_t>(at)];
      if (key.kind == Kind::absent) throw_null_key(begin + at);
      *out++ = cache.find(key.string());
    }
    begin += n_keys;
  }
}

// -- types --

enum class Storage : std::uint8_t { none, bits, fixed, strings, views };

struct TypeInfo {
  Storage storage;
  DecodeFunction decode;
  bool is_numeric;  // can be a coordinate
};

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// Null if events cannot hold it (a map is none of these: it holds attributes).
const TypeInfo* find_type(std::string_view format) {
  struct Entry {
    std::string_view format;  // a colon at the end: the time zone follows
    TypeInfo type;
  };
  static constexpr Entry kTypes[] = {
      {"n", {Storage::none, decode_nulls, true}},
      {"b", {Storage::bits, decode_booleans, false}},
      {"c", {Storage::fixed, decode_fixed<AsInteger<std::int8_t>>, true}},
      {"C", {Storage::fixed, decode_fixed<AsInteger<std::uint8_t>>, true}},
      {"s", {Storage::fixed, decode_fixed<AsInteger<std::int16_t>>, true}},
      {"S", {Storage::fixed, decode_fixed<AsInteger<std::uint16_t>>, true}},
      {"i", {Storage::fixed, decode_fixed<AsInteger<std::int32_t>>, true}},
      {"I", {Storage::fixed, decode_fixed<AsInteger<std::uint32_t>>, true}},
      {"l", {Storage::fixed, decode_fixed<AsInteger<std::int64_t>>, true}},
      {"L", {Storage::fixed, decode_fixed<AsInteger<std::uint64_t>>, true}},
      {"e", {Storage::fixed, decode_fixed<AsHalf>, true}},
      {"f", {Storage::fixed, decode_fixed<AsFloat<float>>, true}},
      {"g", {Storage::fixed, decode_fixed<AsFloat<double>>, true}},
      {"u", {Storage::strings, decode_strings<std::int32_t>, false}},
      {"U", {Storage::strings, decode_strings<std::int64_t>, false}},
      {"vu", {Storage::views, decode_views, false}},
      {"tdD", {Storage::fixed, decode_fixed<AsScaledTime<std::int32_t, 86'400'000'000>>, false}},
      {"tdm", {Storage::fixed, decode_fixed<AsScaledTime<std::int64_t, 1'000>>, false}},
      {"tss:", {Storage::fixed, decode_fixed<AsScaledTime<std::int64_t, 1'000'000>>, false}},
      {"tsm:", {Storage::fixed, decode_fixed<AsScaledTime<std::int64_t, 1'000>>, false}},
      {"tsu:", {Storage::fixed, decode_fixed<AsScaledTime<std::int64_t, 1>>, false}},
      {"tsn:", {Storage::fixed, decode_fixed<AsNanoseconds>, false}},
  };
  for (const Entry& entry : kTypes) {
    if (entry.format.back() == ':' ? starts_with(format, entry.format) : format == entry.format) {
      return &entry.type;
    }
  }
  return nullptr;
}

DecodeFunction find_dictionary_decoder(std::string_view format) {
  if (format.size() != 1) return nullptr;
  switch (format[0]) {
    case 'c':
      return decode_dictionary<std::int8_t>;
    case 'C':
      return decode_dictionary<std::uint8_t>;
    case 's':
      return decode_dictionary<std::int16_t>;
    case 'S':
      return decode_dictionary<std::uint16_t>;
    case 'i':
      return decode_dictionary<std::int32_t>;
    case 'I':
      return decode_dictionary<std::uint32_t>;
    case 'l':
      return decode_dictionary<std::int64_t>;
    case 'L':
      return decode_dictionary<std::uint64_t>;
    default:
      return nullptr;
  }
}

// The type as people write it, and a way out.
struct TypeDescription {
  std::string name;
  const char* advice;
};

TypeDescription describe_type(std::string_view format) {
  constexpr const char* kDrop = "drop it";
  constexpr const char* kOne = "take one value of it as a column of its own, or drop it";
  constexpr const char* kText = "cast it to string, or drop it";
  constexpr const char* kInteger = "cast it to int64, or drop it";
  if (starts_with(format, "d:")) {
    return {"decimal(" + std::string(format.substr(2)) + ")",
            "cast it to float64 or int64, or drop it"};
  }
  struct Entry {
    std::string_view prefix;
    const char* name;
    const char* advice;
  };
  static constexpr Entry kTypes[] = {
      {"+l", "list", kOne},
      {"+L", "large list", kOne},
      {"+vl", "list view", kOne},
      {"+vL", "large list view", kOne},
      {"+w:", "fixed-size list", kOne},
      {"+s", "struct", "make a column of each of its fields, or drop it"},
      {"+m", "map", "flatten it into columns, or drop it"},
      {"+u", "union", kDrop},
      {"+r", "run-end encoded", "decode it, or drop it"},
      {"z", "binary", kText},
      {"Z", "large binary", kText},
      {"vz", "binary view", kText},
      {"w:", "fixed-size binary", kText},
      {"tt", "time of day", kInteger},
      {"tD", "duration", kInteger},
      {"ti", "interval", kDrop},
      {"n", "null", kDrop},
      {"b", "boolean", kDrop},
      {"c", "int8", kDrop},
      {"C", "uint8", kDrop},
      {"s", "int16", kDrop},
      {"S", "uint16", kDrop},
      {"i", "int32", kDrop},
      {"I", "uint32", kDrop},
      {"l", "int64", kDrop},
      {"L", "uint64", kDrop},
      {"e", "float16", kDrop},
      {"f", "float32", kDrop},
      {"g", "float64", kDrop},
      {"u", "string", kDrop},
      {"U", "large string", kDrop},
      {"vu", "string view", kDrop},
      {"ts", "timestamp", kInteger},
      {"td", "date", kInteger},
  };
  for (const Entry& entry : kTypes) {
    if (starts_with(format, entry.prefix)) return {entry.name, entry.advice};
  }
  return {"of format '" + std::string(format) + "'", kDrop};
}

// -- opening --

std::string quote(std::string_view name) {
  std::string text = "'";
  text.append(name).append("'");
  return text;
}

[[noreturn]] void refuse_type(std::string_view what, std::string_view format) {
  const TypeDescription type = describe_type(format);
  throw EventError(std::string(what) + " has type " + type.name + ", which events cannot hold; " +
                   type.advice);
}

[[noreturn]] void malformed(std::string_view what, const std::string& reason) {
  throw EventError(std::string(what) + " is no well-formed Arrow array: " + reason);
}

std::string_view format_of(const ArrowSchema* schema, std::string_view what) {
  if (schema == nullptr || schema->format == nullptr) malformed(what, "its type is missing");
  return schema->format;
}

// What every array must have, whatever its type. At least `n_needed` values.
void check_array(const ArrowArray* array, std::int64_t n_needed, std::int64_t n_buffers,
                 std::int64_t n_children, std::string_view what) {
  if (array == nullptr) malformed(what, "it is missing");
  if (array->length < 0 || array->offset < 0 || array->length > kMaxLength ||
      array->offset > kMaxLength) {
    malformed(what, "length " + std::to_string(array->length) + " and offset " +
                        std::to_string(array->offset) + " must be 0 to 2^48");
  }
  if (array->length < n_needed) {
    malformed(what, "length must be at least " + std::to_string(n_needed) + ", not " +
                        std::to_string(array->length));
  }
  if (array->n_buffers != n_buffers) {
    malformed(what, "the number of buffers must be " + std::to_string(n_buffers) + ", not " +
                        std::to_string(array->n_buffers));
  }
  if (array->n_children != n_children) {
    malformed(what, "the number of children must be " + std::to_string(n_children) + ", not " +
                        std::to_string(array->n_children));
  }
  if ((n_buffers > 0 && array->buffers == nullptr) ||
      (n_children > 0 && array->children == nullptr)) {
    malformed(what, "its buffers or children are missing");
  }
}

const std::uint8_t* validity_of(const ArrowArray& array, std::string_view what) {
  const auto* validity = static_cast<const std::uint8_t*>(array.buffers[0]);
  if (validity == nullptr && array.null_count > 0 && array.length > 0) {
    malformed(what, "it has nulls, but no validity buffer");
  }
  return array.null_count == 0 ? nullptr : validity;
}

std::string as_what(std::string_view name) { return "column " + quote(name); }

// Refuses types that are not for events; `format` is not a map's.
void check_type(const ArrowSchema* schema, std::string_view what) {
  const std::string_view format = format_of(schema, what);
  if (schema->dictionary == nullptr) {
    if (find_type(format) == nullptr) refuse_type(what, format);
    return;
  }
  if (find_dictionary_decoder(format) == nullptr) {
    malformed(what,
              "the indices of a dictionary must be integers, not " + describe_type(format).name);
  }
  const std::string_view inner = format_of(schema->dictionary, what);
  if (schema->dictionary->dictionary != nullptr) {
    throw EventError(std::string(what) +
                     " has a dictionary within a dictionary, which events "
                     "cannot hold; decode it, or drop it");
  }
  if (find_type(inner) == nullptr) refuse_type(what, inner);
}

// The column of `n_needed` values from `start` on (the offset of the array around it), of which
// about `n_read` will be read.
Column open_column(const ArrowSchema* schema, const ArrowArray* array, std::int64_t start,
                   std::int64_t n_needed, std::int64_t n_read, std::string_view what) {
  check_type(schema, what);
  const bool has_dictionary = schema->dictionary != nullptr;
  const TypeInfo& type = *find_type(format_of(has_dictionary ? schema->dictionary : schema, what));
  const Storage storage = has_dictionary ? Storage::fixed : type.storage;
  if (array == nullptr) malformed(what, "it is missing");
  std::int64_t n_buffers = 2;
  if (storage == Storage::none) n_buffers = 0;
  if (storage == Storage::strings) n_buffers = 3;
  if (storage == Storage::views) n_buffers = std::max<std::int64_t>(array->n_buffers, 3);
  check_array(array, start + n_needed, n_buffers, 0, what);
  if ((array->dictionary != nullptr) != has_dictionary) {
    malformed(what, has_dictionary ? "its dictionary is missing" : "it must have no dictionary");
  }

  Column column;
  column.offset = array->offset + start;
  column.length = n_needed;
  column.decode = type.decode;
  column.is_numeric = type.is_numeric;
  column.is_string = type.storage == Storage::strings || type.storage == Storage::views;
  column.may_be_absent = storage == Storage::none;
  if (storage == Storage::none) return column;
  column.validity = validity_of(*array, what);
  column.values = array->buffers[1];
  column.may_be_absent = column.validity != nullptr;
  if (n_needed > 0 && column.values == nullptr) malformed(what, "its second buffer is missing");
  if (storage == Storage::strings) column.data = static_cast<const char*>(array->buffers[2]);
  if (storage == Storage::views) {
    column.view_buffers = array->buffers + 2;
    column.n_view_buffers = array->n_buffers - 3;
    column.view_sizes = static_cast<const std::int64_t*>(array->buffers[array->n_buffers - 1]);
    if (column.n_view_buffers > 0 && column.view_sizes == nullptr) {
      malformed(what, "the sizes of its buffers are missing");
    }
  }
  if (!has_dictionary) return column;

  const ArrowArray* entries = array->dictionary;
  if (entries->length < 0) malformed(what, "the length of its dictionary must not be negative");
  column.decode = find_dictionary_decoder(format_of(schema, what));
  column.dictionary = std::make_unique<Column>(
      open_column(schema->dictionary, entries, 0, entries->length, entries->length, what));
  column.may_be_absent |= column.dictionary->may_be_absent;
  const std::int64_t length = column.dictionary->length;
  if (n_needed > 0 && length > 0 &&
      (length <= kSmallDictionary || length / kDictionaryFactor <= n_read)) {
    column.dictionary_values.resize(static_cast<std::size_t>(length));
    try {
      column.dictionary->decode(*column.dictionary, 0, length, column.dictionary_values.data(), 1);
    } catch (const Fault& fault) {
      throw EventError(std::string(what) + ", dictionary value " + std::to_string(fault.index) +
                       ": " + fault.reason);
    }
  }
  return column;
}

// -- maps --

struct MapColumn {
  std::string_view name;
  const std::uint8_t* validity = nullptr;
  const void* offsets = nullptr;  // int32
  std::int64_t offset = 0;
  std::int64_t n_entries = 0;
  std::size_t n_read = 0;  // entries of its rows, about
  const std::uint8_t* entry_validity = nullptr;
  std::int64_t entry_offset = 0;
  Column keys, values;
  KeyFunction find_keys = nullptr;

  std::int64_t first_entry(std::int64_t row) const {
    return load<std::int32_t>(offsets, offset + row);
  }
  bool is_valid(std::int64_t row) const {
    const std::int64_t bit = offset + row;
    return validity == nullptr || (validity[bit >> 3] >> (bit & 7) & 1) != 0;
  }
};

const ArrowSchema* child_of(const ArrowSchema* schema, std::int64_t child_idx,
                            std::string_view what) {
  if (schema->children == nullptr || schema->children[child_idx] == nullptr) {
    malformed(what, "the type of a child is missing");
  }
  return schema->children[child_idx];
}

// Refuses maps that do not carry attributes.
void check_map_type(const ArrowSchema* schema, std::string_view what) {
  if (schema->n_children != 1) malformed(what, "a map must have one child");
  const ArrowSchema* entries = child_of(schema, 0, what);
  if (format_of(entries, what) != "+s" || entries->n_children != 2) {
    malformed(what, "the entries of a map must be a struct of key and value");
  }
  const ArrowSchema* keys = child_of(entries, 0, what);
  const std::string_view key_format =
      format_of(keys->dictionary != nullptr ? keys->dictionary : keys, what);
  if (key_format != "u" && key_format != "U" && key_format != "vu") {
    throw EventError(std::string(what) + " must be a map with string keys, not with keys of type " +
                     describe_type(key_format).name);
  }
  check_type(keys, what);
  check_type(child_of(entries, 1, what), std::string(what) + " (its values)");
}

MapColumn open_map(const ArrowSchema* schema, const ArrowArray* array, std::int64_t start,
                   std::int64_t n_rows, std::string_view name) {
  const std::string what = as_what(name);
  check_map_type(schema, what);
  check_array(array, start + n_rows, 2, 1, what);
  const ArrowArray* entries = array->children[0];
  check_array(entries, 0, 1, 2, what);
  MapColumn map;
  map.name = name;
  map.offset = array->offset + start;
  map.validity = validity_of(*array, what);
  map.offsets = array->buffers[1];
  if (n_rows > 0 && map.offsets == nullptr) malformed(what, "its offsets are missing");
  map.n_entries = entries->length;
  map.entry_offset = entries->offset;
  map.entry_validity = validity_of(*entries, what);
  const ArrowSchema* entry_schema = schema->children[0];
  const std::int64_t n_read =
      n_rows == 0 ? 0
                  : std::clamp<std::int64_t>(map.first_entry(n_rows) - map.first_entry(0), 0,
                                             entries->length);
  map.n_read = static_cast<std::size_t>(n_read);
  map.keys = open_column(entry_schema->children[0], entries->children[0], entries->offset,
                         entries->length, n_read, what);
  map.values = open_column(entry_schema->children[1], entries->children[1], entries->offset,
                           entries->length, n_read, what);
  const std::string_view key_format = format_of(entry_schema->children[0], what);
  map.find_keys = find_decoded_keys;
  if (key_format == "u") map.find_keys = find_string_keys<std::int32_t>;
  if (key_format == "U") map.find_keys = find_string_keys<std::int64_t>;
  return map;
}

// -- the batch --

class Encoder {
 public:
  Encoder(const ArrowArray& array, const ArrowSchema& schema, const Names& names,
          const PositionNames& position, EventBatch& batch)
      : array_(array), schema_(schema), names_(names), batch_(batch), seen_(names.size()) {
    open(position);
  }

  // True if the batch now has strings that lie in the array's buffers.
  bool encode();

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

void encode_arrow_rows(const ArrowArray& array, const ArrowSchema* schema, std::size_t begin,
                       std::size_t end, const Names& names, const PositionNames& position,
                       EventBatch& batch) {
  ArrowArray rows = array;
  rows.offset += static_cast<std::int64_t>(begin);
  rows.length = static_cast<std::int64_t>(end - begin);
  rows.private_data = nullptr;
  rows.release = [](ArrowArray* held) { held->release = nullptr; };
  encode_arrow(&rows, schema, names, position, batch);
}

}  // namespace tamis
