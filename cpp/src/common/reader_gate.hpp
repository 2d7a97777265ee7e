// Tells a writer when nobody reads any more what it has taken out of sight.
//
//     epoch_    grows; a reader counts itself in the stripe of its thread, under the epoch's parity
//     counts_   [2 parities][stripes]
//
// The epoch goes on only when nobody is left of the one before it. So readers are of this epoch or
// of the last, and what was taken out of sight before the last one ended is nobody's.
//
// Neither side waits: a reader counts, and looks whether the epoch has changed meanwhile (then it
// counts itself again); a writer that finds readers tries again another time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace tamis {

class ReaderGate {
 public:
  class Pass {
   public:
    explicit Pass(std::atomic<std::uint32_t>* count) : count_(count) {}
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() {
      if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_seq_cst);
    }

   private:
    std::atomic<std::uint32_t>* count_;
  };

  Pass enter() const {
    static std::atomic<std::size_t> n_threads{0};
    static thread_local const std::size_t stripe =
        n_threads.fetch_add(1, std::memory_order_relaxed) % kStripes;
    for (;;) {
      const std::uint64_t epoch = epoch_.load(std::memory_order_seq_cst);
      std::atomic<std::uint32_t>& count = counts_[epoch % 2][stripe].n;
      count.fetch_add(1, std::memory_order_seq_cst);
      if (epoch_.load(std::memory_order_seq_cst) == epoch) return Pass(&count);
      count.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  // --- the writer's part ---
  // What is taken out of sight now belongs to this epoch, and is nobody's when n_over() is larger.
  std::uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }
  std::uint64_t n_over() const { return n_over_; }
  // Goes on to the next epoch, if nobody is left of the last.
  void try_advance() {
    const std::uint64_t epoch = this->epoch();
    for (const Count& count : counts_[(epoch + 1) % 2]) {
      if (count.n.load(std::memory_order_seq_cst) != 0) return;
    }
    n_over_ = epoch;
    epoch_.store(epoch + 1, std::memory_order_seq_cst);
  }
  // In a child after fork: readers of other threads are not here.
  void forget_readers() {
    for (auto& parity : counts_) {
      for (Count& count : parity) count.n.store(0, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::size_t kStripes = 16;
  struct alignas(64) Count {
    std::atomic<std::uint32_t> n{0};
  };
  mutable std::array<std::array<Count, kStripes>, 2> counts_;
  std::atomic<std::uint64_t> epoch_{1};
  std::uint64_t n_over_ = 1;  // epochs below are over
};

}  // namespace tamis
