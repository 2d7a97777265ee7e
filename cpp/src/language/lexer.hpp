// Cuts the text of a predicate into tokens, one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tamis/ast.hpp"

namespace tamis {

enum class Word : std::uint8_t {
  none,
  and_,
  between,
  escape,
  exists,
  false_,
  in,
  is,
  like,
  near,
  not_,
  null,
  or_,
  timestamp,
  true_
};

struct Token {
  enum class Type : std::uint8_t {
    end,
    name,     // text: the name, unquoted
    word,     // a keyword
    string,   // text: the value, unescaped
    integer,  // integer
    decimal,  // decimal
    compare,  // op
    open,
    close,
    comma
  };
  Type type = Type::end;
  Word word = Word::none;
  CompareOp op = CompareOp::eq;
  std::uint32_t offset = 0;
  std::uint32_t end = 0;
  std::string_view text;
  std::int64_t integer = 0;
  double decimal = 0;
};

class Lexer {
 public:
  Lexer(std::string_view text, Ast& ast) : text_(text), ast_(ast) {}
  Token next();

  std::string_view source(const Token& token) const {
    return text_.substr(token.offset, token.end - token.offset);
  }

 private:
  Token quoted(Token token, char quote);
  Token number(Token token);
  Token name(Token token);

  std::string_view text_;
  Ast& ast_;
  std::size_t at_ = 0;
};

}  // namespace tamis
