// Named arrays in a file: what an index is saved as and opened from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tamis/column.hpp"

namespace tamis {

template <typename T>
void clear_padding([[maybe_unused]] T& item) {
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&item);
#endif
#endif
}

template <typename T>
bool has_padding() {
  T item;
  std::memset(static_cast<void*>(&item), 0xFF, sizeof item);
  clear_padding(item);
  unsigned char bytes[sizeof item];
  std::memcpy(bytes, &item, sizeof item);
  return std::any_of(std::begin(bytes), std::end(bytes), [](unsigned char at) { return at == 0; });
}

class SectionWriter {
 public:
  virtual ~SectionWriter() = default;
  virtual void write(const std::string& name, const void* data, std::size_t n_bytes) = 0;

  // What lies between the members of items is written as zeros: equal items give equal bytes, and
  // nothing else of this process gets into a file.
  template <typename T>
  void write(const std::string& name, std::span<const T> items) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!has_padding<T>()) {
      write(name, static_cast<const void*>(items.data()), items.size_bytes());
      return;
    }
    std::vector<T> cleared(items.begin(), items.end());
    for (T& item : cleared) clear_padding(item);
    write(name, static_cast<const void*>(cleared.data()), items.size_bytes());
  }
  template <typename T>
  void write(const std::string& name, const Column<T>& items) {
    write(name, items.span());
  }
};

class SectionReader {
 public:
  virtual ~SectionReader() = default;
  // The section's bytes, at a multiple of 64; an error if there is none of that name or its size is
  // no multiple of `item_size`.
  virtual std::span<const std::byte> read(const std::string& name, std::size_t item_size) const = 0;
  // An error where the section's bytes are not those that were written.
  virtual void check(const std::string& name) const = 0;
  virtual std::shared_ptr<const void> owner() const = 0;  // keeps the bytes where they are

  // What is read now: checked.
  template <typename T>
  std::span<const T> span(const std::string& name) const {
    check(name);
    return items<T>(name);
  }
  // What is read later: whoever opens the index has it checked before its first match.
  template <typename T>
  Column<T> column(const std::string& name) const {
    return Column<T>::borrow(items<T>(name), owner());
  }

 private:
  template <typename T>
  std::span<const T> items(const std::string& name) const {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 64);
    const std::span<const std::byte> bytes = read(name, sizeof(T));
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

}  // namespace tamis
