#include "encode/arrow/open.hpp"

#include <algorithm>

#include "tamis/error.hpp"

namespace tamis::arrow {
namespace {

// No machine holds more; below it no sum or product of lengths overflows.
constexpr std::int64_t kMaxLength = std::int64_t{1} << 48;

// A dictionary up to this many times as long as its column (or up to kSmallDictionary) is decoded
// as a whole first; a few rows of a huge dictionary are looked up one by one.
constexpr std::int64_t kDictionaryFactor = 2;
constexpr std::int64_t kSmallDictionary = 1024;

}  // namespace

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
  column.number = type.number;
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
  column.number = find_type(format_of(schema, what))->number;
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
  map.find_keys = find_key_function(key_format);
  return map;
}

}  // namespace tamis::arrow
