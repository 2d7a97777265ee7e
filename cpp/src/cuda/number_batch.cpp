#include "number_batch.hpp"

#include <algorithm>
#include <limits>

#include "tamis/error.hpp"

namespace tamis::cuda {

NumberBatch::NumberBatch(std::size_t most_events, std::size_t most_attributes, bool has_points)
    : most_attributes_(most_attributes),
      offsets_(most_events + 1),
      attributes_(most_events * most_attributes),
      values_(most_events * most_attributes),
      points_(has_points ? 3 * most_events : 0) {}

void NumberBatch::pack(const EventBatch& events, std::size_t begin, std::size_t n_events,
                       const RanksOnDevice& ranks, Space space) {
  is_left.assign(n_events, false);
  offsets_.data()[0] = 0;
  for (std::size_t first = 0; first < n_events; first += kWholeEvents) {
    const std::size_t end = std::min(first + kWholeEvents, n_events);
    if (!pack_whole(events, begin, first, end, ranks)) {
      pack_each(events, begin, first, end, ranks);
    }
  }
  for (std::size_t event = 0; points_.size() > 0 && event < n_events; ++event) {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    Point point{kNone, kNone, kNone};
    if (events.has_position(begin + event)) {
      point = to_point(space, events.x[begin + event], events.y[begin + event]);
    }
    double* const to = points_.data() + 3 * event;
    to[0] = point.x, to[1] = point.y, to[2] = point.z;
  }
}

bool NumberBatch::pack_whole(const EventBatch& events, std::size_t begin, std::size_t first,
                             std::size_t end, const RanksOnDevice& ranks) {
  const std::uint64_t* const from = events.offsets.data() + begin;
  std::uint32_t* const offsets = offsets_.data();
  const std::uint32_t n_before = offsets[first];
  bool is_whole = true;
  for (std::size_t event = first; event < end; ++event) {
    is_whole &= from[event + 1] - from[event] <= most_attributes_;
    offsets[event + 1] = n_before + static_cast<std::uint32_t>(from[event + 1] - from[first]);
  }
  if (!is_whole) return false;  // and there might be no room
  const std::size_t n_cells = from[end] - from[first];
  const AttributeId* const attributes = events.attributes.data() + from[first];
  const EventValue* const values = events.values.data() + from[first];
  std::uint32_t* const to_attributes = attributes_.data() + n_before;
  double* const to_values = values_.data() + n_before;
  for (std::size_t cell = 0; cell < n_cells; ++cell) {
    const AttributeId attribute = attributes[cell];
    const EventValue& value = values[cell];
    is_whole &= (value.kind == Kind::number) & (value.residue == 0) &&
                attribute < ranks.n_attributes() && ranks.is_used(attribute) &&
                ranks.takes(attribute);
    to_attributes[cell] = attribute;
    to_values[cell] = value.nearest;
  }
  return is_whole;
}

void NumberBatch::pack_each(const EventBatch& events, std::size_t begin, std::size_t first_event,
                            std::size_t end, const RanksOnDevice& ranks) {
  std::uint32_t n_cells = offsets_.data()[first_event];
  for (std::size_t event = first_event; event < end; ++event) {
    const std::uint32_t first = n_cells;
    for (std::uint64_t at = events.offsets[begin + event]; at < events.offsets[begin + event + 1];
         ++at) {
      const AttributeId attribute = events.attributes[at];
      if (attribute >= ranks.n_attributes() || !ranks.is_used(attribute)) continue;
      const EventValue& value = events.values[at];
      if (value.kind != Kind::number || value.residue != 0 || !ranks.takes(attribute) ||
          n_cells - first == most_attributes_) {
        is_left[event] = true;
        break;
      }
      attributes_.data()[n_cells] = attribute;
      values_.data()[n_cells++] = value.nearest;
    }
    if (is_left[event]) n_cells = first;
    offsets_.data()[event + 1] = n_cells;
  }
}

NumberEvents NumberBatch::events(std::size_t n_events) const {
  NumberEvents packed;
  packed.offsets = offsets_.data();
  packed.attributes = attributes_.data();
  packed.values = values_.data();
  packed.points = points_.data();
  packed.n_events = static_cast<std::uint32_t>(n_events);
  return packed;
}

void CallCounts::begin(const MatchResults& to, Stream stream) {
  to_ = to;
  n_launches_ = 0;
  if (!is_clear_) clear(bytes_.data(), bytes_.n_bytes(), stream);
  is_clear_ = false;
}

MatchResults CallCounts::results() const {
  MatchResults results = to_;
  results.counts =
      reinterpret_cast<MatchCounts*>(bytes_.data() + kMostLaunches * n_bytes_of_launch_);
  return results;
}

std::byte* CallCounts::next() {
  if (n_launches_ == kMostLaunches) {
    throw ArgumentError("a call has at most " + std::to_string(kMostLaunches) + " launches");
  }
  return bytes_.data() + n_bytes_of_launch_ * n_launches_++;
}

void CallCounts::finish(Stream stream) {
  launch_finish_call(results().counts, to_.counts, reinterpret_cast<std::uint32_t*>(bytes_.data()),
                     static_cast<std::uint32_t>(n_launches_ * n_bytes_of_launch_ / 4), stream);
  is_clear_ = true;
}

bool CallCounts::start_again(const OwnGraph& graph, Stream stream) {
  if (!is_clear_) return false;
  is_clear_ = false;
  graph.start(stream);
  is_clear_ = true;
  return true;
}

void FoundPairs::collect(const EventBatch& events, std::size_t begin, std::size_t n_events,
                         const FilterTable& table, std::vector<bool>& is_left, const Index& on_host,
                         Scratch& scratch_on_host, Collector& out) {
  const std::size_t n_left = counts_.data()->n_left;
  for (std::size_t at = 0; at < n_left; ++at) is_left[left_.data()[at]] = true;
  const std::span<const MatchPair> pairs(pairs_.data(), n_pairs());
  const auto event_of = [](const MatchPair& pair) { return pair.event & ~MatchPair::kVerify; };
  // By event: counted, then each to its place.
  begins_.assign(n_events + 2, 0);
  for (const MatchPair& pair : pairs) ++begins_[event_of(pair) + 2];
  for (std::size_t event = 2; event < begins_.size(); ++event) begins_[event] += begins_[event - 1];
  sorted_.resize(pairs.size());
  for (const MatchPair& pair : pairs) sorted_[begins_[event_of(pair) + 1]++] = pair;
  out.counters.filters += pairs.size();
  for (std::size_t event = 0; event < n_events; ++event) {
    if (is_left[event]) {
      const std::size_t first = event;
      while (event + 1 < n_events && is_left[event + 1]) ++event;
      on_host.match(events.rows(), begin + first, begin + event + 1, scratch_on_host, out);
      continue;
    }
    out.begin_event();
    bool has_values = false;
    for (std::uint32_t at = begins_[event]; at < begins_[event + 1]; ++at) {
      const MatchPair& pair = sorted_[at];
      if ((pair.event & MatchPair::kVerify) != 0) {
        if (out.has(pair.filter)) continue;
        if (!has_values) {
          values_.load(events.rows(), begin + event, table.n_attributes(), table.space());
        }
        has_values = true;
        ++out.counters.candidates;
        if (!table.accepts(pair.filter, values_)) continue;
      }
      out.add(pair.filter);
    }
  }
}

}  // namespace tamis::cuda
