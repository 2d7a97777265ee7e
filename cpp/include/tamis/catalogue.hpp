// The names of attributes that some subscription mentions, with a number for each.
//
// Encoders look names up and leave out what nobody asks for; engines see numbers only. Ids are
// dense, are given in order of arrival and never change.
//
//     slots_   open addressing, linear probing: (hash, id + 1), 0 = free    [power of two]
//     names_   id -> name
//
// One writer at a time (the matcher holds its lock); readers look names up in a `Names`, an
// immutable version that stays valid as long as they keep it.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tamis {

using AttributeId = std::uint32_t;
inline constexpr AttributeId kNoAttribute = ~AttributeId{0};

// A quick hash of short strings: eight bytes a step, multiply and fold. Not for untrusted keys
// alone: every hit is compared byte by byte, and a table that clusters only gets slower.
inline std::uint64_t hash_name(std::string_view name) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;
  const char* at = name.data();
  std::size_t left = name.size();
  std::uint64_t hash = left * kMultiplier;
  const auto fold = [&](std::uint64_t word) {
    const auto product = static_cast<unsigned __int128>(hash ^ word) * kMultiplier;
    hash = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  while (left >= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    fold(word);
    at += 8;
    left -= 8;
  }
  if (left > 0) {
    std::uint64_t word = 0;
    if (left >= 4) {
      std::uint32_t head, tail;
      std::memcpy(&head, at, 4);
      std::memcpy(&tail, at + left - 4, 4);
      word = head | static_cast<std::uint64_t>(tail) << 32;
    } else {
      word = static_cast<unsigned char>(at[0]) |
             static_cast<std::uint64_t>(static_cast<unsigned char>(at[left / 2])) << 8 |
             static_cast<std::uint64_t>(static_cast<unsigned char>(at[left - 1])) << 16;
    }
    fold(word);
  }
  return hash ^ hash >> 32;
}

class Names {
 public:
  AttributeId find(std::string_view name) const {
    if (slots_.empty()) return kNoAttribute;
    const std::uint64_t hash = hash_name(name);
    for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.id_plus_one == 0) return kNoAttribute;
      if (slot.hash == static_cast<std::uint32_t>(hash >> 32) &&
          names_[slot.id_plus_one - 1] == name) {
        return slot.id_plus_one - 1;
      }
    }
  }
  std::size_t size() const { return names_.size(); }
  std::uint64_t catalogue_id() const { return catalogue_id_; }
  std::string_view name(AttributeId id) const { return names_[id]; }
  // Is `name` followed by a dot the beginning of some attribute's name? A decoder of nested
  // objects need not look inside the others.
  bool has_prefix(std::string_view name) const {
    return prefixes_ && prefixes_->find(name) != kNoAttribute;
  }

 private:
  friend class Catalogue;
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t id_plus_one = 0;
  };
  void insert(std::string_view name);

  std::uint64_t catalogue_id_ = 0;  // of whose these are, unlike any other in the process
  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  std::vector<std::string> names_;
  std::shared_ptr<Names> prefixes_;  // every part before a dot of every name
};

class Catalogue {
 public:
  Catalogue();

  // The id of `name`, new if need be.
  AttributeId intern(std::string_view name);
  // All names so far, as one version that no later `intern` changes.
  std::shared_ptr<const Names> names() const;
  std::size_t size() const { return names_->size(); }

 private:
  std::shared_ptr<Names> names_;
  mutable bool is_shared_ = false;  // somebody holds names_: copy before the next change
};

}  // namespace tamis
