// What the CPU and the kernels of a GPU do alike: hashes of terms, runs of keys, lanes.
#pragma once

#include "engines/tuple_key/kernels.hpp"
#include "tamis/host_device.hpp"

namespace tamis::tuple_key {

TAMIS_HOST_DEVICE inline std::uint32_t mix(std::uint32_t bits) {
  bits = (bits ^ bits >> 16) * 0x85EBCA6Bu;
  bits = (bits ^ bits >> 13) * 0xC2B2AE35u;
  return bits ^ bits >> 16;
}
TAMIS_HOST_DEVICE inline std::uint32_t presence_hash(std::uint32_t attribute) {
  return mix(attribute * 0x9E3779B1u + 0x7F4A7C15u);
}
TAMIS_HOST_DEVICE inline std::uint32_t value_hash(std::uint32_t presence, std::uint32_t rank) {
  return mix(presence + (rank + 1) * 0x2545F491u);
}

// A term as a guard.
inline std::uint16_t guard_of(std::uint32_t hash) {
  const auto guard = static_cast<std::uint16_t>(hash >> 16);
  return guard > kNeverGuard ? guard : kNeverGuard + 1;
}

// The last bits of a hash, above the bits of a start.
TAMIS_HOST_DEVICE inline std::uint32_t tag_of(std::uint32_t hash, std::uint32_t start_mask) {
  if (start_mask == ~std::uint32_t{0}) return 0;
  const std::uint32_t tag = hash << count_bits(start_mask);
  return tag != 0 ? tag : start_mask + 1;
}

// Empty where the tag says that it is another key's.
TAMIS_HOST_DEVICE inline Run run_of(const std::uint32_t* starts, std::uint32_t start_mask,
                                    FoundKey found) {
  const std::uint32_t start = starts[found.key];
  const std::uint32_t tag = start & ~start_mask;
  if (tag != 0 && tag != tag_of(found.hash, start_mask)) return {0, 0};
  return {start & start_mask, starts[found.key + 1] & start_mask};
}

TAMIS_HOST_DEVICE inline bool lane_holds(std::uint32_t rank, std::uint32_t low, std::uint32_t width,
                                         bool is_negated) {
  return rank != kNoRank && (rank - low <= width) != is_negated;
}

}  // namespace tamis::tuple_key
