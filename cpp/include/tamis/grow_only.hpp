// An array that grows and never moves: readers use the items that they were told of while one
// writer appends more.
//
//     base      the first items, if they came from a file: mapped copy on write
//     chunk 0: 1024 items, chunk 1: 2048, chunk k: 1024 << k        item i -> chunk by its top bit
//
// New items are all zero bytes, and memory that nobody has touched costs nothing.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace tamis {

template <typename T>
class GrowOnly {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  const T& operator[](std::size_t idx) const { return *place(idx); }
  T& operator[](std::size_t idx) { return *place(idx); }
  std::size_t size() const { return size_; }  // the writer's own view

  // Of an empty one: its first items are these, which `owner` keeps.
  void adopt(std::span<T> items, std::shared_ptr<const void> owner) {
    base_ = items.data();
    size_ = n_base_ = items.size();
    owner_ = std::move(owner);
  }
  // A new item at the end.
  T& grow() {
    grow_to(size_ + 1);
    return *place(size_ - 1);
  }
  void grow_to(std::size_t n_items) {
    if (n_items <= n_base_) return;
    const std::size_t last = chunk_of(n_items - n_base_ - 1);
    if (last >= chunks_.size()) throw std::length_error("too many items");
    for (std::size_t chunk = size_ > n_base_ ? chunk_of(size_ - n_base_ - 1) : 0; chunk <= last;
         ++chunk) {
      if (chunks_[chunk]) continue;
      chunks_[chunk].reset(static_cast<T*>(std::calloc(kFirst << chunk, sizeof(T))));
      if (!chunks_[chunk]) throw std::bad_alloc();
    }
    size_ = n_items;
  }
  std::size_t n_bytes() const {
    std::size_t total = 0;
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      if (chunks_[chunk]) total += (kFirst << chunk) * sizeof(T);
    }
    return total;
  }

 private:
  static constexpr std::size_t kFirst = 1024;
  struct Free {
    void operator()(T* items) const { std::free(items); }
  };
  static std::size_t chunk_of(std::size_t idx) {
    return static_cast<std::size_t>(std::bit_width(idx / kFirst + 1)) - 1;
  }
  T* place(std::size_t idx) const {
    if (idx < n_base_) return base_ + idx;
    idx -= n_base_;
    const std::size_t chunk = chunk_of(idx);
    return chunks_[chunk].get() + (idx - kFirst * ((std::size_t{1} << chunk) - 1));
  }
  T* base_ = nullptr;
  std::size_t n_base_ = 0;
  std::array<std::unique_ptr<T, Free>, 22> chunks_;  // 2^32 items
  std::size_t size_ = 0;
  std::shared_ptr<const void> owner_;
};

}  // namespace tamis
