// A vector for what is written once from end to end and soon given up: encoded events, results.
//
// New memory costs a page fault every 4 KiB when it is first written to, which took longer than to
// write it: encoding 4M events spent 231 of 308 ns an event in the kernel. So large blocks are kept
// for the next who needs one (spare_memory.cpp), and lie on large pages. And a vector sets what
// resize() adds before it is written over; here new items have any value.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace tamis {

// Throws std::bad_alloc. Blocks are given back with the size they were taken with.
void* take_memory(std::size_t n_bytes);
void give_memory(void* memory, std::size_t n_bytes) noexcept;

template <typename T>
struct ReusedMemory {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  using value_type = T;

  ReusedMemory() = default;
  template <typename U>
  ReusedMemory(const ReusedMemory<U>&) {}

  T* allocate(std::size_t n_items) { return static_cast<T*>(take_memory(n_items * sizeof(T))); }
  void deallocate(T* items, std::size_t n_items) noexcept {
    give_memory(items, n_items * sizeof(T));
  }
  void construct(T*) {}
  template <typename... Arguments>
  void construct(T* item, Arguments&&... arguments) {
    std::construct_at(item, std::forward<Arguments>(arguments)...);
  }
  template <typename U>
  friend bool operator==(const ReusedMemory&, const ReusedMemory<U>&) {
    return true;
  }
};

template <typename T>
using ReusedVector = std::vector<T, ReusedMemory<T>>;

}  // namespace tamis
