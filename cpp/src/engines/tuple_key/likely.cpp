#include "engines/tuple_key/likely.hpp"

#include "tamis/error.hpp"
#include "tamis/huge_pages.hpp"

namespace tamis::tuple_key {
namespace {

// With 20 of 100 attributes, 8,192 filters in 32 cells leave a fifth of the events with a
// subscriber that is not settled, 16,384 in 16, 24 and 32 cells 6 %, 3.6 % and 2.6 %: 4.2, 2.5, 2.1
// and 2.0 µs.
constexpr std::size_t kMostFilters = 16384;
constexpr std::size_t kMostCandidates = 16 * kMostFilters;
constexpr float kFewAlike = 16;     // with one rarest attribute: the next one counts half
constexpr std::size_t kShare = 16;  // at most one of so many filters
// Cells of numbers, and of strings: as many as memory allows.
constexpr std::uint32_t kMostCells = 24, kLeastCells = 6;
constexpr std::size_t kMostBytes = 6;       // for a constraint of the table
constexpr std::size_t kMostAttributes = 7;  // of a filter: what three bits count

// Do lines say all that the filter asks for?
bool is_plain(const FilterTable& table, FilterIdx idx, std::size_t n_terms) {
  const FilterTable::Filter& filter = table.filter(idx);
  // As many terms as constraints: they are on different attributes, and none accepts "absent".
  if (n_terms != filter.constraints.count || n_terms == 0) return false;
  if (n_terms > kMostAttributes || filter.areas.count > 0 || filter.residuals.count > 0)
    return false;
  for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
    if (Ranks::needs_verify(table, table.constraint(filter.constraints.first + at))) return false;
  }
  return true;
}

// The likeliest filters that are plain, the likeliest first; but of those that share their rarest
// attribute each further one counts less, or a few attributes would have nearly all of them, and
// events without these none.
std::vector<FilterIdx> find_likely(const Planner& planner, const FilterTable& table,
                                   const FilterTerms& terms) {
  const EventModel model = planner.model_of(planner.plans().back().n_attributes);
  struct Candidate {
    FilterIdx filter;
    AttributeId rarest;
    float chance;
  };
  std::vector<Candidate> all;
  for (FilterIdx filter = 0; filter < terms.size(); ++filter) {
    if (!is_plain(table, filter, terms[filter].size())) continue;
    all.push_back({filter, terms[filter][0].attribute, terms.shares[filter]});
    Candidate& each = all.back();
    for (const FilterTerm& term : terms[filter]) {
      each.chance *= static_cast<float>(model.presences[term.attribute]);
      if (model.presences[term.attribute] < model.presences[each.rarest]) {
        each.rarest = term.attribute;
      }
    }
  }
  const auto is_likelier = [](const Candidate& a, const Candidate& b) {
    return a.chance != b.chance ? a.chance > b.chance : a.filter < b.filter;
  };
  if (all.size() > kMostCandidates) {
    std::nth_element(all.begin(), all.begin() + kMostCandidates, all.end(), is_likelier);
    all.resize(kMostCandidates);
  }
  std::sort(all.begin(), all.end(), is_likelier);
  std::vector<float> n_before(table.n_attributes());
  for (Candidate& each : all) each.chance /= 1 + n_before[each.rarest]++ / kFewAlike;
  std::sort(all.begin(), all.end(), is_likelier);
  all.resize(std::min({kMostFilters, terms.size() / kShare, all.size()}));
  std::vector<FilterIdx> filters;
  for (const Candidate& each : all) filters.push_back(each.filter);
  return filters;
}

std::uint64_t scale_of(std::uint32_t n_cells, std::uint32_t n_ranks) {
  return (std::uint64_t{n_cells} << 32) / n_ranks;
}

void set_bit(LikelyLine& line, std::size_t bit) {
  line.words[bit / 64] |= std::uint64_t{1} << (bit % 64);
}

}  // namespace

LikelyFilters::LikelyFilters(const Planner& planner, const FilterTable& table, const Ranks& ranks,
                             const FilterTerms& terms) {
  std::vector<FilterIdx> filters = find_likely(planner, table, terms);
  // As many filters as memory has room for, in cells as fine as it allows.
  const std::size_t n_room = kMostBytes * table.n_constraints() / sizeof(LikelyLine);
  std::size_t n_stages = (filters.size() + kLineFilters - 1) / kLineFilters;
  const auto fits = [&] {
    std::vector<bool> is_used(table.n_attributes());
    for (const FilterIdx filter : filters) {
      for (const FilterTerm& term : terms[filter]) is_used[term.attribute] = true;
    }
    for (std::uint32_t n_cells = kMostCells; n_cells >= kLeastCells; n_cells /= 2) {
      add_cells(ranks, is_used, n_cells);
      if (n_stages * n_lines_ <= n_room) return true;
    }
    return false;
  };
  while (n_stages > 0 && !fits()) {
    n_stages /= 2;
    filters.resize(n_stages * kLineFilters);
  }
  if (n_stages == 0) {
    cells_ = {};
    return;
  }
  add_lines(table, ranks, filters, n_stages);
  std::vector<LikelyLine> needed(3 * n_stages);
  for (std::size_t at = 0; at < n_stages * kLineFilters; ++at) {
    const std::size_t left = at < filters.size() ? 8 - terms[filters[at]].size() : 7;
    for (std::size_t digit = 0; digit < 3; ++digit) {
      if (left >> digit & 1) set_bit(needed[3 * (at / kLineFilters) + digit], at % kLineFilters);
    }
  }
  needed_ = std::move(needed);
  filters.resize(n_stages * kLineFilters);
  filters_ = std::move(filters);
}

void LikelyFilters::add_cells(const Ranks& ranks, const std::vector<bool>& is_used,
                              std::uint32_t n_most_cells) {
  n_lines_ = 0;
  std::vector<Cells> all(is_used.size());
  for (AttributeId attribute = 0; attribute < is_used.size(); ++attribute) {
    if (!is_used[attribute]) continue;
    Cells& cells = all[attribute];
    cells.first_line = n_lines_;
    cells.first_string = ranks.first_string_rank(attribute);
    cells.first_other = ranks.first_other_rank(attribute);
    cells.n_number_cells = std::min(n_most_cells, cells.first_string);
    const std::uint32_t n_strings = cells.first_other - cells.first_string;
    const std::uint32_t n_string_cells = std::min(n_most_cells, n_strings);
    cells.number_scale = scale_of(cells.n_number_cells, cells.first_string);
    cells.string_scale = scale_of(n_string_cells, n_strings);
    n_lines_ += cells.n_number_cells + n_string_cells;
  }
  cells_ = std::move(all);
}

std::vector<RankInterval> LikelyFilters::ranks_of_lines() const {
  std::vector<RankInterval> all(n_lines_);
  for (const Cells& cells : cells_) {
    if (cells.first_line == kNoLine) continue;
    const auto add = [&](std::uint32_t begin, std::uint32_t end, std::uint64_t scale) {
      // The first rank of cell c is the least r with r * scale >= c * 2^32.
      const auto first_of = [&](std::uint64_t cell) {
        const std::uint64_t first = begin + ((cell << 32) + scale - 1) / scale;
        return static_cast<std::uint32_t>(std::min<std::uint64_t>(end, first));
      };
      const std::uint32_t first_line = cells.line_of(begin);
      const std::uint32_t n_cells = cells.line_of(end - 1) + 1 - first_line;
      for (std::uint32_t cell = 0; cell < n_cells; ++cell) {
        all[first_line + cell] = {first_of(cell), first_of(cell + 1)};
      }
    };
    add(0, cells.first_string, cells.number_scale);
    add(cells.first_string, cells.first_other, cells.string_scale);
  }
  return all;
}

void LikelyFilters::add_lines(const FilterTable& table, const Ranks& ranks,
                              const std::vector<FilterIdx>& filters, std::size_t n_stages) {
  const std::vector<RankInterval> ranks_of = ranks_of_lines();
  std::vector<LikelyLine> lines;
  lines.reserve(n_stages * n_lines_);
  advise_huge_pages(lines.data(), lines.capacity() * sizeof lines[0]);
  lines.resize(lines.capacity());
  std::vector<RankInterval> accepted;
  for (std::size_t at = 0; at < filters.size(); ++at) {
    LikelyLine* const of_stage = lines.data() + at / kLineFilters * n_lines_;
    const FilterTable::Filter& filter = table.filter(filters[at]);
    for (std::uint32_t each = 0; each < filter.constraints.count; ++each) {
      const Constraint& constraint = table.constraint(filter.constraints.first + each);
      const Cells& cells = cells_[constraint.attribute];
      ranks.intervals(constraint, accepted);
      for (const RankInterval& whole : accepted) {
        if (whole.low >= cells.first_other) continue;
        const std::uint32_t last = cells.line_of(std::min(whole.high, cells.first_other) - 1);
        for (std::uint32_t line = cells.line_of(whole.low); line <= last; ++line) {
          if (ranks_of[line].low < whole.low || ranks_of[line].high > whole.high) continue;
          set_bit(of_stage[line], at % kLineFilters);
        }
      }
    }
  }
  lines_ = std::move(lines);
}

LikelyFilters::LikelyFilters(const SectionReader& sections, std::size_t n_attributes)
    : cells_(sections.column<Cells>("tuple_key/likely_cells")),
      lines_(sections.column<LikelyLine>("tuple_key/likely_lines")),
      needed_(sections.column<LikelyLine>("tuple_key/likely_needed")),
      filters_(sections.column<FilterIdx>("tuple_key/likely_filters")) {
  if (n_stages() == 0) return;
  if (cells_.size() != n_attributes || filters_.size() != n_stages() * kLineFilters ||
      needed_.size() != 3 * n_stages() || lines_.size() % n_stages() != 0) {
    throw Error("the likely filters of engine tuple-key must be those of its index");
  }
  n_lines_ = static_cast<std::uint32_t>(lines_.size() / n_stages());
}

void LikelyFilters::save(SectionWriter& sections) const {
  sections.write("tuple_key/likely_cells", cells_);
  sections.write("tuple_key/likely_lines", lines_);
  sections.write("tuple_key/likely_needed", needed_);
  sections.write("tuple_key/likely_filters", filters_);
}

}  // namespace tamis::tuple_key
