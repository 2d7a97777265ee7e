// The names of filters and events in Bloom filters of 32 bits, as CLCB has them (papers/003).
#pragma once

#include <cstdint>
#include <vector>

#include "tamis/filter_table.hpp"

namespace tamis {

class NameBits {
 public:
  // Each name gets `name_bits` different bits by a hash of its number.
  NameBits(std::size_t n_attributes, std::size_t name_bits);

  // Of the names that an event must have for the filter to match.
  std::uint32_t of_filter(const FilterTable& table, const FilterTable::Filter& filter) const;
  std::uint32_t of_event(const EventBatch& events, std::size_t event) const;
  std::size_t n_bytes() const { return bits_of_.capacity() * sizeof(std::uint32_t); }

 private:
  std::vector<std::uint32_t> bits_of_;  // [n_attributes]
};

}  // namespace tamis
