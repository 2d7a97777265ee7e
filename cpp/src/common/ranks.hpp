// Ranks: every value as its place among the boundaries of an attribute, so that each interval test
// is an integer comparison, exactly.
//
// The boundaries (cuts) of all constraints on an attribute are sorted, and the rank of a value is
// the number of cuts at or before it, in the order of types below. Two values have the same rank if
// and only if no constraint of the table tells them apart (patterns apart).
//
//     numbers              strings            booleans      NaN   absent
//     0 .. n_number_cuts   .. + n_string_cuts  false, true
//
// The cuts that share a value (before it, after it) are one point. The points of an attribute:
//
//     keys    u64  order as the points do: bits of a double; eight bytes of a string
//     words   u32  cuts before the point << 2 | flag << 1 | has a cut just before the value; the
//                  flag of a number: has odd cuts; of a string: its key says all of it, see is_key
//                  (a further word ends the attribute's)
//     texts   u64  of strings: where the bytes behind the prefix begin, compared where keys agree
//
// A key is found in a tree of bucket arrays that is one level deep if values are spread evenly:
//
//     Node: low, shift or scale ──► Slot Slot Slot …   (first point, n points), or a further Node
//                                        └─► at most kMaxLeafPoints keys: branchless halving
//
// Number points that are whole and lie close need no tree: `direct` has two bits for each integer
// from the lowest to the highest (a cut just before it, a cut just after it), and for every 64 of
// them the cuts before. Odd cuts are those beside a double (2^53 + 1); they stand in a
// sorted list. Strings drop the prefix that all points of the attribute have in common, so that
// keys differ early. Most strings of events are points, so `exact`, a hash table for each attribute
// (key -> first point that has it, linear probing, half empty), is asked before the tree.
//
// All arrays are flat, of trivially copyable structs, and hold indices, never pointers.
//
// Cost: building O(n log n) for n boundaries; a number 1-2 cache misses in the slots and 2 at the
// point, 1 and two counts of bits where `direct` serves; at worst (no bucket splits the points) a
// binary search. About 20 bytes for a distinct number, 5/16 for an integer of `direct`. With 1M
// boundaries a value took 50-100 ns spread evenly, 200 in the worst spread tried, 10-15 by `direct`
// (2026-11-15, busy 2-core Xeon, batch of one attribute); building took 0.2 s.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/integers.hpp"
#include "tamis/column.hpp"
#include "tamis/filter_table.hpp"
#include "tamis/prefetch.hpp"
#include "tamis/sections.hpp"

namespace tamis {

struct RankInterval {  // [low, high)
  std::uint32_t low = 0, high = 0;
  friend bool operator==(const RankInterval&, const RankInterval&) = default;
};

class Ranks {
 public:
  // Of all constraints of the table, also those of residuals. Throws ArgumentError if an attribute
  // has more than 2^30 boundaries.
  explicit Ranks(const FilterTable& table);
  // Of the same table, from what save() wrote: the columns are borrowed.
  Ranks(const FilterTable& table, const SectionReader& sections);
  void save(SectionWriter& sections) const;

  // Attributes are below n_attributes() of the table. Ranks are 0 .. n_ranks - 1; the last is
  // "absent".
  std::uint32_t n_ranks(AttributeId attribute) const {
    const Attribute& of = attributes_[attribute];
    return of.n_number_cuts + of.n_string_cuts + 6;
  }
  // Numbers are below the first of strings, and those below the first of all others.
  std::uint32_t first_string_rank(AttributeId attribute) const {
    return attributes_[attribute].n_number_cuts + 1;
  }
  std::uint32_t first_other_rank(AttributeId attribute) const { return n_ranks(attribute) - 4; }
  std::uint32_t rank(AttributeId attribute, const EventValue& value) const {
    const Attribute& of = attributes_[attribute];
    const std::uint32_t first_other = of.n_number_cuts + of.n_string_cuts + 2;
    switch (value.kind) {
      case Kind::number:
        // Numbers with a residue are beyond all that are direct.
        if (of.n_direct > 0) return cuts_of(of).rank(value.nearest, false);
        return number_rank(of, value.nearest, 2 * value.residue);
      case Kind::string:
        return of.n_number_cuts + 1 + string_rank(of, value.string(), false);
      case Kind::boolean:
        return first_other + value.boolean;
      case Kind::nan:
        return first_other + 2;
      case Kind::absent:
        break;
    }
    return first_other + 3;
  }

  // Asks for what rank() will read, where that is one place.
  void prefetch(AttributeId attribute, const EventValue& value) const {
    const Attribute& of = attributes_[attribute];
    if (value.kind != Kind::number || of.n_direct == 0) return;
    const IntegerCuts cuts = cuts_of(of);
    const double place = value.nearest - cuts.low;
    if (place >= 0 && place < cuts.n_integers) {
      prefetch_line(cuts.integers + static_cast<std::uint32_t>(place) / 64);
    }
  }

  // The ranks that a constraint of the table accepts: in order, disjoint, not empty, not touching.
  // Patterns (LIKE) are left out: the intervals then cover more, and needs_verify() says so.
  // Replaces what `out` holds. The table must still be there.
  void intervals(const Constraint& constraint, std::vector<RankInterval>& out) const;
  static bool needs_verify(const FilterTable& table, const Constraint& constraint) {
    return !constraint.is_interval() && table.general(constraint).patterns.count > 0;
  }

  // Do integer_cuts() give the rank of every number that is a double?
  bool has_integer_cuts(AttributeId attribute) const {
    return attributes_[attribute].n_direct > 0 || attributes_[attribute].n_number_cuts == 0;
  }
  IntegerCuts integer_cuts(AttributeId attribute) const { return cuts_of(attributes_[attribute]); }

  std::size_t n_bytes() const;

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::uint32_t kIsChild = std::uint32_t{1} << 31;

  struct Node {
    std::uint64_t low = 0;
    double linear_low = 0, scale = 0;  // scale > 0: bucket = (value - linear_low) * scale
    std::uint32_t shift = 0;           // else: bucket = (key - low) >> shift
    std::uint32_t first_slot = 0, last_bucket = 0;
  };
  struct Slot {
    std::uint32_t first_point = 0;
    std::uint32_t n_points = 0;  // or kIsChild | node
  };
  struct Search {
    Column<std::uint64_t> keys;
    Column<std::uint32_t> words;
    Column<Slot> slots;
    Column<Node> nodes;

    std::uint32_t build(std::uint32_t begin, std::uint32_t end, bool is_number, int depth);
    // The first point not before a key.
    std::uint32_t find(std::uint32_t node, std::uint64_t key, double value) const;
    void shrink();
    std::size_t n_bytes() const;
  };
  struct OddCut {
    std::uint32_t point = 0;
    std::int32_t fine = 0;
  };
  struct Attribute {
    std::uint32_t n_number_cuts = 0, n_string_cuts = 0;
    std::uint32_t number_node = kNone, string_node = kNone;  // kNone: no points
    std::uint32_t number_end = 0, string_end = 0;            // one past the last point
    std::uint32_t n_direct = 0;                              // integers in direct_; 0: not used
    std::uint32_t prefix_length = 0;                         // of all strings
    std::uint32_t n_exact = 0;                               // places in exact_
    std::uint64_t prefix_at = 0, prefix_key = 0, exact_at = 0, direct_at = 0;
    double direct_low = 0;
  };
  struct StringCutView {
    std::string_view text;
    bool is_after = false;
  };

  IntegerCuts cuts_of(const Attribute& of) const {
    return {direct_.data() + of.direct_at, of.direct_low, of.n_direct, of.n_number_cuts};
  }
  // The number of cuts at or before (value, fine).
  std::uint32_t number_rank(const Attribute& of, double value, std::int32_t fine) const;
  std::uint32_t string_rank(const Attribute& of, std::string_view text, bool is_after) const;
  // The first point with this key; kNone: no point has it.
  std::uint32_t exact_point(const Attribute& of, std::uint64_t key) const;
  std::uint32_t rank_among_equal_keys(const Attribute& of, std::uint32_t point,
                                      std::string_view rest, bool is_after) const;
  // What follows the prefix.
  std::string_view text_of(std::uint32_t point) const {
    return {bytes_.data() + texts_[point], texts_[point + 1] - texts_[point]};
  }
  // Calls visit(name, column) for every column of `ranks`, a Ranks.
  template <typename Visit, typename Of>
  static void for_each_column(Visit visit, Of& ranks) {
    const auto visit_search = [&](const std::string& name, auto& search) {
      visit(name + "/keys", search.keys);
      visit(name + "/words", search.words);
      visit(name + "/slots", search.slots);
      visit(name + "/nodes", search.nodes);
    };
    visit("attributes", ranks.attributes_);
    visit_search("numbers", ranks.numbers_);
    visit_search("strings", ranks.strings_);
    visit("odd_cuts", ranks.odd_cuts_);
    visit("direct", ranks.direct_);
    visit("exact", ranks.exact_);
    visit("texts", ranks.texts_);
    visit("bytes", ranks.bytes_);
  }
  void add_numbers(Attribute& of, std::vector<Cut>& cuts);
  bool add_direct(Attribute& of, const std::vector<Cut>& cuts);
  void add_strings(Attribute& of, std::vector<StringCutView>& cuts);
  void add_exact(Attribute& of, std::uint32_t begin);

  const FilterTable* table_;
  Column<Attribute> attributes_;  // [n_attributes]
  Search numbers_, strings_;
  Column<OddCut> odd_cuts_;  // by point and fine
  Column<Integers> direct_;
  Column<std::uint32_t> exact_;  // points of strings_; kNone: free
  Column<std::uint64_t>
      texts_;  // [points of strings_] where each begins in bytes_, and the last ends
  Column<char> bytes_;
};

}  // namespace tamis
