#include "tamis/move_area.hpp"

#include <charconv>

#include "lexer.hpp"
#include "tamis/ast.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

std::string shown(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, result.ptr);
  // A bare integer would be read as one, and may lie beyond 64 bits.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string move_area(std::string_view text, std::optional<std::uint32_t> area, double x,
                      double y) {
  Ast ast;
  parse(text, ast);
  std::vector<std::uint32_t> places;
  for (const Node& node : ast.nodes) {
    if (node.kind == NodeKind::near) places.push_back(node.offset);
  }
  if (places.empty()) throw ArgumentError("it has no area (NEAR) to move");
  if (!area && places.size() > 1) {
    throw ArgumentError("it has " + std::to_string(places.size()) +
                        " areas: say which, from 0 to " + std::to_string(places.size() - 1));
  }
  if (area && *area >= places.size()) {
    throw ArgumentError("area must be from 0 to " + std::to_string(places.size() - 1) + ", not " +
                        std::to_string(*area));
  }
  const std::uint32_t begin = places[area.value_or(0)];
  Ast scratch;
  Lexer lexer(text.substr(begin), scratch);
  lexer.next();  // NEAR
  lexer.next();  // (
  const Token old_x = lexer.next();
  lexer.next();  // ,
  const Token old_y = lexer.next();
  std::string moved(text.substr(0, begin + old_x.offset));
  moved += shown(x);
  moved += text.substr(begin + old_x.end, old_y.offset - old_x.end);
  moved += shown(y);
  moved += text.substr(begin + old_y.end);
  return moved;
}

}  // namespace tamis
