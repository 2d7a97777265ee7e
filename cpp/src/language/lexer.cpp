#include "lexer.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <system_error>

#include "tamis/error.hpp"

namespace tamis {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
constexpr bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }
constexpr bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}
constexpr char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

struct WordEntry {
  std::string_view text;
  Word word;
};
constexpr WordEntry kWords[] = {{"AND", Word::and_},
                                {"BETWEEN", Word::between},
                                {"ESCAPE", Word::escape},
                                {"EXISTS", Word::exists},
                                {"FALSE", Word::false_},
                                {"IN", Word::in},
                                {"IS", Word::is},
                                {"LIKE", Word::like},
                                {"NEAR", Word::near},
                                {"NOT", Word::not_},
                                {"NULL", Word::null},
                                {"OR", Word::or_},
                                {"TIMESTAMP", Word::timestamp},
                                {"TRUE", Word::true_}};
constexpr std::size_t kLongestWord = 9;

Word find_word(std::string_view name) {
  if (name.size() < 2 || name.size() > kLongestWord) return Word::none;
  char buffer[kLongestWord];
  for (std::size_t i = 0; i < name.size(); ++i) buffer[i] = upper(name[i]);
  const std::string_view key(buffer, name.size());
  for (const WordEntry& entry : kWords) {
    if (entry.text[0] == key[0] && entry.text == key) return entry.word;
  }
  return Word::none;
}

// The whole character at `at`, for messages.
std::string_view character(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return text.substr(at, end - at);
}

}  // namespace

const std::vector<std::string_view>& keywords() {
  static const std::vector<std::string_view> words = [] {
    std::vector<std::string_view> all;
    for (const WordEntry& entry : kWords) all.push_back(entry.text);
    return all;
  }();
  return words;
}

Token Lexer::next() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  Token token;
  token.offset = token.end = static_cast<std::uint32_t>(at_);
  if (at_ == text_.size()) return token;
  const char c = text_[at_];
  if (is_name_start(c)) return name(token);
  if (is_digit(c) || c == '-' || c == '+' || c == '.') return number(token);
  const char following = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
  const auto finish = [&](Token::Type type, std::size_t length, CompareOp op = CompareOp::eq) {
    token.type = type;
    token.op = op;
    at_ += length;
    token.end = static_cast<std::uint32_t>(at_);
    return token;
  };
  using Type = Token::Type;
  switch (c) {
    case '(':
      return finish(Type::open, 1);
    case ')':
      return finish(Type::close, 1);
    case ',':
      return finish(Type::comma, 1);
    case '\'':
    case '"':
      return quoted(token, c);
    case '=':
      if (following == '=') {
        throw LanguageError("equality is written =, not ==", token.offset);
      }
      return finish(Type::compare, 1, CompareOp::eq);
    case '!':
      if (following == '=') return finish(Type::compare, 2, CompareOp::ne);
      throw LanguageError("expected != after !; negation is written NOT", token.offset);
    case '<':
      if (following == '=') return finish(Type::compare, 2, CompareOp::le);
      if (following == '>') return finish(Type::compare, 2, CompareOp::ne);
      return finish(Type::compare, 1, CompareOp::lt);
    case '>':
      if (following == '=') return finish(Type::compare, 2, CompareOp::ge);
      return finish(Type::compare, 1, CompareOp::gt);
    default:
      break;
  }
  const std::string shown(character(text_, at_));
  if (static_cast<unsigned char>(c) >= 0x80) {
    throw LanguageError("unexpected character " + shown +
                            "; names beyond ASCII letters, digits and _ are written in double "
                            "quotes, strings in single quotes",
                        token.offset);
  }
  if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
    throw LanguageError("unexpected control character", token.offset);
  }
  throw LanguageError("unexpected character " + shown, token.offset);
}

Token Lexer::quoted(Token token, char quote) {
  const bool is_string = quote == '\'';
  std::size_t begin = at_ + 1;
  std::size_t end = text_.find(quote, begin);
  std::string* copy = nullptr;
  for (;;) {
    if (end == std::string_view::npos) {
      throw LanguageError(
          is_string ? "this string has no closing '" : "this name has no closing \"", token.offset);
    }
    if (end + 1 >= text_.size() || text_[end + 1] != quote) break;
    if (copy == nullptr) copy = &ast_.unescaped.emplace_back();
    copy->append(text_, begin, end + 1 - begin);  // one of the two quotes
    begin = end + 2;
    end = text_.find(quote, begin);
  }
  const std::string_view rest = text_.substr(begin, end - begin);
  if (copy != nullptr) copy->append(rest);
  token.text = copy != nullptr ? std::string_view(*copy) : rest;
  token.type = is_string ? Token::Type::string : Token::Type::name;
  at_ = end + 1;
  token.end = static_cast<std::uint32_t>(at_);
  if (!is_string && token.text.empty()) {
    throw LanguageError("the name of an attribute must not be empty", token.offset);
  }
  return token;
}

Token Lexer::number(Token token) {
  const char* const begin = text_.data() + at_;
  const char* const limit = text_.data() + text_.size();
  const char* at = begin;
  if (*at == '-' || *at == '+') ++at;
  const char* const digits = at;
  while (at < limit && is_digit(*at)) ++at;
  bool is_integer = true;
  bool has_digits = at > digits;
  if (at < limit && *at == '.') {
    is_integer = false;
    const char* const fraction = ++at;
    while (at < limit && is_digit(*at)) ++at;
    has_digits = has_digits || at > fraction;
  }
  if (!has_digits) {
    throw LanguageError("expected a number after " + std::string(begin, at), token.offset);
  }
  if (at < limit && (*at == 'e' || *at == 'E')) {
    is_integer = false;
    ++at;
    if (at < limit && (*at == '-' || *at == '+')) ++at;
    const char* const exponent = at;
    while (at < limit && is_digit(*at)) ++at;
    if (at == exponent) throw LanguageError("expected digits in the exponent", token.offset);
  }
  if (at < limit && (is_name_part(*at) || *at == '.')) {
    throw LanguageError(
        "a number must end before " +
            std::string(character(text_, static_cast<std::size_t>(at - text_.data()))) +
            "; names do not begin with a digit unless they are quoted",
        token.offset);
  }
  const char* const from = *begin == '+' ? begin + 1 : begin;
  if (is_integer) {
    token.type = Token::Type::integer;
    if (std::from_chars(from, at, token.integer).ec != std::errc{}) {
      throw LanguageError(
          "an integer must lie within 64 bits (-9223372036854775808 to 9223372036854775807)",
          token.offset);
    }
  } else {
    token.type = Token::Type::decimal;
    if (std::from_chars(from, at, token.decimal).ec != std::errc{}) {
      token.decimal =
          std::strtod(std::string(from, at).c_str(), nullptr);  // too small, or too large
    }
    if (!std::isfinite(token.decimal)) {
      throw LanguageError("a number must lie within the range of a double", token.offset);
    }
  }
  at_ = static_cast<std::size_t>(at - text_.data());
  token.end = static_cast<std::uint32_t>(at_);
  return token;
}

Token Lexer::name(Token token) {
  std::size_t end = at_;
  for (;;) {
    while (end < text_.size() && is_name_part(text_[end])) ++end;
    if (end + 1 < text_.size() && text_[end] == '.' && is_name_start(text_[end + 1])) {
      ++end;
      continue;
    }
    break;
  }
  token.text = text_.substr(at_, end - at_);
  token.word = find_word(token.text);
  token.type = token.word == Word::none ? Token::Type::name : Token::Type::word;
  at_ = end;
  token.end = static_cast<std::uint32_t>(end);
  return token;
}

}  // namespace tamis
