// Groups of violation cells with bitsets: HEM's subscription pre-mark cache (papers/002, sections
// 4.2 and 4.3), for `hem` and for the GPU's.
//
//     attribute   cells (violation_cells.hpp)            event's cell j, between bounds k and k + 1
//                 0        bound 1      bound 2   j  bound 3                     n_ordered  n_cells
//     high end    ├────────────┼────────────┼─xxxx?┐                              pairs below j
//                 └──── OR: group of bound 2 ┘ mark
//     low end                                      └?xx┼──────────────┼──────────────┼──────┤
//                                                  mark└── OR: group of bound 3 ────────────┘
//
//     bitsets of a tile [groups of all attributes][n_words]:
//         attribute: low, high of bound 1; low, high of bound 2; …; all filters of the high end
//
// The last one, B_g of the paper, is for events that lack the attribute. Bounds are k * n_ordered /
// g, rounded down: of 1000 cells and 32 groups, every fourth interval has 32 cells, the others 31.
//
// Invariants: a bit of a group is set if and only if a pair of the filter lies in its cells; an
// attribute has no groups if marking all its filters costs less than an OR.
#pragma once

#include <cstdint>
#include <vector>

#include "common/violation_cells.hpp"

namespace tamis {

class ViolationGroups {
 public:
  static constexpr std::uint32_t kNone = ViolationCells::kNone;
  struct Settings {
    std::size_t n_groups = 0;
    bool are_joined = false;  // one bitset for the groups of both ends that an event needs together
    double bytes_per_constraint = 0;
  };
  // What an event does on one attribute, the same in every tile.
  struct Step {
    ViolationCells::Place place;
    std::uint32_t begin_cell = 0, end_cell = 0;  // to be marked: up to the cell, and behind it
    std::uint32_t low_bitset = kNone, high_bitset = kNone;
  };

  // Of the first `n_first` filters. The cells must stay where they are.
  ViolationGroups(const ViolationCells& cells, const Settings& settings, FilterIdx n_first);

  Step step_of(const ViolationCells::Place& place) const;
  // The bitset for events that lack the attribute; kNone: the attribute has no groups.
  std::uint32_t bitset_of_all(AttributeId attribute) const {
    const Groups& groups = groups_[attribute];
    return groups.count == 0 ? kNone : last_bitset(groups);
  }
  std::uint32_t n_bitsets() const { return n_bitsets_; }
  const std::uint64_t* bitset(std::size_t tile, std::uint32_t idx) const {
    return bitsets_[tile][std::size_t{idx} * (cells_.tiles()[tile].n_words / 8)].words;
  }
  void drop_bitsets() { bitsets_ = {}; }  // of an index that keeps them elsewhere

  void mark(std::size_t tile, const ViolationCells::Pair& pair, std::uint16_t id);
  void unmark(std::size_t tile, AttributeId attribute, std::uint16_t id);
  std::size_t n_bytes() const;

 private:
  struct Groups {
    std::uint32_t count = 0;  // 0: no bitsets
    std::uint32_t first_bitset = 0;
  };

  void choose_groups(const Settings& settings);
  void mark_groups(FilterIdx n_first);
  std::uint32_t bound(AttributeId attribute, std::uint32_t group) const {
    return static_cast<std::uint32_t>(std::uint64_t{group} * cells_.axis(attribute).n_ordered /
                                      groups_[attribute].count);
  }
  std::uint32_t bitset_of(const Groups& groups, std::uint32_t group,
                          ViolationCells::End end) const {
    if (are_joined_) return groups.first_bitset + group - (end == ViolationCells::kLow);
    return groups.first_bitset + 2 * (group - 1) + end;
  }
  std::uint32_t last_bitset(const Groups& groups) const {
    return groups.first_bitset + n_group_bitsets(groups.count);
  }
  std::uint32_t n_group_bitsets(std::uint32_t n_groups) const {
    return are_joined_ ? n_groups : 2 * (n_groups - 1);
  }
  std::uint64_t* words_of(std::size_t tile, std::uint32_t idx) {
    return bitsets_[tile][std::size_t{idx} * (cells_.tiles()[tile].n_words / 8)].words;
  }

  const ViolationCells& cells_;
  bool are_joined_;
  std::vector<Groups> groups_;  // [n_attributes]
  std::uint32_t n_bitsets_ = 0;
  std::vector<std::vector<BitLine>> bitsets_;  // [n_tiles][n_bitsets * n_words / 8]
};

}  // namespace tamis
