// Where an engine puts what it found: filters in, each target once out.
//
// A target is what the caller wants to hear of: a subscription, or a subscriber. The collector maps
// filter -> target, drops deleted subscriptions and makes targets unique by
// stamps, so that no engine repeats this and none does O(n) work to reset it.
//
//     begin_event()  ...  if (!has(filter) && matches) add(filter)  ...  begin_event()  ...
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "tamis/filter_table.hpp"

namespace tamis {

enum class Output : std::uint8_t { ids, bitset, count };
enum class Deliver : std::uint8_t { subscriptions, subscribers };

// What an engine did, for tests of its cost formula. Each engine uses those that fit it.
struct Counters {
  std::uint64_t filters = 0;      // looked at
  std::uint64_t constraints = 0;  // evaluated
  std::uint64_t candidates = 0;   // verified in full
  std::uint64_t cells = 0;        // of grids, bitmaps and lists visited
  std::uint64_t nodes = 0;        // of trees
  std::uint64_t bits = 0;         // of bitsets, in words

  Counters& operator+=(const Counters& other) {
    filters += other.filters;
    constraints += other.constraints;
    candidates += other.candidates;
    cells += other.cells;
    nodes += other.nodes;
    bits += other.bits;
    return *this;
  }
};

// Stamps of targets, kept between calls: allocated once, never cleared.
struct Stamps {
  std::vector<std::uint64_t> stamp_of;  // [n_targets]
  std::uint64_t now = 0;
};

class Collector {
 public:
  // `slot_of` and `target_of` [n_filters]; `dead` is a bitset over slots or null; `bits`
  // [n_events * words_per_event] for Output::bitset.
  struct Setup {
    Output output = Output::ids;
    const std::uint32_t* slot_of = nullptr;
    const std::uint32_t* target_of = nullptr;
    const std::uint64_t* dead = nullptr;
    bool can_repeat = true;  // may several filters of the segment have one target?
    std::size_t n_targets = 0;
    std::uint64_t* bits = nullptr;
    std::size_t words_per_event = 0;
  };

  Collector(const Setup& setup, Stamps& stamps) : setup_(setup), stamps_(stamps) {
    if (needs_stamps() && stamps_.stamp_of.size() < setup_.n_targets) {
      stamps_.stamp_of.resize(setup_.n_targets);
    }
  }

  void begin_event() {
    ++stamps_.now;
    ++n_events_;
    if (setup_.output == Output::ids) {
      ends_.push_back(targets_.size());
    } else if (setup_.output == Output::count) {
      counts_.push_back(0);
    } else {
      row_ = setup_.bits + (n_events_ - 1) * setup_.words_per_event;
    }
  }

  // Is this filter's target settled, so that it need not be looked at?
  bool has(FilterIdx filter) const {
    if (is_dead(filter)) return true;
    const std::uint32_t target = setup_.target_of[filter];
    if (setup_.output == Output::bitset) return (row_[target / 64] >> (target % 64)) & 1;
    return needs_stamps() && stamps_.stamp_of[target] == stamps_.now;
  }

  void add(FilterIdx filter) {
    if (is_dead(filter)) return;
    const std::uint32_t target = setup_.target_of[filter];
    if (setup_.output == Output::bitset) {
      row_[target / 64] |= std::uint64_t{1} << (target % 64);
      return;
    }
    if (needs_stamps()) {
      if (stamps_.stamp_of[target] == stamps_.now) return;
      stamps_.stamp_of[target] = stamps_.now;
    }
    if (setup_.output == Output::ids) {
      targets_.push_back(target);
    } else {
      ++counts_.back();
    }
  }

  Counters counters;

  std::size_t n_events() const { return n_events_; }
  // Output::ids: the targets of event e are targets()[begin(e)] .. targets()[end(e)].
  const std::vector<std::uint32_t>& targets() const { return targets_; }
  std::size_t begin(std::size_t event) const { return ends_[event]; }
  std::size_t end(std::size_t event) const {
    return event + 1 < ends_.size() ? ends_[event + 1] : targets_.size();
  }
  const std::vector<std::int64_t>& counts() const { return counts_; }  // Output::count

 private:
  bool is_dead(FilterIdx filter) const {
    if (setup_.dead == nullptr) return false;
    const std::uint32_t slot = setup_.slot_of[filter];
    return (setup_.dead[slot / 64] >> (slot % 64)) & 1;
  }
  bool needs_stamps() const { return setup_.can_repeat; }

  Setup setup_;
  Stamps& stamps_;
  std::vector<std::uint32_t> targets_;
  std::vector<std::size_t> ends_;  // where each event's targets begin
  std::vector<std::int64_t> counts_;
  std::uint64_t* row_ = nullptr;
  std::size_t n_events_ = 0;
};

}  // namespace tamis
