// Record batches built by hand. The builders own exact buffers, so that a sanitizer sees a byte too
// many.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "encode/arrow_abi.h"

namespace tamis::testing {

// An array and its type; children and buffers live as long as this does.
struct Built {
  std::string format, name;
  ArrowArray array{};
  ArrowSchema schema{};
  std::deque<std::vector<char>> owned;
  std::vector<const void*> buffers;
  std::vector<std::size_t> sizes;  // of these, in bytes
  std::vector<std::unique_ptr<Built>> children;
  std::vector<ArrowArray*> child_arrays;
  std::vector<ArrowSchema*> child_schemas;
  std::unique_ptr<Built> dictionary;

  // Buffers of the exact size; an empty optional is a null pointer.
  template <class T>
  void add_buffer(const std::vector<T>& values) {
    std::vector<char> bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    owned.push_back(std::move(bytes));
    buffers.push_back(owned.back().empty() ? static_cast<const void*>(this) : owned.back().data());
    sizes.push_back(owned.back().size());
  }
  void add_null_buffer() {
    buffers.push_back(nullptr);
    sizes.push_back(0);
  }

  void connect() {
    schema.format = format.c_str();
    schema.name = name.c_str();
    schema.release = [](ArrowSchema* own) { own->release = nullptr; };
    array.release = [](ArrowArray* own) { own->release = nullptr; };
    array.n_buffers = static_cast<std::int64_t>(buffers.size());
    array.buffers = buffers.data();
    child_arrays.clear();
    child_schemas.clear();
    for (const auto& child : children) {
      child->connect();
      child_arrays.push_back(&child->array);
      child_schemas.push_back(&child->schema);
    }
    array.n_children = schema.n_children = static_cast<std::int64_t>(children.size());
    array.children = child_arrays.data();
    schema.children = child_schemas.data();
    if (dictionary) {
      dictionary->connect();
      array.dictionary = &dictionary->array;
      schema.dictionary = &dictionary->schema;
    }
  }
};
using BuiltPtr = std::unique_ptr<Built>;

inline std::vector<std::uint8_t> to_bits(const std::vector<bool>& truths) {
  std::vector<std::uint8_t> bits((truths.size() + 7) / 8);
  for (std::size_t at = 0; at < truths.size(); ++at) {
    if (truths[at]) bits[at / 8] = static_cast<std::uint8_t>(bits[at / 8] | 1u << (at % 8));
  }
  return bits;
}

inline BuiltPtr start(const char* name, const char* format, std::size_t length,
                      const std::vector<bool>& validity) {
  auto built = std::make_unique<Built>();
  built->name = name;
  built->format = format;
  built->array.length = static_cast<std::int64_t>(length);
  if (validity.empty()) {
    built->add_null_buffer();
  } else {
    built->array.null_count = -1;
    built->add_buffer(to_bits(validity));
  }
  return built;
}

template <class T>
BuiltPtr fixed(const char* name, const char* format, const std::vector<T>& values,
               const std::vector<bool>& validity = {}) {
  BuiltPtr built = start(name, format, values.size(), validity);
  built->add_buffer(values);
  return built;
}

inline BuiltPtr booleans(const char* name, const std::vector<bool>& values,
                         const std::vector<bool>& validity = {}) {
  BuiltPtr built = start(name, "b", values.size(), validity);
  built->add_buffer(to_bits(values));
  return built;
}

template <class Offset = std::int32_t>
BuiltPtr strings(const char* name, const std::vector<std::string>& values,
                 const std::vector<bool>& validity = {}) {
  BuiltPtr built = start(name, sizeof(Offset) == 4 ? "u" : "U", values.size(), validity);
  std::vector<Offset> offsets{0};
  std::vector<char> data;
  for (const std::string& value : values) {
    data.insert(data.end(), value.begin(), value.end());
    offsets.push_back(static_cast<Offset>(data.size()));
  }
  built->add_buffer(offsets);
  built->add_buffer(data);
  return built;
}

inline BuiltPtr views(const char* name, const std::vector<std::string>& values) {
  BuiltPtr built = start(name, "vu", values.size(), {});
  std::vector<char> all, data;
  for (const std::string& value : values) {
    char view[16] = {};
    const auto length = static_cast<std::int32_t>(value.size());
    std::memcpy(view, &length, 4);
    if (value.size() <= 12) {
      std::memcpy(view + 4, value.data(), value.size());
    } else {
      const auto offset = static_cast<std::int32_t>(data.size());
      std::memcpy(view + 4, value.data(), 4);
      std::memcpy(view + 12, &offset, 4);
      data.insert(data.end(), value.begin(), value.end());
    }
    all.insert(all.end(), view, view + 16);
  }
  built->add_buffer(all);
  built->add_buffer(data);
  built->add_buffer(std::vector<std::int64_t>{static_cast<std::int64_t>(data.size())});
  return built;
}

template <class Index>
BuiltPtr dictionary(const char* name, const char* format, const std::vector<Index>& indices,
                    BuiltPtr values, const std::vector<bool>& validity = {}) {
  BuiltPtr built = fixed(name, format, indices, validity);
  built->dictionary = std::move(values);
  return built;
}

// Only the type matters: refused before anything is read.
inline BuiltPtr of_type(const char* name, const char* format, std::size_t length) {
  return start(name, format, length, {});
}

inline BuiltPtr map(const char* name, const std::vector<std::int32_t>& offsets, BuiltPtr keys,
                    BuiltPtr values, const std::vector<bool>& validity = {}) {
  BuiltPtr entries = start("entries", "+s", static_cast<std::size_t>(keys->array.length), {});
  entries->children.push_back(std::move(keys));
  entries->children.push_back(std::move(values));
  BuiltPtr built = start(name, "+m", offsets.size() - 1, validity);
  built->add_buffer(offsets);
  built->children.push_back(std::move(entries));
  return built;
}

template <class... Columns>
BuiltPtr record_batch(std::size_t n_rows, Columns... columns) {
  BuiltPtr built = start("", "+s", n_rows, {});
  (built->children.push_back(std::move(columns)), ...);
  return built;
}

}  // namespace tamis::testing
