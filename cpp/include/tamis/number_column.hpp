// A column of plain numbers where it lies, for the host and for kernels. No std: kernels read this.
#pragma once

#include <cstdint>

#include "tamis/host_device.hpp"

namespace tamis {

enum class NumberType : std::uint8_t { none, i8, u8, i16, u16, i32, u32, i64, u64, f32, f64 };

constexpr std::uint32_t size_of(NumberType type) {
  constexpr std::uint32_t kSizes[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
  return kSizes[static_cast<std::uint8_t>(type)];
}

struct NumberColumn {
  const void* values = nullptr;            // aligned
  const std::uint8_t* validity = nullptr;  // bits; null: every row has a number
  std::int64_t offset = 0;                 // of row 0, in both
  std::uint32_t attribute = 0;
  NumberType type = NumberType::none;

  TAMIS_HOST_DEVICE bool has(std::int64_t row) const {
    const std::int64_t bit = offset + row;
    return validity == nullptr || (validity[bit >> 3] >> (bit & 7) & 1) != 0;
  }
  // False: no double is this number.
  TAMIS_HOST_DEVICE bool read(std::int64_t row, double& number) const {
    const std::int64_t at = offset + row;
    switch (type) {
      case NumberType::none:
        return false;
      case NumberType::i8:
        return take(static_cast<const std::int8_t*>(values)[at], number);
      case NumberType::u8:
        return take(static_cast<const std::uint8_t*>(values)[at], number);
      case NumberType::i16:
        return take(static_cast<const std::int16_t*>(values)[at], number);
      case NumberType::u16:
        return take(static_cast<const std::uint16_t*>(values)[at], number);
      case NumberType::i32:
        return take(static_cast<const std::int32_t*>(values)[at], number);
      case NumberType::u32:
        return take(static_cast<const std::uint32_t*>(values)[at], number);
      case NumberType::i64: {
        const std::int64_t value = static_cast<const std::int64_t*>(values)[at];
        return take(value, number) && value >= -kMostExact && value <= kMostExact;
      }
      case NumberType::u64: {
        const std::uint64_t value = static_cast<const std::uint64_t*>(values)[at];
        return take(value, number) && value <= static_cast<std::uint64_t>(kMostExact);
      }
      case NumberType::f32:
        return take(static_cast<const float*>(values)[at], number);
      case NumberType::f64:
        return take(static_cast<const double*>(values)[at], number);
    }
    return false;
  }

 private:
  static constexpr std::int64_t kMostExact = std::int64_t{1} << 53;
  template <typename T>
  TAMIS_HOST_DEVICE static bool take(T value, double& number) {
    number = static_cast<double>(value);
    return true;
  }
};

// A map of names to numbers, the names as indices into a dictionary.
struct NumberMap {
  const std::int32_t* offsets = nullptr;        // [rows + 1], of entries; null: there is none
  std::int64_t n_entries = 0;                   // of the whole array; offsets are not checked yet
  NumberColumn keys, values;                    // by entry; every entry has a key
  const std::uint32_t* attribute_of = nullptr;  // [n_keys] by key
  std::uint32_t n_keys = 0;
};

}  // namespace tamis
