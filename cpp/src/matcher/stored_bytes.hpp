// Bytes that are owned, or borrowed from a mapped file, in 16 bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "tamis/id.hpp"

namespace tamis {

class StoredBytes {
 public:
  StoredBytes() = default;
  explicit StoredBytes(std::string_view text) : length_(static_cast<std::uint32_t>(text.size())) {
    if (text.empty()) return;
    char* own = new char[text.size()];
    std::memcpy(own, text.data(), text.size());
    data_ = own;
    is_owned_ = true;
  }
  // `text` outlives this.
  static StoredBytes borrow(std::string_view text) {
    StoredBytes bytes;
    bytes.data_ = text.data();
    bytes.length_ = static_cast<std::uint32_t>(text.size());
    return bytes;
  }
  StoredBytes(StoredBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        length_(std::exchange(other.length_, 0)),
        is_owned_(std::exchange(other.is_owned_, false)) {}
  StoredBytes& operator=(StoredBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(length_, other.length_);
    std::swap(is_owned_, other.is_owned_);
    return *this;
  }
  ~StoredBytes() {
    if (is_owned_) delete[] data_;
  }

  std::string_view view() const { return {data_, length_}; }
  std::size_t n_heap_bytes() const { return is_owned_ ? length_ + 16 : 0; }  // with malloc's own

 private:
  const char* data_ = nullptr;
  std::uint32_t length_ = 0;
  bool is_owned_ = false;
};

// An id with its bytes.
class StoredId {
 public:
  StoredId() = default;
  explicit StoredId(const IdView& id)
      : type_(id.type), integer_(id.integer), bytes_(StoredBytes(id.string)) {}
  static StoredId borrow(const IdView& id) {
    StoredId stored;
    stored.type_ = id.type;
    stored.integer_ = id.integer;
    stored.bytes_ = StoredBytes::borrow(id.string);
    return stored;
  }
  IdView view() const { return {type_, integer_, bytes_.view()}; }
  std::size_t n_heap_bytes() const { return bytes_.n_heap_bytes(); }

 private:
  IdType type_ = IdType::none;
  std::int64_t integer_ = 0;
  StoredBytes bytes_;
};

}  // namespace tamis
