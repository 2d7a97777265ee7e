// Arrays of the C data interface to columns, checked before anything of them is used.
#pragma once

#include <string>
#include <string_view>

#include "encode/arrow/types.hpp"
#include "encode/arrow_abi.h"

namespace tamis::arrow {

struct MapColumn {
  std::string_view name;
  const std::uint8_t* validity = nullptr;
  const void* offsets = nullptr;  // int32
  std::int64_t offset = 0;
  std::int64_t n_entries = 0;
  std::size_t n_read = 0;  // entries of its rows, about
  const std::uint8_t* entry_validity = nullptr;
  std::int64_t entry_offset = 0;
  Column keys, values;
  KeyFunction find_keys = nullptr;

  std::int64_t first_entry(std::int64_t row) const {
    return load<std::int32_t>(offsets, offset + row);
  }
  bool is_valid(std::int64_t row) const {
    const std::int64_t bit = offset + row;
    return validity == nullptr || (validity[bit >> 3] >> (bit & 7) & 1) != 0;
  }
};

std::string quote(std::string_view name);
std::string as_what(std::string_view name);  // "column 'name'"
[[noreturn]] void malformed(std::string_view what, const std::string& reason);

std::string_view format_of(const ArrowSchema* schema, std::string_view what);
const ArrowSchema* child_of(const ArrowSchema* schema, std::int64_t child_idx,
                            std::string_view what);
// What every array must have, whatever its type. At least `n_needed` values.
void check_array(const ArrowArray* array, std::int64_t n_needed, std::int64_t n_buffers,
                 std::int64_t n_children, std::string_view what);
const std::uint8_t* validity_of(const ArrowArray& array, std::string_view what);
// Refuses types that are not for events; `format` is not a map's.
void check_type(const ArrowSchema* schema, std::string_view what);

// The column of `n_needed` values from `start` on (the offset of the array around it), of which
// about `n_read` will be read.
Column open_column(const ArrowSchema* schema, const ArrowArray* array, std::int64_t start,
                   std::int64_t n_needed, std::int64_t n_read, std::string_view what);
MapColumn open_map(const ArrowSchema* schema, const ArrowArray* array, std::int64_t start,
                   std::int64_t n_rows, std::string_view name);

}  // namespace tamis::arrow
