// From the keys of maps to attributes.
//
// The same few keys come again and again: up to 16 bytes of one are two words, which together with
// the length are the key, so that a hit needs no look at the names. A thread keeps its own between
// calls: a call for a few hundred events would spend a third of its time filling a new one.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "tamis/catalogue.hpp"

namespace tamis {

class KeyCache {
 public:
  // Of this thread, for these names, which must stay.
  static KeyCache& of_thread(const Names& names) {
    static thread_local KeyCache cache;
    // Names of one catalogue that are as many are the same, and an id never changes.
    if (cache.catalogue_id_ != names.catalogue_id() || cache.n_names_ != names.size()) {
      cache.slots_.fill({});
      cache.catalogue_id_ = names.catalogue_id();
      cache.n_names_ = names.size();
    }
    cache.names_ = &names;
    return cache;
  }

  AttributeId find(std::string_view key) {
    if (key.size() > kMaxBytes) return names_->find(key);
    const char* const at = key.data();
    const std::size_t n_bytes = key.size();
    std::uint64_t head = 0, tail = 0;
    if (n_bytes >= 8) {
      std::memcpy(&head, at, 8);
      std::memcpy(&tail, at + n_bytes - 8, 8);
    } else if (n_bytes >= 4) {
      std::uint32_t first, last;
      std::memcpy(&first, at, 4);
      std::memcpy(&last, at + n_bytes - 4, 4);
      head = first | static_cast<std::uint64_t>(last) << 32;
    } else if (n_bytes > 0) {
      head = static_cast<unsigned char>(at[0]) |
             static_cast<std::uint64_t>(static_cast<unsigned char>(at[n_bytes / 2])) << 8 |
             static_cast<std::uint64_t>(static_cast<unsigned char>(at[n_bytes - 1])) << 16;
    }
    const std::uint64_t mixed = (head ^ (tail << 1 | tail >> 63) ^ n_bytes) * 0x9E3779B97F4A7C15ull;
    Slot& slot = slots_[mixed >> (64 - kSlotBits)];
    if (slot.head != head || slot.tail != tail || slot.n_bytes != n_bytes) [[unlikely]] {
      slot = {head, tail, static_cast<std::uint32_t>(n_bytes), names_->find(key)};
    }
    return slot.id;
  }

 private:
  static constexpr std::size_t kMaxBytes = 16;
  static constexpr int kSlotBits = 10;  // with 8, a fifth of 100 names drove another out
  struct Slot {
    std::uint64_t head = 0, tail = 0;
    std::uint32_t n_bytes = ~std::uint32_t{0};  // no key
    AttributeId id = kNoAttribute;
  };
  const Names* names_ = nullptr;
  std::uint64_t catalogue_id_ = 0;  // no catalogue has this
  std::size_t n_names_ = 0;
  std::array<Slot, std::size_t{1} << kSlotBits> slots_;
};

}  // namespace tamis
