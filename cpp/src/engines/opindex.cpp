// `opindex`: OpIndex, a baseline of papers/002 (section 5); by Zhang, Chan and Tan, "An Efficient
// Publish/Subscribe Index for E-Commerce Databases", PVLDB 7(8), 2014.
//
// A filter belongs to the partition of its pivot, the rarest of its attributes: an event without
// that attribute cannot match it. In the partitions of its attributes an event looks up, by
// attribute and operator, the constraints that it satisfies, and counts them for their filters.
//
//     event {a3: 7, a8: 2}
//       pivot a3 ──► partition ──► directory: (attribute, type) ──► lists by operator
//                       │            (a3, number)      = != < > BETWEEN   ──► filter numbers
//                       │            (a8, number)      …
//                       └─ filters 0, 1, 2 …  by size; counters are those of one partition
//       pivot a8 ──► partition ──► …
//     always()   filters without a counted constraint: verified for each event
//
// common/interval_lists.hpp has the lists, common/counting.hpp the counters.
//
// Invariants: a filter is in one partition or in always(); all its counted constraints are in lists
// of that partition; a constraint is behind at most one key that holds a value.
//
// Cost for an event of k attributes: k rank lookups; for each of its pivots k lookups in the
// directory, a search in each list found, and one addition for each constraint there that holds.
// docs/engines/opindex.md has the formula.
#include "opindex.hpp"

#include <limits>
#include <numeric>
#include <unordered_map>

#include "common/counting.hpp"
#include "common/interval_lists.hpp"
#include "common/ranks.hpp"

namespace tamis {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

struct PreparedValue {
  std::uint32_t code = 0;  // attribute and type
  std::uint32_t rank = 0;
  std::uint32_t partition = 0;  // of which it is the pivot, or kNone
};

class OpIndexScratch final : public Scratch {
 public:
  explicit OpIndexScratch(std::uint32_t n_filters) : counts(n_filters) {}
  ValueByAttribute event;
  std::vector<PreparedValue> values;
  Counts counts;
};

class OpIndexIndex final : public Index {
 public:
  explicit OpIndexIndex(std::shared_ptr<const FilterTable> table)
      : table_(std::move(table)), ranks_(*table_) {
    types_.reserve(table_->n_attributes());
    for (AttributeId attribute = 0; attribute < table_->n_attributes(); ++attribute) {
      types_.emplace_back(ranks_, attribute);
    }
    const std::vector<std::uint32_t> partition_of = choose_pivots();
    counted_ = std::make_unique<CountedFilters>(*table_, partition_of, n_partitions_);
    fill_lists(partition_of);
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<OpIndexScratch>(counted_->largest_partition());
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override;

 private:
  std::vector<std::uint32_t> choose_pivots();
  void fill_lists(const std::vector<std::uint32_t>& partition_of);
  void prepare(const EventBatch& events, std::size_t event, OpIndexScratch& scratch) const;
  // Where the partition has lists for the code, or kNone.
  std::uint32_t domain_of(std::uint32_t partition, std::uint32_t code) const {
    const std::uint32_t* first = codes_.data() + code_begins_[partition];
    std::uint32_t count = code_begins_[partition + 1] - code_begins_[partition];
    while (count > 1) {
      const std::uint32_t half = count / 2;
      first = first[half] <= code ? first + half : first;
      count -= half;
    }
    return count == 1 && *first == code ? domains_[first - codes_.data()] : kNone;
  }

  std::shared_ptr<const FilterTable> table_;
  Ranks ranks_;
  std::vector<RankTypes> types_;                   // [n_attributes]
  std::vector<std::uint32_t> partition_by_pivot_;  // [n_attributes]
  std::uint32_t n_partitions_ = 0;
  std::unique_ptr<CountedFilters> counted_;
  std::vector<std::uint32_t> code_begins_;  // [n_partitions + 1]
  std::vector<std::uint32_t> codes_;        // [n_domains] in order within a partition
  std::vector<std::uint32_t> domains_;      // [n_domains] of the codes
  IntervalLists lists_;                     // domain: partition and code; items: filter numbers
};

// The pivot of a filter is the attribute with the fewest constraints in the whole table.
std::vector<std::uint32_t> OpIndexIndex::choose_pivots() {
  std::vector<std::uint64_t> n_constraints(table_->n_attributes());
  for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
    for_each_counted(*table_, idx,
                     [&](const Constraint& each) { ++n_constraints[each.attribute]; });
  }
  partition_by_pivot_.assign(table_->n_attributes(), kNone);
  std::vector<std::uint32_t> partition_of(table_->size(), 0);
  for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
    AttributeId pivot = kNone;
    for_each_counted(*table_, idx, [&](const Constraint& each) {
      if (pivot == kNone || n_constraints[each.attribute] < n_constraints[pivot]) {
        pivot = each.attribute;
      }
    });
    if (pivot == kNone) continue;
    std::uint32_t& partition = partition_by_pivot_[pivot];
    if (partition == kNone) partition = n_partitions_++;
    partition_of[idx] = partition;
  }
  return partition_of;
}

void OpIndexIndex::fill_lists(const std::vector<std::uint32_t>& partition_of) {
  const std::vector<std::uint32_t> numbers = counted_->take_numbers();
  std::unordered_map<std::uint64_t, std::uint32_t> domain_of;  // by partition and code
  std::vector<RankInterval> intervals;
  for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
    for_each_counted(*table_, idx, [&](const Constraint& constraint) {
      const RankTypes& types = types_[constraint.attribute];
      ranks_.intervals(constraint, intervals);
      types.for_each_type(intervals, [&](std::uint32_t type, std::span<const RankInterval> parts) {
        const std::uint32_t code = constraint.attribute * RankTypes::kCount + type;
        const std::uint64_t key = std::uint64_t{partition_of[idx]} << 32 | code;
        const auto [entry, is_new] =
            domain_of.try_emplace(key, static_cast<std::uint32_t>(domain_of.size()));
        lists_.add(entry->second, types.bounds(type), parts, numbers[idx]);
      });
    });
  }
  lists_.finish(static_cast<std::uint32_t>(domain_of.size()));

  std::vector<std::pair<std::uint64_t, std::uint32_t>> directory(domain_of.begin(),
                                                                 domain_of.end());
  std::sort(directory.begin(), directory.end());
  code_begins_.assign(n_partitions_ + 1, 0);
  codes_.reserve(directory.size());
  domains_.reserve(directory.size());
  for (const auto& [key, domain] : directory) {
    codes_.push_back(static_cast<std::uint32_t>(key));
    domains_.push_back(domain);
    ++code_begins_[(key >> 32) + 1];
  }
  std::partial_sum(code_begins_.begin(), code_begins_.end(), code_begins_.begin());
}

void OpIndexIndex::prepare(const EventBatch& events, std::size_t event,
                           OpIndexScratch& scratch) const {
  scratch.event.load(events, event, table_->n_attributes(), table_->space());
  scratch.values.clear();
  for (std::uint64_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
    const AttributeId attribute = events.attributes[at];
    if (attribute >= types_.size()) continue;
    const std::uint32_t rank = ranks_.rank(attribute, events.values[at]);
    scratch.values.push_back({attribute * RankTypes::kCount + types_[attribute].type_of(rank), rank,
                              partition_by_pivot_[attribute]});
  }
}

void OpIndexIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                         Scratch& given_scratch, Collector& out) const {
  OpIndexScratch& scratch = static_cast<OpIndexScratch&>(given_scratch);
  const CountedFilters& counted = *counted_;
  const CountedFilters::Filter* filters = nullptr;
  Counters counters;
  const auto complete = [&](std::uint32_t number) {
    ++counters.candidates;
    const CountedFilters::Filter filter = filters[number];
    if (out.has(filter.idx)) return true;
    if (filter.has_rest && !table_->accepts(filter.idx, scratch.event)) return true;
    out.add(filter.idx);
    return !out.has_all();
  };
  const auto count = [&](const std::uint32_t* first, const std::uint32_t* last, std::uint32_t) {
    counters.constraints += static_cast<std::uint64_t>(last - first);
    return scratch.counts.add(first, last, complete);
  };
  const auto count_value = [&](std::uint32_t partition, const PreparedValue& value) {
    const std::uint32_t domain = domain_of(partition, value.code);
    if (domain == kNone) return;
    counters.cells += lists_.find(domain, value.rank, count);
  };
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    prepare(events, each, scratch);
    for (const PreparedValue& pivot : scratch.values) {
      if (pivot.partition == kNone) continue;
      if (out.has_all()) break;
      filters = counted.filters(pivot.partition);
      scratch.counts.begin(counted.limits(pivot.partition));
      counters.filters += counted.n_filters(pivot.partition);
      // No filter of the partition can match where none accepts the value of the pivot.
      const std::uint64_t n_before = counters.constraints;
      count_value(pivot.partition, pivot);
      if (counters.constraints == n_before) continue;
      for (const PreparedValue& value : scratch.values) {
        if (&value == &pivot) continue;
        if (out.has_all()) break;
        count_value(pivot.partition, value);
      }
    }
    for (const FilterIdx idx : counted.always()) {
      if (out.has_all()) break;
      ++counters.candidates;
      if (!out.has(idx) && table_->accepts(idx, scratch.event)) out.add(idx);
    }
  }
  out.counters += counters;
}

std::size_t OpIndexIndex::n_bytes() const {
  const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  return sizeof(*this) + ranks_.n_bytes() + bytes(types_) + bytes(partition_by_pivot_) +
         counted_->n_bytes() + bytes(code_begins_) + bytes(codes_) + bytes(domains_) +
         lists_.n_bytes();
}

}  // namespace

std::unique_ptr<Index> build_opindex(std::shared_ptr<const FilterTable> table, const Parameters&) {
  return std::make_unique<OpIndexIndex>(std::move(table));
}

}  // namespace tamis
