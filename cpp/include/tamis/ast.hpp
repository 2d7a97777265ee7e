// The syntax tree of one predicate, in one arena.
//
//     nodes      children before parents; the root is the last
//     children   of AND and OR: node.first .. node.first + node.count
//     literals   of comparisons: node.first .. node.first + node.count
//
// Names and strings are views into the text, or into `unescaped` where the text has escapes.
// `clear` keeps the memory, so that a million predicates are read with a handful of allocations.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "tamis/value.hpp"

namespace tamis {

enum class NodeKind : std::uint8_t {
  constant,
  logical_not,
  logical_and,
  logical_or,
  compare,
  between,
  in,
  like,
  exists,
  is_null,
  near
};

enum class CompareOp : std::uint8_t { eq, ne, lt, le, gt, ge };

struct Literal {
  enum class Form : std::uint8_t { integer, decimal, timestamp, string, boolean };
  Form form = Form::integer;
  bool boolean = false;
  std::int64_t integer = 0;  // of integer and timestamp
  double decimal = 0;
  std::string_view string;
  std::uint32_t offset = 0;  // in the text

  Kind kind() const {
    return form == Form::string    ? Kind::string
           : form == Form::boolean ? Kind::boolean
                                   : Kind::number;
  }
  Number number() const {
    return form == Form::decimal ? Number::from(decimal) : Number::from(integer);
  }
};

struct Node {
  NodeKind kind = NodeKind::constant;
  CompareOp op = CompareOp::eq;
  bool constant = false;
  bool has_escape = false;  // LIKE: the second literal is the escape character
  std::uint32_t first = 0;  // of children or literals; the child of NOT
  std::uint32_t count = 0;
  std::string_view name;
  double x = 0, y = 0, radius = 0;
  std::uint32_t offset = 0;  // in the text
};

using NodeIdx = std::uint32_t;

struct Ast {
  std::vector<Node> nodes;
  std::vector<NodeIdx> children;
  std::vector<Literal> literals;
  std::deque<std::string> unescaped;

  NodeIdx root() const { return static_cast<NodeIdx>(nodes.size() - 1); }
  void clear() {
    nodes.clear();
    children.clear();
    literals.clear();
    unescaped.clear();
  }
};

struct LanguageLimits {
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;
  static constexpr std::uint32_t kMaxDepth = 200;
};

// Reads `text` (UTF-8) into `ast`, which it clears first. Throws LanguageError.
void parse(std::string_view text, Ast& ast);

// The words that cannot be names without quotes, in upper case.
const std::vector<std::string_view>& keywords();

}  // namespace tamis
