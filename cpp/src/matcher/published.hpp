// The newest of a sequence of objects, replaced by one thread at a time and taken by any number of
// others, none of which ever waits.
//
//     newest_    -> current_            a reader: writes the pointer it saw to a hazard of its own,
//     hazards_   [64] cache lines       looks again, and if nothing changed takes a share
//     old_       shares not yet let go  the writer: lets go of old ones that are in no hazard
//
// Rejected: std::atomic<std::shared_ptr> (a spin lock in libstdc++), a mutex (a reader that is
// preempted while it holds it stops the writer and all others).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace tamis {

// T derives from std::enable_shared_from_this<T>.
template <typename T>
class Published {
 public:
  std::shared_ptr<const T> read() const {
    std::atomic<const T*>& hazard = claim();
    const T* item = newest_.load(std::memory_order_seq_cst);
    for (;;) {
      hazard.store(item, std::memory_order_seq_cst);
      const T* const again = newest_.load(std::memory_order_seq_cst);
      if (again == item) break;
      item = again;
    }
    std::shared_ptr<const T> share = item->shared_from_this();
    hazard.store(nullptr, std::memory_order_release);
    return share;
  }

  // One at a time.
  void write(std::shared_ptr<const T> next) {
    newest_.store(next.get(), std::memory_order_seq_cst);
    if (current_) old_.push_back(std::move(current_));
    current_ = std::move(next);
    std::erase_if(old_, [this](const auto& item) { return !is_hazard(item.get()); });
  }

  // In a child after fork: readers of other threads are not here.
  void forget_readers() {
    for (Hazard& hazard : hazards_) hazard.item.store(nullptr, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kHazards = 64;
  struct alignas(64) Hazard {
    std::atomic<const T*> item{nullptr};
  };
  static const T* claimed() { return reinterpret_cast<const T*>(std::uintptr_t{1}); }

  // A hazard that is nobody's. More readers than hazards, all preempted at this very place, would
  // have to try again.
  std::atomic<const T*>& claim() const {
    static std::atomic<std::size_t> n_threads{0};
    static thread_local const std::size_t first = n_threads.fetch_add(1, std::memory_order_relaxed);
    for (std::size_t at = first;; ++at) {
      std::atomic<const T*>& hazard = hazards_[at % kHazards].item;
      const T* expected = nullptr;
      if (hazard.load(std::memory_order_relaxed) == nullptr &&
          hazard.compare_exchange_strong(expected, claimed(), std::memory_order_acquire)) {
        return hazard;
      }
    }
  }
  bool is_hazard(const T* item) const {
    for (const Hazard& hazard : hazards_) {
      if (hazard.item.load(std::memory_order_seq_cst) == item) return true;
    }
    return false;
  }

  std::atomic<const T*> newest_{nullptr};
  mutable std::array<Hazard, kHazards> hazards_;
  std::shared_ptr<const T> current_;
  std::vector<std::shared_ptr<const T>> old_;
};

// Objects that are kept for the next who needs one. Nobody waits: who finds none makes one.
template <typename T>
class Spares {
 public:
  ~Spares() {
    for (std::atomic<T*>& place : places_) delete place.load(std::memory_order_relaxed);
  }
  std::unique_ptr<T> take() {
    for (std::atomic<T*>& place : places_) {
      if (place.load(std::memory_order_relaxed) == nullptr) continue;
      if (T* const item = place.exchange(nullptr, std::memory_order_acquire)) {
        return std::unique_ptr<T>(item);
      }
    }
    return std::make_unique<T>();
  }
  void give(std::unique_ptr<T> item) {
    for (std::atomic<T*>& place : places_) {
      T* expected = nullptr;
      if (place.load(std::memory_order_relaxed) == nullptr &&
          place.compare_exchange_strong(expected, item.get(), std::memory_order_release)) {
        item.release();
        return;
      }
    }
  }

 private:
  std::array<std::atomic<T*>, 64> places_{};
};

}  // namespace tamis
