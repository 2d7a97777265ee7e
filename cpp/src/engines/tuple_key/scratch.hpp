// What a thread needs to match by tuple-key: the events of a tile, and what was found for them.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "engines/tuple_key/kernels.hpp"
#include "engines/tuple_key/key_index.hpp"
#include "engines/tuple_key/likely.hpp"
#include "tamis/engine.hpp"

namespace tamis::tuple_key {

constexpr std::size_t kMostRuns = 256;  // of one event that are fetched before they are tested

struct SlotRank {
  std::uint32_t slot, rank;
};

struct FoundKeys {  // in scratch.found
  std::size_t next = 0, end = 0;
  std::uint32_t n_entries_done = 0;  // of the next key
  // Where these are all keys of an event, and few: the first of them.
  std::optional<std::size_t> first = std::nullopt;
};

struct TileEvent {
  std::size_t event = 0;
  std::uint32_t plan = 0;
  bool is_small = false;  // its terms are a table
  std::size_t ranks_begin = 0, ranks_end = 0;
  std::size_t guards_begin = 0, guards_end = 0;
  std::size_t keys_begin = 0, keys_end = 0;
  FoundKeys found;
  std::size_t runs_begin = 0, runs_end = 0;
};

// The keys that were found for the events of a tile. Two keys of an event may have one hash, and
// the records of that hash must be tested once: a collector that has no stamps keeps what comes
// twice.
class SeenKeys {
 public:
  void clear() {
    ++stamp_;
    n_seen_ = 0;
  }
  // False: it was there already.
  bool insert(std::size_t event, std::uint32_t key) {
    if (2 * (n_seen_ + 1) > slots_.size()) grow();
    Slot& slot = find(event, key);
    if (slot.stamp == stamp_) return false;
    slot = {event, key, stamp_};
    ++n_seen_;
    return true;
  }

 private:
  struct Slot {
    std::size_t event = 0;
    std::uint32_t key = 0;
    std::uint64_t stamp = 0;
  };
  Slot& find(std::size_t event, std::uint32_t key) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = ((event * 0x9E3779B97F4A7C15ull) ^ (key * 0xC2B2AE3D27D4EB4Full)) >> 20 & mask;
    while (slots_[at].stamp == stamp_ && (slots_[at].event != event || slots_[at].key != key)) {
      at = (at + 1) & mask;
    }
    return slots_[at];
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.stamp == stamp_) find(slot.event, slot.key) = slot;
    }
  }
  std::vector<Slot> slots_ = std::vector<Slot>(256);
  std::size_t n_seen_ = 0;
  std::uint64_t stamp_ = 1;
};

class TupleKeyScratch final : public Scratch {
 public:
  ValueByAttribute values;
  std::vector<std::uint32_t> ranks;  // [n_slots] of the event in turn, else defaults
  EventTerms terms;
  std::array<std::uint32_t, kTableTerms> small_terms{};
  std::size_t n_small_terms = 0;
  std::vector<SlotRank> slot_ranks;
  std::vector<std::uint16_t> guards;                // terms of the tile's events, as guards
  std::unique_ptr<EventGuards> event_guards;        // those of one event; null: no plan has guards
  std::array<std::uint32_t, 2 * kMostRuns> passed;  // filters whose guards the event has
  std::vector<std::uint32_t> keys;
  std::vector<FoundKey> found;
  std::vector<Run> runs;
  std::vector<Run> lists;  // of the keys found for one event, in a plan with guards
  SeenKeys seen;
  std::vector<TileEvent> tile;
  std::vector<std::pair<AttributeId, std::uint32_t>> attributes;  // of one event, with ranks
  std::vector<std::uint64_t> hits;
  const Kernels* kernels = nullptr;  // of this call
  LikelyOrNot likely_or_not;
  std::vector<std::uint32_t> likely_lines;  // of one event
  std::size_t n_likely_stages = 0;          // that the last event read

  void load_guards(const TileEvent& event) {
    for (std::size_t at = event.guards_begin; at < event.guards_end; ++at) {
      const std::uint32_t guard = guards[at];
      event_guards->words[guard / 32] |= 1u << (guard % 32);
      event_guards->folded[guard / 16 % EventGuards::kFoldedWords] |=
          static_cast<std::uint16_t>(1u << (guard % 16));
    }
  }
  void unload_guards(const TileEvent& event) {
    for (std::size_t at = event.guards_begin; at < event.guards_end; ++at) {
      const std::uint32_t guard = guards[at];
      event_guards->words[guard / 32] = 0;
      event_guards->folded[guard / 16 % EventGuards::kFoldedWords] = 0;
    }
    if (event.guards_begin < event.guards_end) add_no_guard();
  }
  void add_no_guard() {
    static_assert(kNoGuard == 0);
    event_guards->words[0] = 1;
    event_guards->folded[0] = 1;
  }
};

}  // namespace tamis::tuple_key
