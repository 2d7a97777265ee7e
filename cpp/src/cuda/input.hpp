// What the kernels of CCM and CLCB read: an event's values, the constraints' columns, and the test
// of one against the other. Of the standard library nothing but integers: device code reads this.
//
//     Input, in constant memory (64 KB)            columns, in global memory
//       blooms  [kMostEvents] names of an event      blooms     u64   names of the filter
//       lines   ─ value, event, row ───────────┐     operators  u8    )
//                 one for each attribute       └──►  operands   u64   ) what may_hold reads
//                 and table                          filters    u32   whose constraint it is
//
// What a device cannot decide, it takes as held, and the host verifies the filter: see kUndecided.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tamis/order.hpp"

namespace tamis::cuda {

inline constexpr std::uint32_t kThreadsPerBlock = 256;  // the paper's: 256 or 512
inline constexpr std::size_t kConstantBytes = 64 * 1024;
inline constexpr std::size_t kMostEvents = 32;  // of one kernel: 000 appendix B.3 has up to 32

enum ValueKind : std::uint8_t { kOtherValue, kNumberValue, kStringValue };

// Strings are known by their first eight bytes and by their length, if it is not above eight.
inline constexpr std::int16_t kLongString = 9;

// A row of constraints on one of the event's names, and the value there.
struct InputLine {
  std::uint64_t key;
  std::uint32_t first_constraint;
  std::uint32_t n_constraints;
  std::int16_t fine;
  std::uint8_t kind;
  std::uint8_t event;  // of the kernel's
};

inline constexpr std::size_t kMostLines =
    (kConstantBytes - kMostEvents * sizeof(std::uint64_t)) / sizeof(InputLine);

struct Input {
  std::uint64_t blooms[kMostEvents];
  InputLine lines[kMostLines];
};
static_assert(sizeof(Input) <= kConstantBytes);

// To constant memory, with the first `n_lines` lines; see constant_input.hpp.
void copy_input(const Input& input, std::uint32_t n_lines, void* stream);

// operator: bits 0-2 a set of Order, bits 3-6 what follows, bit 7 that the operand is a string.
enum OperatorBits : std::uint8_t {
  kOperandShift = 3,
  kStringOperand = 128,        // bits 3-6: length of the string, at most kLongString
  kNumberOperand = 0 << 3,     // the operand is the bits of a double
  kIntervalsOperand = 1 << 3,  // the operand is the first interval, and above bit 32 how many
  kUndecided = 2 << 3          // the host decides
};

// An interval of numbers, as FilterTable has it.
struct Interval {
  double low, high;
  std::int16_t low_fine, high_fine;
};

struct Columns {
  const std::uint64_t* blooms;
  const std::uint8_t* operators;
  const std::uint64_t* operands;
  const std::uint32_t* filters;
  const Interval* intervals;
};

TAMIS_HOST_DEVICE inline bool is_in_intervals(double nearest, std::int16_t residue,
                                              const Interval* first, std::uint32_t count) {
  const auto fine = static_cast<std::int16_t>(2 * residue);
  // The last interval that begins at the value or before it.
  while (count > 1) {
    const std::uint32_t half = count / 2;
    const bool is_after = is_cut_below(nearest, fine, first[half].low, first[half].low_fine);
    if (is_after) {
      count = half;
    } else {
      first += half;
      count -= half;
    }
  }
  return count == 1 && !is_cut_below(nearest, fine, first->low, first->low_fine) &&
         is_cut_below(nearest, fine, first->high, first->high_fine);
}

// The order of an event's string to an operand; all orders where it takes the rest of the bytes.
TAMIS_HOST_DEVICE inline std::uint8_t string_order(std::uint64_t key, std::int16_t length,
                                                   std::uint64_t operand,
                                                   std::int16_t operand_length) {
  if (key != operand) return key < operand ? kLess : kGreater;
  if (length != operand_length) return length < operand_length ? kLess : kGreater;
  return length == kLongString ? kAnyOrder : kEqual;
}

// Does the constraint accept the value? True also where the host has to decide.
TAMIS_HOST_DEVICE inline bool may_hold(std::uint8_t op, std::uint64_t operand,
                                       const InputLine& value, const Interval* intervals) {
  if ((op & kStringOperand) != 0) {
    const auto length = static_cast<std::int16_t>((op >> kOperandShift) & 15);
    return value.kind == kStringValue &&
           (op & string_order(value.key, value.fine, operand, length)) != 0;
  }
  if ((op & kUndecided) != 0) return true;
  if (value.kind != kNumberValue) return false;
  const auto nearest = __builtin_bit_cast(double, value.key);
  if ((op & kIntervalsOperand) != 0) {
    return is_in_intervals(nearest, value.fine, intervals + static_cast<std::uint32_t>(operand),
                           static_cast<std::uint32_t>(operand >> 32));
  }
  const auto other = __builtin_bit_cast(double, operand);
  return (op & order_to(nearest, order_by_residue(value.fine), other)) != 0;
}

}  // namespace tamis::cuda
