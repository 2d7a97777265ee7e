// An array that grows and never moves: readers use the items that they were told of while one
// writer appends more.
//
//     chunk 0: 1024 items, chunk 1: 2048, chunk k: 1024 << k        item i -> chunk by its top bit
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>

namespace tamis {

template <typename T>
class GrowOnly {
 public:
  const T& operator[](std::size_t idx) const { return *place(idx); }
  T& operator[](std::size_t idx) { return *place(idx); }
  std::size_t size() const { return size_; }  // the writer's own view
  // A new item at the end, value-initialised.
  T& grow() {
    const std::size_t chunk = chunk_of(size_);
    if (chunk >= chunks_.size()) throw std::length_error("too many items");
    if (!chunks_[chunk]) chunks_[chunk] = std::make_unique<T[]>(kFirst << chunk);
    return *place(size_++);
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
  static std::size_t chunk_of(std::size_t idx) {
    return static_cast<std::size_t>(std::bit_width(idx / kFirst + 1)) - 1;
  }
  T* place(std::size_t idx) const {
    const std::size_t chunk = chunk_of(idx);
    return &chunks_[chunk][idx - kFirst * ((std::size_t{1} << chunk) - 1)];
  }
  std::array<std::unique_ptr<T[]>, 22> chunks_;  // 2^32 items
  std::size_t size_ = 0;
};

}  // namespace tamis
