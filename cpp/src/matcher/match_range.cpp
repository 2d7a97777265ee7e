#include <algorithm>

#include "snapshot.hpp"

namespace tamis {

Workspace::SegmentScratch& Workspace::scratch_of(const Segment& segment) {
  for (SegmentScratch& scratch : scratches) {
    if (scratch.serial == segment.serial()) return scratch;
  }
  SegmentScratch& scratch = scratches.emplace_back();
  scratch.serial = segment.serial();
  for (const Group& group : segment.groups()) {
    scratch.of_group.push_back(group.index().make_scratch());
  }
  scratch.of_twin.resize(segment.groups().size());
  return scratch;
}

void Workspace::keep_only(const Snapshot& snapshot) {
  if (scratches.size() == snapshot.segments.size()) return;  // a match made those of all segments
  std::erase_if(scratches, [&](const SegmentScratch& scratch) {
    return std::none_of(snapshot.segments.begin(), snapshot.segments.end(),
                        [&](const auto& segment) { return segment->serial() == scratch.serial; });
  });
}

MatchPart match_range(const Snapshot& snapshot, const EventBatch& events,
                      const MatchOptions& options, bool counts_hits, std::size_t begin,
                      std::size_t end, Side side, const MatchRows& rows, Workspace& workspace) {
  Stamps& stamps = workspace.stamps;
  const bool to_subscribers = options.deliver == Deliver::subscribers;
  std::size_t n_parts = snapshot.n_delta_filters > 0 ? 1 : 0;
  for (const auto& segment : snapshot.segments) n_parts += segment->groups().size();
  // Subscribers of several segments must be made unique, even to be counted.
  const bool must_unite = to_subscribers && n_parts > 1;
  MatchPart part;
  std::vector<Collector>& collectors = workspace.collectors;
  collectors.clear();
  collectors.reserve(n_parts);
  while (workspace.buffers.size() < n_parts) workspace.buffers.emplace_back();
  const auto add_collector = [&](const Collector::Setup& given) -> Collector& {
    return collectors.emplace_back(given, stamps, workspace.buffers[collectors.size()]);
  };

  Collector::Setup setup;
  setup.output = options.output == Output::count && must_unite ? Output::ids : options.output;
  setup.died_at = snapshot.has_dead ? &snapshot.store->died_at : nullptr;
  setup.version = snapshot.version;
  setup.hits = counts_hits ? &snapshot.store->hits : nullptr;
  setup.n_targets = to_subscribers ? snapshot.n_subscribers : snapshot.n_slots;
  setup.bits = rows.bits;
  setup.words_per_event = rows.words_per_event;
  for (const auto& segment : snapshot.segments) {
    Workspace::SegmentScratch& scratch = workspace.scratch_of(*segment);
    for (std::size_t at = 0; at < segment->groups().size(); ++at) {
      const Group& group = segment->groups()[at];
      group.check();
      setup.slot_of = group.slot_of();
      setup.target_of = to_subscribers ? group.subscriber_of() : setup.slot_of;
      setup.can_repeat = to_subscribers || group.has_repeats();
      setup.runs = to_subscribers ? nullptr : group.runs();
      setup.targets_id = to_subscribers ? 2 : 1;
      setup.n_reachable = to_subscribers ? group.n_subscribers() : 0;
      Collector& collector = add_collector(setup);
      const Twin* const twin = side == Side::device ? group.twin() : nullptr;
      if (twin != nullptr && twin->is_usable()) {
        twin->match(events, begin, end, scratch.of_twin[at], group.index(), *scratch.of_group[at],
                    collector);
      } else {
        const EventBatch& readable = group.index().reads_columns() ? events : events.rows();
        group.index().match(readable, begin, end, *scratch.of_group[at], collector);
      }
      part.counters += collector.counters;
    }
  }
  if (snapshot.n_delta_filters > 0) {
    setup.slot_of = snapshot.delta->slot_of();
    setup.target_of = to_subscribers ? snapshot.delta->subscriber_of() : setup.slot_of;
    setup.can_repeat = true;
    setup.runs = nullptr;
    setup.targets_id = 0;
    setup.n_reachable = 0;
    Collector& collector = add_collector(setup);
    const PivotIndex& index = *snapshot.delta->index();
    if (!workspace.delta_scratch) workspace.delta_scratch = index.make_scratch();
    index.match_first(snapshot.n_delta_filters, snapshot.names->size(), events.rows(), begin, end,
                      *workspace.delta_scratch, collector);
    part.counters += collector.counters;
  }
  if (options.output == Output::bitset) return part;

  const std::size_t n_events = end - begin;
  if (options.output == Output::count && !must_unite) {
    for (std::size_t event = 0; event < n_events; ++event) {
      rows.counts[event] = 0;
      for (const Collector& each : collectors) rows.counts[event] += each.counts()[event];
    }
    return part;
  }
  if (collectors.size() == 1) {
    const Collector& only = collectors.front();
    part.targets.assign(only.targets().begin(), only.targets().end());
    for (std::size_t event = 0; event < n_events; ++event) {
      rows.counts[event] = static_cast<std::int64_t>(only.end(event) - only.begin(event));
    }
    return part;
  }
  for (std::size_t event = 0; event < n_events; ++event) {
    const std::size_t n_before = part.targets.size();
    ++stamps.now;
    for (const Collector& each : collectors) {
      for (std::size_t at = each.begin(event); at < each.end(event); ++at) {
        const std::uint32_t target = each.targets()[at];
        if (must_unite) {
          if (stamps.stamp_of[target] == stamps.now) continue;
          stamps.stamp_of[target] = stamps.now;
        }
        part.targets.push_back(target);
      }
    }
    rows.counts[event] = static_cast<std::int64_t>(part.targets.size() - n_before);
    if (options.output == Output::count) part.targets.resize(n_before);
  }
  return part;
}

}  // namespace tamis
