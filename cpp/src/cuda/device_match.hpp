// How our engines match on a device: batch by batch, as many events at a time as there is room for
// what they find; and what the device cannot take on the host.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "number_batch.hpp"
#include "tamis/error.hpp"

namespace tamis::cuda {

// Of an engine whose kernels work in `Buffers`.
template <typename Buffers>
class DeviceScratch final : public Scratch {
 public:
  static constexpr std::size_t kFirstPairs = 1 << 18, kMostPairs = 1 << 24;

  DeviceScratch(std::size_t most_events, std::size_t most_attributes, bool has_points,
                Buffers given_buffers, std::unique_ptr<Scratch> scratch_on_host)
      : n_most(most_events),
        batch(most_events, most_attributes, has_points),
        found(most_events, kFirstPairs),
        buffers(std::move(given_buffers)),
        on_host(std::move(scratch_on_host)) {}

  // Matches the first events of the batch; with more room if that is too little and can be had.
  template <typename OnDevice>
  void run(const OnDevice& index, std::size_t n_events) {
    for (;;) {
      buffers.begin(found.pinned(), stream);
      buffers.match(index, batch.events(n_events), stream);
      buffers.finish(stream);
      synchronize(stream);
      if (found.n_pairs() <= found.n_room() || found.n_room() == kMostPairs || !can_grow_) return;
      try {
        found.set_pairs(
            PinnedArray<MatchPair>(std::min(found.n_pairs() + found.n_pairs() / 4, kMostPairs)));
      } catch (const UnavailableError&) {
        can_grow_ = false;  // fewer events at a time, then
      }
    }
  }

  const std::size_t n_most;  // events
  OwnStream stream;
  NumberBatch batch;
  FoundPairs found;
  Buffers buffers;
  std::unique_ptr<Scratch> on_host;

 private:
  bool can_grow_ = true;
};

// How many events at a time, where room is short.
class BatchSize {
 public:
  explicit BatchSize(std::size_t most) : n_most_(most), n_(most) {}
  std::size_t size() const { return n_; }
  // So many events were too many.
  void shrink(std::size_t n_events, const FoundPairs& found) {
    const bool is_by_pairs = found.n_pairs() > found.n_room();
    const double share = is_by_pairs ? 0.8 * static_cast<double>(found.n_room()) /
                                           static_cast<double>(found.n_pairs())
                                     : 0.5;
    n_ = std::max<std::size_t>(1, static_cast<std::size_t>(share * static_cast<double>(n_events)));
    n_until_more_ = is_by_pairs ? 0 : kPatience;
  }
  void grow(const FoundPairs& found) {
    if (n_until_more_ > 0) {
      --n_until_more_;
    } else if (found.n_pairs() < found.n_room() / 4) {
      n_ = std::min(2 * n_, n_most_);
    }
  }
  // One event was too much by itself; the next need not be.
  void restart() {
    n_ = std::min(kRestart, n_most_);
    n_until_more_ = 0;
  }

 private:
  static constexpr std::size_t kPatience = 16, kRestart = 1024;
  std::size_t n_most_, n_, n_until_more_ = 0;
};

// `enter` gives something to hold while a batch is matched.
template <typename OnDevice, typename Buffers, typename Enter>
void match_on_device(const OnDevice& index, const FilterTable& table, const Index& on_host,
                     const EventBatch& events, std::size_t begin, std::size_t end,
                     DeviceScratch<Buffers>& scratch, Collector& out, Enter enter) {
  BatchSize size(scratch.n_most);
  while (begin < end) {
    const std::size_t n_events = std::min(end - begin, size.size());
    scratch.batch.pack(events, begin, n_events, index.ranks(), table.space());
    {
      [[maybe_unused]] const auto inside = enter();
      scratch.run(index, n_events);
    }
    if (scratch.found.is_whole()) {
      scratch.found.collect(events, begin, n_events, table, scratch.batch.is_left, on_host,
                            *scratch.on_host, out);
      size.grow(scratch.found);
    } else if (n_events > 1) {  // again, with fewer
      size.shrink(n_events, scratch.found);
      continue;
    } else {
      on_host.match(events, begin, begin + 1, *scratch.on_host, out);
      size.restart();
    }
    begin += n_events;
  }
}

template <typename OnDevice, typename Buffers>
void match_on_device(const OnDevice& index, const FilterTable& table, const Index& on_host,
                     const EventBatch& events, std::size_t begin, std::size_t end,
                     DeviceScratch<Buffers>& scratch, Collector& out) {
  match_on_device(index, table, on_host, events, begin, end, scratch, out, [] { return 0; });
}

}  // namespace tamis::cuda
