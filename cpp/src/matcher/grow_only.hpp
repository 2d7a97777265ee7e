// An array that grows and never moves: readers use the items that were there when they began while
// one writer appends more.
//
//     chunk 0: 1024 items, chunk 1: 2048, chunk k: 1024 << k        item i -> chunk by its top bit
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tamis {

template <typename T>
class GrowOnly {
 public:
  const T& operator[](std::size_t idx) const { return *place(idx); }
  T& operator[](std::size_t idx) { return *place(idx); }
  std::size_t size() const { return size_; }  // the writer's own view
  void push_back(T item) {
    const std::size_t chunk = chunk_of(size_);
    if (!chunks_[chunk]) chunks_[chunk] = std::make_unique<T[]>(kFirst << chunk);
    *place(size_) = std::move(item);
    ++size_;
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
  std::array<std::unique_ptr<T[]>, 24> chunks_;
  std::size_t size_ = 0;
};

}  // namespace tamis
