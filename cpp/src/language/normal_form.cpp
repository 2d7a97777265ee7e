#include "tamis/normal_form.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tamis {
namespace {

using Filters = std::vector<NormalFilter>;

NumberInterval below(Cut high) { return {kLowest, high}; }
NumberInterval above(Cut low) { return {low, kHighest}; }

StringCut before(std::string_view text) { return {std::string(text), false, false}; }
StringCut after(std::string_view text) { return {std::string(text), true, false}; }
const StringCut kAfterAll{{}, false, true};

ValueSet everything() {
  ValueSet set;
  set.numbers = {NumberInterval{}};
  set.strings = {StringInterval{}};
  set.booleans = 3;
  set.nan = true;
  return set;
}

void add_value(ValueSet& set, const Literal& literal) {
  switch (literal.kind()) {
    case Kind::number: {
      const Number number = literal.number();
      set.numbers.push_back({number.before(), number.after()});
      break;
    }
    case Kind::string:
      set.strings.push_back({before(literal.string), after(literal.string)});
      break;
    default:
      set.booleans = static_cast<std::uint8_t>(set.booleans | (literal.boolean ? 2 : 1));
  }
}

ValueSet compare_set(CompareOp op, const Literal& literal) {
  ValueSet set;
  if (op == CompareOp::eq || op == CompareOp::ne || literal.kind() == Kind::boolean) {
    add_value(set, literal);
    return op == CompareOp::ne ? complement_within_type(set, literal.kind()) : set;
  }
  if (literal.kind() == Kind::number) {
    const Number number = literal.number();
    switch (op) {
      case CompareOp::lt:
        set.numbers = {below(number.before())};
        break;
      case CompareOp::le:
        set.numbers = {below(number.after())};
        break;
      case CompareOp::gt:
        set.numbers = {above(number.after())};
        break;
      default:
        set.numbers = {above(number.before())};
        break;
    }
    return set;
  }
  switch (op) {
    case CompareOp::lt:
      set.strings = {{before({}), before(literal.string)}};
      break;
    case CompareOp::le:
      set.strings = {{before({}), after(literal.string)}};
      break;
    case CompareOp::gt:
      set.strings = {{after(literal.string), kAfterAll}};
      break;
    default:
      set.strings = {{before(literal.string), kAfterAll}};
      break;
  }
  normalise(set);  // s < '' is empty
  return set;
}

ValueSet between_set(const Literal& low, const Literal& high) {
  ValueSet set;
  if (low.kind() == Kind::number) {
    set.numbers = {{low.number().before(), high.number().after()}};
  } else {
    set.strings = {{before(low.string), after(high.string)}};
  }
  normalise(set);  // a reversed BETWEEN is empty
  return set;
}

// All strings that begin with `prefix`. Bytes of UTF-8 never reach 0xFF, so the last can be raised.
StringInterval prefix_interval(const std::string& prefix) {
  if (prefix.empty()) return {};
  std::string next = prefix;
  next.back() = static_cast<char>(static_cast<unsigned char>(next.back()) + 1);
  return {before(prefix), before(next)};
}

class Normaliser {
 public:
  explicit Normaliser(const Ast& ast)
      : ast_(ast),
        has_one_area_(std::count_if(ast.nodes.begin(), ast.nodes.end(), [](const Node& node) {
                        return node.kind == NodeKind::near;
                      }) == 1) {}

  NormalForm run() {
    form_.filters = filters(ast_.root(), false);
    return std::move(form_);
  }

 private:
  static bool is_conjunction(const Node& node, bool is_negated) {
    return node.kind == (is_negated ? NodeKind::logical_or : NodeKind::logical_and);
  }
  static bool is_disjunction(const Node& node, bool is_negated) {
    return node.kind == (is_negated ? NodeKind::logical_and : NodeKind::logical_or);
  }

  const Node& strip_not(NodeIdx& idx, bool& is_negated) const {
    while (ast_.nodes[idx].kind == NodeKind::logical_not) {
      idx = ast_.nodes[idx].first;
      is_negated = !is_negated;
    }
    return ast_.nodes[idx];
  }

  Filters filters(NodeIdx idx, bool is_negated) {
    const Node& node = strip_not(idx, is_negated);
    if (is_conjunction(node, is_negated)) return conjunction(node, is_negated);
    if (is_disjunction(node, is_negated)) return disjunction(node, is_negated);
    ++n_leaves_;
    switch (node.kind) {
      case NodeKind::constant:
        if (node.constant != is_negated) return Filters(1);
        ++form_.n_never;
        return {};
      case NodeKind::near: {
        NormalFilter filter;
        filter.areas.push_back({node.x, node.y, node.radius, is_negated, has_one_area_});
        return {std::move(filter)};
      }
      default: {
        NormalFilter filter;
        filter.constraints.push_back(constraint(node, is_negated));
        if (filter.constraints[0].set.is_empty()) {
          ++form_.n_never;
          return {};
        }
        Filters one;
        one.push_back(std::move(filter));
        return one;
      }
    }
  }

  NormalConstraint constraint(const Node& node, bool is_negated) const {
    NormalConstraint result;
    result.name = node.name;
    const Literal* literals = ast_.literals.data() + node.first;
    Kind kind = Kind::string;
    switch (node.kind) {
      case NodeKind::compare:
        kind = literals[0].kind();
        result.set = compare_set(node.op, literals[0]);
        break;
      case NodeKind::between:
        kind = literals[0].kind();
        result.set = between_set(literals[0], literals[1]);
        break;
      case NodeKind::in:
        kind = literals[0].kind();
        for (std::uint32_t each = 0; each < node.count; ++each)
          add_value(result.set, literals[each]);
        normalise(result.set);
        break;
      case NodeKind::like:
        return like(node, is_negated);
      default: {  // EXISTS and IS NULL: never unknown, so NOT is the plain opposite
        const bool wants_value = (node.kind == NodeKind::exists) != is_negated;
        if (wants_value) {
          result.set = everything();
        } else {
          result.set.absent = true;
        }
        return result;
      }
    }
    if (is_negated) result.set = complement_within_type(result.set, kind);
    return result;
  }

  NormalConstraint like(const Node& node, bool is_negated) const {
    const Literal* literals = ast_.literals.data() + node.first;
    auto pattern = std::make_shared<const Pattern>(
        literals[0].string, node.has_escape ? literals[1].string : std::string_view{});
    NormalConstraint result;
    result.name = node.name;
    if (pattern->form() == Pattern::Form::exact) {
      result.set.strings = {{before(pattern->prefix()), after(pattern->prefix())}};
    } else {
      result.set.strings = {prefix_interval(pattern->prefix())};
    }
    if (pattern->form() == Pattern::Form::general) {
      if (is_negated) result.set = ValueSet::all_strings();
      result.patterns.push_back({std::move(pattern), is_negated});
    } else if (is_negated) {
      result.set = complement_within_type(result.set, Kind::string);
    }
    return result;
  }

  Filters disjunction(const Node& node, bool is_negated) {
    Filters all;
    // Filters that are one plain set, by attribute: they unite into one constraint.
    std::vector<std::pair<std::string_view, std::size_t>> single;
    for (std::uint32_t part = 0; part < node.count; ++part) {
      Filters some = filters(ast_.children[node.first + part], is_negated);
      for (NormalFilter& filter : some) {
        if (is_plain_set(filter)) {
          single.emplace_back(filter.constraints[0].name, all.size());
        }
        all.push_back(std::move(filter));
      }
    }
    if (single.size() < 2) return all;
    std::stable_sort(single.begin(), single.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<bool> is_gone(all.size());
    for (std::size_t begin = 0; begin < single.size();) {
      std::size_t end = begin;
      ValueSet& target = all[single[begin].second].constraints[0].set;
      for (++end; end < single.size() && single[end].first == single[begin].first; ++end) {
        const ValueSet& other = all[single[end].second].constraints[0].set;
        target.numbers.insert(target.numbers.end(), other.numbers.begin(), other.numbers.end());
        target.strings.insert(target.strings.end(), other.strings.begin(), other.strings.end());
        target.booleans = static_cast<std::uint8_t>(target.booleans | other.booleans);
        target.nan = target.nan || other.nan;
        target.absent = target.absent || other.absent;
        is_gone[single[end].second] = true;
      }
      normalise(target);
      begin = end;
    }
    Filters kept;
    for (std::size_t idx = 0; idx < all.size(); ++idx) {
      if (!is_gone[idx]) kept.push_back(std::move(all[idx]));
    }
    return kept;
  }

  static bool is_plain_set(const NormalFilter& filter) {
    return filter.constraints.size() == 1 && filter.areas.empty() && filter.residuals.empty() &&
           filter.constraints[0].patterns.empty();
  }

  struct Part {
    NodeIdx node;
    Filters filters;
    std::size_t n_constraints;
  };

  Filters conjunction(const Node& node, bool is_negated) {
    const std::size_t n_leaves_before = n_leaves_;
    Filters product(1);
    std::vector<Part> parts;
    bool is_empty = false;
    for (std::uint32_t child = 0; child < node.count; ++child) {
      const NodeIdx idx = ast_.children[node.first + child];
      Filters some = filters(idx, is_negated);
      if (some.empty()) {
        is_empty = true;
      } else if (some.size() == 1) {
        append(product[0], std::move(some[0]));
      } else {
        std::size_t n_constraints = 0;
        for (const NormalFilter& filter : some) n_constraints += width(filter);
        parts.push_back({idx, std::move(some), n_constraints});
      }
    }
    if (is_empty || !unify(product[0])) {
      ++form_.n_never;
      return {};
    }
    // What multiplying out may create: a constant, or a multiple of what the text holds anyway.
    const std::size_t most = std::max(kMaxExpansion, kMaxGrowth * (n_leaves_ - n_leaves_before));
    std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return a.filters.size() < b.filters.size();
    });
    std::vector<NodeIdx> left_over;
    for (Part& part : parts) {
      // Every filter of the product meets every filter of the part.
      std::size_t width_now = 0;
      for (const NormalFilter& filter : product) width_now += width(filter);
      if (width_now == 0) {
        product = std::move(part.filters);
      } else if (width_now * part.filters.size() + part.n_constraints * product.size() <= most) {
        product = multiplied(product, part.filters);
      } else {
        left_over.push_back(part.node);
      }
      if (product.empty()) {
        ++form_.n_never;
        return {};
      }
    }
    if (!left_over.empty()) {
      const std::uint32_t rest = conjunction_of_residuals(left_over, is_negated);
      for (NormalFilter& filter : product) filter.residuals.push_back(rest);
    }
    return product;
  }

  // One residual for all that an AND leaves over, shared by its filters.
  std::uint32_t conjunction_of_residuals(const std::vector<NodeIdx>& nodes, bool is_negated) {
    if (nodes.size() == 1) return residual(nodes[0], is_negated);
    NormalResidual all;
    for (const NodeIdx node : nodes) all.children.push_back(residual(node, is_negated));
    form_.residuals.push_back(std::move(all));
    return static_cast<std::uint32_t>(form_.residuals.size() - 1);
  }

  static std::size_t width(const NormalFilter& filter) {
    // A large set counts for what copying it costs.
    std::size_t total = filter.areas.size() + filter.residuals.size();
    for (const NormalConstraint& constraint : filter.constraints) {
      total +=
          std::max<std::size_t>(1, constraint.set.numbers.size() + constraint.set.strings.size());
    }
    return total;
  }

  Filters multiplied(const Filters& left, const Filters& right) {
    Filters all;
    for (const NormalFilter& a : left) {
      for (const NormalFilter& b : right) {
        NormalFilter both = a;
        append(both, b);
        if (unify(both)) {
          all.push_back(std::move(both));
        } else {
          ++form_.n_never;
        }
      }
    }
    return all;
  }

  static void append(NormalFilter& filter, NormalFilter more) {
    const auto move_all = [](auto& to, auto& from) {
      to.insert(to.end(), std::make_move_iterator(from.begin()),
                std::make_move_iterator(from.end()));
    };
    move_all(filter.constraints, more.constraints);
    move_all(filter.areas, more.areas);
    move_all(filter.residuals, more.residuals);
  }

  // Makes each attribute stand once; false if nothing can satisfy all of its constraints.
  static bool unify(NormalFilter& filter) {
    std::vector<NormalConstraint>& all = filter.constraints;
    if (all.size() < 2) return true;
    const auto by_name = [](const NormalConstraint& a, const NormalConstraint& b) {
      return a.name < b.name;
    };
    if (!std::is_sorted(all.begin(), all.end(), by_name)) {
      std::stable_sort(all.begin(), all.end(), by_name);
    }
    std::size_t last = 0;
    for (std::size_t begin = 0; begin < all.size(); ++last) {
      std::size_t end = begin + 1;
      while (end < all.size() && all[end].name == all[begin].name) ++end;
      // Pairs, then pairs of pairs: a thousand `!=` on one attribute stay n log n.
      for (std::size_t step = 1; step < end - begin; step *= 2) {
        for (std::size_t at = begin; at + step < end; at += 2 * step) {
          all[at].set = set_intersection(all[at].set, all[at + step].set);
          std::move(all[at + step].patterns.begin(), all[at + step].patterns.end(),
                    std::back_inserter(all[at].patterns));
        }
      }
      if (all[begin].set.is_empty()) return false;
      if (last != begin) all[last] = std::move(all[begin]);
      begin = end;
    }
    all.resize(last);
    return true;
  }

  // Each node becomes a residual at most once in either sense, however many ANDs leave it over.
  std::uint32_t residual(NodeIdx idx, bool is_negated) {
    const Node& node = strip_not(idx, is_negated);
    if (residual_of_.empty()) residual_of_.assign(2 * ast_.nodes.size(), kUnwritten);
    const std::size_t key = 2 * std::size_t{idx} + (is_negated ? 1 : 0);
    if (residual_of_[key] != kUnwritten) return residual_of_[key];
    NormalResidual result;
    using Kind = NormalResidual::Kind;
    if (is_conjunction(node, is_negated) || is_disjunction(node, is_negated)) {
      result.kind = is_conjunction(node, is_negated) ? Kind::all : Kind::any;
      for (std::uint32_t child = 0; child < node.count; ++child) {
        result.children.push_back(residual(ast_.children[node.first + child], is_negated));
      }
    } else if (node.kind == NodeKind::constant) {
      // An AND of nothing is true, an OR of nothing is false.
      result.kind = node.constant != is_negated ? Kind::all : Kind::any;
    } else if (node.kind == NodeKind::near) {
      result.kind = Kind::area;
      result.area = {node.x, node.y, node.radius, is_negated, has_one_area_};
    } else {
      result.kind = Kind::constraint;
      result.constraint = constraint(node, is_negated);
    }
    form_.residuals.push_back(std::move(result));
    return residual_of_[key] = static_cast<std::uint32_t>(form_.residuals.size() - 1);
  }

  static constexpr std::uint32_t kUnwritten = ~std::uint32_t{0};

  const Ast& ast_;
  const bool has_one_area_;
  NormalForm form_;
  std::size_t n_leaves_ = 0;                // visited so far
  std::vector<std::uint32_t> residual_of_;  // [2 * n_nodes] by node and negation
};

}  // namespace

NormalForm to_normal_form(const Ast& ast) { return Normaliser(ast).run(); }

}  // namespace tamis
