// The parser and the normal form, where Python's tests do not look: memory, limits, random trees.
#include <random>
#include <string>

#include "check.hpp"
#include "tamis/ast.hpp"
#include "tamis/catalogue.hpp"
#include "tamis/error.hpp"
#include "tamis/filter_table.hpp"
#include "tamis/normal_form.hpp"
#include "tamis/pattern.hpp"

namespace tamis {
namespace {

NormalForm normal_form_of(const std::string& text, Ast& ast) {
  parse(text, ast);
  return to_normal_form(ast);
}

std::size_t n_constraints(const NormalForm& form) {
  std::size_t total = 0;
  for (const NormalFilter& filter : form.filters) total += filter.constraints.size();
  return total;
}

TEST(a_parsed_text_can_be_parsed_again_into_the_same_tree) {
  Ast ast;
  for (int round = 0; round < 3; ++round) {
    parse("a = 'it''s' AND \"b\"\"c\" IN (1, 2.5) OR NOT d LIKE 'x%' ESCAPE '!'", ast);
    CHECK_EQ(ast.literals[0].string, "it's");
    CHECK_EQ(ast.nodes[1].name, "b\"c");
    CHECK_EQ(ast.nodes[ast.root()].kind, NodeKind::logical_or);
  }
}

TEST(errors_name_the_place) {
  Ast ast;
  try {
    parse("a = 1 AND b >", ast);
    CHECK(false);
  } catch (const LanguageError& error) {
    CHECK_EQ(error.offset(), 13u);
  }
  CHECK_THROWS(parse(std::string(2 << 20, ' '), ast), LanguageError, "1048576");
  CHECK_THROWS(parse(std::string(1000, '('), ast), LanguageError, "200");
}

TEST(equal_attributes_become_one_constraint) {
  Ast ast;
  NormalForm form = normal_form_of("x > 1 AND y = 2 AND x < 9 AND x != 5", ast);
  CHECK_EQ(form.filters.size(), 1u);
  CHECK_EQ(n_constraints(form), 2u);
  form = normal_form_of("x = 1 OR x = 2 OR x = 3 OR x IS NULL", ast);
  CHECK_EQ(form.filters.size(), 1u);
  CHECK_EQ(n_constraints(form), 1u);
  CHECK(form.filters[0].constraints[0].set.absent);
  form = normal_form_of("x = 1 AND x = 2", ast);
  CHECK(form.filters.empty());
  CHECK(form.n_never > 0);
}

TEST(products_of_alternatives_do_not_explode) {
  Ast ast;
  std::string text;
  for (int part = 0; part < 2000; ++part) {
    const std::string n = std::to_string(part);
    text += (part ? " AND " : "") + ("(a" + n + " = 1 OR b" + n + " = 2)");
  }
  const NormalForm form = normal_form_of(text, ast);
  CHECK(!form.filters.empty());
  CHECK(n_constraints(form) <= kMaxGrowth * 4000);
  CHECK(!form.residuals.empty());
}

// Random trees over few attributes: the filters accept exactly what the tree accepts.
class RandomTree {
 public:
  explicit RandomTree(unsigned seed) : random_(seed) {}
  std::string text(int depth) {
    const int kind = pick(depth > 0 ? 9 : 5);
    const std::string name(1, static_cast<char>('a' + pick(3)));
    switch (kind) {
      case 0:
        return name + " = " + std::to_string(pick(4));
      case 1:
        return name + " != " + std::to_string(pick(4));
      case 2:
        return name + " BETWEEN " + std::to_string(pick(4)) + " AND " + std::to_string(pick(5));
      case 3:
        return name + " IS NULL";
      case 4:
        return name + " > " + std::to_string(pick(4));
      case 5:
        return "NOT (" + text(depth - 1) + ")";
      default: {
        const std::string word = kind == 6 ? " AND " : " OR ";
        std::string all = "(" + text(depth - 1);
        for (int more = pick(4); more >= 0; --more) all += word + text(depth - 1);
        return all + ")";
      }
    }
  }
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

 private:
  std::mt19937 random_;
};

// -1 unknown, 0 false, 1 true, by the tree alone.
int truth(const Ast& ast, NodeIdx idx, const int (&values)[3]) {
  const Node& node = ast.nodes[idx];
  switch (node.kind) {
    case NodeKind::logical_not: {
      const int inner = truth(ast, node.first, values);
      return inner < 0 ? -1 : 1 - inner;
    }
    case NodeKind::logical_and:
    case NodeKind::logical_or: {
      const int settling = node.kind == NodeKind::logical_or ? 1 : 0;
      bool has_unknown = false;
      for (std::uint32_t child = 0; child < node.count; ++child) {
        const int part = truth(ast, ast.children[node.first + child], values);
        if (part == settling) return settling;
        has_unknown = has_unknown || part < 0;
      }
      return has_unknown ? -1 : 1 - settling;
    }
    default:
      break;
  }
  const int value = values[node.name[0] - 'a'];
  if (node.kind == NodeKind::is_null) return value < 0;
  if (value < 0) return -1;
  const std::int64_t first = ast.literals[node.first].integer;
  if (node.kind == NodeKind::between) {
    return value >= first && value <= ast.literals[node.first + 1].integer;
  }
  switch (node.op) {
    case CompareOp::eq:
      return value == first;
    case CompareOp::ne:
      return value != first;
    default:
      return value > first;
  }
}

TEST(filters_accept_what_the_tree_accepts) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    RandomTree random(seed);
    const std::string text = random.text(4);
    Ast ast;
    const NormalForm form = normal_form_of(text, ast);
    Catalogue names;
    for (const char* name : {"a", "b", "c"}) names.intern(name);
    FilterTable table(Space::plane);
    table.append(form, names);
    FilterTable copy(Space::plane);
    copy.append(table, 0, static_cast<FilterIdx>(table.size()), {});
    EventBatch events;
    events.n_known = 3;
    std::vector<int> expected;
    for (int code = 0; code < 216; ++code) {
      const int values[3] = {code % 6 - 1, code / 6 % 6 - 1, code / 36 - 1};
      for (AttributeId attribute = 0; attribute < 3; ++attribute) {
        if (values[attribute] < 0) continue;
        events.add(attribute, EventValue::of(static_cast<std::int64_t>(values[attribute])));
      }
      events.end_event();
      expected.push_back(truth(ast, ast.root(), values) == 1);
    }
    ValueByAttribute event;
    for (std::size_t each = 0; each < events.size(); ++each) {
      event.load(events, each, 3, Space::plane);
      int found = 0, found_in_copy = 0;
      for (FilterIdx filter = 0; filter < table.size(); ++filter) {
        found |= table.accepts(filter, event);
        found_in_copy |= copy.accepts(filter, event);
      }
      CHECK_EQ(found, expected[each]);
      CHECK_EQ(found_in_copy, expected[each]);
    }
  }
}

// The slow and obvious way, for short texts.
bool fits(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '%') {
    return fits(pattern.substr(1), text) || (!text.empty() && fits(pattern, text.substr(1)));
  }
  return !text.empty() && (pattern[0] == '_' || pattern[0] == text[0]) &&
         fits(pattern.substr(1), text.substr(1));
}

TEST(patterns_match_as_the_obvious_matcher_does) {
  std::mt19937 random(7);
  const auto pick = [&](const char* letters, std::size_t most) {
    std::string text(random() % (most + 1), 'x');
    for (char& c : text) c = letters[random() % std::string_view(letters).size()];
    return text;
  };
  for (int round = 0; round < 60'000; ++round) {
    const std::string pattern = pick("ab%_", 7);
    const std::string text = pick("ab", 8);
    CHECK_EQ(Pattern(pattern, "").matches(text), fits(pattern, text));
  }
  CHECK(Pattern("_%", "").matches("é"));
  CHECK(!Pattern("__", "").matches("é"));
  CHECK(Pattern("%é_", "").matches("aé😀"));
  CHECK(Pattern("a!%b", "!").matches("a%b"));
}

}  // namespace
}  // namespace tamis
