// Large blocks of memory that are kept for the next who needs one.
//
//     places   [kSizes][kPlaces]   a block of that size, or null
//
// Sizes go in quarters of a power of two, so that calls with about as many events find each other's
// blocks. Nobody waits, and a fork finds nothing locked: a place is taken and filled by an
// exchange.
#include <array>
#include <atomic>
#include <bit>
#include <new>

#include "tamis/huge_pages.hpp"
#include "tamis/reused_vector.hpp"

namespace tamis {
namespace {

constexpr std::size_t kLeast = std::size_t{1} << 20;     // smaller ones malloc keeps by itself
constexpr std::size_t kMostKept = std::size_t{1} << 27;  // bytes in all
constexpr std::size_t kSizes = 4 * 7, kPlaces = 4;       // up to kMostKept
constexpr auto kAlignment = std::align_val_t{std::size_t{2} << 20};  // a large page

std::array<std::array<std::atomic<void*>, kPlaces>, kSizes> places;
std::atomic<std::size_t> n_kept{0};  // bytes

struct Size {
  std::size_t idx;  // in `places`; kSizes and beyond: not kept
  std::size_t n_bytes;
};

Size size_of(std::size_t n_bytes) {
  const auto power = static_cast<std::size_t>(std::bit_width(n_bytes - 1)) - 1;
  const std::size_t step = (std::size_t{1} << power) / 4;
  const std::size_t n_steps = (n_bytes + step - 1) / step;  // 5 to 8
  constexpr std::size_t kLeastPower = std::bit_width(kLeast) - 1;
  return {4 * (power - kLeastPower) + n_steps - 5, n_steps * step};
}

}  // namespace

void* take_memory(std::size_t n_bytes) {
  if (n_bytes <= kLeast) return ::operator new(n_bytes);
  const Size size = size_of(n_bytes);
  if (size.idx < kSizes) {
    for (std::atomic<void*>& place : places[size.idx]) {
      if (place.load(std::memory_order_relaxed) == nullptr) continue;
      if (void* const memory = place.exchange(nullptr, std::memory_order_acquire)) {
        n_kept -= size.n_bytes;
        return memory;
      }
    }
  }
  void* const memory = ::operator new(size.n_bytes, kAlignment);
  advise_huge_pages(memory, size.n_bytes);
  return memory;
}

void give_memory(void* memory, std::size_t n_bytes) noexcept {
  if (n_bytes <= kLeast) {
    ::operator delete(memory);
    return;
  }
  const Size size = size_of(n_bytes);
  if (size.idx < kSizes) {
    if (n_kept.fetch_add(size.n_bytes) + size.n_bytes <= kMostKept) {
      for (std::atomic<void*>& place : places[size.idx]) {
        void* expected = nullptr;
        if (place.load(std::memory_order_relaxed) == nullptr &&
            place.compare_exchange_strong(expected, memory, std::memory_order_release)) {
          return;
        }
      }
    }
    n_kept -= size.n_bytes;
  }
  ::operator delete(memory, kAlignment);
}

}  // namespace tamis
