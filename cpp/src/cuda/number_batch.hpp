// The way of a batch to a device and back: events packed into pinned memory, pairs brought there,
// sorted and collected; what the device cannot take goes to an index on the host.
#pragma once

#include <vector>

#include "buffers.hpp"
#include "pairs_launch.hpp"
#include "ranks_on_device.hpp"
#include "tamis/engine.hpp"

namespace tamis::cuda {

// Events in pinned memory, which kernels read.
class NumberBatch {
 public:
  // `most_attributes`: of an event that the device takes, of those that filters have.
  NumberBatch(std::size_t most_events, std::size_t most_attributes, bool has_points);

  // An event that the device cannot take has no attributes there, and no pairs that count.
  void pack(const EventBatch& events, std::size_t begin, std::size_t n_events,
            const RanksOnDevice& ranks, Space space);
  // The first of them.
  NumberEvents events(std::size_t n_events) const;
  std::vector<bool> is_left;  // [events] the host must take it

 private:
  static constexpr std::size_t kWholeEvents = 64;

  // Events `first` to `end` of those from `begin`, whose cells come behind those before. Mostly a
  // device takes some events as they are: then their cells are copied as one row, for how many an
  // event has is a surprise to the processor. False: each needs a look.
  bool pack_whole(const EventBatch& events, std::size_t begin, std::size_t first, std::size_t end,
                  const RanksOnDevice& ranks);
  void pack_each(const EventBatch& events, std::size_t begin, std::size_t first_event,
                 std::size_t end, const RanksOnDevice& ranks);

  std::size_t most_attributes_;
  PinnedArray<std::uint32_t> offsets_, attributes_;
  PinnedArray<double> values_, points_;
};

// Where kernels write pairs, for the launches of one stream.
class PairBuffers {
 public:
  static constexpr std::size_t kMostBrought = 1024;  // times after each begin()

  // Events and pairs of all launches after a begin(). Pairs beyond are counted.
  PairBuffers(std::size_t most_events, std::size_t most_pairs);

  void begin(Stream stream);
  DeviceResults results() const;
  // What the launches since the last time found, behind what was brought before.
  void bring(const PinnedResults& to, Stream stream);

 private:
  std::size_t n_brought_ = 0;
  DeviceArray<MatchPair> pairs_;
  DeviceArray<std::uint32_t> left_;
  DeviceArray<MatchCounts> counts_;  // now, then what was brought at each time
};

// Pairs in pinned memory, and their way to a collector.
class FoundPairs {
 public:
  FoundPairs(std::size_t most_events, std::size_t most_pairs)
      : pairs_(most_pairs), left_(most_events), counts_(1) {}

  PinnedResults pinned() const { return {pairs_.data(), left_.data(), counts_.data()}; }
  std::size_t n_pairs() const { return counts_.data()->n_pairs; }
  std::size_t n_room() const { return pairs_.size(); }
  bool is_whole() const { return n_pairs() <= n_room() && counts_.data()->n_lost == 0; }
  void set_pairs(PinnedArray<MatchPair> pairs) { pairs_ = std::move(pairs); }

  // The events from `begin`; those that are left are matched on the host.
  void collect(const EventBatch& events, std::size_t begin, std::size_t n_events,
               const FilterTable& table, std::vector<bool>& is_left, const Index& on_host,
               Scratch& scratch_on_host, Collector& out);

 private:
  PinnedArray<MatchPair> pairs_;
  PinnedArray<std::uint32_t> left_;
  PinnedArray<MatchCounts> counts_;
  std::vector<std::uint32_t> begins_;  // [events + 2] of each event's filters
  std::vector<MatchPair> sorted_;
  ValueByAttribute values_;
};

}  // namespace tamis::cuda
