// Reads a predicate: recursive descent over SQL-92 conditions (docs/language.md has the grammar).
//
//     or         = and { OR and }
//     and        = not { AND not }
//     not        = NOT not | primary
//     primary    = '(' or ')' | TRUE | FALSE | EXISTS name | NEAR '(' number ',' number ',' number
//     ')'
//                | name condition | literal compare name
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>

#include "lexer.hpp"
#include "tamis/ast.hpp"
#include "tamis/error.hpp"
#include "tamis/pattern.hpp"
#include "timestamp.hpp"

namespace tamis {
namespace {

using Type = Token::Type;

CompareOp mirrored(CompareOp op) {
  switch (op) {
    case CompareOp::lt:
      return CompareOp::gt;
    case CompareOp::le:
      return CompareOp::ge;
    case CompareOp::gt:
      return CompareOp::lt;
    case CompareOp::ge:
      return CompareOp::le;
    default:
      return op;
  }
}

std::string_view kind_name(Kind kind) {
  return kind == Kind::number ? "a number" : kind == Kind::string ? "a string" : "a boolean";
}

class Parser {
 public:
  Parser(std::string_view text, Ast& ast) : lexer_(text, ast), ast_(ast) { advance(); }

  void run() {
    if (token_.type == Type::end) fail("expected a predicate, not an empty text");
    parse_or();
    if (token_.type != Type::end) {
      fail("expected AND, OR or the end, not " + shown());
    }
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const { fail(reason, token_.offset); }
  [[noreturn]] static void fail(const std::string& reason, std::size_t offset) {
    throw LanguageError(reason, offset);
  }

  std::string shown() const {
    if (token_.type == Type::end) return "the end";
    constexpr std::size_t kMost = 40;
    const std::string_view source = lexer_.source(token_);
    if (source.size() <= kMost) return std::string(source);
    std::size_t end = kMost;
    while (end > 0 && (static_cast<unsigned char>(source[end]) & 0xC0) == 0x80) --end;
    return std::string(source.substr(0, end)) + "…";
  }

  void advance() { token_ = lexer_.next(); }
  bool is(Word word) const { return token_.type == Type::word && token_.word == word; }
  bool take(Word word) {
    if (!is(word)) return false;
    advance();
    return true;
  }
  void expect(Type type, const char* what) {
    if (token_.type != type) fail(std::string("expected ") + what + ", not " + shown());
    advance();
  }

  NodeIdx add(const Node& node) {
    ast_.nodes.push_back(node);
    return static_cast<NodeIdx>(ast_.nodes.size() - 1);
  }
  NodeIdx add_not(NodeIdx child, std::uint32_t offset) {
    Node node;
    node.kind = NodeKind::logical_not;
    node.first = child;
    node.count = 1;
    node.offset = offset;
    return add(node);
  }

  class Deeper {
   public:
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > LanguageLimits::kMaxDepth) {
        parser_.fail("a predicate must not be nested deeper than " +
                     std::to_string(LanguageLimits::kMaxDepth) + " levels");
      }
    }
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Parser& parser_;
  };

  // AND and OR alike: one child is itself, more become one node with all of them.
  template <typename Part>
  NodeIdx chain(Word word, NodeKind kind, Part part) {
    const std::uint32_t offset = token_.offset;
    const std::size_t mark = pending_.size();
    const NodeIdx only = part();
    if (!is(word)) return only;
    pending_.push_back(only);
    while (take(word)) pending_.push_back(part());
    Node node;
    node.kind = kind;
    node.first = static_cast<std::uint32_t>(ast_.children.size());
    node.count = static_cast<std::uint32_t>(pending_.size() - mark);
    node.offset = offset;
    ast_.children.insert(ast_.children.end(), pending_.begin() + static_cast<std::ptrdiff_t>(mark),
                         pending_.end());
    pending_.resize(mark);
    return add(node);
  }

  NodeIdx parse_or() {
    return chain(Word::or_, NodeKind::logical_or, [this] { return parse_and(); });
  }
  NodeIdx parse_and() {
    return chain(Word::and_, NodeKind::logical_and, [this] { return parse_not(); });
  }
  NodeIdx parse_not() {
    if (!is(Word::not_)) return parse_primary();
    const Deeper deeper(*this);
    const std::uint32_t offset = token_.offset;
    advance();
    return add_not(parse_not(), offset);
  }

  NodeIdx parse_primary() {
    switch (token_.type) {
      case Type::open: {
        const Deeper deeper(*this);
        advance();
        const NodeIdx inner = parse_or();
        expect(Type::close, ")");
        return inner;
      }
      case Type::name:
        return parse_condition();
      case Type::integer:
      case Type::decimal:
      case Type::string:
        return parse_literal_first();
      case Type::word:
        break;
      default:
        fail("expected a condition, not " + shown());
    }
    switch (token_.word) {
      case Word::true_:
      case Word::false_:
        return parse_constant();
      case Word::timestamp:
        return parse_literal_first();
      case Word::exists:
        return parse_exists();
      case Word::near:
        return parse_near();
      default:
        break;
    }
    if (token_.word == Word::and_ || token_.word == Word::or_) {
      fail("expected a condition before " + shown());
    }
    fail("expected a condition, not the keyword " + shown() +
         "; an attribute of that name is written \"" + shown() + "\"");
  }

  NodeIdx parse_constant() {
    Node node;
    node.constant = token_.word == Word::true_;
    node.offset = token_.offset;
    const Literal literal = parse_literal();
    if (token_.type == Type::compare) return finish_literal_first(literal);
    return add(node);
  }

  NodeIdx parse_exists() {
    Node node;
    node.kind = NodeKind::exists;
    node.offset = token_.offset;
    advance();
    node.name = take_name("EXISTS");
    return add(node);
  }

  NodeIdx parse_near() {
    Node node;
    node.kind = NodeKind::near;
    node.offset = token_.offset;
    advance();
    expect(Type::open, "( after NEAR");
    node.x = take_number("the x of NEAR(x, y, radius)");
    expect(Type::comma, ", in NEAR(x, y, radius)");
    node.y = take_number("the y of NEAR(x, y, radius)");
    expect(Type::comma, ", in NEAR(x, y, radius)");
    const std::uint32_t offset = token_.offset;
    node.radius = take_number("the radius of NEAR(x, y, radius)");
    if (node.radius < 0) fail("a radius must not be negative", offset);
    expect(Type::close, ") after NEAR(x, y, radius");
    return add(node);
  }

  std::string_view take_name(const char* after) {
    if (token_.type != Type::name) {
      fail(std::string("expected the name of an attribute after ") + after + ", not " + shown());
    }
    const std::string_view name = token_.text;
    advance();
    return name;
  }

  double take_number(const char* what) {
    double value = 0;
    if (token_.type == Type::integer) {
      value = static_cast<double>(token_.integer);
    } else if (token_.type == Type::decimal) {
      value = token_.decimal;
    } else {
      fail(std::string("expected ") + what + ", not " + shown());
    }
    advance();
    return value;
  }

  Literal parse_literal() {
    Literal literal;
    literal.offset = token_.offset;
    using Form = Literal::Form;
    switch (token_.type) {
      case Type::integer:
        literal.form = Form::integer;
        literal.integer = token_.integer;
        break;
      case Type::decimal:
        literal.form = Form::decimal;
        literal.decimal = token_.decimal;
        break;
      case Type::string:
        literal.form = Form::string;
        literal.string = token_.text;
        break;
      case Type::word:
        if (token_.word == Word::true_ || token_.word == Word::false_) {
          literal.form = Form::boolean;
          literal.boolean = token_.word == Word::true_;
          break;
        }
        if (token_.word == Word::timestamp) {
          advance();
          if (token_.type != Type::string) {
            fail("expected a time in single quotes after TIMESTAMP, not " + shown());
          }
          const auto micros = parse_timestamp(token_.text);
          if (!micros) {
            fail("a TIMESTAMP must look like '2026-11-15T10:00:00.123456Z', not " + shown());
          }
          literal.form = Form::timestamp;
          literal.integer = *micros;
          break;
        }
        if (token_.word == Word::null) {
          fail("nothing compares with NULL; use IS NULL or IS NOT NULL");
        }
        [[fallthrough]];
      default:
        if (token_.type == Type::name) {
          fail("expected a value, not " + shown() +
               ": two attributes cannot be compared, and strings are written in single quotes");
        }
        fail("expected a value, not " + shown());
    }
    advance();
    return literal;
  }

  NodeIdx parse_literal_first() { return finish_literal_first(parse_literal()); }

  NodeIdx finish_literal_first(const Literal& literal) {
    if (token_.type != Type::compare) {
      fail("expected a comparison after the value, not " + shown());
    }
    const CompareOp op = mirrored(token_.op);
    const std::uint32_t op_offset = token_.offset;
    advance();
    return add_compare(take_name("the comparison"), op, op_offset, literal, literal.offset);
  }

  NodeIdx add_compare(std::string_view name, CompareOp op, std::uint32_t op_offset,
                      const Literal& literal, std::uint32_t offset) {
    if (literal.kind() == Kind::boolean && op != CompareOp::eq && op != CompareOp::ne) {
      fail("booleans have no order: use = or !=", op_offset);
    }
    Node node;
    node.kind = NodeKind::compare;
    node.op = op;
    node.name = name;
    node.offset = offset;
    node.first = add_literals({&literal, 1});
    node.count = 1;
    return add(node);
  }

  std::uint32_t add_literals(std::span<const Literal> literals) {
    const auto first = static_cast<std::uint32_t>(ast_.literals.size());
    ast_.literals.insert(ast_.literals.end(), literals.begin(), literals.end());
    return first;
  }

  NodeIdx parse_condition() {
    const std::uint32_t offset = token_.offset;
    const std::string_view name = token_.text;
    advance();
    if (token_.type == Type::compare) {
      const CompareOp op = token_.op;
      const std::uint32_t op_offset = token_.offset;
      advance();
      return add_compare(name, op, op_offset, parse_literal(), offset);
    }
    if (take(Word::is)) {
      const bool is_negated = take(Word::not_);
      if (!take(Word::null)) fail("expected NULL or NOT NULL after IS, not " + shown());
      Node node;
      node.kind = NodeKind::is_null;
      node.name = name;
      node.offset = offset;
      const NodeIdx idx = add(node);
      return is_negated ? add_not(idx, offset) : idx;
    }
    const bool is_negated = take(Word::not_);
    NodeIdx idx;
    if (take(Word::between)) {
      idx = parse_between(name, offset);
    } else if (take(Word::in)) {
      idx = parse_in(name, offset);
    } else if (take(Word::like)) {
      idx = parse_like(name, offset);
    } else if (is_negated) {
      fail("expected BETWEEN, IN or LIKE after NOT, not " + shown());
    } else {
      fail("expected a comparison, BETWEEN, IN, LIKE or IS after the attribute, not " + shown() +
           (token_.type == Type::end || token_.type == Type::word || token_.type == Type::close
                ? "; a boolean attribute is tested by = TRUE"
                : ""));
    }
    return is_negated ? add_not(idx, offset) : idx;
  }

  NodeIdx parse_between(std::string_view name, std::uint32_t offset) {
    const Literal low = parse_literal();
    if (low.kind() == Kind::boolean) fail("booleans have no order: use = or !=", low.offset);
    if (!take(Word::and_)) fail("expected AND between the two ends, not " + shown());
    const Literal high = parse_literal();
    expect_same_kind(low, high, "BETWEEN");
    Node node;
    node.kind = NodeKind::between;
    node.name = name;
    node.offset = offset;
    node.first = add_literals({&low, 1});
    add_literals({&high, 1});
    node.count = 2;
    return add(node);
  }

  NodeIdx parse_in(std::string_view name, std::uint32_t offset) {
    expect(Type::open, "( after IN");
    Node node;
    node.kind = NodeKind::in;
    node.name = name;
    node.offset = offset;
    node.first = static_cast<std::uint32_t>(ast_.literals.size());
    do {
      const Literal literal = parse_literal();
      if (node.count > 0) expect_same_kind(ast_.literals[node.first], literal, "IN");
      ast_.literals.push_back(literal);
      ++node.count;
    } while (take_comma());
    expect(Type::close, ", or ) in the list of IN");
    return add(node);
  }

  bool take_comma() {
    if (token_.type != Type::comma) return false;
    advance();
    return true;
  }

  static void expect_same_kind(const Literal& first, const Literal& other, const char* where) {
    if (first.kind() != other.kind()) {
      fail("the values of one " + std::string(where) + " must have one type: the first is " +
               std::string(kind_name(first.kind())) + ", this is " +
               std::string(kind_name(other.kind())),
           other.offset);
    }
  }

  NodeIdx parse_like(std::string_view name, std::uint32_t offset) {
    Node node;
    node.kind = NodeKind::like;
    node.name = name;
    node.offset = offset;
    node.first = static_cast<std::uint32_t>(ast_.literals.size());
    node.count = 1;
    if (token_.type != Type::string) fail("expected a pattern in single quotes, not " + shown());
    const Literal pattern = parse_literal();
    Literal escape;
    ast_.literals.push_back(pattern);
    if (take(Word::escape)) {
      if (token_.type != Type::string) {
        fail("expected one character in single quotes after ESCAPE, not " + shown());
      }
      escape = parse_literal();
      std::size_t n_characters = 0;
      for (const char c : escape.string) {
        n_characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      }
      if (n_characters != 1) {
        fail("ESCAPE takes exactly one character, not " + std::to_string(n_characters),
             escape.offset);
      }
      ast_.literals.push_back(escape);
      node.has_escape = true;
      node.count = 2;
    }
    try {
      const Pattern check(pattern.string, escape.string);
    } catch (const std::invalid_argument& error) {
      fail(error.what(), pattern.offset);
    }
    return add(node);
  }

  Lexer lexer_;
  Ast& ast_;
  Token token_;
  std::uint32_t depth_ = 0;
  std::vector<NodeIdx> pending_;
};

}  // namespace

void parse(std::string_view text, Ast& ast) {
  ast.clear();
  if (text.size() > LanguageLimits::kMaxTextBytes) {
    throw LanguageError("a predicate must not be longer than " +
                            std::to_string(LanguageLimits::kMaxTextBytes) +
                            " bytes, and this has " + std::to_string(text.size()),
                        LanguageLimits::kMaxTextBytes);
  }
  Parser(text, ast).run();
}

}  // namespace tamis
