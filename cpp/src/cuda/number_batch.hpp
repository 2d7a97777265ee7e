// The way of a batch to a device and back: events packed into pinned memory, pairs written there,
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

// What the kernels of a call count, on the device, for the launches of one stream.
class CallCounts {
 public:
  static constexpr std::size_t kMostLaunches = 1024;  // of a call

  // So many bytes for each launch besides the counts of all.
  explicit CallCounts(std::size_t n_bytes_of_launch)
      : n_bytes_of_launch_(n_bytes_of_launch),
        bytes_(sizeof(MatchCounts) + kMostLaunches * n_bytes_of_launch) {}

  // Counts of `to` are in pinned memory, too.
  void begin(const MatchResults& to, Stream stream);
  MatchResults results() const;
  // Of the next launch.
  std::byte* next();
  // To pinned memory.
  void finish(Stream stream);
  // The same call once more, as a graph of all that was started from begin() to finish(). False: it
  // would find what a call that failed has left.
  bool start_again(const OwnGraph& graph, Stream stream);
  bool is_clear() const { return is_clear_; }

 private:
  std::size_t n_bytes_of_launch_, n_launches_ = 0;
  bool is_clear_ = false;         // a call that failed may have left something
  DeviceArray<std::byte> bytes_;  // of the launches, then MatchCounts
  MatchResults to_{};
};

// Pairs in pinned memory, and their way to a collector.
class FoundPairs {
 public:
  FoundPairs(std::size_t most_events, std::size_t most_pairs)
      : pairs_(most_pairs), left_(most_events), counts_(1) {}

  MatchResults pinned() const {
    return {pairs_.data(), left_.data(), counts_.data(), pairs_.size()};
  }
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
