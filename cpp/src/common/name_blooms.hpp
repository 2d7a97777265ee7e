// Bloom filters of 32 bits over the names that a filter needs: one that needs a name which the
// event lacks is found out by one AND, nearly always.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "tamis/filter_table.hpp"

namespace tamis {

class NameBlooms {
 public:
  // Each name gets `name_bits` different bits by a hash of its number.
  NameBlooms(std::size_t n_names, std::size_t name_bits) : bits_of_(n_names) {
    for (std::size_t name = 0; name < n_names; ++name) {
      std::uint64_t state = name;
      while (static_cast<std::size_t>(std::popcount(bits_of_[name])) < name_bits) {
        // splitmix64
        state += 0x9E3779B97F4A7C15u;
        std::uint64_t mixed = state;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
        bits_of_[name] |= std::uint32_t{1} << ((mixed ^ (mixed >> 31)) % 32);
      }
    }
  }

  // A constraint that accepts a missing value has no name that the event must have.
  std::uint32_t of(const FilterTable& table, const FilterTable::Filter& filter) const {
    std::uint32_t bloom = 0;
    for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
      const Constraint& constraint = table.constraint(filter.constraints.first + at);
      if (constraint.needs_attribute()) bloom |= bits_of_[constraint.attribute];
    }
    return bloom;
  }
  // The bits that no name of the event sets.
  std::uint32_t missing(const EventBatch& events, std::size_t event) const {
    std::uint32_t bloom = 0;
    for (std::uint64_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
      const AttributeId attribute = events.attributes[at];
      if (attribute < bits_of_.size()) bloom |= bits_of_[attribute];
    }
    return ~bloom;
  }
  std::size_t n_bytes() const { return bits_of_.capacity() * sizeof bits_of_[0]; }

 private:
  std::vector<std::uint32_t> bits_of_;  // [n_names]
};

}  // namespace tamis
