// `sff`: Siena Fast Forwarding, the counting algorithm that papers/000 (section 4) measures PCM
// against; by Carzaniga and Wolf, "Forwarding in a Content-Based Network", SIGCOMM 2003.
//
// Equal constraints of different filters are one constraint with a list of filters, and indexes by
// attribute and operator find the constraints that an event satisfies without a look at the others.
// Each of them counts for the filters of its list; a filter with all its constraints is matched,
// and the event is done when every subscriber is.
//
//     value of attribute a ──► rank ──► lists of (a, type), see common/interval_lists.hpp
//         all  = | !=                 < <=              > >=                BETWEEN
//              │   ├── 4 ──► f g      ├── 3 ──► h       ├── 1 ──► f         tree
//              │   └── 9 ──► h        └── 8 ──► g i     └── 7 ──► k l
//                  └ keys: constraints, once each; behind each the numbers of its filters
//     sets_lists_   the same for constraints of more than two intervals (IN): behind a key the
//                   numbers of sets, and behind a set those of its filters
//     counted_      size and index of each filter by number, see common/counting.hpp
//     always()      filters without a counted constraint: verified for each event
//
// Invariants: a constraint is behind at most one key that holds a value, or one set; so it counts
// once for an event.
//
// Cost for an event of k attributes: k rank lookups, a search in each list of its attributes, and
// one addition for each filter of each constraint that holds. docs/engines/sff.md has the formula.
#include "sff.hpp"

#include <string>
#include <unordered_map>

#include "common/counting.hpp"
#include "common/interval_lists.hpp"
#include "common/ranks.hpp"

namespace tamis {
namespace {

constexpr std::size_t kMaxDirectIntervals = 2;

class SffScratch final : public Scratch {
 public:
  explicit SffScratch(std::uint32_t n_filters) : counts(n_filters) {}
  ValueByAttribute event;
  Counts counts;
};

class SffIndex final : public Index {
 public:
  explicit SffIndex(std::shared_ptr<const FilterTable> table)
      : table_(std::move(table)), ranks_(*table_), counted_(*table_) {
    build();
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<SffScratch>(counted_.largest_partition());
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override;

 private:
  void build();

  std::shared_ptr<const FilterTable> table_;
  Ranks ranks_;
  CountedFilters counted_;
  std::vector<RankTypes> types_;            // [n_attributes]
  IntervalLists lists_;                     // domain: attribute and type; items: filter numbers
  IntervalLists set_lists_;                 // the same; items: sets
  std::vector<std::uint32_t> set_begins_;   // [n_sets + 1]
  std::vector<std::uint32_t> set_filters_;  // numbers, set after set
};

void SffIndex::build() {
  const std::vector<std::uint32_t> numbers = counted_.take_numbers();
  types_.reserve(table_->n_attributes());
  for (AttributeId attribute = 0; attribute < table_->n_attributes(); ++attribute) {
    types_.emplace_back(ranks_, attribute);
  }
  std::unordered_map<std::string, std::uint32_t> set_of;
  std::vector<std::vector<std::uint32_t>> filters_of_set;
  std::vector<RankInterval> intervals;
  std::string key;
  const auto add = [&](IntervalLists& lists, AttributeId attribute, std::uint32_t item) {
    const RankTypes& types = types_[attribute];
    types.for_each_type(intervals, [&](std::uint32_t type, std::span<const RankInterval> parts) {
      lists.add(attribute * RankTypes::kCount + type, types.bounds(type), parts, item);
    });
  };
  for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
    for_each_counted(*table_, idx, [&](const Constraint& constraint) {
      ranks_.intervals(constraint, intervals);
      if (intervals.size() <= kMaxDirectIntervals) {
        add(lists_, constraint.attribute, numbers[idx]);
        return;
      }
      key.assign(reinterpret_cast<const char*>(&constraint.attribute), sizeof(AttributeId));
      key.append(reinterpret_cast<const char*>(intervals.data()),
                 intervals.size() * sizeof(RankInterval));
      const auto [entry, is_new] =
          set_of.try_emplace(key, static_cast<std::uint32_t>(filters_of_set.size()));
      if (is_new) {
        filters_of_set.emplace_back();
        add(set_lists_, constraint.attribute, entry->second);
      }
      filters_of_set[entry->second].push_back(numbers[idx]);
    });
  }
  const auto n_domains = static_cast<std::uint32_t>(types_.size() * RankTypes::kCount);
  lists_.finish(n_domains);
  if (filters_of_set.empty()) return;
  set_lists_.finish(n_domains);
  set_begins_.push_back(0);
  for (const std::vector<std::uint32_t>& filters : filters_of_set) {
    set_filters_.insert(set_filters_.end(), filters.begin(), filters.end());
    set_begins_.push_back(static_cast<std::uint32_t>(set_filters_.size()));
  }
}

void SffIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                     Scratch& given_scratch, Collector& out) const {
  SffScratch& scratch = static_cast<SffScratch&>(given_scratch);
  const CountedFilters::Filter* const filters = counted_.filters(0);
  Counters counters;
  const auto complete = [&](std::uint32_t number) {
    ++counters.candidates;
    const CountedFilters::Filter filter = filters[number];
    if (out.has(filter.idx)) return true;
    if (filter.has_rest && !table_->accepts(filter.idx, scratch.event)) return true;
    out.add(filter.idx);
    return !out.has_all();
  };
  const auto count = [&](const std::uint32_t* first, const std::uint32_t* last,
                         std::uint32_t n_keys) {
    counters.constraints += n_keys;
    counters.filters += static_cast<std::uint64_t>(last - first);
    return scratch.counts.add(first, last, complete);
  };
  const auto count_sets = [&](const std::uint32_t* first, const std::uint32_t* last,
                              std::uint32_t) {
    for (const std::uint32_t* set = first; set != last; ++set) {
      const std::uint32_t* const members = set_filters_.data();
      if (!count(members + set_begins_[*set], members + set_begins_[*set + 1], 1)) return false;
    }
    return true;
  };
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    scratch.event.load(events, each, table_->n_attributes(), table_->space());
    scratch.counts.begin(counted_.limits(0));
    for (std::uint64_t at = events.offsets[each]; at < events.offsets[each + 1]; ++at) {
      const AttributeId attribute = events.attributes[at];
      if (attribute >= types_.size()) continue;
      const std::uint32_t rank = ranks_.rank(attribute, events.values[at]);
      const std::uint32_t domain = attribute * RankTypes::kCount + types_[attribute].type_of(rank);
      counters.cells += lists_.find(domain, rank, count);
      if (!set_begins_.empty()) counters.cells += set_lists_.find(domain, rank, count_sets);
      if (out.has_all()) break;
    }
    for (const FilterIdx idx : counted_.always()) {
      if (out.has_all()) break;
      ++counters.candidates;
      if (!out.has(idx) && table_->accepts(idx, scratch.event)) out.add(idx);
    }
  }
  out.counters += counters;
}

std::size_t SffIndex::n_bytes() const {
  const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  return sizeof(*this) + ranks_.n_bytes() + counted_.n_bytes() + bytes(types_) + lists_.n_bytes() +
         set_lists_.n_bytes() + bytes(set_begins_) + bytes(set_filters_);
}

}  // namespace

std::unique_ptr<Index> build_sff(std::shared_ptr<const FilterTable> table, const Parameters&) {
  return std::make_unique<SffIndex>(std::move(table));
}

}  // namespace tamis
