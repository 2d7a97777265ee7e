// Owners of what runtime.hpp gives out.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "runtime.hpp"

namespace tamis::cuda {

template <typename T, void* (*kAllocate)(std::size_t), void (*kRelease)(void*) noexcept>
class Memory {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Memory() = default;
  explicit Memory(std::size_t size)
      : data_(size == 0 ? nullptr : static_cast<T*>(kAllocate(size * sizeof(T)))), size_(size) {}
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) kRelease(data_);
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t n_bytes() const { return size_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

template <typename T>
using DeviceArray = Memory<T, allocate, release>;
template <typename T>
using PinnedArray = Memory<T, allocate_pinned, release_pinned>;

template <void* (*kMake)(), void (*kRelease)(void*) noexcept>
class Handle {
 public:
  Handle() : handle_(kMake()) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { kRelease(handle_); }
  operator void*() const { return handle_; }

 private:
  void* handle_;
};
using OwnStream = Handle<make_stream, release_stream>;
using OwnMark = Handle<make_mark, release_mark>;

// Work that was captured, or none.
class OwnGraph {
 public:
  OwnGraph() = default;
  // Of what `work` starts in the stream.
  template <typename Work>
  OwnGraph(Stream stream, Work work) {
    begin_capture(stream);
    try {
      work();
    } catch (...) {
      try {
        release_graph(end_capture(stream));
      } catch (...) {  // what failed first says more
      }
      throw;
    }
    graph_ = end_capture(stream);
  }
  OwnGraph(OwnGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  OwnGraph& operator=(OwnGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~OwnGraph() {
    if (graph_ != nullptr) release_graph(graph_);
  }
  explicit operator bool() const { return graph_ != nullptr; }
  void start(Stream stream) const { cuda::start(graph_, stream); }

 private:
  Graph graph_ = nullptr;
};

// A copy of `items` on the device. It is there when this returns.
template <typename T>
DeviceArray<T> to_device(std::span<const T> items, Stream stream) {
  DeviceArray<T> copy(items.size());
  if (items.empty()) return copy;
  copy_to_device(copy.data(), items.data(), items.size_bytes(), stream);
  synchronize(stream);
  return copy;
}

}  // namespace tamis::cuda
