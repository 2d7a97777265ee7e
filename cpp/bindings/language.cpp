// The parser, and its tree as the dataclasses of tamis.language.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "tamis/ast.hpp"
#include "tamis/normal_form.hpp"

namespace tamis {
namespace {

nb::str to_str(std::string_view text) { return nb::str(text.data(), text.size()); }

class TreeBuilder {
 public:
  explicit TreeBuilder(const Ast& ast)
      : ast_(ast), language_(nb::module_::import_("tamis.language")) {}

  nb::object build(NodeIdx idx) const {
    const Node& node = ast_.nodes[idx];
    switch (node.kind) {
      case NodeKind::constant:
        return language_.attr("Constant")(node.constant);
      case NodeKind::logical_not:
        return language_.attr("Not")(build(node.first));
      case NodeKind::logical_and:
        return language_.attr("And")(children(node));
      case NodeKind::logical_or:
        return language_.attr("Or")(children(node));
      case NodeKind::compare:
        return language_.attr("Compare")(to_str(node.name), op(node.op), literal(node.first));
      case NodeKind::between:
        return language_.attr("Between")(to_str(node.name), literal(node.first),
                                         literal(node.first + 1));
      case NodeKind::in: {
        nb::list values;
        for (std::uint32_t at = 0; at < node.count; ++at) values.append(literal(node.first + at));
        return language_.attr("In")(to_str(node.name), nb::tuple(values));
      }
      case NodeKind::like:
        return language_.attr("Like")(to_str(node.name), literal(node.first),
                                      node.has_escape ? literal(node.first + 1) : nb::none());
      case NodeKind::exists:
        return language_.attr("Exists")(to_str(node.name));
      case NodeKind::is_null:
        return language_.attr("IsNull")(to_str(node.name));
      case NodeKind::near:
        return language_.attr("Near")(node.x, node.y, node.radius);
    }
    return nb::none();
  }

 private:
  nb::tuple children(const Node& node) const {
    nb::list parts;
    for (std::uint32_t at = 0; at < node.count; ++at) {
      parts.append(build(ast_.children[node.first + at]));
    }
    return nb::tuple(parts);
  }

  static const char* op(CompareOp op) {
    switch (op) {
      case CompareOp::eq:
        return "=";
      case CompareOp::ne:
        return "!=";
      case CompareOp::lt:
        return "<";
      case CompareOp::le:
        return "<=";
      case CompareOp::gt:
        return ">";
      case CompareOp::ge:
        return ">=";
    }
    return "";
  }

  nb::object literal(std::uint32_t idx) const {
    const Literal& literal = ast_.literals[idx];
    switch (literal.form) {
      case Literal::Form::integer:
        return nb::int_(literal.integer);
      case Literal::Form::decimal:
        return nb::float_(literal.decimal);
      case Literal::Form::timestamp:
        return language_.attr("Timestamp")(literal.integer);
      case Literal::Form::string:
        return to_str(literal.string);
      case Literal::Form::boolean:
        return nb::bool_(literal.boolean);
    }
    return nb::none();
  }

  const Ast& ast_;
  nb::object language_;
};

std::string_view predicate_text(const nb::str& text) {
  return utf8_of<ArgumentError>(text.ptr(), "a predicate");
}

void parse_or_raise(std::string_view text, Ast& ast) {
  try {
    parse(text, ast);
  } catch (const LanguageError& error) {
    raise_language_error(error.what(), text, error.offset());
  }
}

}  // namespace

void bind_language(nb::module_& module) {
  module.def("keywords", [] {
    std::vector<std::string> words;
    for (const std::string_view word : keywords()) words.emplace_back(word);
    return words;
  });
  module.def(
      "parse",
      [](const nb::str& text) {
        Ast ast;
        parse_or_raise(predicate_text(text), ast);
        return TreeBuilder(ast).build(ast.root());
      },
      nb::arg("text"));
  module.def(
      "parse_many",
      [](const nb::list& texts) {
        Ast ast;
        std::size_t n_nodes = 0;
        for (nb::handle text : texts) {
          parse_or_raise(predicate_text(nb::cast<nb::str>(text)), ast);
          n_nodes += ast.nodes.size();
        }
        return n_nodes;
      },
      nb::arg("texts"), "Parses every text and returns how many nodes there are: for benchmarks.");
  module.def(
      "analyse",
      [](const nb::str& text) {
        Ast ast;
        const std::string_view view = predicate_text(text);
        parse_or_raise(view, ast);
        const NormalForm form = to_normal_form(ast);
        std::size_t n_constraints = 0;
        std::size_t n_always = 0;
        for (const NormalFilter& filter : form.filters) {
          n_constraints += filter.constraints.size();
          n_always +=
              filter.constraints.empty() && filter.areas.empty() && filter.residuals.empty();
        }
        nb::dict facts;
        facts["n_filters"] = form.filters.size();
        facts["n_constraints"] = n_constraints;
        facts["n_residuals"] = form.residuals.size();
        facts["n_never"] = form.n_never;  // parts that accept no event
        facts["n_always"] = n_always;     // filters that accept every event
        return facts;
      },
      nb::arg("text"), "What the normal form of a predicate is made of.");
}

}  // namespace tamis
