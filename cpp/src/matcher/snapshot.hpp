// One state of a matcher: immutable but for what a delta gains behind `n_delta_filters`.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "call_times.hpp"
#include "segment.hpp"
#include "store.hpp"
#include "tamis/catalogue.hpp"
#include "tamis/matcher.hpp"

namespace tamis {

struct Snapshot : std::enable_shared_from_this<Snapshot> {
  std::vector<std::shared_ptr<const Segment>> segments;
  std::shared_ptr<const Delta> delta;  // may be null
  std::size_t n_delta_filters = 0;
  std::shared_ptr<const Store> store;
  std::shared_ptr<const Names> names;
  EpochHold epoch;
  std::uint64_t version = 0;
  IdType id_type = IdType::none;
  std::size_t n_slots = 0, n_subscribers = 0;
  bool has_dead = false;

  std::size_t n_filters() const {
    std::size_t total = n_delta_filters;
    for (const auto& segment : segments) total += segment->size();
    return total;
  }
};

// Working memory of one thread, reused between matches.
struct Workspace {
  Stamps stamps;
  std::unique_ptr<Scratch> delta_scratch;  // of any delta
  std::deque<CollectorBuffers> buffers;    // of each segment, and of the delta
  std::vector<Collector> collectors;       // of the call, one for each of these
  // Scratch for the groups of the segments that it worked on, by the segment's serial.
  struct SegmentScratch {
    std::uint64_t serial = 0;
    std::vector<std::unique_ptr<Scratch>> of_group;
    std::vector<std::unique_ptr<Scratch>> of_twin;  // null where a group never needed it
  };
  std::vector<SegmentScratch> scratches;
  std::size_t n_until_sampled = 0;  // events, see EventSample
  EventBatch events;                // of a task that encodes its own; empty between tasks

  SegmentScratch& scratch_of(const Segment& segment);
  // Lets go of the scratch of segments that are not in the snapshot.
  void keep_only(const Snapshot& snapshot);
};

// What one task of a match found in its range of events.
struct MatchPart {
  ReusedVector<std::uint32_t> targets;
  Counters counters;
  double work_ns = 0;  // where that is counted
};

// Where it writes what has a place beforehand: the rows of its first event.
struct MatchRows {
  std::int64_t* counts = nullptr;  // [n_events] Output::ids and count
  std::uint64_t* bits = nullptr;   // [n_events * words_per_event] Output::bitset
  std::size_t words_per_event = 0;
};

// Writes the state as it was at the snapshot.
void save_snapshot(const Snapshot& snapshot, ImageWriter& image);

// What save_snapshot() wrote.
struct OpenedImage {
  std::shared_ptr<Store> store;
  std::vector<std::shared_ptr<const Segment>> segments;
  std::vector<std::string> names;  // of attributes, by id
  IdType id_type = IdType::none;
};
// `wanted` null: what a planner chose, whatever it is.
OpenedImage open_image(const std::shared_ptr<const Image>& image, Space space,
                       const EngineChoice* wanted, const EngineChoice& naive);

// Matches events `begin` to `end`, on the device where groups are on one and that is the side.
MatchPart match_range(const Snapshot& snapshot, const EventBatch& events,
                      const MatchOptions& options, bool counts_hits, std::size_t begin,
                      std::size_t end, Side side, const MatchRows& rows, Workspace& workspace);

}  // namespace tamis
