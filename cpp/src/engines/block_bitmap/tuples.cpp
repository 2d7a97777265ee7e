#include "tuples.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace tamis::block_bitmap {
namespace {

constexpr std::size_t kSample = 4096;  // filters that decide about the tuples
// Among the attributes most frequent in what is left, all combinations are tried.
constexpr std::size_t kTried = 24;
constexpr std::size_t kMaxTuples = 512;
// A tuple of fewer filters would not be split.
constexpr std::size_t kMinTupleFilters = 2 * kLineBits;
constexpr std::size_t kSplitSample = 128;

class Cover {
 public:
  explicit Cover(const FilterTable& table) : table_(table), frequency_(table.n_attributes()) {
    const std::size_t n_sampled = std::min(kSample, table.size());
    for (std::size_t at = 0; at < n_sampled; ++at) {
      left_.push_back(static_cast<FilterIdx>(at * table.size() / n_sampled));
    }
    n_sampled_ = n_sampled;
  }

  // The tuples of `size` attributes, best first, until none covers enough of what is left.
  void add(std::size_t size, std::vector<Tuple>& tuples) {
    const std::size_t n_least = std::max<std::size_t>(
        1, kMinTupleFilters * n_sampled_ / std::max<std::size_t>(1, table_.size()));
    while (tuples.size() < kMaxTuples && left_.size() >= n_least) {
      collect_bits();
      if (tried_.size() < size) return;
      best_count_ = 0;
      std::vector<std::uint64_t> all((left_.size() + 63) / 64, ~std::uint64_t{0});
      Tuple tuple;
      tuple.n_attributes = static_cast<std::uint32_t>(size);
      try_all(tuple, 0, 0, all);
      if (best_count_ < n_least) return;
      tuples.push_back(best_);
      counts_.push_back(best_count_);
      std::vector<FilterIdx> still_left;
      for (const FilterIdx idx : left_) {
        if (!covers(best_, idx)) still_left.push_back(idx);
      }
      left_ = std::move(still_left);
    }
  }

  // The filters of the sample in blocks that an event visits, if each interval takes `width`
  // of the ranks of its attribute and a k-d split makes cubes.
  double expected_visits(const std::vector<Tuple>& tuples, double width) const {
    double n_visited = static_cast<double>(left_.size());
    const double n_each = static_cast<double>(table_.size()) /
                          static_cast<double>(std::max<std::size_t>(1, n_sampled_));
    for (std::size_t at = 0; at < tuples.size(); ++at) {
      const auto n_covered = static_cast<double>(counts_[at]);
      const double n_blocks = std::max(1.0, n_covered * n_each / kLineBits);
      const double n_dimensions = tuples[at].n_attributes;
      const double side = std::pow(n_blocks, -1 / n_dimensions);
      n_visited += n_covered * std::pow(width + (1 - width) * side, n_dimensions);
    }
    return n_visited;
  }
  // The share of the ranks that an interval takes, on average over what is left of the sample.
  double mean_width(const Ranks& ranks) const {
    std::vector<RankInterval> accepted;
    double total = 0;
    std::size_t n_constraints = 0;
    for (const FilterIdx idx : left_) {
      const FilterTable::Filter& filter = table_.filter(idx);
      for (std::uint32_t at = 0; at < filter.constraints.count; ++at, ++n_constraints) {
        const Constraint& constraint = table_.constraint(filter.constraints.first + at);
        ranks.intervals(constraint, accepted);
        if (accepted.empty()) continue;
        total += static_cast<double>(accepted.back().high - accepted.front().low) /
                 ranks.n_ranks(constraint.attribute);
      }
    }
    return total / static_cast<double>(std::max<std::size_t>(1, n_constraints));
  }

 private:
  template <typename Visit>
  void for_each_attribute(FilterIdx idx, Visit visit) const {
    const FilterTable::Filter& filter = table_.filter(idx);
    for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
      const Constraint& constraint = table_.constraint(filter.constraints.first + at);
      if (needs_attribute(table_, constraint)) visit(constraint.attribute);
    }
  }
  bool covers(const Tuple& tuple, FilterIdx idx) const {
    std::uint32_t found = 0;
    for_each_attribute(idx, [&](AttributeId attribute) {
      for (std::uint32_t at = 0; at < tuple.n_attributes; ++at) {
        if (tuple.attributes[at] == attribute) found |= 1u << at;
      }
    });
    return found == (1u << tuple.n_attributes) - 1;
  }

  // The most frequent attributes of what is left of the sample, and which filters have them.
  void collect_bits() {
    std::vector<AttributeId> seen;
    for (const FilterIdx idx : left_) {
      for_each_attribute(idx, [&](AttributeId attribute) {
        if (frequency_[attribute]++ == 0) seen.push_back(attribute);
      });
    }
    const std::size_t n_tried = std::min(kTried, seen.size());
    std::partial_sort(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(n_tried), seen.end(),
                      [&](AttributeId a, AttributeId b) {
                        return frequency_[a] != frequency_[b] ? frequency_[a] > frequency_[b]
                                                              : a < b;
                      });
    for (const AttributeId attribute : seen) frequency_[attribute] = 0;
    tried_.assign(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(n_tried));
    bits_.assign(n_tried, std::vector<std::uint64_t>((left_.size() + 63) / 64));
    for (std::size_t at = 0; at < left_.size(); ++at) {
      for_each_attribute(left_[at], [&](AttributeId attribute) {
        const auto place = std::find(tried_.begin(), tried_.end(), attribute) - tried_.begin();
        if (static_cast<std::size_t>(place) < n_tried) {
          bits_[static_cast<std::size_t>(place)][at / 64] |= std::uint64_t{1} << (at % 64);
        }
      });
    }
  }

  void try_all(Tuple& tuple, std::uint32_t n_chosen, std::size_t first,
               const std::vector<std::uint64_t>& covered) {
    std::vector<std::uint64_t> both(covered.size());
    for (std::size_t each = first; each < tried_.size(); ++each) {
      std::size_t count = 0;
      for (std::size_t word = 0; word < both.size(); ++word) {
        both[word] = covered[word] & bits_[each][word];
        count += static_cast<std::size_t>(std::popcount(both[word]));
      }
      if (count <= best_count_) continue;
      tuple.attributes[n_chosen] = tried_[each];
      if (n_chosen + 1 < std::min<std::size_t>(tuple.n_attributes, kMaxTupleSize)) {
        try_all(tuple, n_chosen + 1, each + 1, both);
      } else {
        best_count_ = count;
        best_ = tuple;
      }
    }
  }

  const FilterTable& table_;
  std::vector<FilterIdx> left_;
  std::size_t n_sampled_ = 0;
  std::vector<std::size_t> counts_;       // of the sample, that each tuple covers
  std::vector<std::uint32_t> frequency_;  // [n_attributes] 0 between calls
  std::vector<AttributeId> tried_;
  std::vector<std::vector<std::uint64_t>> bits_;  // of each tried attribute, over left_
  Tuple best_;
  std::size_t best_count_ = 0;
};

// A filter as a box in the ranks of a tuple's attributes.
struct Box {
  FilterIdx filter = 0;
  std::uint32_t low[kMaxTupleSize] = {}, high[kMaxTupleSize] = {};
  std::uint64_t centre(std::size_t dimension) const {
    return std::uint64_t{low[dimension]} + high[dimension];
  }
};

class Splitter {
 public:
  Splitter(Arrangement& out, std::size_t n_dimensions) : out_(out), n_dimensions_(n_dimensions) {}

  void split(std::span<Box> boxes) {
    if (boxes.size() <= kLineBits) {
      order(boxes);
      for (const Box& box : boxes) out_.filter_of.push_back(box.filter);
      out_.n_filters_of.push_back(static_cast<std::uint16_t>(boxes.size()));
      out_.filter_of.resize(out_.n_filters_of.size() * kLineBits);
      return;
    }
    const std::size_t half = halve(boxes, kLineBits);
    split(boxes.first(half));
    split(boxes.subspan(half));
  }

 private:
  // Within a block: neighbours share a word of its lines.
  void order(std::span<Box> boxes) {
    if (boxes.size() <= kWordBits || n_dimensions_ == 0) return;
    const std::size_t half = halve(boxes, kWordBits);
    order(boxes.first(half));
    order(boxes.subspan(half));
  }
  // Brings the boxes with the lower centres to the front, a multiple of `unit` of them.
  std::size_t halve(std::span<Box> boxes, std::size_t unit) const {
    std::size_t half = (boxes.size() / 2 + unit / 2) / unit * unit;
    half = std::clamp(half, unit, boxes.size() - 1);
    if (n_dimensions_ > 0) {
      const std::size_t dimension = widest(boxes);
      std::nth_element(
          boxes.begin(), boxes.begin() + static_cast<std::ptrdiff_t>(half), boxes.end(),
          [&](const Box& a, const Box& b) { return a.centre(dimension) < b.centre(dimension); });
    }
    return half;
  }
  // The attribute in which the union of the boxes is widest against one of them.
  std::size_t widest(std::span<const Box> boxes) const {
    const std::size_t n_sampled = std::min(kSplitSample, boxes.size());
    std::size_t best = 0;
    double best_ratio = -1;
    for (std::size_t dimension = 0; dimension < n_dimensions_; ++dimension) {
      std::uint32_t low = ~std::uint32_t{0}, high = 0;
      double width = 0;
      for (std::size_t at = 0; at < n_sampled; ++at) {
        const Box& box = boxes[at * boxes.size() / n_sampled];
        low = std::min(low, box.low[dimension]);
        high = std::max(high, box.high[dimension]);
        width += box.high[dimension] - box.low[dimension];
      }
      const double ratio = (high - low) / (width / static_cast<double>(n_sampled) + 1);
      if (ratio > best_ratio) {
        best_ratio = ratio;
        best = dimension;
      }
    }
    return best;
  }

  Arrangement& out_;
  std::size_t n_dimensions_;
};

}  // namespace

Arrangement arrange(const FilterTable& table, const Ranks& ranks, std::size_t tuple_size) {
  Arrangement out;
  // Large tuples divide finely what they cover, but of filters with few constraints each covers
  // few: the largest size is the one that visits least.
  const double width = Cover(table).mean_width(ranks);
  double least_visits = -1;
  for (std::size_t most = std::min(tuple_size, kMaxTupleSize); most > 0; --most) {
    Cover cover(table);
    std::vector<Tuple> tuples;
    for (std::size_t size = most; size > 0; --size) cover.add(size, tuples);
    const double n_visits = cover.expected_visits(tuples, width);
    if (least_visits >= 0 && n_visits >= least_visits) continue;
    least_visits = n_visits;
    out.tuples = std::move(tuples);
  }
  out.tuples.emplace_back();  // the others

  // The first tuple that covers a filter has it. Large tuples are split finely: an equal share for
  // all of them visited more blocks.
  const auto n_filters = static_cast<FilterIdx>(table.size());
  std::vector<std::uint32_t> constraint_of(table.n_attributes());
  std::vector<FilterIdx> stamp_of(table.n_attributes(), n_filters);
  std::vector<std::vector<Box>> boxes(out.tuples.size());
  std::vector<RankInterval> accepted;
  for (FilterIdx idx = 0; idx < n_filters; ++idx) {
    const FilterTable::Filter& filter = table.filter(idx);
    for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
      const Constraint& constraint = table.constraint(filter.constraints.first + at);
      if (!needs_attribute(table, constraint)) continue;
      stamp_of[constraint.attribute] = idx;
      constraint_of[constraint.attribute] = filter.constraints.first + at;
    }
    std::size_t tuple_idx = 0;
    for (;; ++tuple_idx) {
      const Tuple& tuple = out.tuples[tuple_idx];
      bool is_covered = true;
      for (std::uint32_t at = 0; at < tuple.n_attributes; ++at) {
        is_covered &= stamp_of[tuple.attributes[at]] == idx;
      }
      if (is_covered) break;
    }
    const Tuple& tuple = out.tuples[tuple_idx];
    Box box;
    box.filter = idx;
    for (std::uint32_t at = 0; at < tuple.n_attributes; ++at) {
      ranks.intervals(table.constraint(constraint_of[tuple.attributes[at]]), accepted);
      if (accepted.empty()) continue;
      box.low[at] = accepted.front().low;
      box.high[at] = accepted.back().high;
    }
    boxes[tuple_idx].push_back(box);
  }
  out.filter_of.reserve(n_filters + out.tuples.size() * kLineBits);
  for (std::size_t tuple_idx = 0; tuple_idx < out.tuples.size(); ++tuple_idx) {
    Tuple& tuple = out.tuples[tuple_idx];
    tuple.first_block = static_cast<std::uint32_t>(out.n_filters_of.size());
    if (!boxes[tuple_idx].empty()) Splitter(out, tuple.n_attributes).split(boxes[tuple_idx]);
    tuple.n_blocks = static_cast<std::uint32_t>(out.n_filters_of.size()) - tuple.first_block;
    boxes[tuple_idx] = {};
  }
  return out;
}

}  // namespace tamis::block_bitmap
