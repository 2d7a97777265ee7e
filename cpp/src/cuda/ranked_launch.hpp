// Events as kernels read them, and what turns their numbers into ranks there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/integers.hpp"
#include "engines/tuple_key/kernels.hpp"
#include "tamis/host_device.hpp"

namespace tamis::cuda {

struct alignas(16) RankedAttribute {
  enum Flag : std::uint32_t {
    kUsed = 1,  // filters have it
    kTerm = 2,  // some filter needs it
    kHost = 4,  // its numbers have no IntegerCuts: an event with it is the host's
  };
  std::uint32_t flags = 0;
  std::uint32_t hash = 0;
  IntegerCutsOf<1> cuts;  // on the device
};

// A slot of ranks that lanes read: the rank of a number that the event has there, kNoRank if the
// slot is for strings, or else the preset.
struct alignas(8) RankedSlot {
  static constexpr std::uint32_t kStrings = std::uint32_t{1} << 31;
  std::uint32_t attribute = 0;  // with kStrings
  std::uint32_t preset = 0;
};

// An attribute of an event and the rank of its value.
struct alignas(8) RankedValue {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t attribute, rank;
};

inline constexpr std::size_t kRecordPad = 3;  // words that may be read behind the last record

// Up to five attributes of an event in 16 bytes, which a thread reads at once: each an id below
// kNone and a whole number from -2048 to 2047.
struct alignas(16) PackedCells {
  static constexpr std::uint32_t kCells = 5, kBits = 24, kNone = 0xFFF;
  std::uint32_t words[4];

  static PackedCells none() { return {{kNoBits, kNoBits, kNoBits, kNoBits}}; }
  static constexpr bool takes(std::uint32_t attribute, std::int32_t value) {
    return attribute < kNone && value >= -2048 && value < 2048;
  }
  void set(std::uint32_t at, std::uint32_t attribute, std::int32_t value) {
    const std::uint32_t cell = attribute << 12 | (static_cast<std::uint32_t>(value) & 0xFFF);
    for (std::uint32_t bit = 0; bit < kBits; ++bit) {
      const std::uint32_t to = kBits * at + bit, mask = std::uint32_t{1} << to % 32;
      words[to / 32] = (words[to / 32] & ~mask) | ((cell >> bit & 1) != 0 ? mask : 0);
    }
  }
  TAMIS_HOST_DEVICE std::uint32_t cell(std::uint32_t at) const {
    const std::uint32_t first = kBits * at / 32, shift = kBits * at % 32;
    std::uint32_t bits = words[first] >> shift;
    if (shift + kBits > 32) bits |= words[first + 1] << (32 - shift);
    return bits & ((std::uint32_t{1} << kBits) - 1);
  }
  TAMIS_HOST_DEVICE static std::uint32_t attribute_of(std::uint32_t cell) { return cell >> 12; }
  TAMIS_HOST_DEVICE static std::int32_t value_of(std::uint32_t cell) {
    return static_cast<std::int32_t>(cell << 20) >> 20;
  }

 private:
  static constexpr std::uint32_t kNoBits = ~std::uint32_t{0};
};

// Events of a few numbers each, packed or by offsets: attributes and doubles. Memory of the device,
// or pinned memory of the host.
//
// Positions, if there are any: as two floats, which say exactly where it is in the plane, or as a
// Point; one that is not a number is none.
struct NumberEvents {
  const PackedCells* packed = nullptr;  // [n_events][n_packed]
  std::uint32_t n_packed = 0;
  const std::uint32_t* offsets = nullptr;  // [n_events + 1]
  const std::uint32_t* attributes = nullptr;
  const double* values = nullptr;
  const float* flat_positions = nullptr;  // [n_events][2]
  const double* points = nullptr;         // [n_events][3]
  std::uint32_t first_event = 0, n_events = 0;
};

}  // namespace tamis::cuda
