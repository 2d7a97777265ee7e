// Events as kernels read them, and what turns their numbers into ranks there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/integers.hpp"
#include "engines/tuple_key/kernels.hpp"

namespace tamis::cuda {

struct RankedAttribute {
  enum Flag : std::uint32_t {
    kUsed = 1,  // filters have it
    kTerm = 2,  // some filter needs it
    kHost = 4,  // its numbers have no IntegerCuts: an event with it is the host's
  };
  std::uint32_t flags = 0;
  std::uint32_t hash = 0;
  IntegerCuts cuts;  // on the device
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

// Events of a few numbers each. Memory of the device, or pinned memory of the host.
//
// Packed: cell after cell, each of all events, attribute << 16 | value, the value a 16-bit integer;
// a cell of ones is no attribute. Else, by offsets: attributes and doubles.
//
// Positions, if there are any: as two floats, which say exactly where it is in the plane, or as a
// Point; one that is not a number is none.
struct NumberEvents {
  static constexpr std::uint32_t kNoCell = ~std::uint32_t{0};
  const std::uint32_t* cells = nullptr;  // [n_cells][stride]
  std::uint32_t n_cells = 0, stride = 0;
  const std::uint32_t* offsets = nullptr;  // [n_events + 1]
  const std::uint32_t* attributes = nullptr;
  const double* values = nullptr;
  const float* flat_positions = nullptr;  // [n_events][2]
  const double* points = nullptr;         // [n_events][3]
  std::uint32_t first_event = 0, n_events = 0;
};

}  // namespace tamis::cuda
