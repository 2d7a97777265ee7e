// `be-tree`: a tree of Boolean expressions by two-phase space cutting (Sadoghi and Jacobsen, SIGMOD
// 2011; the baseline of papers/000, 001 and 003, there in its versions 1.0 and 1.3).
//
// A set of filters that is too large for a leaf is partitioned by attribute, the one that most of
// them have first, and the filters of an attribute are clustered by halving its values; both
// alternate until leaves are small. An event follows its attributes and, of each, its value.
//
//     bucket (c-node) ──► leaf (l-node)         records of filters, evaluated one by one, in
//     columns:
//        │  │               names (Bloom) │ first term │ second term │ filter, further terms
//        │  └──► p-nodes (p-directory)          attribute, ranks held ──► bucket of all its values
//        └─────► left, right (c-directory)      buckets of the lower and the upper half of the
//        values
//
//     term: attribute, low, width              a rank in [low, low + width), or none of them (hole)
//
// Values are ranks (common/ranks.hpp): a discrete ordered domain for every type. A filter whose
// interval straddles the middle stays with the bucket that is halved, and is partitioned there by
// its other attributes. `!=` is the interval of all numbers with a hole, so it straddles and is
// never divided.
//
// Invariants: a filter is in one leaf; an attribute is used once on a path; every bucket but the
// root knows the smallest range of ranks that holds its filters' intervals, and is visited only
// with a rank in it. A term that this range implies is not in the record. Absence has the last
// rank; a constraint that accepts it is a term, but no way into the tree.
//
// Cost: docs/engines/be-tree.md.
#include "be_tree.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>

#include "common/ranks.hpp"
#include "tamis/error.hpp"
#include "tamis/prefetch.hpp"

namespace tamis {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kHole = std::uint32_t{1} << 31;  // in Term::attribute: outside the interval
// Attributes on a path: a bound for the recursion. Filters that are the same in all of them stay in
// one leaf.
constexpr std::size_t kMaxPath = 48;
constexpr std::uint32_t kMaxTerms = 0x7FFF;  // of a record; further constraints are verified
constexpr std::uint32_t kHasRest = 0x8000;   // beside the number of terms
// The p-nodes of a bucket are tested one by one, or searched for each attribute of the event where
// they are more than this many times as many.
constexpr std::size_t kScansPerSearch = 4;

// Records that passed the first term, before the others are tested: a test without branches costs
// less than a guess that is wrong every third time.
constexpr std::size_t kPassed = 1024;

struct Term {
  AttributeId attribute = 0;  // and kHole
  std::uint32_t low = 0, width = 0;

  AttributeId name() const { return attribute & ~kHole; }
  bool is_hole() const { return (attribute & kHole) != 0; }
  std::uint32_t high() const { return low + width; }
  bool holds(std::uint32_t rank) const { return (rank - low < width) != is_hole(); }
};
constexpr Term kAnything{0, 0, std::numeric_limits<std::uint32_t>::max()};

// What a record has besides its first two terms.
struct RecordRest {
  FilterIdx filter = 0;
  std::uint32_t n_terms = 0;  // and kHasRest
  std::uint32_t first_term = 0;
};

struct Bucket {
  AttributeId attribute = 0;
  std::uint32_t low = 0, width = 0;             // ranks that its filters accept
  std::uint32_t middle = 0;                     // ranks below it: left
  std::uint32_t left = kNone, right = kNone;    // buckets
  std::uint32_t first_pnode = 0, n_pnodes = 0;  // by attribute
  std::uint32_t first_record = 0, n_records = 0;
};

struct PNode {
  AttributeId attribute = 0;
  std::uint32_t low = 0, width = 0;  // of the bucket
  std::uint32_t bucket = 0;
};

struct Settings {
  std::size_t max_cap = 0;
  bool has_bloom = true;
};

struct Tree {
  std::vector<Bucket> buckets;  // the root first
  std::vector<PNode> pnodes;
  // Records, leaf after leaf.
  std::vector<std::uint64_t> names;  // [n_records] that the event must have besides the path's
  std::vector<Term> first_terms, second_terms;  // [n_records]
  std::vector<RecordRest> rests;                // [n_records]
  std::vector<Term> terms;                      // from the third on

  std::size_t n_bytes() const {
    const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
    return bytes(buckets) + bytes(pnodes) + bytes(names) + bytes(first_terms) +
           bytes(second_terms) + bytes(rests) + bytes(terms);
  }
};

class Builder {
 public:
  Builder(const FilterTable& table, const Ranks& ranks, const std::vector<std::uint64_t>& name_bits,
          const Settings& settings)
      : table_(table),
        ranks_(ranks),
        name_bits_(name_bits),
        settings_(settings),
        path_(table.n_attributes()),
        local_of_(table.n_attributes(), kNone) {
    collect_terms();
  }

  Tree build() {
    if (settings_.has_bloom) tree_.names.reserve(order_.size());
    tree_.first_terms.reserve(order_.size());
    tree_.second_terms.reserve(order_.size());
    tree_.rests.reserve(order_.size());
    tree_.buckets.emplace_back();
    partition(0, 0, static_cast<std::uint32_t>(order_.size()));
    tree_.buckets.shrink_to_fit();
    tree_.pnodes.shrink_to_fit();
    tree_.terms.shrink_to_fit();
    return std::move(tree_);
  }

 private:
  // What the path has tested of an attribute.
  struct Tested {
    bool is_used = false;
    std::uint32_t low = 0, high = 0;
  };
  struct Score {
    std::uint32_t value = 0;
    std::uint32_t local = 0;
    bool operator<(const Score& other) const {
      return value < other.value || (value == other.value && local > other.local);
    }
  };

  void collect_terms() {
    begins_.reserve(table_.size() + 1);
    terms_.reserve(table_.n_constraints());
    has_rest_.resize(table_.size());
    std::vector<RankInterval> intervals;
    for (FilterIdx idx = 0; idx < table_.size(); ++idx) {
      const FilterTable::Filter& filter = table_.filter(idx);
      begins_.push_back(static_cast<std::uint32_t>(terms_.size()));
      has_rest_[idx] = filter.areas.count > 0 || filter.residuals.count > 0;
      bool is_possible = true;
      for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
        if (terms_.size() - begins_.back() + 2 > kMaxTerms) {
          has_rest_[idx] = true;
          break;
        }
        const Constraint& constraint = table_.constraint(filter.constraints.first + at);
        ranks_.intervals(constraint, intervals);
        if (Ranks::needs_verify(table_, constraint)) has_rest_[idx] = true;
        if (intervals.empty()) {
          is_possible = false;
          break;
        }
        const std::uint32_t low = intervals.front().low;
        terms_.push_back({constraint.attribute, low, intervals.back().high - low});
        if (intervals.size() == 2) {
          terms_.push_back({constraint.attribute | kHole, intervals[0].high,
                            intervals[1].low - intervals[0].high});
        } else if (intervals.size() > 2) {
          has_rest_[idx] = true;
        }
      }
      if (is_possible) {
        order_.push_back(idx);
      } else {
        terms_.resize(begins_.back());
      }
    }
    begins_.push_back(static_cast<std::uint32_t>(terms_.size()));
    moved_.resize(order_.size());
  }

  bool is_way(const Term& term) const {
    return !term.is_hole() && term.high() < ranks_.n_ranks(term.name());
  }
  std::span<const Term> terms_of(FilterIdx idx) const {
    return {terms_.data() + begins_[idx], terms_.data() + begins_[idx + 1]};
  }
  const Term& way_of(FilterIdx idx, AttributeId attribute) const {
    const std::span<const Term> terms = terms_of(idx);
    return *std::find_if(terms.begin(), terms.end(), [&](const Term& term) {
      return term.attribute == attribute && is_way(term);
    });
  }
  double share_of(const Term& term) const {
    return static_cast<double>(term.width) / ranks_.n_ranks(term.name());
  }
  // Divides the filters order_[begin, end) of a bucket among p-nodes and its leaf.
  void partition(std::uint32_t bucket, std::uint32_t begin, std::uint32_t end) {
    std::vector<AttributeId> attributes;
    std::vector<std::uint32_t> group_ends;
    std::uint32_t leaf_end = end;
    if (end - begin > settings_.max_cap && n_used_ < kMaxPath) {
      leaf_end = choose_attributes(begin, end, attributes, group_ends);
    }
    write_leaf(bucket, begin, leaf_end);
    const auto first_pnode = static_cast<std::uint32_t>(tree_.pnodes.size());
    tree_.buckets[bucket].first_pnode = first_pnode;
    tree_.buckets[bucket].n_pnodes = static_cast<std::uint32_t>(attributes.size());
    tree_.pnodes.resize(first_pnode + attributes.size());
    std::uint32_t group_begin = leaf_end;
    for (std::size_t group = 0; group < attributes.size(); ++group) {
      const AttributeId attribute = attributes[group];
      path_[attribute].is_used = true;
      ++n_used_;
      const std::uint32_t child =
          cluster(attribute, 0, ranks_.n_ranks(attribute), group_begin, group_ends[group]);
      --n_used_;
      path_[attribute] = {};
      const Bucket& made = tree_.buckets[child];
      tree_.pnodes[first_pnode + group] = {attribute, made.low, made.width, child};
      group_begin = group_ends[group];
    }
  }

  // The attributes that take filters out of a leaf until it is small enough, in order of attribute;
  // sorts the filters accordingly, and gives back where those that stay end.
  std::uint32_t choose_attributes(std::uint32_t begin, std::uint32_t end,
                                  std::vector<AttributeId>& chosen,
                                  std::vector<std::uint32_t>& group_ends) {
    std::vector<AttributeId> names;
    std::vector<std::uint32_t> scores;     // filters that are left and have the name
    std::vector<std::uint32_t> firsts{0};  // of filters_by_name
    for (std::uint32_t at = begin; at < end; ++at) {
      for (const Term& term : terms_of(order_[at])) {
        if (!is_way(term) || path_[term.attribute].is_used) continue;
        std::uint32_t& local = local_of_[term.attribute];
        if (local == kNone) {
          local = static_cast<std::uint32_t>(names.size());
          names.push_back(term.attribute);
          scores.push_back(0);
          firsts.push_back(0);
        }
        ++scores[local];
        ++firsts[local + 1];
      }
    }
    std::partial_sum(firsts.begin(), firsts.end(), firsts.begin());
    std::vector<std::uint32_t> filters_by_name(firsts.back());
    {
      std::vector<std::uint32_t> next(firsts.begin(), firsts.end() - 1);
      for (std::uint32_t at = begin; at < end; ++at) {
        for (const Term& term : terms_of(order_[at])) {
          if (!is_way(term) || path_[term.attribute].is_used) continue;
          filters_by_name[next[local_of_[term.attribute]]++] = at;
        }
      }
    }
    std::priority_queue<Score> queue;
    for (std::uint32_t local = 0; local < names.size(); ++local) {
      queue.push({scores[local], local});
    }
    std::vector<std::uint32_t> group_of(end - begin, kNone);
    std::size_t n_left = end - begin;
    while (n_left > settings_.max_cap && !queue.empty()) {
      const Score best = queue.top();
      queue.pop();
      if (best.value != scores[best.local]) {
        queue.push({scores[best.local], best.local});
        continue;
      }
      const auto group = static_cast<std::uint32_t>(chosen.size());
      std::size_t n_moved = 0;
      for (std::uint32_t at = firsts[best.local]; at < firsts[best.local + 1]; ++at) {
        const std::uint32_t filter = filters_by_name[at];
        if (group_of[filter - begin] != kNone) continue;
        group_of[filter - begin] = group;
        ++n_moved;
        for (const Term& term : terms_of(order_[filter])) {
          if (!is_way(term) || path_[term.attribute].is_used) continue;
          --scores[local_of_[term.attribute]];
        }
      }
      if (n_moved == 0) continue;
      n_left -= n_moved;
      chosen.push_back(names[best.local]);
    }
    for (const AttributeId name : names) local_of_[name] = kNone;

    std::vector<std::uint32_t> by_attribute(chosen.size());
    std::iota(by_attribute.begin(), by_attribute.end(), 0u);
    std::sort(by_attribute.begin(), by_attribute.end(),
              [&](std::uint32_t a, std::uint32_t b) { return chosen[a] < chosen[b]; });
    std::vector<std::uint32_t> place_of(chosen.size());
    for (std::uint32_t place = 0; place < by_attribute.size(); ++place) {
      place_of[by_attribute[place]] = place;
    }
    std::sort(chosen.begin(), chosen.end());
    std::vector<std::uint32_t> next(chosen.size() + 2, 0);  // the leaf's filters come first
    const auto place_in = [&](std::uint32_t at) {
      return group_of[at - begin] == kNone ? 0 : place_of[group_of[at - begin]] + 1;
    };
    for (std::uint32_t at = begin; at < end; ++at) ++next[place_in(at) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    group_ends.assign(next.begin() + 2, next.end());
    for (std::uint32_t& each : group_ends) each += begin;
    const std::uint32_t leaf_end = begin + next[1];
    for (std::uint32_t at = begin; at < end; ++at) {
      moved_[begin + next[place_in(at)]++] = order_[at];
    }
    std::copy(moved_.begin() + begin, moved_.begin() + end, order_.begin() + begin);
    return leaf_end;
  }

  // Makes the bucket of filters whose intervals of `attribute` lie within [low, high), and those
  // below it.
  std::uint32_t cluster(AttributeId attribute, std::uint32_t low, std::uint32_t high,
                        std::uint32_t begin, std::uint32_t end) {
    const auto made = static_cast<std::uint32_t>(tree_.buckets.size());
    tree_.buckets.emplace_back();
    std::uint32_t lowest = high, highest = low;
    for (std::uint32_t at = begin; at < end; ++at) {
      const Term& term = way_of(order_[at], attribute);
      lowest = std::min(lowest, term.low);
      highest = std::max(highest, term.high());
    }
    const Tested before = path_[attribute];
    path_[attribute] = {true, lowest, highest};
    tree_.buckets[made].attribute = attribute;
    tree_.buckets[made].low = lowest;
    tree_.buckets[made].width = highest - lowest;
    std::uint32_t middle = low + (high - low) / 2;
    // Halves that would hold nothing are passed over.
    while (high - low > 1 && (highest <= middle || lowest >= middle)) {
      (highest <= middle ? high : low) = middle;
      middle = low + (high - low) / 2;
    }
    std::uint32_t left_end = begin, right_begin = end;
    if (end - begin > settings_.max_cap && high - low > 1) {
      std::uint32_t n_moved = begin;
      for (std::uint32_t at = begin; at < end; ++at) {
        const FilterIdx idx = order_[at];
        const Term& term = way_of(idx, attribute);
        if (term.high() <= middle) {
          order_[left_end++] = idx;
        } else {
          moved_[n_moved++] = idx;
        }
      }
      right_begin = end;
      std::uint32_t straddling = left_end;
      for (std::uint32_t at = n_moved; at-- > begin;) {
        if (way_of(moved_[at], attribute).low >= middle) order_[--right_begin] = moved_[at];
      }
      for (std::uint32_t at = begin; at < n_moved; ++at) {
        if (way_of(moved_[at], attribute).low < middle) order_[straddling++] = moved_[at];
      }
    }
    partition(made, left_end, right_begin);
    tree_.buckets[made].middle = middle;
    if (begin < left_end) {
      const std::uint32_t left = cluster(attribute, low, middle, begin, left_end);
      tree_.buckets[made].left = left;
    }
    if (right_begin < end) {
      const std::uint32_t right = cluster(attribute, middle, high, right_begin, end);
      tree_.buckets[made].right = right;
    }
    path_[attribute] = before;
    return made;
  }

  void write_leaf(std::uint32_t bucket, std::uint32_t begin, std::uint32_t end) {
    tree_.buckets[bucket].first_record = static_cast<std::uint32_t>(tree_.rests.size());
    tree_.buckets[bucket].n_records = end - begin;
    std::vector<Term> terms;
    for (std::uint32_t at = begin; at < end; ++at) {
      const FilterIdx idx = order_[at];
      terms.clear();
      std::uint64_t names = 0;
      for (const Term& term : terms_of(idx)) {
        const Tested& tested = path_[term.name()];
        if (is_way(term) && !tested.is_used) names |= name_bits_[term.name()];
        if (tested.is_used && is_implied(term, tested)) continue;
        terms.push_back(term);
      }
      // Those that the path says nothing about first, and of these the narrowest.
      std::stable_sort(terms.begin(), terms.end(), [this](const Term& a, const Term& b) {
        const bool is_a_tested = path_[a.name()].is_used, is_b_tested = path_[b.name()].is_used;
        if (is_a_tested != is_b_tested) return is_b_tested;
        return chance_of(a) < chance_of(b);
      });
      if (settings_.has_bloom) tree_.names.push_back(names);
      tree_.first_terms.push_back(terms.size() > 0 ? terms[0] : kAnything);
      tree_.second_terms.push_back(terms.size() > 1 ? terms[1] : kAnything);
      const std::size_t n_rest = terms.size() > 2 ? terms.size() - 2 : 0;
      tree_.rests.push_back({idx,
                             static_cast<std::uint32_t>(n_rest) | (has_rest_[idx] ? kHasRest : 0),
                             static_cast<std::uint32_t>(tree_.terms.size())});
      tree_.terms.insert(tree_.terms.end(), terms.end() - static_cast<std::ptrdiff_t>(n_rest),
                         terms.end());
    }
  }
  double chance_of(const Term& term) const {
    return term.is_hole() ? 1 - share_of(term) : share_of(term);
  }
  static bool is_implied(const Term& term, const Tested& tested) {
    if (term.is_hole()) return tested.high <= term.low || tested.low >= term.high();
    return term.low <= tested.low && tested.high <= term.high();
  }

  const FilterTable& table_;
  const Ranks& ranks_;
  const std::vector<std::uint64_t>& name_bits_;
  const Settings settings_;
  std::vector<std::uint32_t> begins_;    // [n_filters + 1]
  std::vector<Term> terms_;              // of each filter
  std::vector<bool> has_rest_;           // [n_filters]
  std::vector<FilterIdx> order_;         // filters; those of a bucket lie together
  std::vector<FilterIdx> moved_;         // room for a division
  std::vector<Tested> path_;             // [n_attributes]
  std::vector<std::uint32_t> local_of_;  // [n_attributes] within choose_attributes
  std::size_t n_used_ = 0;
  Tree tree_;
};

class BeTreeScratch final : public Scratch {
 public:
  ValueByAttribute event;
  std::vector<std::uint32_t> rank_of;   // [n_attributes] absent between events
  std::vector<AttributeId> attributes;  // of the event
  std::vector<std::uint32_t> stack;     // buckets to visit
  std::vector<std::uint32_t> passed;    // [kPassed] records whose first term holds
  std::size_t n_passed = 0;
};

class BeTreeIndex final : public Index {
 public:
  BeTreeIndex(std::shared_ptr<const FilterTable> table, const Settings& settings)
      : table_(std::move(table)), ranks_(*table_) {
    deal_names();
    tree_ = Builder(*table_, ranks_, name_bits_, settings).build();
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    auto scratch = std::make_unique<BeTreeScratch>();
    scratch->passed.resize(kPassed);
    scratch->rank_of.resize(table_->n_attributes() + 1);  // kAnything looks at the first
    for (AttributeId attribute = 0; attribute < table_->n_attributes(); ++attribute) {
      scratch->rank_of[attribute] = ranks_.n_ranks(attribute) - 1;
    }
    return scratch;
  }

  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;

  std::size_t n_bytes() const override {
    return sizeof(*this) + ranks_.n_bytes() + name_bits_.capacity() * sizeof(name_bits_[0]) +
           tree_.n_bytes();
  }

 private:
  // Names that many filters have share their bit of the Bloom filters with as few others as can be.
  void deal_names() {
    std::vector<std::uint32_t> n_constraints(table_->n_attributes());
    for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
      const Range& constraints = table_->filter(idx).constraints;
      for (std::uint32_t at = 0; at < constraints.count; ++at) {
        ++n_constraints[table_->constraint(constraints.first + at).attribute];
      }
    }
    std::vector<AttributeId> by_count(table_->n_attributes());
    std::iota(by_count.begin(), by_count.end(), AttributeId{0});
    std::stable_sort(by_count.begin(), by_count.end(), [&](AttributeId a, AttributeId b) {
      return n_constraints[a] > n_constraints[b];
    });
    name_bits_.resize(table_->n_attributes());
    for (std::size_t place = 0; place < by_count.size(); ++place) {
      name_bits_[by_count[place]] = std::uint64_t{1} << (place % 64);
      all_names_ |= name_bits_[by_count[place]];
    }
  }

  void push_pnodes(const Bucket& bucket, BeTreeScratch& scratch) const;
  // Tests the names and the first terms of a leaf's records.
  template <bool kHasBloom>
  void visit_leaf(const Bucket& bucket, std::uint64_t missing, BeTreeScratch& scratch,
                  Counters& counters, Collector& out) const;
  // Tests all else of the records that passed.
  void finish(BeTreeScratch& scratch, Counters& counters, Collector& out) const;

  std::shared_ptr<const FilterTable> table_;
  Ranks ranks_;
  std::vector<std::uint64_t> name_bits_;  // [n_attributes]
  std::uint64_t all_names_ = 0;
  Tree tree_;
};

inline void BeTreeIndex::push_pnodes(const Bucket& bucket, BeTreeScratch& scratch) const {
  const std::uint32_t* const rank_of = scratch.rank_of.data();
  const PNode* const first = tree_.pnodes.data() + bucket.first_pnode;
  const PNode* const last = first + bucket.n_pnodes;
  const auto push = [&](const PNode& node) {
    if (rank_of[node.attribute] - node.low >= node.width) return;
    prefetch_line(tree_.buckets.data() + node.bucket);
    scratch.stack.push_back(node.bucket);
  };
  if (bucket.n_pnodes > kScansPerSearch * scratch.attributes.size()) {
    for (const AttributeId attribute : scratch.attributes) {
      const PNode* const found = std::lower_bound(
          first, last, attribute,
          [](const PNode& node, AttributeId wanted) { return node.attribute < wanted; });
      if (found != last && found->attribute == attribute) push(*found);
    }
  } else {
    for (const PNode* node = last; node != first;) push(*--node);
  }
}

template <bool kHasBloom>
inline void BeTreeIndex::visit_leaf(const Bucket& bucket, std::uint64_t missing,
                                    BeTreeScratch& scratch, Counters& counters,
                                    Collector& out) const {
  const std::uint32_t* const rank_of = scratch.rank_of.data();
  const Term* const first_terms = tree_.first_terms.data();
  std::uint32_t* const passed = scratch.passed.data();
  std::size_t n_passed = scratch.n_passed;
  std::uint64_t n_candidates = kHasBloom ? 0 : bucket.n_records;
  std::uint32_t record = bucket.first_record;
  const std::uint32_t end = record + bucket.n_records;
  while (record < end) {
    const std::uint32_t part_end = record + static_cast<std::uint32_t>(std::min<std::size_t>(
                                                end - record, kPassed - n_passed));
    for (; record < part_end; ++record) {
      if constexpr (kHasBloom) {
        if ((tree_.names[record] & missing) != 0) continue;
        ++n_candidates;
      }
      const Term& term = first_terms[record];
      passed[n_passed] = record;
      n_passed += term.holds(rank_of[term.name()]) ? 1 : 0;
    }
    if (n_passed == kPassed) {
      scratch.n_passed = n_passed;
      finish(scratch, counters, out);
      n_passed = 0;
    }
  }
  scratch.n_passed = n_passed;
  counters.filters += bucket.n_records;
  counters.bits += kHasBloom ? bucket.n_records : 0;
  counters.candidates += n_candidates;
  counters.constraints += n_candidates;
}

void BeTreeIndex::finish(BeTreeScratch& scratch, Counters& counters, Collector& out) const {
  const std::uint32_t* const rank_of = scratch.rank_of.data();
  const auto holds = [rank_of](const Term& term) { return term.holds(rank_of[term.name()]); };
  std::uint32_t* const passed = scratch.passed.data();
  std::size_t n_left = 0;
  for (std::size_t at = 0; at < scratch.n_passed; ++at) {
    const std::uint32_t record = passed[at];
    passed[n_left] = record;
    n_left += holds(tree_.second_terms[record]) ? 1 : 0;
  }
  std::uint64_t n_evaluated = scratch.n_passed;
  for (std::size_t at = 0; at < n_left; ++at) {
    const RecordRest& rest = tree_.rests[passed[at]];
    const Term* const terms = tree_.terms.data() + rest.first_term;
    const std::uint32_t n_terms = rest.n_terms & kMaxTerms;
    std::uint32_t n_held = 0;
    while (n_held < n_terms && holds(terms[n_held])) ++n_held;
    n_evaluated += n_held + (n_held < n_terms ? 1 : 0);
    if (n_held < n_terms || out.has(rest.filter)) continue;
    if ((rest.n_terms & kHasRest) == 0 || table_->accepts(rest.filter, scratch.event)) {
      out.add(rest.filter);
    }
  }
  counters.constraints += n_evaluated;
  scratch.n_passed = 0;
}

void BeTreeIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                        Scratch& given_scratch, Collector& out) const {
  BeTreeScratch& scratch = static_cast<BeTreeScratch&>(given_scratch);
  Counters counters;
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    scratch.event.load(events, each, table_->n_attributes(), table_->space());
    scratch.attributes.clear();
    std::uint64_t names = 0;
    for (std::uint64_t at = events.offsets[each]; at < events.offsets[each + 1]; ++at) {
      const AttributeId attribute = events.attributes[at];
      if (attribute >= table_->n_attributes()) continue;
      scratch.attributes.push_back(attribute);
      scratch.rank_of[attribute] = ranks_.rank(attribute, events.values[at]);
      names |= name_bits_[attribute];
    }
    const std::uint64_t missing = tree_.names.empty() ? 0 : all_names_ & ~names;
    scratch.stack.push_back(0);
    while (!scratch.stack.empty()) {
      const Bucket& bucket = tree_.buckets[scratch.stack.back()];
      scratch.stack.pop_back();
      ++counters.nodes;
      if (&bucket != tree_.buckets.data()) {
        const std::uint32_t rank = scratch.rank_of[bucket.attribute];
        if (rank - bucket.low >= bucket.width) continue;
        const std::uint32_t half = rank < bucket.middle ? bucket.left : bucket.right;
        if (half != kNone) {
          prefetch_line(tree_.buckets.data() + half);
          scratch.stack.push_back(half);
        }
      }
      push_pnodes(bucket, scratch);
      if (!scratch.stack.empty()) {
        const Bucket& next = tree_.buckets[scratch.stack.back()];
        prefetch_line(tree_.first_terms.data() + next.first_record);
      }
      if (missing != 0) {
        visit_leaf<true>(bucket, missing, scratch, counters, out);
      } else {
        visit_leaf<false>(bucket, missing, scratch, counters, out);
      }
    }
    finish(scratch, counters, out);
    for (const AttributeId attribute : scratch.attributes) {
      scratch.rank_of[attribute] = ranks_.n_ranks(attribute) - 1;
    }
  }
  out.counters += counters;
}

constexpr Parameter kParameters[] = {
    {"max_cap", 32, 1, 1048576, "filters of a leaf before it is divided"},
    {"bloom", 1, 0, 1, "1: Bloom filters of names in leaves, as in version 1.3"},
};

std::size_t whole(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine be-tree must be a whole number, not " + std::to_string(value));
  }
  return static_cast<std::size_t>(value);
}

}  // namespace

constinit const std::span<const Parameter> kBeTreeParameters = kParameters;

std::unique_ptr<Index> build_be_tree(std::shared_ptr<const FilterTable> table,
                                     const Parameters& parameters) {
  const Settings settings{whole(parameters, "max_cap"), whole(parameters, "bloom") != 0};
  return std::make_unique<BeTreeIndex>(std::move(table), settings);
}

}  // namespace tamis
