// An array of plain records that is owned and grows, or is borrowed from a mapped file.
//
//     owned      data_ -> own_        one writer appends; readers use the items they were told of
//     borrowed   data_ -> a file      immutable; `owner_` keeps it there
//
// While room was reserved nothing moves, and no append writes what a reader reads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tamis/huge_pages.hpp"

namespace tamis {

template <typename T>
class Column {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Column() = default;
  Column(std::vector<T> items)  // NOLINT: a vector is a column
      : own_(std::move(items)), data_(own_.data()), size_(own_.size()) {}
  Column(Column&& other) noexcept { *this = std::move(other); }
  Column& operator=(Column&& other) noexcept {
    own_ = std::move(other.own_);
    owner_ = std::move(other.owner_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  static Column borrow(std::span<const T> items, std::shared_ptr<const void> owner) {
    Column column;
    column.data_ = items.data();
    column.size_ = items.size();
    column.owner_ = std::move(owner);
    return column;
  }

  const T& operator[](std::size_t idx) const { return data_[idx]; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  std::span<const T> span() const { return {data_, size_}; }

  // --- only of one that is owned ---
  std::size_t capacity() const { return own_.capacity(); }
  void reserve(std::size_t n_items) {
    own_.reserve(n_items);
    advise_huge_pages(own_.data(), n_bytes());
    follow();
  }
  void push_back(const T& item) {
    own_.push_back(item);
    follow();
  }
  void append(std::span<const T> items) {
    own_.insert(own_.end(), items.begin(), items.end());
    follow();
  }
  void append(std::size_t n_items, const T& item) {
    own_.insert(own_.end(), n_items, item);
    follow();
  }
  // Into an allocation of its exact size.
  void shrink() {
    std::vector<T> exact;
    exact.reserve(size_);
    advise_huge_pages(exact.data(), size_ * sizeof(T));
    exact.assign(own_.begin(), own_.end());
    own_ = std::move(exact);
    follow();
  }
  std::span<T> own() { return own_; }

  std::size_t n_bytes() const { return own_.capacity() * sizeof(T); }  // of memory of its own

 private:
  void follow() {
    if (data_ != own_.data()) data_ = own_.data();
    size_ = own_.size();
  }

  std::vector<T> own_;
  const T* data_ = nullptr;
  std::size_t size_ = 0;
  std::shared_ptr<const void> owner_;
};

}  // namespace tamis
