// Where an engine puts what it found: filters in, each target once out.
//
// A target is what the caller wants to hear of: a subscription, or a subscriber. The collector maps
// filter -> target, drops deleted subscriptions and makes targets unique by
// stamps, so that no engine repeats this and none does O(n) work to reset it.
//
//     begin_event()  ...  if (!has(filter) && matches) add(filter)  ...  begin_event()  ...
//
// An engine that goes through its filters only once for many events begins them together, where
// that is possible (takes_any_order), and says for which of them it adds:
//
//     begin_events(n)  ...  select_event(3)  add_words(...)  select_event(0)  ...
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tamis/filter_table.hpp"
#include "tamis/grow_only.hpp"
#include "tamis/prefetch.hpp"

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

// When each subscription slot died, in versions of the matcher, which begin with 1. A match of
// version v does not see slots that died at v or before; later deaths are not its business.
using DeathVersions = GrowOnly<std::atomic<std::uint64_t>>;
inline constexpr std::uint64_t kAlive = 0;
inline bool is_dead_at(std::uint64_t died_at, std::uint64_t version) {
  return died_at - 1 < version;  // kAlive - 1 is the largest number
}

// How often each subscription slot matched.
using HitCounts = GrowOnly<std::atomic<std::uint64_t>>;

// Stamps of targets, kept between calls: allocated once, never cleared.
struct Stamps {
  std::vector<std::uint64_t> stamp_of;  // [n_targets]
  std::uint64_t now = 0;
};

// What a collector fills; kept between calls so that a match of one event allocates nothing.
struct CollectorBuffers {
  std::vector<std::uint32_t> targets;
  std::vector<std::size_t> begins;   // [n_events] where each event's targets begin
  std::vector<std::int64_t> counts;  // [n_events]
};

class Collector {
 public:
  // `slot_of` and `target_of` [n_filters]; `bits` [n_events * words_per_event] for Output::bitset.
  struct Setup {
    Output output = Output::ids;
    const std::uint32_t* slot_of = nullptr;
    const std::uint32_t* target_of = nullptr;
    const DeathVersions* died_at = nullptr;  // null: nothing died
    std::uint64_t version = 0;
    HitCounts* hits = nullptr;  // null: hits are not counted
    bool can_repeat = true;     // may several filters of the segment have one target?
    // Bit g: the targets of filters 64 g .. 64 g + 63 follow one another. Null: none do.
    const std::uint64_t* runs = nullptr;
    std::size_t n_targets = 0;
    std::size_t n_reachable = 0;  // of them, so many have filters in the index; 0: maybe all
    // Calls on one index with the same number have the same `target_of`. 0: it has no number.
    std::uint64_t targets_id = 0;
    std::uint64_t* bits = nullptr;
    std::size_t words_per_event = 0;
  };

  Collector(const Setup& setup, Stamps& stamps, CollectorBuffers& buffers)
      : setup_(setup), stamps_(stamps), buffers_(buffers) {
    if (setup_.n_reachable == 0) setup_.n_reachable = setup_.n_targets;
    buffers_.targets.clear();
    buffers_.begins.clear();
    buffers_.counts.clear();
    if (needs_stamps() && stamps_.stamp_of.size() < setup_.n_targets) {
      stamps_.stamp_of.resize(setup_.n_targets);
    }
  }

  void begin_event() {
    ++stamps_.now;
    ++n_events_;
    n_settled_ = 0;
    if (setup_.output == Output::ids) {
      buffers_.begins.push_back(buffers_.targets.size());
    } else if (setup_.output == Output::count) {
      buffers_.counts.push_back(0);
    }
    select_event(n_events_ - 1);
  }

  // May filters be added for several events by turns? Not where the order of calls decides what
  // belongs to an event: in a list of ids, and where stamps make targets unique. has_all() has no
  // meaning then.
  bool takes_any_order() const {
    return setup_.output == Output::bitset || (setup_.output == Output::count && !needs_stamps());
  }
  void begin_events(std::size_t n_events) {
    for (std::size_t event = 0; event < n_events; ++event) begin_event();
  }
  // Of the events begun so far: for which the next calls are. Needs takes_any_order().
  void select_event(std::size_t event) {
    if (setup_.output == Output::bitset) {
      row_ = setup_.bits + event * setup_.words_per_event;
    } else {
      event_ = event;
    }
  }

  std::size_t n_targets() const { return setup_.n_targets; }
  // Few against the filters: targets are settled early, and the filters left need no look.
  std::size_t n_reachable() const { return setup_.n_reachable; }
  bool can_repeat() const { return setup_.can_repeat; }
  // For an engine that finds targets instead of filters and calls add_target: the target of each
  // filter, and a number for this array that may be kept instead of it. Null: each filter counts,
  // because some are dead or because their hits are asked for.
  const std::uint32_t* target_of() const {
    return setup_.died_at == nullptr && setup_.hits == nullptr ? setup_.target_of : nullptr;
  }
  std::uint64_t targets_id() const { return setup_.targets_id; }

  // Is this filter's target settled, so that it need not be looked at?
  bool has(FilterIdx filter) const {
    if (is_dead(filter)) return true;
    const std::uint32_t target = setup_.target_of[filter];
    if (setup_.output == Output::bitset) return (row_[target / 64] >> (target % 64)) & 1;
    return needs_stamps() && stamps_.stamp_of[target] == stamps_.now;
  }

  // Are all targets settled, so that the event needs no further look?
  bool has_all() const { return n_settled_ == setup_.n_reachable; }

  // Of a filter that will be added soon: an engine whose filters stand in an order of its own
  // misses the cache with each.
  void prefetch(FilterIdx filter) const { prefetch_line(setup_.target_of + filter); }
  // Some time later: what has() asks of its target.
  void prefetch_target(FilterIdx filter) const {
    const std::uint32_t target = setup_.target_of[filter];
    if (setup_.output == Output::bitset) {
      prefetch_line(row_ + target / 64);
    } else if (needs_stamps()) {
      prefetch_line(stamps_.stamp_of.data() + target);
    }
  }

  void add(FilterIdx filter) {
    if (is_dead(filter) || !add_target(setup_.target_of[filter])) return;
    if (setup_.hits == nullptr) return;
    (*setup_.hits)[setup_.slot_of[filter]].fetch_add(1, std::memory_order_relaxed);
  }

  // False: it was there. Needs target_of(), or the engine would not know what is dead.
  bool add_target(std::uint32_t target) {
    if (setup_.output == Output::bitset) {
      const std::uint64_t bit = std::uint64_t{1} << (target % 64);
      if (row_[target / 64] & bit) return false;
      row_[target / 64] |= bit;
      ++n_settled_;
      return true;
    }
    if (needs_stamps()) {
      if (stamps_.stamp_of[target] == stamps_.now) return false;
      stamps_.stamp_of[target] = stamps_.now;
    }
    ++n_settled_;
    if (setup_.output == Output::ids) {
      buffers_.targets.push_back(target);
    } else {
      ++buffers_.counts[event_];
    }
    return true;
  }

  // 64 filters at once: `first` is a multiple of 64, bit i of word w is filter first + 64 w + i.
  // Clears the bits of dead ones; once for many events.
  void drop_dead(FilterIdx first, std::uint64_t* words, std::size_t n_words) const {
    if (setup_.died_at == nullptr) return;
    for_each_bit(first, words, n_words, [&](FilterIdx filter, std::uint64_t& word) {
      if (is_dead(filter)) word &= ~(std::uint64_t{1} << (filter % 64));
    });
  }
  // Adds the filters whose bits are set, none of which is dead.
  void add_words(FilterIdx first, const std::uint64_t* words, std::size_t n_words) {
    const bool is_plain = !needs_stamps() && setup_.hits == nullptr;
    if (is_plain && setup_.output == Output::count) {
      std::int64_t n_added = 0;
      for (std::size_t at = 0; at < n_words; ++at) n_added += std::popcount(words[at]);
      buffers_.counts[event_] += n_added;
      return;
    }
    for (std::size_t at = 0; at < n_words; ++at) {
      const auto begin = static_cast<FilterIdx>(first + 64 * at);
      if (words[at] == 0) continue;
      if (!is_plain || !is_run(begin)) {
        for_each_bit(begin, words + at, 1,
                     [&](FilterIdx filter, const std::uint64_t&) { add(filter); });
        continue;
      }
      const std::uint32_t target = setup_.target_of[begin];
      if (setup_.output == Output::bitset) {
        const unsigned shift = target % 64;
        row_[target / 64] |= words[at] << shift;
        // What does not fit the word; the last targets may end before the next one.
        const std::uint64_t rest = shift == 0 ? 0 : words[at] >> (64 - shift);
        if (rest != 0) row_[target / 64 + 1] |= rest;
      } else {
        for (std::uint64_t word = words[at]; word != 0; word &= word - 1) {
          buffers_.targets.push_back(target + static_cast<std::uint32_t>(std::countr_zero(word)));
        }
      }
    }
  }

  Counters counters;

  std::size_t n_events() const { return n_events_; }
  // Output::ids: the targets of event e are targets()[begin(e)] .. targets()[end(e)].
  const std::vector<std::uint32_t>& targets() const { return buffers_.targets; }
  std::size_t begin(std::size_t event) const { return buffers_.begins[event]; }
  std::size_t end(std::size_t event) const {
    return event + 1 < buffers_.begins.size() ? buffers_.begins[event + 1] : targets().size();
  }
  const std::vector<std::int64_t>& counts() const { return buffers_.counts; }  // Output::count

 private:
  bool is_dead(FilterIdx filter) const {
    if (setup_.died_at == nullptr) return false;
    const std::uint32_t slot = setup_.slot_of[filter];
    return is_dead_at((*setup_.died_at)[slot].load(std::memory_order_relaxed), setup_.version);
  }
  bool needs_stamps() const { return setup_.can_repeat; }
  bool is_run(FilterIdx first) const {
    return setup_.runs != nullptr && (setup_.runs[first / 4096] >> (first / 64 % 64) & 1) != 0;
  }
  template <typename Word, typename Visit>
  static void for_each_bit(FilterIdx first, Word* words, std::size_t n_words, Visit visit) {
    for (std::size_t at = 0; at < n_words; ++at) {
      for (std::uint64_t word = words[at]; word != 0; word &= word - 1) {
        visit(static_cast<FilterIdx>(first + 64 * at) +
                  static_cast<FilterIdx>(std::countr_zero(word)),
              words[at]);
      }
    }
  }

  Setup setup_;
  Stamps& stamps_;
  CollectorBuffers& buffers_;
  std::uint64_t* row_ = nullptr;
  std::size_t n_events_ = 0;
  std::size_t event_ = 0;      // whose count it is
  std::size_t n_settled_ = 0;  // targets of the event
};

// The bitmap of Collector::Setup::runs for the targets of a segment.
std::vector<std::uint64_t> find_runs(std::span<const std::uint32_t> target_of);

}  // namespace tamis
