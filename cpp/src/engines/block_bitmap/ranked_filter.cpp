#include "ranked_filter.hpp"

#include <algorithm>

namespace tamis::block_bitmap {

void RankedFilter::load(FilterIdx idx) {
  const FilterTable::Filter& filter = table_.filter(idx);
  for (std::size_t part = 0; part < n_parts_; ++part) part_of_[parts_[part].attribute] = kNone;
  n_parts_ = 0;
  needs_table_ = filter.areas.count > 0 || filter.residuals.count > 0;
  for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
    const Constraint& constraint = table_.constraint(filter.constraints.first + at);
    needs_table_ |= Ranks::needs_verify(table_, constraint);
    std::uint32_t& part_idx = part_of_[constraint.attribute];
    if (part_idx == kNone) {
      part_idx = static_cast<std::uint32_t>(n_parts_++);
      if (parts_.size() < n_parts_) parts_.emplace_back();
      parts_[part_idx].attribute = constraint.attribute;
      ranks_.intervals(constraint, parts_[part_idx].accepted);
      continue;
    }
    // A further constraint on the attribute: what both accept.
    std::vector<RankInterval>& accepted = parts_[part_idx].accepted;
    ranks_.intervals(constraint, intervals_);
    both_.clear();
    for (std::size_t a = 0, b = 0; a < accepted.size() && b < intervals_.size();) {
      const RankInterval common{std::max(accepted[a].low, intervals_[b].low),
                                std::min(accepted[a].high, intervals_[b].high)};
      if (common.low < common.high) both_.push_back(common);
      accepted[a].high < intervals_[b].high ? ++a : ++b;
    }
    accepted = both_;
  }
}

void RankedFilters::load(std::span<const FilterIdx> filters) {
  begins_.assign(1, 0);
  needs_table_.clear();
  for (const FilterIdx filter : filters) {
    ranked_.load(filter);
    const std::size_t begin = begins_.back();
    const std::span<const RankedFilter::Part> parts = ranked_.parts();
    if (parts_.size() < begin + parts.size()) parts_.resize(begin + parts.size());
    std::copy(parts.begin(), parts.end(), parts_.begin() + static_cast<std::ptrdiff_t>(begin));
    begins_.push_back(begin + parts.size());
    needs_table_.push_back(ranked_.needs_table());
  }
}

}  // namespace tamis::block_bitmap
