#include "pivot_index.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "common/terms.hpp"
#include "tamis/prefetch.hpp"

namespace tamis {
namespace {

// Links that are fetched ahead: chains of filters that all events meet are long, and no two links
// of one are neighbours.
constexpr int kAhead = 8;

class PivotScratch final : public Scratch {
 public:
  ValueByAttribute event;
  std::vector<std::uint32_t> key_of;    // [n_attributes] of the event's numbers; 0 elsewhere
  std::vector<std::uint64_t> stamp_of;  // [heads] the last event that followed it
  std::uint64_t stamp = 0;
};

}  // namespace

PivotIndex::PivotIndex(std::shared_ptr<const FilterTable> table, std::size_t n_most)
    : table_(std::move(table)),
      heads_(std::bit_ceil(std::max<std::size_t>(2 * n_most, 2))),
      links_(n_most),
      n_chained_(heads_.size()) {
  shift_ = 64 - std::countr_zero(heads_.size());
}

std::uint32_t PivotIndex::key_of(double number) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(number + 0.0);  // -0.0 becomes 0.0
  return static_cast<std::uint32_t>(((bits & kSign) != 0 ? ~bits : bits | kSign) >> 32);
}

void PivotIndex::append() {
  const auto idx = static_cast<FilterIdx>(size_);
  const FilterTable::Filter& filter = table_->filter(idx);
  std::atomic<std::uint32_t>* head = &unpivoted_;
  std::size_t best = 0;
  bool is_value = false;
  Link& link = links_[idx];
  const auto keep = [&](Interval interval) {
    for (Interval& kept : link.narrowest) {
      if (interval.width < kept.width) std::swap(interval, kept);
    }
  };
  for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
    const Constraint& constraint = table_->constraint(filter.constraints.first + at);
    if (!constraint.needs_attribute()) continue;
    link.needs |= bit_of(constraint.attribute);
    if (constraint.is_interval()) {
      const NumberRange& range = table_->number(constraint.set);
      const std::uint32_t low = key_of(range.low);
      keep({constraint.attribute, low, key_of(range.high) - low});
    }
    const std::uint64_t attribute = hash_attribute(constraint.attribute);
    const std::optional<std::uint64_t> value = hash_only_value(*table_, constraint);
    if (is_value && !value) continue;
    const std::size_t place = place_of(value ? mix_terms(attribute, *value) : attribute);
    if (head == &unpivoted_ || (value && !is_value) || n_chained_[place] < n_chained_[best]) {
      head = &heads_[place];
      best = place;
      is_value = value.has_value();
    }
  }
  if (head != &unpivoted_) ++n_chained_[best];
  link.next = head->load(std::memory_order_relaxed);
  link.ahead = link.next;
  for (int at = 1; at < kAhead && link.ahead != 0; ++at) link.ahead = links_[link.ahead - 1].next;
  head->store(idx + 1, std::memory_order_release);
  ++size_;
}

// Follows a chain to the next filter that may match. A function of its own, so that all it needs is
// in registers: most filters are refused here.
std::uint32_t PivotIndex::find_candidate(std::uint32_t at, std::size_t n_filters,
                                         std::uint32_t lacks, const std::uint32_t* key_of,
                                         std::uint64_t& n_seen) const {
  const Link* const links = links_.data();
  std::uint64_t n_here = 0;
  while (at != 0) {
    const Link& link = links[at - 1];
    if (link.ahead != 0) prefetch_line(&links[link.ahead - 1]);
    ++n_here;
    // Filters of a later snapshot may have attributes that have no key.
    if (at <= n_filters &&
        (((link.needs & lacks) == 0) & link.narrowest[0].may_hold(key_of) &
         link.narrowest[1].may_hold(key_of) & link.narrowest[2].may_hold(key_of))) {
      break;
    }
    at = link.next;
  }
  n_seen += n_here;
  return at;
}

std::unique_ptr<Scratch> PivotIndex::make_scratch() const {
  return std::make_unique<PivotScratch>();
}

void PivotIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                       Scratch& scratch, Collector& out) const {
  match_first(size_, table_->n_attributes(), events, begin, end, scratch, out);
}

void PivotIndex::match_first(std::size_t n_filters, std::size_t n_attributes,
                             const EventBatch& events, std::size_t begin, std::size_t end,
                             Scratch& scratch, Collector& out) const {
  auto& own = static_cast<PivotScratch&>(scratch);
  if (own.stamp_of.size() < heads_.size()) own.stamp_of.resize(heads_.size());
  if (own.key_of.size() <= n_attributes) own.key_of.resize(n_attributes + 1);
  std::uint64_t n_cells = 0, n_candidates = 0;
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    ++own.stamp;
    std::uint32_t lacks = ~std::uint32_t{0};
    const auto for_each_attribute = [&](auto visit) {
      for (std::uint64_t at = events.offsets[each]; at < events.offsets[each + 1]; ++at) {
        if (events.attributes[at] < n_attributes) visit(events.attributes[at], events.values[at]);
      }
    };
    for_each_attribute([&](AttributeId attribute, const EventValue& value) {
      lacks &= ~bit_of(attribute);
      if (value.kind == Kind::number) own.key_of[attribute] = key_of(value.nearest);
    });
    bool is_loaded = false;
    const auto follow = [&](std::uint32_t at) {
      while ((at = find_candidate(at, n_filters, lacks, own.key_of.data(), n_cells)) != 0) {
        const FilterIdx filter = at - 1;
        at = links_[filter].next;
        if (out.has(filter)) continue;
        if (!is_loaded) own.event.load(events, each, n_attributes, table_->space());
        is_loaded = true;
        ++n_candidates;
        if (table_->accepts(filter, own.event)) out.add(filter);
      }
    };
    const auto follow_once = [&](std::size_t place) {
      const std::uint32_t at = heads_[place].load(std::memory_order_acquire);
      if (at == 0 || own.stamp_of[place] == own.stamp) return;
      own.stamp_of[place] = own.stamp;
      follow(at);
    };
    follow(unpivoted_.load(std::memory_order_acquire));
    for_each_attribute([&](AttributeId attribute, const EventValue& value) {
      const std::uint64_t hash = hash_attribute(attribute);
      follow_once(place_of(hash));
      follow_once(place_of(mix_terms(hash, hash_value(value))));
    });
    for_each_attribute(
        [&](AttributeId attribute, const EventValue&) { own.key_of[attribute] = 0; });
  }
  out.counters.cells += n_cells;
  out.counters.candidates += n_candidates;
}

std::size_t PivotIndex::n_bytes() const {
  return heads_.size() * (sizeof(std::uint32_t) + sizeof(std::uint32_t)) +
         links_.capacity() * sizeof(Link);
}

}  // namespace tamis
