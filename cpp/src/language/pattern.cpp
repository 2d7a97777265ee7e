#include "tamis/pattern.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace tamis {
namespace {

constexpr char kAnyRun = '\xFF';
constexpr char kAnyCharacter = '\xFE';
constexpr std::size_t kNotFound = std::string_view::npos;

bool is_wildcard(char c) { return c == kAnyRun || c == kAnyCharacter; }
bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Past the character at `at`, or kNotFound at the end.
std::size_t skip_character(std::string_view text, std::size_t at) {
  if (at >= text.size()) return kNotFound;
  ++at;
  while (at < text.size() && is_continuation(text[at])) ++at;
  return at;
}

// Where the segment ends if it stands at `at`, or kNotFound.
std::size_t match_at(std::string_view segment, std::string_view text, std::size_t at) {
  for (const char c : segment) {
    if (c == kAnyCharacter) {
      at = skip_character(text, at);
      if (at == kNotFound) return kNotFound;
    } else if (at >= text.size() || text[at] != c) {
      return kNotFound;
    } else {
      ++at;
    }
  }
  return at;
}

// Where the segment begins if it stands at the end of the text, or kNotFound.
std::size_t match_at_end(std::string_view segment, std::string_view text) {
  std::size_t begin = text.size();
  for (std::size_t left = segment.size(); left > 0; --left) {
    if (begin == 0) return kNotFound;
    --begin;
    if (segment[left - 1] == kAnyCharacter) {
      while (begin > 0 && is_continuation(text[begin])) --begin;
    } else if (text[begin] != segment[left - 1]) {
      return kNotFound;
    }
  }
  return begin;
}

}  // namespace

Pattern::Pattern(std::string_view text, std::string_view escape) {
  for (std::size_t at = 0; at < text.size();) {
    if (!escape.empty() && text.substr(at, escape.size()) == escape) {
      at += escape.size();
      const std::string_view rest = text.substr(at);
      if (rest.empty())
        throw std::invalid_argument("a pattern must not end in its escape character");
      const std::size_t length = rest.substr(0, escape.size()) == escape ? escape.size()
                                 : rest[0] == '%' || rest[0] == '_'      ? 1
                                                                         : 0;
      if (length == 0) {
        throw std::invalid_argument(
            "the escape character must stand before %, _ or itself in a pattern");
      }
      compiled_.append(rest, 0, length);
      at += length;
    } else {
      const char c = text[at++];
      compiled_ += c == '%' ? kAnyRun : c == '_' ? kAnyCharacter : c;
    }
  }
  const auto first = std::find_if(compiled_.begin(), compiled_.end(), is_wildcard);
  prefix_.assign(compiled_.begin(), first);
  if (first == compiled_.end()) {
    form_ = Form::exact;
  } else {
    const bool is_prefix = std::all_of(first, compiled_.end(), [](char c) { return c == kAnyRun; });
    form_ = is_prefix ? Form::prefix : Form::general;
  }
}

bool Pattern::matches(std::string_view compiled, std::string_view text) {
  const std::size_t first_run = compiled.find(kAnyRun);
  std::size_t at = match_at(compiled.substr(0, first_run), text, 0);
  if (at == kNotFound || first_run == kNotFound) return at == text.size();
  std::string_view rest = compiled.substr(first_run + 1);
  for (;;) {
    const std::size_t length = rest.find(kAnyRun);
    if (length == kNotFound) {  // the last segment, which may not reach back over the others
      const std::size_t begin = match_at_end(rest, text);
      return begin != kNotFound && begin >= at;
    }
    const std::string_view segment = rest.substr(0, length);
    rest.remove_prefix(length + 1);
    // A segment that begins with a literal can only begin where that literal stands.
    const std::string_view literal = segment.substr(
        0, static_cast<std::size_t>(std::find_if(segment.begin(), segment.end(), is_wildcard) -
                                    segment.begin()));
    for (;;) {
      if (!literal.empty()) {
        at = text.find(literal, at);
        if (at == kNotFound) return false;
      }
      if (const std::size_t end = match_at(segment, text, at); end != kNotFound) {
        at = end;
        break;
      }
      at = skip_character(text, at);
      if (at == kNotFound) return false;
    }
  }
}

}  // namespace tamis
