// From packed events in pinned memory to pairs in pinned memory, and the one loop that measures it
// for our engines. `Events` says where they lie and how they get there:
//
//     NumberEvents here(first, n), there(first, n);   in pinned memory, on the device
//     void copy(first, n, stream);                    from the one to the other
//     n_bytes(n)
//
//     way        events                  what it tells
//     direct     kernels read them       the best for few events
//     in parts   copied, then matched    copies and kernels beside one another
//     on device  are there already       the kernels alone, with the pairs' way back
//     bus        copied, not matched     the bound of the first two
//
// All but the last are measured launch by launch and as a graph of all their launches.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "cuda/buffers.hpp"
#include "cuda/pairs_launch.hpp"
#include "cuda/ranked_launch.hpp"
#include "figures.hpp"
#include "workloads.hpp"

namespace tamis::bench {

// Events of a launch. Copied parts begin and end small: kernels start early, and little is left to
// do when the last copy is there.
struct PartSizes {
  std::size_t most, least_copied;

  std::size_t copied(std::size_t n_before, std::size_t n_left) const {
    return std::min(n_left, std::clamp(std::min(n_before, n_left / 2), least_copied, most));
  }
};

template <typename Index, typename Buffers, typename Events>
class PinnedRun {
 public:
  PinnedRun(const char* engine, const Workload& workload, const Index& index, Events& events,
            Buffers buffers, PartSizes sizes, std::size_t most_events, std::size_t most_pairs)
      : engine_(engine),
        workload_(workload),
        index_(index),
        events_(events),
        sizes_(sizes),
        buffers_(std::move(buffers)),
        pairs_(most_pairs),
        left_(most_events) {}

  void direct(std::size_t n) { match(n, is_here); }
  void on_device(std::size_t n) { match(n, is_there); }
  void in_parts(std::size_t n) { match(n, is_copied); }
  void direct_graph(std::size_t n) { match_graph(n, is_here); }
  void on_device_graph(std::size_t n) { match_graph(n, is_there); }
  void in_parts_graph(std::size_t n) { match_graph(n, is_copied); }
  void copy_only(std::size_t n) {
    events_.copy(0, n, copies_);
    cuda::synchronize(copies_);
  }

  // Every way must give the answers of naive to the events that it answered.
  void verify(std::size_t n_most) {
    direct(workload_.events.size());
    check();
    in_parts(n_most);
    check();
    direct(n_most);
    check();
    on_device(n_most);
    check();
    for (int round = 0; round < 2; ++round) {  // captured, then started again
      direct_graph(workload_.events.size());
      check();
    }
    in_parts_graph(n_most);
    check();
    on_device_graph(n_most);
    check();
  }
  void check() const { check(workload_.expected); }
  void check(const Answers& expected) const {
    Answers found(expected.size());
    for (const cuda::MatchPair& pair : std::span(pairs_.data(), n_pairs())) {
      if (pair.event < found.size()) found[pair.event].push_back(pair.filter);
    }
    for (auto& each : found) std::sort(each.begin(), each.end());
    if (found != expected) fail(engine_, workload_.name, "wrong answers");
  }

  void measure(std::size_t n, int n_rounds) {
    const auto seconds = [&](void (PinnedRun::*way)(std::size_t)) {
      return median_seconds(n_rounds, [&] { (this->*way)(n); });
    };
    const double by_kernel = seconds(&PinnedRun::direct), in_parts = seconds(&PinnedRun::in_parts);
    const std::size_t n_found = n_pairs();
    const double bus = seconds(&PinnedRun::copy_only), there = seconds(&PinnedRun::on_device);
    const double by_kernel_graph = seconds(&PinnedRun::direct_graph);
    const double in_parts_graph = seconds(&PinnedRun::in_parts_graph);
    const double there_graph = seconds(&PinnedRun::on_device_graph);
    const double direct_least = std::min(by_kernel, by_kernel_graph);
    const double in_parts_least = std::min(in_parts, in_parts_graph);
    Figure("packed", engine_, workload_.name)
        .add("n_filters", workload_.table->size())
        .add("n_events", n)
        .add("seconds", std::min(direct_least, in_parts_least))
        .add("way", direct_least < in_parts_least ? "direct" : "in parts")
        .add("direct_seconds", by_kernel)
        .add("in_parts_seconds", in_parts)
        .add("on_device_seconds", std::min(there, there_graph))
        .add("direct_graph_seconds", by_kernel_graph)
        .add("in_parts_graph_seconds", in_parts_graph)
        .add("on_device_launched_seconds", there)
        .add("bytes", events_.n_bytes(n))
        .add("bound", "bus")
        .add("bound_seconds", bus)
        .add("n_pairs", n_found)
        .add("rounds", n_rounds)
        .add("verified", workload_.expected.size());
  }

  // Of one launch with its events on the device: each step with a wait after it.
  template <typename Match>
  void measure_steps(std::size_t n, Match match_with) {
    copy_only(n);
    Steps steps;
    for (int round = 0; round < 3; ++round) {
      steps.clear();
      buffers_.begin(pinned(), stream_);
      cuda::synchronize(stream_);
      auto begin = Clock::now();
      const auto after = [&](const char* name) {
        cuda::synchronize(stream_);
        steps.emplace_back(name, seconds_since(begin));
        begin = Clock::now();
      };
      match_with(buffers_, events_.there(0, n), stream_, after);
      buffers_.finish(stream_);
      after("counts");
    }
    Figure("steps", engine_, workload_.name)
        .add("n_filters", workload_.table->size())
        .add("n_events", n)
        .add("steps", steps);
  }
  std::size_t n_pairs() const { return counts_.data()->n_pairs; }
  cuda::Stream stream() const { return stream_; }

 private:
  enum Where { is_here, is_there, is_copied };

  // Of launches without copies, all alike.
  std::size_t part_of(std::size_t n) const {
    const std::size_t n_parts = (n + sizes_.most - 1) / sizes_.most;
    return (n + n_parts - 1) / n_parts;
  }
  cuda::MatchResults pinned() const {
    return {pairs_.data(), left_.data(), counts_.data(), pairs_.size()};
  }

  void match(std::size_t n_events, Where where) {
    start(n_events, where);
    finish();
  }
  // Captured once for each of these.
  void match_graph(std::size_t n_events, Where where) {
    const std::pair<std::size_t, Where> call{n_events, where};
    if (!graph_ || call != captured_) {
      match(n_events, where);  // which leaves nothing to clear
      graph_ = cuda::OwnGraph(stream_, [&] { start(n_events, where); });
      captured_ = call;
    }
    buffers_.counts().start_again(graph_, stream_);
    finish();
  }

  void start(std::size_t n_events, Where where) {
    buffers_.begin(pinned(), stream_);
    if (where == is_copied) {  // one thing with what is in the other stream
      cuda::record(begin_, stream_);
      cuda::wait_for(begin_, copies_);
    }
    std::size_t part = 0;
    for (std::size_t first = 0, n = 0; first < n_events; first += n, ++part) {
      const std::size_t n_left = n_events - first;
      n = where == is_copied ? sizes_.copied(first, n_left) : std::min(part_of(n_events), n_left);
      if (where == is_copied) {
        events_.copy(first, n, copies_);
        cuda::record(marks_[part % std::size(marks_)], copies_);
        cuda::wait_for(marks_[part % std::size(marks_)], stream_);
      }
      buffers_.match(index_, where == is_here ? events_.here(first, n) : events_.there(first, n),
                     stream_);
    }
    buffers_.finish(stream_);
  }
  void finish() {
    cuda::synchronize(stream_);
    const cuda::MatchCounts& counts = *counts_.data();
    if (counts.n_left == 0 && counts.n_lost == 0 && counts.n_pairs <= pairs_.size()) return;
    fail(engine_, workload_.name,
         std::to_string(counts.n_left) + " events are left, " + std::to_string(counts.n_pairs) +
             " pairs, " + std::to_string(counts.n_lost) + " lost");
  }

  const char* engine_;
  const Workload& workload_;
  const Index& index_;
  Events& events_;
  PartSizes sizes_;
  cuda::OwnStream stream_, copies_;
  cuda::OwnMark begin_, marks_[8];
  cuda::OwnGraph graph_;
  std::pair<std::size_t, Where> captured_{};
  Buffers buffers_;
  cuda::PinnedArray<cuda::MatchPair> pairs_;
  cuda::PinnedArray<std::uint32_t> left_;
  cuda::PinnedArray<cuda::MatchCounts> counts_{1};
};

// Events of 16 bytes each, and positions of two floats if there are any, in pinned memory and on
// the device.
class PackedEvents {
 public:
  PackedEvents(std::size_t n_events, bool has_positions)
      : cells_(n_events),
        positions_(has_positions ? 2 * n_events : 0),
        cells_there_(cells_.size()),
        positions_there_(positions_.size()) {
    std::fill_n(cells_.data(), cells_.size(), cuda::PackedCells::none());
  }
  // The first events are those of the sample; how many that is.
  std::size_t put(const EventBatch& sample) {
    const std::size_t n = std::min(sample.size(), cells_.size());
    for (std::size_t event = 0; event < n; ++event) {
      const std::uint64_t first = sample.offsets[event];
      for (std::uint64_t at = first; at < sample.offsets[event + 1]; ++at) {
        put(event, at - first, sample.attributes[at],
            static_cast<std::size_t>(sample.values[at].nearest));
      }
      if (sample.has_positions()) {
        put_position(event,
                     {static_cast<float>(sample.x[event]), static_cast<float>(sample.y[event])});
      }
    }
    return n;
  }
  void put(std::size_t event, std::size_t cell, std::size_t name, std::size_t value) {
    cells_.data()[event].set(static_cast<std::uint32_t>(cell), static_cast<std::uint32_t>(name),
                             static_cast<std::int32_t>(value));
  }
  void put_position(std::size_t event, std::pair<float, float> at) {
    positions_.data()[2 * event] = at.first;
    positions_.data()[2 * event + 1] = at.second;
  }

  cuda::NumberEvents here(std::size_t first, std::size_t n) const {
    return view(cells_.data(), positions_.data(), first, n);
  }
  cuda::NumberEvents there(std::size_t first, std::size_t n) const {
    return view(cells_there_.data(), positions_there_.data(), first, n);
  }
  void copy(std::size_t first, std::size_t n, cuda::Stream stream) const {
    cuda::copy_to_device(cells_there_.data() + first, cells_.data() + first,
                         n * sizeof(cuda::PackedCells), stream);
    if (positions_.size() == 0) return;
    cuda::copy_to_device(positions_there_.data() + 2 * first, positions_.data() + 2 * first, n * 8,
                         stream);
  }
  std::size_t n_bytes(std::size_t n_events) const {
    return n_events * (sizeof(cuda::PackedCells) + (positions_.size() == 0 ? 0 : 8));
  }

 private:
  static cuda::NumberEvents view(const cuda::PackedCells* cells, const float* positions,
                                 std::size_t first, std::size_t n) {
    cuda::NumberEvents events;
    events.packed = cells;
    events.n_packed = 1;
    events.flat_positions = positions;
    events.first_event = static_cast<std::uint32_t>(first);
    events.n_events = static_cast<std::uint32_t>(n);
    return events;
  }

  cuda::PinnedArray<cuda::PackedCells> cells_;
  cuda::PinnedArray<float> positions_;
  cuda::DeviceArray<cuda::PackedCells> cells_there_;
  cuda::DeviceArray<float> positions_there_;
};

// 1, 10, 100 ... up to `most`, which is the last one.
inline std::vector<std::size_t> powers_of_ten(std::size_t most) {
  std::vector<std::size_t> all;
  for (std::size_t n = 1; n < most; n *= 10) all.push_back(n);
  all.push_back(most);
  return all;
}

}  // namespace tamis::bench
