#include "engines/tuple_key/records.hpp"

#include <algorithm>
#include <cstring>

namespace tamis::tuple_key {
namespace {

constexpr std::size_t kMostGaps = 3;     // of a set that is tested by lanes
constexpr std::size_t kMostLanes = 512;  // of a record; the rest is verified

template <typename Lane>
void put(std::uint64_t* record, std::size_t at, std::uint32_t value) {
  const auto lane = static_cast<Lane>(value);
  std::memcpy(reinterpret_cast<char*>(record + 1) + at * sizeof(Lane), &lane, sizeof lane);
}

}  // namespace

RecordEncoder::RecordEncoder(const FilterTable& table, const Ranks& ranks,
                             std::uint32_t n_areas_tested)
    : slots(table.n_attributes()),
      table_(table),
      ranks_(ranks),
      n_areas_tested_(n_areas_tested),
      n_lanes_(table.size()) {
  terms_.terms.reserve(table.n_constraints());
  terms_.begins.reserve(table.size() + 1);
  terms_.shares.reserve(table.size());
  for (FilterIdx filter = 0; filter < table.size(); ++filter) {
    const bool is_possible = encode(filter, &terms_);
    terms_.shares.push_back(share_);
    n_lanes_[filter] = is_possible ? static_cast<std::uint16_t>(lanes_.size()) : kImpossible;
    if (!is_possible) terms_.terms.resize(terms_.begins.back());
    terms_.begins.push_back(terms_.terms.size());
  }
  // Ranks are below n_ranks, and the top bit of a slot says "negated".
  std::uint32_t n_most_ranks = 0;
  for (AttributeId attribute = 0; attribute < slots.size(); ++attribute) {
    if (slots[attribute].is_used()) n_most_ranks = std::max(n_most_ranks, ranks.n_ranks(attribute));
  }
  const auto fits = [&](std::uint32_t negated) {
    return defaults.size() <= negated && n_most_ranks <= 2 * negated;
  };
  lane_bytes_ = fits(kNegated8) ? 1 : fits(kNegated16) ? 2 : 4;
}

std::uint32_t RecordEncoder::slot_of(std::uint32_t& slot, std::uint32_t rank_of_absent) {
  if (slot == kNoSlot) {
    slot = static_cast<std::uint32_t>(defaults.size());
    defaults.push_back(rank_of_absent);
  }
  return slot;
}

bool RecordEncoder::encode(FilterIdx idx, FilterTerms* terms) {
  const FilterTable::Filter& filter = table_.filter(idx);
  lanes_.clear();
  share_ = 1;
  needs_verify_ = filter.areas.count > n_areas_tested_ || filter.residuals.count > 0;
  for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
    const Constraint& constraint = table_.constraint(filter.constraints.first + at);
    const AttributeId attribute = constraint.attribute;
    ranks_.intervals(constraint, intervals_);
    if (intervals_.empty()) return false;
    needs_verify_ |= Ranks::needs_verify(table_, constraint);
    const std::uint32_t low = intervals_.front().low, high = intervals_.back().high;
    const std::uint32_t n_ranks = ranks_.n_ranks(attribute);
    std::uint32_t n_accepted = 0;
    for (const RankInterval& each : intervals_) n_accepted += each.high - each.low;
    share_ *= static_cast<float>(n_accepted) / static_cast<float>(n_ranks);
    if (terms != nullptr && high < n_ranks) {
      const std::uint32_t value = high - low == 1 ? low : kNoValue;
      const auto first = terms->terms.begin() + static_cast<std::ptrdiff_t>(terms->begins.back());
      const auto same = std::find_if(first, terms->terms.end(), [&](const FilterTerm& term) {
        return term.attribute == attribute;
      });
      if (same == terms->terms.end()) {
        terms->terms.push_back({attribute, value});
      } else if (same->value == kNoValue) {
        same->value = value;
      }
    }
    const std::uint32_t first_string = ranks_.first_string_rank(attribute);
    const std::uint32_t first_other = ranks_.first_other_rank(attribute);
    AttributeSlots& of = slots[attribute];
    std::uint32_t slot = 0;
    bool is_whole_type = false;
    if (high <= first_string) {
      slot = slot_of(of.numbers, kNoRank);
      is_whole_type = low == 0 && high == first_string;
    } else if (low >= first_string && high <= first_other) {
      slot = slot_of(of.strings, kNoRank);
      is_whole_type = low == first_string && high == first_other;
    } else {
      slot = slot_of(of.all, n_ranks - 1);
    }
    // The attribute has its slot in any case: an event's attributes without one are left out.
    if (lanes_.size() + kMostGaps + 1 > kMostLanes) {
      needs_verify_ = true;
      continue;
    }
    const std::size_t n_gaps = intervals_.size() - 1;
    if (n_gaps > kMostGaps) needs_verify_ = true;
    const bool has_gap_lanes = n_gaps > 0 && n_gaps <= kMostGaps;
    if (!is_whole_type || !has_gap_lanes) lanes_.push_back({slot, low, high - low - 1, false});
    for (std::size_t gap = 0; has_gap_lanes && gap < n_gaps; ++gap) {
      const std::uint32_t begin = intervals_[gap].high, end = intervals_[gap + 1].low;
      lanes_.push_back({slot, begin, end - begin - 1, true});
    }
  }
  return true;
}

void RecordEncoder::write(FilterIdx filter, std::uint64_t* record) {
  encode(filter, nullptr);
  const std::size_t n_lanes = lanes_.size();
  std::memset(record, 0, size_of(filter) * sizeof *record);
  record[0] = filter | std::uint64_t{n_lanes} << 32 | (needs_verify_ ? kVerify : 0) << 48;
  const std::uint32_t negated = lane_bytes_ == 1   ? kNegated8
                                : lane_bytes_ == 2 ? kNegated16
                                                   : kNegated32;
  const auto write_lane = [&](std::size_t at, std::uint32_t value) {
    if (lane_bytes_ == 1) {
      put<std::uint8_t>(record, at, value);
    } else if (lane_bytes_ == 2) {
      put<std::uint16_t>(record, at, value);
    } else {
      put<std::uint32_t>(record, at, value);
    }
  };
  for (std::size_t at = 0; at < n_lanes; ++at) {
    const Lane& lane = lanes_[at];
    write_lane(at, lane.slot | (lane.is_negated ? negated : 0));
    write_lane(n_lanes + at, lane.low);
    write_lane(2 * n_lanes + at, lane.width);
  }
}

}  // namespace tamis::tuple_key
