#include "tamis/pattern.hpp"

#include <stdexcept>

namespace tamis {
namespace {

constexpr std::size_t kNotFound = static_cast<std::size_t>(-1);

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Past the character at `at`, or kNotFound at the end.
std::size_t skip_character(std::string_view text, std::size_t at) {
  if (at >= text.size()) return kNotFound;
  ++at;
  while (at < text.size() && is_continuation(text[at])) ++at;
  return at;
}

}  // namespace

Pattern::Pattern(std::string_view text, std::string_view escape) {
  segments_.emplace_back();
  std::uint32_t n_any = 0;
  std::string literal;
  const auto end_piece = [&] {
    if (literal.empty() && n_any == 0) return;
    segments_.back().push_back({std::move(literal), n_any});
    literal.clear();
    n_any = 0;
  };
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
      literal.append(rest, 0, length);
      at += length;
    } else if (text[at] == '%') {
      end_piece();
      segments_.emplace_back();
      ++at;
    } else if (text[at] == '_') {
      if (!literal.empty()) end_piece();
      ++n_any;
      ++at;
    } else {
      literal += text[at++];
    }
  }
  end_piece();

  const Segment& first = segments_.front();
  if (!first.empty() && first.front().n_any_before == 0) prefix_ = first.front().literal;
  const bool is_literal = first.empty() || (first.size() == 1 && first.front().n_any_before == 0);
  if (is_literal && segments_.size() == 1) {
    form_ = Form::exact;
  } else {
    bool is_prefix = is_literal;
    for (std::size_t segment = 1; segment < segments_.size(); ++segment) {
      is_prefix = is_prefix && segments_[segment].empty();
    }
    form_ = is_prefix ? Form::prefix : Form::general;
  }
}

bool Pattern::match_at(const Segment& segment, std::string_view text, std::size_t at,
                       std::size_t& end) {
  for (const Piece& piece : segment) {
    for (std::uint32_t any = 0; any < piece.n_any_before; ++any) {
      at = skip_character(text, at);
      if (at == kNotFound) return false;
    }
    if (text.compare(at, piece.literal.size(), piece.literal) != 0) return false;
    at += piece.literal.size();
  }
  end = at;
  return true;
}

bool Pattern::matches(std::string_view text) const {
  std::size_t at = 0;
  if (!match_at(segments_.front(), text, 0, at)) return false;
  if (segments_.size() == 1) return at == text.size();
  for (std::size_t idx = 1; idx + 1 < segments_.size(); ++idx) {
    const Segment& segment = segments_[idx];
    if (segment.empty()) continue;
    std::size_t end = 0;
    // A segment that begins with a literal can only begin where that literal stands.
    const bool has_anchor = segment.front().n_any_before == 0;
    for (;;) {
      if (has_anchor) {
        at = text.find(segment.front().literal, at);
        if (at == std::string_view::npos) return false;
      }
      if (match_at(segment, text, at, end)) break;
      at = skip_character(text, at);
      if (at == kNotFound) return false;
    }
    at = end;
  }
  // The last segment ends where the text ends: walk its characters backwards to find its place.
  const Segment& last = segments_.back();
  std::size_t begin = text.size();
  for (auto piece = last.rbegin(); piece != last.rend(); ++piece) {
    if (begin < piece->literal.size()) return false;
    begin -= piece->literal.size();
    if (text.compare(begin, piece->literal.size(), piece->literal) != 0) return false;
    for (std::uint32_t any = 0; any < piece->n_any_before; ++any) {
      if (begin == 0) return false;
      --begin;
      while (begin > 0 && is_continuation(text[begin])) --begin;
    }
  }
  return begin >= at;
}

std::size_t Pattern::bytes() const {
  std::size_t total = sizeof(Pattern) + prefix_.capacity();
  for (const Segment& segment : segments_) {
    total += sizeof(Segment) + segment.capacity() * sizeof(Piece);
    for (const Piece& piece : segment) total += piece.literal.capacity();
  }
  return total;
}

}  // namespace tamis
