// The attributes that one event has had so far, to find one that comes twice.
//
// Most events have a few attributes: a list is the quickest then, and costs nothing to set up. It
// is searched from end to end only if an id with the same last bits is in it. Beyond kMaxListed,
// one stamp for each id takes over (allocated once for each encoder that meets such an event), so
// that a wide event stays linear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tamis/catalogue.hpp"

namespace tamis {

class SeenAttributes {
 public:
  // Ids are below `n_ids`.
  explicit SeenAttributes(std::size_t n_ids) : n_ids_(n_ids) {}

  void begin_event() {
    n_listed_ = 0;
    last_bits_ = 0;
  }

  // False if `id` was there already.
  bool insert(AttributeId id) {
    if (n_listed_ < kMaxListed) {
      const std::uint64_t bit = std::uint64_t{1} << id % 64;
      bool is_new = true;
      if ((last_bits_ & bit) != 0) {
        for (std::size_t place = 0; place < n_listed_; ++place) is_new &= listed_[place] != id;
      }
      last_bits_ |= bit;
      listed_[n_listed_++] = id;
      return is_new;
    }
    return insert_stamped(id);
  }

 private:
  static constexpr std::size_t kMaxListed = 16;

  bool insert_stamped(AttributeId id) {
    if (n_listed_ == kMaxListed) {  // the first of this event that the list has no room for
      ++n_listed_;
      ++stamp_;
      if (stamps_.empty()) stamps_.resize(n_ids_);
      for (const AttributeId earlier : listed_) stamps_[earlier] = stamp_;
    }
    const bool is_new = stamps_[id] != stamp_;
    stamps_[id] = stamp_;
    return is_new;
  }

  std::size_t n_ids_;
  std::size_t n_listed_ = 0;     // kMaxListed + 1: the stamps hold them all
  std::uint64_t last_bits_ = 0;  // bit b: some id in the list is b modulo 64
  AttributeId listed_[kMaxListed] = {};
  std::uint64_t stamp_ = 0;
  std::vector<std::uint64_t> stamps_;  // [n_ids] or [0]
};

}  // namespace tamis
