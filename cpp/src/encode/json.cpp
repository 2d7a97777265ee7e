// JSON lines to events, in one pass and strictly by RFC 8259.
//
// Every line is checked from end to end, also where nobody asks for what it says: a line is good
// or bad by itself, and not by what happens to be subscribed. Beyond the form, a line is bad only
// for what it says about attributes that somebody mentions (or that are the position):
//
//     one twice ("a.b" flat and nested is twice); an array or an object where a value should be;
//     an integer beyond 64 bits; a number beyond a double; a position that is no number
//
// How it reads:
//
//     text  {"area":"a1","data":{"temp":3}}\n      every line ends in '\n', the last one by a copy
//            ^key   ^value ^only if names.has_prefix("data")
//
// - '\n' is a sentinel: it belongs to no token, so no loop but the wide ones compares with the end.
// - Lines of one source have the same keys in the same order. For each place among the keys of the
//   outermost object, the key seen there last and what became of it are kept: mostly one memcmp
//   replaces scanning, hashing and looking up.
// - Strings are copied into the arena of the batch, escapes or not: the text is the caller's.
// - Bad lines are no exceptions inside: a text of nothing but bad lines is as quick as a good one.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "common/simd.hpp"
#include "common/utf8.hpp"
#include "encode/seen_attributes.hpp"
#include "tamis/encode.hpp"
#include "tamis/error.hpp"

namespace tamis {

namespace {

static_assert(std::endian::native == std::endian::little,
              "the wide loops read little-endian words");

constexpr std::size_t kMaxDepth = 128;
constexpr std::size_t kMaxStringBytes = std::numeric_limits<std::uint32_t>::max();
constexpr double kNoCoordinate = std::numeric_limits<double>::quiet_NaN();

// Powers of ten that a double holds exactly: a quotient or product of one and of an integer below
// 2^53 is rounded once, so it is the nearest double.
constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// What a key stands for.
struct Target {
  AttributeId id = kNoAttribute;
  bool is_x = false, is_y = false;
  bool has_inner = false;  // some name goes on with a dot after this one

  bool is_position() const { return is_x || is_y; }
  bool is_wanted() const { return id != kNoAttribute || is_position(); }
};

class Decoder {
 public:
  Decoder(const Names& names, const JsonOptions& options, JsonResult& result)
      : names_(names),
        position_(options.position),
        events_(result.events),
        simd_(simd()),
        seen_(names.size() + 2) {}

  // Decodes the line [begin, end) into one event; *end is '\n', and [end, limit) is readable.
  // False: the line is bad, `reason` says why and `place` where.
  bool decode(const char* begin, const char* end, const char* limit) {
    end_ = end;
    limit_ = limit;
    x_ = y_ = kNoCoordinate;
    seen_.begin_event();
    path_.clear();
    const auto n_bytes = static_cast<std::size_t>(end - begin);
    if (!simd_.is_ascii(begin, n_bytes)) {
      const std::size_t n_valid = valid_utf8_prefix(begin, n_bytes);
      if (n_valid != n_bytes) {
        return fail(begin + n_valid, "the text must be UTF-8, not " +
                                         describe_byte(static_cast<unsigned char>(begin[n_valid])));
      }
    }
    const char* at = skip_space(begin);
    if (*at != '{') return fail(at, "an event must be an object in braces, not " + describe(at));
    ++at;
    if (!read_object(at, 1)) return false;
    at = skip_space(at);
    if (at != end_)
      return fail(at, "expected the end of the line after the event, not " + describe(at));
    if (position_) events_.add_position(x_, y_);
    events_.end_event();
    return true;
  }

  const char* place() const { return place_; }
  const std::string& reason() const { return reason_; }

  const char* skip_space(const char* at) const {
    while (*at == ' ' || *at == '\t' || *at == '\r') ++at;
    return at;
  }

 private:
  // -- errors --

  bool fail(const char* place, std::string reason) {
    place_ = place;
    reason_ = std::move(reason);
    return false;
  }

  static std::string describe_byte(unsigned char byte) {
    char text[16];
    std::snprintf(text, sizeof text, "byte 0x%02x", byte);
    return text;
  }

  // The character at `at`, which lies in text that is valid.
  std::string describe(const char* at) const {
    if (at == end_) return "the end of the line";
    const auto lead = static_cast<unsigned char>(*at);
    if (lead < 0x20 || lead == 0x7F) return describe_byte(lead);
    const std::size_t n_bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    std::string text = "'";
    text.append(at, n_bytes).append("'");
    return text;
  }

  // -- strings --

  // The first byte from `at` on that is '"', '\\' or below 0x20. There is one: the line's end.
  const char* find_string_end(const char* at) const {
    constexpr std::uint64_t kOnes = 0x0101010101010101ull;
    constexpr std::uint64_t kHighs = 0x8080808080808080ull;
    // Short strings are the rule: two words here cost less than a call.
    for (int word_idx = 0; word_idx < 2 && limit_ - at >= 8; ++word_idx, at += 8) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      const std::uint64_t quote = word ^ (kOnes * '"');
      const std::uint64_t backslash = word ^ (kOnes * '\\');
      // A borrow can only spoil bytes above a true hit: the lowest is exact.
      const std::uint64_t hits = (((quote - kOnes) & ~quote) | ((backslash - kOnes) & ~backslash) |
                                  ((word - kOnes * 0x20) & ~word)) &
                                 kHighs;
      if (hits != 0) return at + (std::countr_zero(hits) >> 3);
    }
    return simd_.find_string_end(at, limit_);
  }

  bool read_hex4(const char*& at, unsigned& code) {
    code = 0;
    for (int digit = 0; digit < 4; ++digit, ++at) {
      const char c = *at;
      unsigned value;
      if (is_digit(c)) {
        value = static_cast<unsigned>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        value = static_cast<unsigned>((c | 0x20) - 'a') + 10;
      } else {
        return fail(at, "expected four hexadecimal digits after \\u, not " + describe(at));
      }
      code = code << 4 | value;
    }
    return true;
  }

  // From after the opening quote to the closing one, where `at` is left. The form of everything
  // between is checked.
  bool scan_string(const char*& at, bool& has_escapes) {
    has_escapes = false;
    for (;;) {
      at = find_string_end(at);
      if (*at == '"') return true;
      if (*at != '\\') {
        return at == end_
                   ? fail(at, "expected '\"' at the end of a string, not the end of the line")
                   : fail(at,
                          "a control character in a string must be escaped, not " + describe(at));
      }
      has_escapes = true;
      const char* const escape = at++;
      switch (*at) {
        case '"':
        case '\\':
        case '/':
        case 'b':
        case 'f':
        case 'n':
        case 'r':
        case 't':
          ++at;
          break;
        case 'u': {
          ++at;
          unsigned code;
          if (!read_hex4(at, code)) return false;
          if (code >= 0xDC00 && code <= 0xDFFF) return fail(escape, kLoneSurrogate);
          if (code >= 0xD800 && code <= 0xDBFF) {
            if (at[0] != '\\' || at[1] != 'u') return fail(escape, kLoneSurrogate);
            at += 2;
            if (!read_hex4(at, code)) return false;
            if (code < 0xDC00 || code > 0xDFFF) return fail(escape, kLoneSurrogate);
          }
          break;
        }
        default:
          return fail(at, "expected one of \"\\/bfnrtu after a backslash, not " + describe(at));
      }
    }
  }

  // Writes what [at, end) means, which scan_string has checked; never more bytes than it has.
  static char* unescape(const char* at, const char* end, char* out) {
    const auto hex4 = [&] {
      unsigned code = 0;
      std::from_chars(at, at + 4, code, 16);
      at += 4;
      return code;
    };
    while (at != end) {
      if (*at != '\\') {
        *out++ = *at++;
        continue;
      }
      const char kind = at[1];
      at += 2;
      switch (kind) {
        case 'b':
          *out++ = '\b';
          break;
        case 'f':
          *out++ = '\f';
          break;
        case 'n':
          *out++ = '\n';
          break;
        case 'r':
          *out++ = '\r';
          break;
        case 't':
          *out++ = '\t';
          break;
        case 'u': {
          unsigned code = hex4();
          if (code >= 0xD800 && code <= 0xDBFF) {
            at += 2;
            code = 0x10000 + ((code - 0xD800) << 10) + (hex4() - 0xDC00);
          }
          if (code < 0x80) {
            *out++ = static_cast<char>(code);
          } else if (code < 0x800) {
            *out++ = static_cast<char>(0xC0 | code >> 6);
            *out++ = static_cast<char>(0x80 | (code & 0x3F));
          } else if (code < 0x10000) {
            *out++ = static_cast<char>(0xE0 | code >> 12);
            *out++ = static_cast<char>(0x80 | (code >> 6 & 0x3F));
            *out++ = static_cast<char>(0x80 | (code & 0x3F));
          } else {
            *out++ = static_cast<char>(0xF0 | code >> 18);
            *out++ = static_cast<char>(0x80 | (code >> 12 & 0x3F));
            *out++ = static_cast<char>(0x80 | (code >> 6 & 0x3F));
            *out++ = static_cast<char>(0x80 | (code & 0x3F));
          }
          break;
        }
        default:  // '"', '\\', '/'
          *out++ = kind;
      }
    }
    return out;
  }

  bool skip_string(const char*& at) {  // from after the opening quote to after the closing one
    bool has_escapes;
    if (!scan_string(at, has_escapes)) return false;
    ++at;
    return true;
  }

  bool read_string(const char*& at, EventValue& value) {
    const char* const begin = at;
    bool has_escapes;
    if (!scan_string(at, has_escapes)) return false;
    const auto n_bytes = static_cast<std::size_t>(at - begin);
    if (n_bytes > kMaxStringBytes) {
      return fail(begin, "a string must be shorter than 4 GiB, not " + std::to_string(n_bytes) +
                             " bytes long");
    }
    if (!has_escapes) {
      value = EventValue::of(events_.arena.copy({begin, n_bytes}));
    } else {
      char* const place = events_.arena.allocate(n_bytes);
      const auto n_written = static_cast<std::size_t>(unescape(begin, at, place) - place);
      events_.arena.give_back(n_bytes - n_written);
      value = EventValue::of(std::string_view(place, n_written));
    }
    ++at;
    return true;
  }

  // -- numbers --

  struct Numeral {
    const char* begin;
    const char* end;
    bool is_negative = false;
    bool is_integer = true;
    std::uint64_t digits = 0;   // all digits as one integer, modulo 2^64
    std::int64_t n_digits = 0;  // before and after the point
    std::int64_t exponent = 0;  // value = digits * 10^exponent; beyond kMaxExponent it stays there
  };
  static constexpr std::int64_t kMaxExponent = std::int64_t{1} << 60;

  bool scan_number(const char*& at, Numeral& numeral) {
    numeral.begin = at;
    if (*at == '-') {
      numeral.is_negative = true;
      ++at;
    }
    if (!is_digit(*at)) return fail(at, "expected a digit, not " + describe(at));
    const char* const digits = at;
    std::uint64_t value = static_cast<std::uint64_t>(*at - '0');
    ++at;
    if (value == 0 && is_digit(*at)) return fail(at, "a number must not begin with 0 and a digit");
    for (; is_digit(*at); ++at) value = 10 * value + static_cast<std::uint64_t>(*at - '0');
    numeral.n_digits = at - digits;
    if (*at == '.') {
      numeral.is_integer = false;
      const char* const fraction = ++at;
      if (!is_digit(*at)) {
        return fail(at, "expected a digit after the decimal point, not " + describe(at));
      }
      for (; is_digit(*at); ++at) value = 10 * value + static_cast<std::uint64_t>(*at - '0');
      numeral.n_digits += at - fraction;
      numeral.exponent = fraction - at;
    }
    if (*at == 'e' || *at == 'E') {
      numeral.is_integer = false;
      ++at;
      const bool is_negative = *at == '-';
      if (is_negative || *at == '+') ++at;
      if (!is_digit(*at)) return fail(at, "expected a digit in the exponent, not " + describe(at));
      std::int64_t exponent = 0;
      for (; is_digit(*at); ++at) {
        if (exponent < kMaxExponent / 10) exponent = 10 * exponent + (*at - '0');
      }
      numeral.exponent += is_negative ? -exponent : exponent;
    }
    numeral.digits = value;
    numeral.end = at;
    return true;
  }

  bool read_number(const char*& at, EventValue& value) {
    Numeral numeral;
    if (!scan_number(at, numeral)) return false;
    if (numeral.is_integer) return read_integer(numeral, value);
    if (numeral.n_digits <= 19 && numeral.digits <= std::uint64_t{1} << 53 &&
        numeral.exponent >= -22 && numeral.exponent <= 22) {
      const auto digits = static_cast<double>(static_cast<std::int64_t>(numeral.digits));
      const double magnitude = numeral.exponent < 0 ? digits / kPowersOfTen[-numeral.exponent]
                                                    : digits * kPowersOfTen[numeral.exponent];
      value = EventValue::of(numeral.is_negative ? -magnitude : magnitude);
      return true;
    }
    double nearest = 0;
    const auto answer = std::from_chars(numeral.begin, numeral.end, nearest);
    if (answer.ec == std::errc::result_out_of_range) {
      // Too large or too small? The place of the first digit that counts tells.
      const char* first = numeral.begin;
      std::int64_t n_before = 0;  // digits up to the first that is not 0
      for (; *first == '-' || *first == '0' || *first == '.'; ++first) n_before += *first == '0';
      if (numeral.exponent + numeral.n_digits - n_before > 0) {
        return fail(numeral.begin,
                    "a number must be within the range of a 64-bit float, not " + shorten(numeral));
      }
      nearest = 0;
    }
    value = EventValue::of(nearest);
    return true;
  }

  bool read_integer(const Numeral& numeral, EventValue& value) {
    constexpr std::uint64_t kTwo63 = std::uint64_t{1} << 63;
    constexpr std::uint64_t kTen19 = 10'000'000'000'000'000'000ull;
    // With 20 digits the remainder modulo 2^64 is the value itself only if it is still above 10^19.
    const bool is_beyond =
        numeral.n_digits > 20 ||
        (numeral.n_digits == 20 && (*numeral.begin != '1' || numeral.digits < kTen19)) ||
        (numeral.is_negative && (numeral.n_digits > 19 || numeral.digits > kTwo63));
    if (is_beyond) {
      return fail(numeral.begin,
                  "an integer must be within 64 bits, not " + shorten(numeral) +
                      "; write it with a fraction or exponent for the nearest float");
    }
    if (numeral.is_negative) {
      value = EventValue::of(static_cast<std::int64_t>(0 - numeral.digits));
    } else if (numeral.digits < kTwo63) {
      value = EventValue::of(static_cast<std::int64_t>(numeral.digits));
    } else {
      value = EventValue::of(numeral.digits);
    }
    return true;
  }

  static std::string shorten(const Numeral& numeral) {
    constexpr std::ptrdiff_t kMaxShown = 40;
    const std::ptrdiff_t n_bytes = numeral.end - numeral.begin;
    std::string text(numeral.begin, static_cast<std::size_t>(std::min(n_bytes, kMaxShown)));
    if (n_bytes > kMaxShown) text += "...";
    return text;
  }

  // -- structure --

  bool read_word(const char*& at, std::string_view word) {
    if (static_cast<std::size_t>(end_ - at) < word.size() ||
        std::memcmp(at, word.data(), word.size()) != 0) {
      return fail(at, "expected a value, not " + describe(at));
    }
    at += word.size();
    return true;
  }

  bool check_depth(const char* at, std::size_t depth) {
    if (depth <= kMaxDepth) return true;
    return fail(at, "objects and arrays must not nest more than " + std::to_string(kMaxDepth) +
                        " levels deep");
  }

  // Checks a value that nobody asks for. `depth` is that of the container around it.
  bool skip_value(const char*& at, std::size_t depth) {
    switch (*at) {
      case '"':
        return skip_string(++at);
      case '{':
        if (!check_depth(at, depth + 1)) return false;
        return skip_object(++at, depth + 1);
      case '[':
        if (!check_depth(at, depth + 1)) return false;
        return skip_array(++at, depth + 1);
      case 't':
        return read_word(at, "true");
      case 'f':
        return read_word(at, "false");
      case 'n':
        return read_word(at, "null");
      default: {
        if (*at != '-' && !is_digit(*at)) {
          return fail(at, "expected a value, not " + describe(at));
        }
        Numeral numeral;
        return scan_number(at, numeral);
      }
    }
  }

  bool skip_array(const char*& at, std::size_t depth) {
    at = skip_space(at);
    if (*at == ']') {
      ++at;
      return true;
    }
    for (;;) {
      if (!skip_value(at, depth)) return false;
      at = skip_space(at);
      if (*at == ']') {
        ++at;
        return true;
      }
      if (*at != ',') return fail(at, "expected ',' or ']' after an element, not " + describe(at));
      at = skip_space(at + 1);
    }
  }

  bool expect_key(const char*& at) {
    if (*at == '"') {
      ++at;
      return true;
    }
    return fail(at, "expected a key in double quotes, not " + describe(at));
  }

  bool expect_colon(const char*& at) {
    if (*at != ':') {
      at = skip_space(at);
      if (*at != ':') return fail(at, "expected ':' after a key, not " + describe(at));
    }
    at = skip_space(at + 1);
    return true;
  }

  // After a value: true if another key follows, where `at` is left.
  bool expect_next(const char*& at, bool& is_last) {
    at = skip_space(at);
    is_last = *at == '}';
    if (!is_last && *at != ',') {
      return fail(at, "expected ',' or '}' after a value, not " + describe(at));
    }
    ++at;
    if (!is_last) at = skip_space(at);
    return true;
  }

  bool skip_object(const char*& at, std::size_t depth) {
    at = skip_space(at);
    if (*at == '}') {
      ++at;
      return true;
    }
    for (bool is_last = false; !is_last;) {
      if (!expect_key(at) || !skip_string(at) || !expect_colon(at) || !skip_value(at, depth) ||
          !expect_next(at, is_last)) {
        return false;
      }
    }
    return true;
  }

  Target resolve(std::string_view name) const {
    Target target;
    target.id = names_.find(name);
    target.has_inner = names_.has_prefix(name);
    if (position_) {
      target.is_x = name == position_->first;
      target.is_y = name == position_->second;
      for (const std::string* wanted : {&position_->first, &position_->second}) {
        target.has_inner |= wanted->size() > name.size() && (*wanted)[name.size()] == '.' &&
                            wanted->compare(0, name.size(), name) == 0;
      }
    }
    return target;
  }

  // The key at `at` (after its quote), which is left after the closing quote. Keys of the outermost
  // object are remembered by their place.
  bool read_top_key(const char*& at, std::size_t key_idx, Target& target) {
    SeenKey& likely = likely_keys_[key_idx % kLikelyKeys];
    if (likely.n_bytes != 0 && static_cast<std::size_t>(end_ - at) >= likely.n_bytes &&
        std::memcmp(at, likely.text, likely.n_bytes) == 0) {
      at += likely.n_bytes;
      target = likely.target;
      return true;
    }
    const char* const begin = at;
    bool has_escapes;
    if (!scan_string(at, has_escapes)) return false;
    const auto n_bytes = static_cast<std::size_t>(at - begin);
    ++at;
    if (has_escapes) {
      unescape_to(path_, begin, n_bytes);
      target = resolve(path_);
      path_.clear();
    } else {
      target = resolve({begin, n_bytes});
      likely = {begin, n_bytes + 1, target};
    }
    return true;
  }

  static void unescape_to(std::string& text, const char* begin, std::size_t n_bytes) {
    const std::size_t before = text.size();
    text.resize(before + n_bytes);
    const char* const end = unescape(begin, begin + n_bytes, text.data() + before);
    text.resize(static_cast<std::size_t>(end - text.data()));
  }

  // `path_` is the name of the object and a dot, or empty in the outermost; it comes back as it
  // was. `at` stands after the brace.
  bool read_object(const char*& at, std::size_t depth) {
    at = skip_space(at);
    if (*at == '}') {
      ++at;
      return true;
    }
    const std::size_t n_path = path_.size();
    std::size_t key_idx = 0;
    for (bool is_last = false; !is_last; ++key_idx) {
      if (!expect_key(at)) return false;
      const char* const key = at;
      Target target;
      if (n_path == 0) {
        if (!read_top_key(at, key_idx, target)) return false;
      } else {
        bool has_escapes;
        if (!scan_string(at, has_escapes)) return false;
        const auto n_bytes = static_cast<std::size_t>(at - key);
        ++at;
        if (has_escapes) {
          unescape_to(path_, key, n_bytes);
        } else {
          path_.append(key, n_bytes);
        }
        target = resolve(path_);
      }
      if (!expect_colon(at)) return false;
      if (target.is_wanted()) {
        if (!read_value(at, key, target)) return false;
      } else if (target.has_inner && *at == '{') {
        if (!check_depth(at, depth + 1)) return false;
        if (n_path == 0) append_key(key);
        path_.push_back('.');
        if (!read_object(++at, depth + 1)) return false;
      } else if (!skip_value(at, depth)) {
        return false;
      }
      path_.resize(n_path);
      if (!expect_next(at, is_last)) return false;
    }
    return true;
  }

  // Appends the key that begins at `key` (and has been checked) to the path.
  void append_key(const char* key) {
    bool has_escapes;
    const char* end = key;
    scan_string(end, has_escapes);
    unescape_to(path_, key, static_cast<std::size_t>(end - key));
  }

  // The name of `target`, for messages.
  std::string name_of(const Target& target) const {
    return target.id != kNoAttribute ? std::string(names_.name(target.id))
           : target.is_x             ? position_->first
                                     : position_->second;
  }

  static const char* type_at(const char* at) {
    return *at == '"'                 ? "a string"
           : *at == '{'               ? "an object"
           : *at == '['               ? "an array"
           : *at == 't' || *at == 'f' ? "a boolean"
                                      : "a number";
  }

  bool read_value(const char*& at, const char* key, const Target& target) {
    const auto id = target.id != kNoAttribute
                        ? target.id
                        : static_cast<AttributeId>(names_.size() + (target.is_x ? 0 : 1));
    if (!seen_.insert(id)) {
      return fail(key - 1,
                  "attribute " + name_of(target) + " must come once in an event, not twice");
    }
    const char* const begin = at;
    EventValue value;
    switch (*at) {
      case '"':
        if (!read_string(++at, value)) return false;
        break;
      case '{':
      case '[':
        if (target.is_position()) break;
        return fail(at, "attribute " + name_of(target) +
                            " must be a number, string, boolean or null, not " + type_at(at));
      case 't':
        if (!read_word(at, "true")) return false;
        value = EventValue::of(true);
        break;
      case 'f':
        if (!read_word(at, "false")) return false;
        value = EventValue::of(false);
        break;
      case 'n':
        return read_word(at, "null");  // as if it were not there
      default:
        if (*at != '-' && !is_digit(*at)) return fail(at, "expected a value, not " + describe(at));
        if (!read_number(at, value)) return false;
    }
    if (target.is_position()) {
      if (value.kind != Kind::number) {
        return fail(begin,
                    "position " + name_of(target) + " must be a number, not " + type_at(begin));
      }
      if (target.is_x) x_ = value.nearest;
      if (target.is_y) y_ = value.nearest;
    }
    if (target.id != kNoAttribute) events_.add(target.id, value);
    return true;
  }

  static constexpr const char* kLoneSurrogate =
      "a \\u escape must be a character, not half of a surrogate pair";
  static constexpr std::size_t kLikelyKeys = 64;

  struct SeenKey {
    const char* text = nullptr;  // in the caller's text, with its closing quote
    std::size_t n_bytes = 0;
    Target target;
  };

  const Names& names_;
  const PositionNames& position_;
  EventBatch& events_;
  const SimdKernels& simd_;
  SeenAttributes seen_;
  SeenKey likely_keys_[kLikelyKeys];
  std::string path_;
  const char* end_ = nullptr;    // of the line
  const char* limit_ = nullptr;  // of what may be read
  double x_ = kNoCoordinate, y_ = kNoCoordinate;
  const char* place_ = nullptr;
  std::string reason_;
};

}  // namespace

JsonResult decode_json_lines(std::string_view text, const Names& names,
                             const JsonOptions& options) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
  }
  JsonResult result;
  result.events.encode_for(names);
  if (text.empty()) return result;
  Decoder decoder(names, options, result);
  std::string last_line;  // with the '\n' that the text lacks
  const char* next = text.data();
  const char* limit = text.data() + text.size();
  for (std::size_t line = 1; next != limit; ++line) {
    const char* begin = next;
    const auto* end =
        static_cast<const char*>(std::memchr(begin, '\n', static_cast<std::size_t>(limit - begin)));
    if (end == nullptr) {
      last_line.reserve(static_cast<std::size_t>(limit - begin) + 1);
      last_line.assign(begin, limit);
      last_line.push_back('\n');
      begin = last_line.data();
      limit = begin + last_line.size();
      end = limit - 1;
    }
    next = end + 1;
    if (decoder.skip_space(begin) == end) continue;
    if (decoder.decode(begin, end, limit)) {
      result.lines.push_back(line);
      continue;
    }
    result.events.abandon_event();
    ++result.n_errors;
    if (options.skip_bad_lines && result.errors.size() >= kMaxLineErrors) continue;
    // Columns count characters: what is before the place is valid UTF-8.
    const auto column =
        1 + std::count_if(begin, decoder.place(), [](char c) { return (c & 0xC0) != 0x80; });
    std::string reason = "line " + std::to_string(line) + ", column " + std::to_string(column) +
                         ": " + decoder.reason();
    if (!options.skip_bad_lines) throw EventError(reason);
    result.errors.push_back({line, std::move(reason)});
  }
  return result;
}

}  // namespace tamis
