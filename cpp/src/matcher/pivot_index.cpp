#include "pivot_index.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "common/terms.hpp"

namespace tamis {
namespace {

class PivotScratch final : public Scratch {
 public:
  ValueByAttribute event;
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

void PivotIndex::append() {
  const auto idx = static_cast<FilterIdx>(size_);
  const FilterTable::Filter& filter = table_->filter(idx);
  std::atomic<std::uint32_t>* head = &unpivoted_;
  std::size_t best = 0;
  bool is_value = false;
  Link& link = links_[idx];
  for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
    const Constraint& constraint = table_->constraint(filter.constraints.first + at);
    if (!constraint.needs_attribute()) continue;
    link.needs |= bit_of(constraint.attribute);
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
  head->store(idx + 1, std::memory_order_release);
  ++size_;
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
  std::uint64_t n_cells = 0, n_candidates = 0;
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    ++own.stamp;
    std::uint64_t lacks = ~std::uint64_t{0};
    for (std::uint64_t at = events.offsets[each]; at < events.offsets[each + 1]; ++at) {
      lacks &= ~bit_of(events.attributes[at]);
    }
    bool is_loaded = false;
    const auto follow = [&](std::uint32_t at) {
      for (; at != 0; at = links_[at - 1].next) {
        ++n_cells;
        if ((links_[at - 1].needs & lacks) != 0 || at > n_filters || out.has(at - 1)) continue;
        if (!is_loaded) own.event.load(events, each, n_attributes, table_->space());
        is_loaded = true;
        ++n_candidates;
        if (table_->accepts(at - 1, own.event)) out.add(at - 1);
      }
    };
    const auto follow_once = [&](std::size_t place) {
      const std::uint32_t at = heads_[place].load(std::memory_order_acquire);
      if (at == 0 || own.stamp_of[place] == own.stamp) return;
      own.stamp_of[place] = own.stamp;
      follow(at);
    };
    follow(unpivoted_.load(std::memory_order_acquire));
    for (std::uint64_t at = events.offsets[each]; at < events.offsets[each + 1]; ++at) {
      if (events.attributes[at] >= n_attributes) continue;
      const std::uint64_t attribute = hash_attribute(events.attributes[at]);
      follow_once(place_of(attribute));
      follow_once(place_of(mix_terms(attribute, hash_value(events.values[at]))));
    }
  }
  out.counters.cells += n_cells;
  out.counters.candidates += n_candidates;
}

std::size_t PivotIndex::n_bytes() const {
  return heads_.size() * (sizeof(std::uint32_t) + sizeof(std::uint32_t)) +
         links_.capacity() * sizeof(Link);
}

}  // namespace tamis
