#include "event_sample.hpp"

#include <algorithm>

namespace tamis {
namespace {

// Events that knew fewer of the attributes than this say too little about new ones.
constexpr double kKnownShare = 0.9;

// Odd, for workloads repeat in round numbers.
std::size_t stride_of(double row_ns) {
  constexpr double kMost = EventSample::kMostStride;
  const double wanted = EventSample::kSampledNs / std::max(row_ns, 1.0);
  return static_cast<std::size_t>(std::clamp(wanted, 1.0, kMost)) | 1;
}

}  // namespace

void EventSample::take(const EventBatch& events, std::size_t begin, std::size_t end,
                       const Match& match, std::size_t& n_until_next) {
  const double row_ns = match.event_ns * match.events_each_row;
  const std::size_t stride = stride_of(row_ns);
  std::size_t event = begin + n_until_next;
  const std::unique_lock lock(ring_lock_, std::try_to_lock);
  for (std::size_t step = 1; event < end; event += step) {
    step = n_taken() < kMostEvents ? 1 : stride;
    if (!lock.owns_lock()) continue;
    copy(events, event);
    // It stands for those that are passed over now.
    const auto n_rows = static_cast<double>(step);
    uses_.add(match.use, n_rows * match.events_each_row, n_rows * row_ns);
  }
  n_until_next = event - end;
  if (!lock.owns_lock()) return;
  has_other_use_.store(difference(known_uses_, uses_) >= kOtherUse, std::memory_order_relaxed);
}

void EventSample::know_uses() {
  const std::lock_guard lock(ring_lock_);
  known_uses_ = uses_;
  forget_other_use();
}

void EventSample::copy(const EventBatch& events, std::size_t event) {
  const std::size_t first = events.offsets[event], last = events.offsets[event + 1];
  std::size_t n_bytes = 0;
  for (std::size_t at = first; at < last; ++at) {
    if (events.values[at].kind == Kind::string) n_bytes += events.values[at].length;
  }
  if (last - first > kMostValues || n_bytes > kMostStringBytes) return;
  Event& target = ring_[n_taken_.load(std::memory_order_relaxed) % kMostEvents];
  target.attributes.assign(events.attributes.begin() + static_cast<std::ptrdiff_t>(first),
                           events.attributes.begin() + static_cast<std::ptrdiff_t>(last));
  target.values.assign(events.values.begin() + static_cast<std::ptrdiff_t>(first),
                       events.values.begin() + static_cast<std::ptrdiff_t>(last));
  target.bytes.clear();
  for (EventValue& value : target.values) {
    if (value.kind != Kind::string) continue;
    target.bytes += value.string();
    value.data = nullptr;
  }
  target.has_position = events.has_position(event);
  if (target.has_position) {
    target.x = events.x[event];
    target.y = events.y[event];
  }
  target.n_known = events.n_known;
  target.catalogue_id = events.catalogue_id;
  n_taken_.fetch_add(1, std::memory_order_relaxed);
}

SampledEvents EventSample::read(std::uint64_t catalogue_id, std::size_t n_names) const {
  SampledEvents sampled;
  EventBatch& all = sampled.events;
  all.catalogue_id = catalogue_id;
  all.n_known = n_names;
  const std::lock_guard lock(ring_lock_);
  bool has_positions = false;
  const auto is_usable = [&](const Event& event) {
    return event.catalogue_id == catalogue_id &&
           static_cast<double>(event.n_known) >= kKnownShare * static_cast<double>(n_names);
  };
  for (std::size_t at = 0; at < size(); ++at) {
    has_positions = has_positions || (is_usable(ring_[at]) && ring_[at].has_position);
  }
  for (std::size_t at = 0; at < size(); ++at) {
    const Event& event = ring_[at];
    if (!is_usable(event)) continue;
    const char* bytes = event.bytes.data();
    for (std::size_t place = 0; place < event.values.size(); ++place) {
      EventValue value = event.values[place];
      if (value.kind == Kind::string) {
        value = EventValue::of(all.arena.copy({bytes, value.length}));
        bytes += value.length;
      }
      all.add(event.attributes[place], value);
    }
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    if (has_positions) {
      all.add_position(event.has_position ? event.x : kNone, event.has_position ? event.y : kNone);
    }
    all.end_event();
  }
  sampled.uses = uses_;
  return sampled;
}

}  // namespace tamis
