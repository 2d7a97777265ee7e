#include "encode/arrow/types.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "common/simd.hpp"
#include "common/utf8.hpp"

namespace tamis::arrow {
namespace {

void decode_nulls(const Column&, std::int64_t begin, std::int64_t end, EventValue* out,
                  std::size_t stride) {
  for (std::int64_t index = begin; index < end; ++index, out += stride) *out = EventValue();
}

void decode_booleans(const Column& column, std::int64_t begin, std::int64_t end, EventValue* out,
                     std::size_t stride) {
  const auto* bits = static_cast<const std::uint8_t*>(column.values);
  for (std::int64_t index = begin; index < end; ++index, out += stride) {
    const std::int64_t bit = column.offset + index;
    *out = column.is_valid(index) ? EventValue::of((bits[bit >> 3] >> (bit & 7) & 1) != 0)
                                  : EventValue();
  }
}

template <class T>
struct AsInteger {
  using Stored = T;
  static bool convert(T stored, EventValue& value) {
    if constexpr (sizeof(T) < 8) {  // a double holds it
      value = EventValue::of(Number{static_cast<double>(stored), 0});
    } else {
      value = EventValue::of(stored);
    }
    return true;
  }
};

template <class T>
struct AsFloat {
  using Stored = T;
  static bool convert(T stored, EventValue& value) {
    value = EventValue::of(static_cast<double>(stored));
    return true;
  }
};

struct AsHalf {
  using Stored = std::uint16_t;
  static bool convert(std::uint16_t stored, EventValue& value) {
    // Sign 1, exponent 5, fraction 10. A double holds every half.
    const unsigned exponent = stored >> 10 & 0x1F;
    const auto fraction = static_cast<double>(stored & 0x3FF);
    double magnitude;
    if (exponent == 0) {
      magnitude = fraction * 0x1p-24;
    } else if (exponent == 0x1F) {
      magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                                : std::numeric_limits<double>::quiet_NaN();
    } else {
      magnitude = (1024 + fraction) * static_cast<double>(std::uint64_t{1} << exponent) * 0x1p-25;
    }
    value = EventValue::of((stored & 0x8000) != 0 ? -magnitude : magnitude);
    return true;
  }
};

// A time in units of kFactor microseconds.
template <class T, std::int64_t kFactor>
struct AsScaledTime {
  using Stored = T;
  static bool convert(T stored, EventValue& value) {
    std::int64_t microseconds;
    if (__builtin_mul_overflow(static_cast<std::int64_t>(stored), kFactor, &microseconds)) {
      return false;
    }
    value = EventValue::of(microseconds);
    return true;
  }
};

struct AsNanoseconds {
  using Stored = std::int64_t;
  static bool convert(std::int64_t stored, EventValue& value) {
    // Rounded down, before 1970 too.
    value = EventValue::of(stored / 1000 - (stored % 1000 < 0 ? 1 : 0));
    return true;
  }
};

template <class As>
void decode_fixed(const Column& column, std::int64_t begin, std::int64_t end, EventValue* out,
                  std::size_t stride) {
  using Stored = typename As::Stored;
  const auto read = [&](std::int64_t index) {
    EventValue value;
    if (!As::convert(load<Stored>(column.values, column.offset + index), value)) [[unlikely]] {
      throw Fault{index, "a time must be within 64 bits of microseconds since 1970"};
    }
    return value;
  };
  if (column.validity == nullptr) {
    for (std::int64_t index = begin; index < end; ++index, out += stride) *out = read(index);
  } else {
    for (std::int64_t index = begin; index < end; ++index, out += stride) {
      *out = column.is_valid(index) ? read(index) : EventValue();
    }
  }
}

void check_utf8(const Column& column, std::int64_t index, std::string_view text) {
  if (column.is_valid(index) && !is_valid_utf8(text)) {
    throw Fault{index, "a string must be valid UTF-8"};
  }
}

// Calls visit(index, text) for each; the text of an invalid one is null.
template <class Offset, class Visit>
void visit_strings(const Column& column, std::int64_t begin, std::int64_t end, Visit visit) {
  if (begin == end) return;
  const auto offset_at = [&](std::int64_t index) {
    return load<Offset>(column.values, column.offset + index);
  };
  const Offset first = offset_at(begin);
  const Offset last = offset_at(end);
  bool is_monotone = first >= 0;
  for (std::int64_t index = begin; index < end; ++index) {
    is_monotone &= offset_at(index) <= offset_at(index + 1);
  }
  if (!is_monotone) throw Fault{begin, "the offsets of strings must be positive and never fall"};
  const char* const data = column.data;
  const auto text_at = [&](std::int64_t index) {
    return std::string_view(data + offset_at(index),
                            static_cast<std::size_t>(offset_at(index + 1) - offset_at(index)));
  };
  if (data == nullptr) {
    if (last != 0) throw Fault{begin, "the buffer of strings must not be missing"};
  } else if (!simd().is_ascii(data + first, static_cast<std::size_t>(last - first))) {
    for (std::int64_t index = begin; index < end; ++index) {
      check_utf8(column, index, text_at(index));
    }
  }
  for (std::int64_t index = begin; index < end; ++index) {
    if (!column.is_valid(index)) {
      visit(index, nullptr);
      continue;
    }
    const std::string_view text = text_at(index);
    if constexpr (sizeof(Offset) == 8) {
      if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
        throw Fault{index, "a string must be shorter than 4 GiB"};
      }
    }
    visit(index, &text);
  }
}

template <class Offset>
void decode_strings(const Column& column, std::int64_t begin, std::int64_t end, EventValue* out,
                    std::size_t stride) {
  visit_strings<Offset>(column, begin, end, [&](std::int64_t, const std::string_view* text) {
    *out = text == nullptr ? EventValue() : EventValue::of(*text);
    out += stride;
  });
}

// A view: length, then either up to 12 bytes in place, or 4 bytes of prefix, buffer and offset.
void decode_views(const Column& column, std::int64_t begin, std::int64_t end, EventValue* out,
                  std::size_t stride) {
  constexpr std::int32_t kMaxInPlace = 12;
  for (std::int64_t index = begin; index < end; ++index, out += stride) {
    if (!column.is_valid(index)) {
      *out = EventValue();
      continue;
    }
    const char* view = static_cast<const char*>(column.values) + 16 * (column.offset + index);
    const auto length = load<std::int32_t>(view, 0);
    if (length < 0) throw Fault{index, "the length of a string must not be negative"};
    const char* text = view + 4;
    if (length > kMaxInPlace) {
      const auto buffer = load<std::int32_t>(view, 2);
      const auto offset = load<std::int32_t>(view, 3);
      if (buffer < 0 || buffer >= column.n_view_buffers || offset < 0 ||
          column.view_buffers[buffer] == nullptr ||
          load<std::int64_t>(column.view_sizes, buffer) < std::int64_t{offset} + length) {
        throw Fault{index, "a string view must lie within its buffers"};
      }
      text = static_cast<const char*>(column.view_buffers[buffer]) + offset;
    }
    const std::string_view string(text, static_cast<std::size_t>(length));
    if (!is_valid_utf8(string)) throw Fault{index, "a string must be valid UTF-8"};
    *out = EventValue::of(string);
  }
}

template <class Index>
void decode_dictionary(const Column& column, std::int64_t begin, std::int64_t end, EventValue* out,
                       std::size_t stride) {
  const Column& dictionary = *column.dictionary;
  const bool is_decoded = !column.dictionary_values.empty();
  for (std::int64_t index = begin; index < end; ++index, out += stride) {
    if (!column.is_valid(index)) {
      *out = EventValue();
      continue;
    }
    const auto stored = load<Index>(column.values, column.offset + index);
    // A negative index, or one beyond int64, becomes a huge one.
    const auto place = static_cast<std::uint64_t>(stored);
    if (place >= static_cast<std::uint64_t>(dictionary.length)) [[unlikely]] {
      throw Fault{index, "a dictionary index must be below " + std::to_string(dictionary.length) +
                             ", not " + std::to_string(stored)};
    }
    if (is_decoded) {
      *out = column.dictionary_values[place];
    } else {
      try {
        const auto at = static_cast<std::int64_t>(place);
        dictionary.decode(dictionary, at, at + 1, out, 1);
      } catch (Fault& fault) {
        fault.index = index;
        throw;
      }
    }
  }
}

[[noreturn]] void throw_null_key(std::int64_t index) {
  throw Fault{index, "a key of a map must not be null"};
}

template <class Offset>
void find_string_keys(const Column& column, std::int64_t begin, std::int64_t end, KeyCache& cache,
                      AttributeId* out) {
  visit_strings<Offset>(column, begin, end, [&](std::int64_t index, const std::string_view* key) {
    if (key == nullptr) throw_null_key(index);
    *out++ = cache.find(*key);
  });
}

// Of views and dictionaries.
void find_decoded_keys(const Column& column, std::int64_t begin, std::int64_t end, KeyCache& cache,
                       AttributeId* out) {
  std::array<EventValue, 256> keys;
  while (begin < end) {
    const std::int64_t n_keys = std::min<std::int64_t>(end - begin, keys.size());
    column.decode(column, begin, begin + n_keys, keys.data(), 1);
    for (std::int64_t at = 0; at < n_keys; ++at) {
      const EventValue& key = keys[static_cast<std::size_t>(at)];
      if (key.kind == Kind::absent) throw_null_key(begin + at);
      *out++ = cache.find(key.string());
    }
    begin += n_keys;
  }
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

}  // namespace

const TypeInfo* find_type(std::string_view format) {
  struct Entry {
    std::string_view format;  // a colon at the end: the time zone follows
    TypeInfo type;
  };
  static constexpr Entry kTypes[] = {
      {"n", {Storage::none, decode_nulls, true}},
      {"b", {Storage::bits, decode_booleans, false}},
      {"c", {Storage::fixed, decode_fixed<AsInteger<std::int8_t>>, true, NumberType::i8}},
      {"C", {Storage::fixed, decode_fixed<AsInteger<std::uint8_t>>, true, NumberType::u8}},
      {"s", {Storage::fixed, decode_fixed<AsInteger<std::int16_t>>, true, NumberType::i16}},
      {"S", {Storage::fixed, decode_fixed<AsInteger<std::uint16_t>>, true, NumberType::u16}},
      {"i", {Storage::fixed, decode_fixed<AsInteger<std::int32_t>>, true, NumberType::i32}},
      {"I", {Storage::fixed, decode_fixed<AsInteger<std::uint32_t>>, true, NumberType::u32}},
      {"l", {Storage::fixed, decode_fixed<AsInteger<std::int64_t>>, true, NumberType::i64}},
      {"L", {Storage::fixed, decode_fixed<AsInteger<std::uint64_t>>, true, NumberType::u64}},
      {"e", {Storage::fixed, decode_fixed<AsHalf>, true}},
      {"f", {Storage::fixed, decode_fixed<AsFloat<float>>, true, NumberType::f32}},
      {"g", {Storage::fixed, decode_fixed<AsFloat<double>>, true, NumberType::f64}},
      {"u", {Storage::strings, decode_strings<std::int32_t>, false}},
      {"U", {Storage::strings, decode_strings<std::int64_t>, false}},
      {"vu", {Storage::views, decode_views, false}},
      {"tdD", {Storage::fixed, decode_fixed<AsScaledTime<std::int32_t, 86'400'000'000>>, false}},
      {"tdm", {Storage::fixed, decode_fixed<AsScaledTime<std::int64_t, 1'000>>, false}},
      {"tss:", {Storage::fixed, decode_fixed<AsScaledTime<std::int64_t, 1'000'000>>, false}},
      {"tsm:", {Storage::fixed, decode_fixed<AsScaledTime<std::int64_t, 1'000>>, false}},
      {"tsu:", {Storage::fixed, decode_fixed<AsScaledTime<std::int64_t, 1>>, false}},
      {"tsn:", {Storage::fixed, decode_fixed<AsNanoseconds>, false}},
  };
  for (const Entry& entry : kTypes) {
    if (entry.format.back() == ':' ? starts_with(format, entry.format) : format == entry.format) {
      return &entry.type;
    }
  }
  return nullptr;
}

DecodeFunction find_dictionary_decoder(std::string_view format) {
  if (format.size() != 1) return nullptr;
  switch (format[0]) {
    case 'c':
      return decode_dictionary<std::int8_t>;
    case 'C':
      return decode_dictionary<std::uint8_t>;
    case 's':
      return decode_dictionary<std::int16_t>;
    case 'S':
      return decode_dictionary<std::uint16_t>;
    case 'i':
      return decode_dictionary<std::int32_t>;
    case 'I':
      return decode_dictionary<std::uint32_t>;
    case 'l':
      return decode_dictionary<std::int64_t>;
    case 'L':
      return decode_dictionary<std::uint64_t>;
    default:
      return nullptr;
  }
}

TypeDescription describe_type(std::string_view format) {
  constexpr const char* kDrop = "drop it";
  constexpr const char* kOne = "take one value of it as a column of its own, or drop it";
  constexpr const char* kText = "cast it to string, or drop it";
  constexpr const char* kInteger = "cast it to int64, or drop it";
  if (starts_with(format, "d:")) {
    return {"decimal(" + std::string(format.substr(2)) + ")",
            "cast it to float64 or int64, or drop it"};
  }
  struct Entry {
    std::string_view prefix;
    const char* name;
    const char* advice;
  };
  static constexpr Entry kTypes[] = {
      {"+l", "list", kOne},
      {"+L", "large list", kOne},
      {"+vl", "list view", kOne},
      {"+vL", "large list view", kOne},
      {"+w:", "fixed-size list", kOne},
      {"+s", "struct", "make a column of each of its fields, or drop it"},
      {"+m", "map", "flatten it into columns, or drop it"},
      {"+u", "union", kDrop},
      {"+r", "run-end encoded", "decode it, or drop it"},
      {"z", "binary", kText},
      {"Z", "large binary", kText},
      {"vz", "binary view", kText},
      {"w:", "fixed-size binary", kText},
      {"tt", "time of day", kInteger},
      {"tD", "duration", kInteger},
      {"ti", "interval", kDrop},
      {"n", "null", kDrop},
      {"b", "boolean", kDrop},
      {"c", "int8", kDrop},
      {"C", "uint8", kDrop},
      {"s", "int16", kDrop},
      {"S", "uint16", kDrop},
      {"i", "int32", kDrop},
      {"I", "uint32", kDrop},
      {"l", "int64", kDrop},
      {"L", "uint64", kDrop},
      {"e", "float16", kDrop},
      {"f", "float32", kDrop},
      {"g", "float64", kDrop},
      {"u", "string", kDrop},
      {"U", "large string", kDrop},
      {"vu", "string view", kDrop},
      {"ts", "timestamp", kInteger},
      {"td", "date", kInteger},
  };
  for (const Entry& entry : kTypes) {
    if (starts_with(format, entry.prefix)) return {entry.name, entry.advice};
  }
  return {"of format '" + std::string(format) + "'", kDrop};
}

KeyFunction find_key_function(std::string_view format) {
  if (format == "u") return find_string_keys<std::int32_t>;
  if (format == "U") return find_string_keys<std::int64_t>;
  return find_decoded_keys;
}

}  // namespace tamis::arrow
