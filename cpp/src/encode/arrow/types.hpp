// The types of Arrow that events can hold, what decodes each, and what the others are called.
#pragma once

#include <string_view>

#include "encode/arrow/column.hpp"

namespace tamis::arrow {

enum class Storage : std::uint8_t { none, bits, fixed, strings, views };

struct TypeInfo {
  Storage storage;
  DecodeFunction decode;
  bool is_numeric;                       // can be a coordinate
  NumberType number = NumberType::none;  // of plain numbers
};

// By the format of the C data interface. Null if events cannot hold it (a map is none of these: it
// holds attributes).
const TypeInfo* find_type(std::string_view format);
// Null if it is no type of indices.
DecodeFunction find_dictionary_decoder(std::string_view format);
// Of a map whose keys have this format.
KeyFunction find_key_function(std::string_view format);

// The type as people write it, and a way out.
struct TypeDescription {
  std::string name;
  const char* advice;
};
TypeDescription describe_type(std::string_view format);

}  // namespace tamis::arrow
