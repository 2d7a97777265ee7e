// The constraints of one filter as sets of ranks: what both layouts of `block-bitmap` are built
// from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/ranks.hpp"

namespace tamis::block_bitmap {

enum Layout : std::uint32_t { kByCost = 0, kLines = 1, kSweep = 2 };

inline constexpr std::size_t kLineBits = 512;  // filters of a block: a cache line of bits

inline constexpr std::size_t kWordBits = 64;

struct alignas(64) Line {
  std::uint64_t words[kLineBits / 64] = {};

  void set(std::size_t bit) { words[bit / 64] |= std::uint64_t{1} << (bit % 64); }
  void flip(std::size_t bit) { words[bit / 64] ^= std::uint64_t{1} << (bit % 64); }
  bool has(std::size_t bit) const { return words[bit / 64] >> (bit % 64) & 1; }
  bool is_empty() const {
    std::uint64_t any = 0;
    for (const std::uint64_t word : words) any |= word;
    return any == 0;
  }
  // The first `n_bits`.
  static Line first(std::size_t n_bits) {
    Line line;
    for (std::size_t word = 0; word < std::size(line.words) && 64 * word < n_bits; ++word) {
      const std::size_t left = n_bits - 64 * word;
      line.words[word] = left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
    }
    return line;
  }
};

// Does the constraint need its attribute to be there?
inline bool needs_attribute(const FilterTable& table, const Constraint& constraint) {
  return constraint.is_interval() || (table.general(constraint).flags & GeneralSet::kAbsent) == 0;
}

class RankedFilter {
 public:
  struct Part {  // an attribute, each only once
    AttributeId attribute = 0;
    std::vector<RankInterval> accepted;  // in order, disjoint; empty: nothing is accepted
  };

  RankedFilter(const FilterTable& table, const Ranks& ranks)
      : table_(table), ranks_(ranks), part_of_(table.n_attributes(), kNone) {}

  void load(FilterIdx idx);
  std::span<const Part> parts() const { return {parts_.data(), n_parts_}; }
  // Is there more to the filter than its parts: patterns, areas, residuals?
  bool needs_table() const { return needs_table_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  const FilterTable& table_;
  const Ranks& ranks_;
  std::vector<std::uint32_t> part_of_;  // [n_attributes]
  std::vector<Part> parts_;             // reused; n_parts_ of them count
  std::size_t n_parts_ = 0;
  bool needs_table_ = false;
  std::vector<RankInterval> intervals_, both_;
};

// Several filters, each ranked once and looked at as often as one likes.
class RankedFilters {
 public:
  RankedFilters(const FilterTable& table, const Ranks& ranks) : ranked_(table, ranks) {}

  void load(std::span<const FilterIdx> filters);
  std::span<const RankedFilter::Part> parts(std::size_t place) const {
    return {parts_.data() + begins_[place], begins_[place + 1] - begins_[place]};
  }
  bool needs_table(std::size_t place) const { return needs_table_[place]; }

 private:
  RankedFilter ranked_;
  std::vector<RankedFilter::Part> parts_;  // reused
  std::vector<std::size_t> begins_;        // [filters + 1]
  std::vector<bool> needs_table_;          // [filters]
};

}  // namespace tamis::block_bitmap
