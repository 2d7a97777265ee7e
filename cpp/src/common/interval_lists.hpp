// Lists of items by operator and operand: which of many intervals of ranks hold a given rank, as
// runs of items that lie side by side, without a look at the others.
//
// Intervals belong to domains: the ranks [begin, end) that an event's value of one attribute and
// type can have. A domain has a list for each operator, in order of the operand (key):
//
//     all      every rank of the domain                       all items
//     equal    [k, k + 1)              x = 5                  the items of key r
//     all but  all ranks but k         x != 5                 all items but those of key r
//     below    [begin, k)              x < 5, x <= 5          a tail: the items of keys > r
//     above    [k, end)                x > 5, x >= 5          a head: the items of keys <= r
//     tree     any other interval      x BETWEEN 5 AND 9      see below
//
//     keys_    [n_keys]      distinct within a list, in order
//     begins_  [n_keys + 1]  where the items of each key begin:  equal constraints share a key
//     items_   [n_items]
//     lists_   [n_lists + 1] where the keys of each list begin
//
// The tree is an interval tree. A node has a middle m; intervals that end before m are in its left
// part, those that begin after m in its right part, the others here, once in a list `above` by
// their lower end and once in a list `below` by their upper end. Coming with r < m, those of the
// first list up to r hold it; with r >= m those of the second beyond r. m is the median of all
// ends, so each part has at most half of the intervals.
//
// Cost: a binary search in each list of the domain and in one list of each node on a path of at
// most log2(intervals); 12 bytes for an item with a key of its own, 24 in a tree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/ranks.hpp"

namespace tamis {

// The ranks of an attribute by type: numbers, strings, and the rest (booleans, NaN, absent).
struct RankTypes {
  static constexpr std::uint32_t kCount = 3;
  std::uint32_t ends[kCount] = {0, 0, 0};

  RankTypes() = default;
  RankTypes(const Ranks& ranks, AttributeId attribute);

  std::uint32_t type_of(std::uint32_t rank) const { return (rank >= ends[0]) + (rank >= ends[1]); }
  RankInterval bounds(std::uint32_t type) const {
    return {type == 0 ? 0 : ends[type - 1], ends[type]};
  }
  // Calls visit(type, the parts of the intervals within that type) where there are some.
  template <typename Visitor>
  void for_each_type(std::span<const RankInterval> intervals, Visitor visit) const {
    std::vector<RankInterval> parts;
    for (std::uint32_t type = 0; type < kCount; ++type) {
      const RankInterval within = bounds(type);
      parts.clear();
      for (const RankInterval& each : intervals) {
        const RankInterval part{std::max(each.low, within.low), std::min(each.high, within.high)};
        if (part.low < part.high) parts.push_back(part);
      }
      if (!parts.empty()) visit(type, std::span<const RankInterval>(parts));
    }
  }
};

class IntervalLists {
 public:
  // Building: add everything, then finish() once.
  void add(std::uint32_t domain, RankInterval bounds, std::span<const RankInterval> intervals,
           std::uint32_t item);
  void finish(std::uint32_t n_domains);

  // Calls visit(first item, end of items, number of keys) for each run of items that hold the rank,
  // until it gives back false. Gives back how many lists were searched.
  template <typename Visitor>
  std::uint32_t find(std::uint32_t domain, std::uint32_t rank, Visitor&& visit) const;

  std::size_t n_bytes() const;

 private:
  enum Operator : std::uint32_t { kAll, kEqual, kAllBut, kBelow, kAbove, kOperators };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Entry {
    std::uint32_t list, key, item;
    friend bool operator<(const Entry& a, const Entry& b) {
      if (a.list != b.list) return a.list < b.list;
      return a.key != b.key ? a.key < b.key : a.item < b.item;
    }
  };
  struct Interval {
    std::uint32_t domain, low, high, item;
  };
  struct Node {
    std::uint32_t middle = 0;
    std::uint32_t left = kNone, right = kNone;
    std::uint32_t list = 0;  // above; the next one is below
  };

  void append(std::uint32_t list, std::uint32_t key, std::uint32_t item);
  std::uint32_t build_node(std::span<Interval> intervals);

  // The first key of the list beyond the rank.
  std::uint32_t after(std::uint32_t list, std::uint32_t rank) const {
    const std::uint32_t* first = keys_.data() + lists_[list];
    std::uint32_t count = lists_[list + 1] - lists_[list];
    while (count > 1) {
      const std::uint32_t half = count / 2;
      first = first[half - 1] <= rank ? first + half : first;
      count -= half;
    }
    first += count == 1 && *first <= rank;
    return static_cast<std::uint32_t>(first - keys_.data());
  }
  template <typename Visitor>
  bool visit_keys(std::uint32_t first, std::uint32_t last, Visitor& visit) const {
    if (first == last) return true;
    return visit(items_.data() + begins_[first], items_.data() + begins_[last], last - first);
  }

  std::vector<Entry> entries_;         // while building
  std::vector<Interval> intervals_;    // while building
  std::vector<std::uint32_t> lists_;   // [n_domains * kOperators + 2 * n_nodes + 1]
  std::vector<std::uint32_t> keys_;    // [n_keys]
  std::vector<std::uint32_t> begins_;  // [n_keys + 1]
  std::vector<std::uint32_t> items_;   // [n_items]
  std::vector<std::uint32_t> roots_;   // [n_domains], or [0] where there is no tree
  std::vector<Node> nodes_;
};

template <typename Visitor>
std::uint32_t IntervalLists::find(std::uint32_t domain, std::uint32_t rank, Visitor&& visit) const {
  const std::uint32_t lists = domain * kOperators;
  const auto first = [&](std::uint32_t list) { return lists_[list]; };
  const auto last = [&](std::uint32_t list) { return lists_[list + 1]; };
  const auto is_empty = [&](std::uint32_t list) { return first(list) == last(list); };
  std::uint32_t n_lists = 0;

  if (const std::uint32_t list = lists + kAll; !is_empty(list)) {
    ++n_lists;
    if (!visit_keys(first(list), last(list), visit)) return n_lists;
  }
  if (const std::uint32_t list = lists + kEqual; !is_empty(list)) {
    ++n_lists;
    const std::uint32_t key = after(list, rank);
    if (key > first(list) && keys_[key - 1] == rank && !visit_keys(key - 1, key, visit)) {
      return n_lists;
    }
  }
  if (const std::uint32_t list = lists + kAllBut; !is_empty(list)) {
    ++n_lists;
    const std::uint32_t key = after(list, rank);
    const bool has_key = key > first(list) && keys_[key - 1] == rank;
    if (!visit_keys(first(list), key - has_key, visit) || !visit_keys(key, last(list), visit)) {
      return n_lists;
    }
  }
  if (const std::uint32_t list = lists + kBelow; !is_empty(list)) {
    ++n_lists;
    if (!visit_keys(after(list, rank), last(list), visit)) return n_lists;
  }
  if (const std::uint32_t list = lists + kAbove; !is_empty(list)) {
    ++n_lists;
    if (!visit_keys(first(list), after(list, rank), visit)) return n_lists;
  }
  if (roots_.empty()) return n_lists;
  for (std::uint32_t at = roots_[domain]; at != kNone;) {
    const Node& node = nodes_[at];
    ++n_lists;
    if (rank < node.middle) {
      if (!visit_keys(first(node.list), after(node.list, rank), visit)) return n_lists;
      at = node.left;
    } else {
      if (!visit_keys(after(node.list + 1, rank), last(node.list + 1), visit)) return n_lists;
      at = node.right;
    }
  }
  return n_lists;
}

}  // namespace tamis
