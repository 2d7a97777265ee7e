// The threads of a warp together: what they find goes to a queue of the warp, and out of it 32 at a
// time, so that each thread has one, however unevenly they found them.
//
// On the shim, where threads run one after another, each is a warp of its own.
#pragma once

#include "launch.hpp"

namespace tamis::cuda {

#ifdef __CUDACC__
inline constexpr std::uint32_t kWarpThreads = 32;
#else
inline constexpr std::uint32_t kWarpThreads = 1;
#endif

// Does it hold for one of them? All threads of the warp ask together.
TAMIS_DEVICE inline bool is_any_of_warp(bool holds) {
#ifdef __CUDA_ARCH__
  return __any_sync(~0u, holds) != 0;
#else
  return holds;
#endif
}

// What the threads of a block show one another. A `T` is that of one such table of a kernel only.
// A warp must wait between writing and reading.
template <typename T>
class OfThreads {
 public:
#ifdef __CUDA_ARCH__
  TAMIS_DEVICE OfThreads() {
    __shared__ T of_block[kThreadsPerBlock];
    all_ = of_block;
  }
  TAMIS_DEVICE T& operator[](std::uint32_t thread) const { return all_[thread]; }
  TAMIS_DEVICE void wait() const { __syncwarp(); }

 private:
  T* all_;
#else
  TAMIS_DEVICE T& operator[](std::uint32_t) { return one_; }
  TAMIS_DEVICE void wait() const {}

 private:
  T one_;
#endif
};

// At most `kPushes` times push() between two times take(). An `Item` is that of one queue of a
// kernel only. All threads of a warp call push and take together.
template <typename Item, std::uint32_t kPushes>
class WarpQueue {
 public:
#ifdef __CUDA_ARCH__
  TAMIS_DEVICE WarpQueue() {
    __shared__ Item of_block[kThreadsPerBlock / kWarpThreads][kCapacity];
    items_ = of_block[threadIdx.x / kWarpThreads];
  }

  TAMIS_DEVICE void push(bool is_one, const Item& item) {
    const unsigned with = __ballot_sync(~0u, is_one);
    const unsigned below = (1u << threadIdx.x % kWarpThreads) - 1;
    if (is_one) items_[n_items_ + __popc(with & below)] = item;
    n_items_ += __popc(with);
  }

  // Calls visit(item, is_one) as long as there is an item for each thread, or, at last, for one:
  // where `is_one` is false there was none, and the item is any.
  template <typename Visit>
  TAMIS_DEVICE void take(bool is_last, Visit visit) {
    while (n_items_ >= (is_last ? 1 : kWarpThreads)) {
      __syncwarp();
      const std::uint32_t lane = threadIdx.x % kWarpThreads;
      const bool is_one = lane < n_items_;
      const Item mine = items_[is_one ? n_items_ - 1 - lane : 0];
      n_items_ -= n_items_ < kWarpThreads ? n_items_ : kWarpThreads;
      __syncwarp();
      visit(mine, is_one);
    }
  }

 private:
  static constexpr std::uint32_t kCapacity = kWarpThreads * (kPushes + 1);
  Item* items_;
  std::uint32_t n_items_ = 0;
#else
  TAMIS_DEVICE void push(bool is_one, const Item& item) {
    if (is_one) items_[n_items_++] = item;
  }
  template <typename Visit>
  TAMIS_DEVICE void take(bool, Visit visit) {
    while (n_items_ > 0) visit(items_[--n_items_], true);
  }

 private:
  Item items_[kPushes];
  std::uint32_t n_items_ = 0;
#endif
};

}  // namespace tamis::cuda
