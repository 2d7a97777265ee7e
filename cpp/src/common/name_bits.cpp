#include "name_bits.hpp"

#include <bit>

namespace tamis {

NameBits::NameBits(std::size_t n_attributes, std::size_t name_bits) : bits_of_(n_attributes) {
  for (std::size_t name = 0; name < n_attributes; ++name) {
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

std::uint32_t NameBits::of_filter(const FilterTable& table,
                                  const FilterTable::Filter& filter) const {
  std::uint32_t bits = 0;
  for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
    const Constraint& constraint = table.constraint(filter.constraints.first + at);
    if (constraint.needs_attribute()) bits |= bits_of_[constraint.attribute];
  }
  return bits;
}

std::uint32_t NameBits::of_event(const EventBatch& events, std::size_t event) const {
  std::uint32_t bits = 0;
  for (std::uint64_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
    const AttributeId attribute = events.attributes[at];
    if (attribute < bits_of_.size()) bits |= bits_of_[attribute];
  }
  return bits;
}

}  // namespace tamis
