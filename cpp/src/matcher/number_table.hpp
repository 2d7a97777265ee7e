// Finds the number of an id, where the ids themselves lie elsewhere.
//
//     places   open addressing, linear probing: number + 1, 0 = free
//              [a power of two, at most half full; own, or mapped copy on write from a file]
//
// Eight bytes an id instead of the eighty of std::unordered_map, which at a million ids is a tenth
// of a matcher. Removal shifts the run that follows back, so there are no tombstones.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tamis/catalogue.hpp"
#include "tamis/id.hpp"
#include "tamis/prefetch.hpp"

namespace tamis {

class NumberTable {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // `id_of(number)` gives the id of a number that was inserted.
  template <typename IdOf>
  std::uint32_t find(const IdView& id, const IdOf& id_of) const {
    return n_places_ == 0 ? kNone : find_from(hash(id) & mask_, id, id_of);
  }

  // The numbers of many ids, or kNone. Their misses overlap: `fetch(number)` is called for what
  // id_of() will probably be asked, some time before.
  template <typename IdAt, typename IdOf, typename Fetch>
  void find_many(std::span<std::uint32_t> numbers, const IdAt& id_at, const IdOf& id_of,
                 const Fetch& fetch) const {
    if (n_places_ == 0) {
      std::fill(numbers.begin(), numbers.end(), kNone);
      return;
    }
    constexpr std::size_t kGroup = 16;
    std::array<std::size_t, kGroup> home;
    for (std::size_t first = 0; first < numbers.size(); first += kGroup) {
      const std::size_t n = std::min(kGroup, numbers.size() - first);
      for (std::size_t at = 0; at < n; ++at) {
        home[at] = hash(id_at(first + at)) & mask_;
        prefetch_line(places_ + home[at]);
      }
      for (std::size_t at = 0; at < n; ++at) {
        if (const std::uint32_t place = places_[home[at]]; place != 0) fetch(place - 1);
      }
      for (std::size_t at = 0; at < n; ++at) {
        numbers[first + at] = find_from(home[at], id_at(first + at), id_of);
      }
    }
  }

  // The id of `number` must not be there yet.
  template <typename IdOf>
  void insert(std::uint32_t number, const IdOf& id_of) {
    if (2 * (size_ + 1) > n_places_) grow(id_of);
    put(number, id_of);
    ++size_;
  }

  template <typename IdOf>
  void erase(const IdView& id, const IdOf& id_of) {
    std::size_t gap = hash(id) & mask_;
    while (!(id_of(places_[gap] - 1) == id)) gap = (gap + 1) & mask_;
    for (std::size_t at = (gap + 1) & mask_; places_[at] != 0; at = (at + 1) & mask_) {
      const std::size_t home = hash(id_of(places_[at] - 1)) & mask_;
      if (((at - home) & mask_) >= ((at - gap) & mask_)) {
        places_[gap] = places_[at];
        gap = at;
      }
    }
    places_[gap] = 0;
    --size_;
  }

  std::size_t size() const { return size_; }
  std::size_t n_bytes() const { return own_.capacity() * sizeof(std::uint32_t); }

  // The table as it is in a file; and of an empty one: takes it from there.
  std::span<const std::uint32_t> places() const { return {places_, n_places_}; }
  void adopt(std::span<std::uint32_t> places, std::size_t size, std::shared_ptr<const void> owner) {
    places_ = places.data();
    n_places_ = places.size();
    mask_ = n_places_ - 1;
    size_ = size;
    owner_ = std::move(owner);
  }
  // Room for so many, so that inserting them never grows the table.
  template <typename IdOf>
  void reserve(std::size_t n_ids, const IdOf& id_of) {
    while (n_places_ < 2 * n_ids) grow(id_of);
  }

 private:
  template <typename IdOf>
  std::uint32_t find_from(std::size_t home, const IdView& id, const IdOf& id_of) const {
    for (std::size_t at = home;; at = (at + 1) & mask_) {
      if (places_[at] == 0) return kNone;
      if (id_of(places_[at] - 1) == id) return places_[at] - 1;
    }
  }
  static std::uint64_t hash(const IdView& id) {
    if (id.type == IdType::string) return hash_name(id.string);
    const auto product = static_cast<unsigned __int128>(static_cast<std::uint64_t>(id.integer)) *
                         0x9E3779B97F4A7C15ull;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  template <typename IdOf>
  void put(std::uint32_t number, const IdOf& id_of) {
    std::size_t at = hash(id_of(number)) & mask_;
    while (places_[at] != 0) at = (at + 1) & mask_;
    places_[at] = number + 1;
  }
  template <typename IdOf>
  void grow(const IdOf& id_of) {
    std::vector<std::uint32_t> grown(n_places_ == 0 ? 16 : 2 * n_places_);
    const std::span<const std::uint32_t> old = places();
    places_ = grown.data();
    n_places_ = grown.size();
    mask_ = n_places_ - 1;
    for (const std::uint32_t place : old) {
      if (place != 0) put(place - 1, id_of);
    }
    own_ = std::move(grown);
    owner_ = nullptr;
  }

  std::vector<std::uint32_t> own_;
  std::shared_ptr<const void> owner_;  // of places that are not our own
  std::uint32_t* places_ = nullptr;
  std::size_t n_places_ = 0, mask_ = 0;
  std::size_t size_ = 0;
};

}  // namespace tamis
