// From a tree to filters: a disjunction of conjunctions that never explodes.
//
// NOT is pushed down to the leaves (Kleene logic allows it). Each leaf becomes a set of values of
// one attribute, or an area. Then, bottom up:
//
//     leaf   one filter
//     OR     the filters of all parts; sets of the same attribute are united (x = 1 OR x = 2)
//     AND    parts with one filter are merged (sets of the same attribute intersect); then parts
//            are multiplied out, the smallest first, while that stays within a limit
//            (kMaxExpansion, kMaxGrowth). What is left over becomes a residual: the filters so far
//            are a cover, and candidates are verified on the rest of the expression.
//
// So forty ORs ANDed together give a few filters with a residual, and a predicate's filters are
// bounded by a multiple of its text. Filters that accept nothing are dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tamis/ast.hpp"
#include "tamis/pattern.hpp"
#include "tamis/value_set.hpp"

namespace tamis {

struct NormalConstraint {
  struct PatternTest {
    std::shared_ptr<const Pattern> pattern;
    bool is_negated = false;
  };
  std::string_view name;
  ValueSet set;
  std::vector<PatternTest> patterns;  // on strings; the set has no other type then
};

struct NormalArea {
  double x = 0, y = 0, radius = 0;
  bool is_negated = false;
  bool is_only = false;  // the predicate has no other NEAR
};

struct NormalFilter {
  std::vector<NormalConstraint> constraints;  // each attribute once
  std::vector<NormalArea> areas;
  std::vector<std::uint32_t> residuals;  // in NormalForm::residuals
};

// A part of the expression left for verification: NOT is gone, leaves are constraints and areas.
struct NormalResidual {
  enum class Kind : std::uint8_t { all, any, constraint, area };
  Kind kind = Kind::all;
  std::vector<std::uint32_t> children;
  NormalConstraint constraint;
  NormalArea area;
};

struct NormalForm {
  std::vector<NormalFilter> filters;
  std::vector<NormalResidual> residuals;
  std::size_t n_never = 0;  // filters dropped because they accept no event at all
};

// Multiplying an AND out may create so many constraints, or so many times its leaves.
inline constexpr std::size_t kMaxExpansion = 256;
inline constexpr std::size_t kMaxGrowth = 8;

// Views in the result point into the tree's text.
NormalForm to_normal_form(const Ast& ast);

}  // namespace tamis
