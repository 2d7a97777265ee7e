// The events of a tile as ranks by attribute.
#pragma once

#include <algorithm>
#include <vector>

#include "common/ranks.hpp"

namespace tamis::block_bitmap {

inline constexpr std::size_t kMaxTile = 4096;  // events that go through the blocks together

// Kept between calls: what an event left behind is put back to "absent", so that an event costs its
// own attributes and not those of the table.
class RankedEvents {
 public:
  // Events that fit a tile without its arrays leaving the cache of a core.
  static std::size_t max_tile(std::size_t n_attributes) {
    return std::clamp<std::size_t>((std::size_t{1} << 20) / std::max<std::size_t>(1, n_attributes),
                                   1, kMaxTile);
  }

  // Calls visit(place, rank) for every value; place = event of the tile * n_attributes + attribute.
  template <typename Visit>
  void load(const Ranks& ranks, std::size_t n_attributes, const EventBatch& events,
            std::size_t begin, std::size_t end, Visit visit) {
    n_attributes_ = n_attributes;
    const std::size_t n_events = end - begin;
    if (ranks_.size() < n_events * n_attributes) {
      const std::size_t n_before = n_attributes == 0 ? 0 : ranks_.size() / n_attributes;
      ranks_.resize(n_events * n_attributes);
      for (std::size_t event = n_before; event < n_events; ++event) {
        for (std::size_t attribute = 0; attribute < n_attributes; ++attribute) {
          ranks_[event * n_attributes + attribute] =
              ranks.n_ranks(static_cast<AttributeId>(attribute)) - 1;
        }
      }
    }
    constexpr std::uint64_t kAhead = 24;  // values: the tables of many attributes are large
    const std::uint64_t last = events.offsets[end];
    const auto prefetch = [&](std::uint64_t at) {
      if (at < last && events.attributes[at] < n_attributes) {
        ranks.prefetch(events.attributes[at], events.values[at]);
      }
    };
    for (std::uint64_t each = 0; each < kAhead; ++each) prefetch(events.offsets[begin] + each);
    for (std::size_t event = 0; event < n_events; ++event) {
      const std::size_t first = event * n_attributes;
      for (std::uint64_t at = events.offsets[begin + event]; at < events.offsets[begin + event + 1];
           ++at) {
        prefetch(at + kAhead);
        const AttributeId attribute = events.attributes[at];
        if (attribute >= n_attributes) continue;
        const std::uint32_t rank = ranks.rank(attribute, events.values[at]);
        ranks_[first + attribute] = rank;
        touched_.push_back(static_cast<std::uint32_t>(first + attribute));
        visit(first + attribute, rank);
      }
    }
  }
  // Calls visit(place) for every value that load() wrote.
  template <typename Visit>
  void clear(const Ranks& ranks, Visit visit) {
    for (const std::uint32_t place : touched_) {
      ranks_[place] = ranks.n_ranks(static_cast<AttributeId>(place % n_attributes_)) - 1;
      visit(place);
    }
    touched_.clear();
  }

  const std::uint32_t* of(std::size_t event) const { return ranks_.data() + event * n_attributes_; }

 private:
  std::size_t n_attributes_ = 0;
  std::vector<std::uint32_t> ranks_;  // [tile][n_attributes]
  std::vector<std::uint32_t> touched_;
};

}  // namespace tamis::block_bitmap
