// The filters of a `tuple-key` index that accept most events.
//
// Where an event is delivered to few subscribers, some tens of matches settle them all, and it does
// not matter which these are. An event then looks at these filters first, without testing any: the
// ranks of an attribute are divided into cells, and a line of each cell has the bits of filters
// whose constraint holds for every rank in it. A filter for which as many lines have its bit as it
// has attributes surely matches. What only may match is left: if subscribers are left, the event
// looks up its keys as ever. Filters of more than seven attributes, or with more to them than
// constraints that need an attribute's rank, are never among them.
//
//     ranks    │ cell 0 │ cell 1 │ … numbers │ … strings │   others have none
//     lines    [n_stages][n_lines]   a bit for each of 1,024 filters, the likeliest in stage 0
//     needed   [n_stages][3]         8 - n attributes of each filter, bit by bit: lines are added
//                                    to it, and what comes to 8 matches; 7 where there is no filter
//     filters  [n_stages * 1024]
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/ranks.hpp"
#include "engines/tuple_key/kernels.hpp"
#include "engines/tuple_key/planner.hpp"
#include "tamis/column.hpp"
#include "tamis/sections.hpp"

namespace tamis::tuple_key {

class LikelyFilters {
 public:
  static constexpr std::size_t kMostTargets = 64;  // that a few matches may settle
  static constexpr std::uint32_t kNoLine = ~std::uint32_t{0};

  LikelyFilters() = default;
  // None where there are few filters anyway.
  LikelyFilters(const Planner& planner, const FilterTable& table, const Ranks& ranks,
                const FilterTerms& terms);
  LikelyFilters(const SectionReader& sections, std::size_t n_attributes);
  void save(SectionWriter& sections) const;

  std::size_t n_stages() const { return filters_.size() / kLineFilters; }
  // Which of a stage's lines a value has.
  std::uint32_t line_of(AttributeId attribute, std::uint32_t rank) const {
    return cells_[attribute].line_of(rank);
  }
  const LikelyLine* lines(std::size_t stage) const { return lines_.data() + stage * n_lines_; }
  const LikelyLine* needed(std::size_t stage) const { return needed_.data() + 3 * stage; }
  FilterIdx filter(std::size_t stage, std::size_t bit) const {
    return filters_[stage * kLineFilters + bit];
  }
  std::size_t n_bytes() const {
    return cells_.n_bytes() + lines_.n_bytes() + needed_.n_bytes() + filters_.n_bytes();
  }

 private:
  // How ranks of an attribute become cells: numbers in equal parts, then strings in equal parts.
  struct Cells {
    std::uint32_t first_line = kNoLine;  // kNoLine: no likely filter has the attribute
    std::uint32_t first_string = 0, first_other = 0, n_number_cells = 0;
    std::uint64_t number_scale = 0, string_scale = 0;  // cells for a rank, times 2^32

    std::uint32_t line_of(std::uint32_t rank) const {
      if (first_line == kNoLine || rank >= first_other) return kNoLine;
      if (rank < first_string) {
        return first_line + static_cast<std::uint32_t>(rank * number_scale >> 32);
      }
      return first_line + n_number_cells +
             static_cast<std::uint32_t>((rank - first_string) * string_scale >> 32);
    }
  };
  void add_cells(const Ranks& ranks, const std::vector<bool>& is_used, std::uint32_t n_most_cells);
  void add_lines(const FilterTable& table, const Ranks& ranks,
                 const std::vector<FilterIdx>& filters, std::size_t n_stages);
  std::vector<RankInterval> ranks_of_lines() const;

  std::uint32_t n_lines_ = 0;  // of a stage
  Column<Cells> cells_;        // [n_attributes]
  Column<LikelyLine> lines_;
  Column<LikelyLine> needed_;
  Column<FilterIdx> filters_;
};

// Are they worth a look? Both ways are tried on a few events now and then, by the work they count,
// and the better one serves the next ones: longer each time that it was so before.
class LikelyOrNot {
 public:
  bool is_trial() const { return phase_ != kSettled; }
  bool takes_likely() const { return phase_ == kSettled ? is_better_ : phase_ == kTryLikely; }
  // An event was matched in the way that takes_likely() said; its work counts in trials only.
  void done(double cost) {
    if (phase_ == kSettled) {
      if (--n_left_ == 0) begin_trial();
      return;
    }
    costs_[phase_] += cost;
    if (--n_left_ > 0) return;
    n_left_ = kTrialEvents;
    if (phase_ == kTryUsual) {
      phase_ = kTryLikely;
      return;
    }
    const bool is_better = costs_[kTryLikely] < costs_[kTryUsual];
    n_settled_ = is_better == is_better_ ? std::min(2 * n_settled_, kMostSettled) : kLeastSettled;
    is_better_ = is_better;
    phase_ = kSettled;
    n_left_ = n_settled_;
  }

 private:
  enum Phase : std::uint8_t { kTryUsual, kTryLikely, kSettled };
  static constexpr std::size_t kTrialEvents = 4, kLeastSettled = 256, kMostSettled = 1 << 16;
  void begin_trial() {
    phase_ = kTryUsual;
    n_left_ = kTrialEvents;
    costs_[kTryUsual] = costs_[kTryLikely] = 0;
  }
  Phase phase_ = kTryUsual;
  bool is_better_ = false;
  std::size_t n_left_ = kTrialEvents, n_settled_ = kLeastSettled / 2;
  double costs_[2] = {0, 0};
};

}  // namespace tamis::tuple_key
