// How our engines match on a device: batch by batch, as many events at a time as there is room for
// what they find; and what the device cannot take on the host.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "number_batch.hpp"
#include "rows_on_device.hpp"
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
        rows(most_events, most_attributes, has_points),
        found(most_events, kFirstPairs),
        buffers(std::move(given_buffers)),
        on_host(std::move(scratch_on_host)) {}

  // Matches the first events of the batch.
  template <typename OnDevice>
  void run(const OnDevice& index, std::size_t n_events) {
    run_in_room([&] { start(index, n_events); });
  }
  // Events that come in columns, from `begin`.
  template <typename OnDevice>
  void run(const OnDevice& index, const EventColumns& columns, std::size_t begin,
           std::size_t n_events) {
    run_in_room([&] {
      launch(index, [&] {
        return rows.make(columns, begin, n_events, index.ranks(), buffers.counts().results(),
                         stream);
      });
    });
  }

  const std::size_t n_most;  // events
  OwnStream stream;
  NumberBatch batch;
  RowsOnDevice rows;  // instead of it, where events come in columns
  FoundPairs found;
  Buffers buffers;
  std::unique_ptr<Scratch> on_host;

 private:
  // With more room if that is too little and can be had.
  template <typename Start>
  void run_in_room(Start start_all) {
    for (;;) {
      start_all();
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

  template <typename OnDevice, typename Prepare>
  void launch(const OnDevice& index, Prepare prepare) {
    buffers.begin(found.pinned(), stream);
    buffers.match(index, prepare(), stream);
    buffers.finish(stream);
  }

  // A call like the one before becomes a graph: two to seven launches at the price of one.
  template <typename OnDevice>
  void start(const OnDevice& index, std::size_t n_events) {
    call_.clear();
    add_to_call(n_events);
    add_to_call(found.pinned());
    add_to_call(index.view());
    if (graph_ && call_ == captured_call_ && buffers.counts().start_again(graph_, stream)) return;
    const auto work = [&] { launch(index, [&] { return batch.events(n_events); }); };
    if (call_ != last_call_ || !buffers.counts().is_clear()) {
      std::swap(call_, last_call_);
      work();
      return;
    }
    graph_ = OwnGraph(stream, work);
    captured_call_ = call_;
    buffers.counts().start_again(graph_, stream);
  }
  template <typename T>
  void add_to_call(const T& part) {
    const std::size_t n_before = call_.size();
    call_.resize(n_before + sizeof part);
    std::memcpy(call_.data() + n_before, &part, sizeof part);
  }

  bool can_grow_ = true;
  std::vector<std::byte> call_, last_call_, captured_call_;  // all that its launches are given
  OwnGraph graph_;
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
  const EventColumns* columns = events.columns.get();
  if (columns != nullptr && !scratch.rows.takes(*columns, table.space())) columns = nullptr;
  while (begin < end) {
    const std::size_t n_events = std::min(end - begin, size.size());
    if (columns == nullptr) {
      scratch.batch.pack(events.rows(), begin, n_events, index.ranks(), table.space());
    } else {
      scratch.batch.is_left.assign(n_events, false);
    }
    {
      [[maybe_unused]] const auto inside = enter();
      if (columns == nullptr) {
        scratch.run(index, n_events);
      } else {
        scratch.run(index, *columns, begin, n_events);
      }
    }
    if (scratch.found.is_whole()) {
      scratch.found.collect(events, begin, n_events, table, scratch.batch.is_left, on_host,
                            *scratch.on_host, out);
      size.grow(scratch.found);
    } else if (n_events > 1) {  // again, with fewer
      size.shrink(n_events, scratch.found);
      continue;
    } else {
      on_host.match(events.rows(), begin, begin + 1, *scratch.on_host, out);
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
