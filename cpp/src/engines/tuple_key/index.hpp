// The index of tuple-key, as engines/tuple_key.cpp describes it.
#pragma once

#include <memory>
#include <vector>

#include "common/ranks.hpp"
#include "engines/tuple_key/key_index.hpp"
#include "engines/tuple_key/likely.hpp"
#include "engines/tuple_key/planner.hpp"
#include "engines/tuple_key/records.hpp"
#include "engines/tuple_key/scratch.hpp"
#include "tamis/engine.hpp"
#include "tamis/prefetch.hpp"

namespace tamis::tuple_key {

class TupleKeyIndex final : public Index {
 public:
  TupleKeyIndex(std::shared_ptr<const FilterTable> table, const Planner::Settings& settings);
  TupleKeyIndex(std::shared_ptr<const FilterTable> table, const SectionReader& sections);

  std::unique_ptr<Scratch> make_scratch() const override;
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override;
  void save(SectionWriter& sections) const override;

 private:
  struct Header {
    std::uint32_t n_plans = 0, lane_bytes = 1, always_end = 0, records_end = 0;
  };

  void prepare(const EventBatch& events, TileEvent& event, TupleKeyScratch& scratch) const;
  void prepare_keys(TileEvent& event, TupleKeyScratch& scratch) const;
  // Adds the likely filters that surely match an event that was begun. False: all targets are
  // settled.
  bool match_likely(TupleKeyScratch& scratch, Collector& out, Counters& counters) const;
  void finish_tile(const EventBatch& events, TupleKeyScratch& scratch, Collector& out,
                   Counters& counters) const;
  // An event that was begun.
  void match_alone(const EventBatch& events, const TileEvent& event, TupleKeyScratch& scratch,
                   Collector& out, Counters& counters) const;
  // Hashes of the event's keys, into places that room(n) gives.
  template <typename Room>
  void write_keys(const TileEvent& event, const TupleKeyScratch& scratch, Room room) const {
    const KeyIndex& plan = plans_[event.plan];
    if (!event.is_small) return plan.for_each_key(scratch.terms, room);
    const std::size_t n_keys = plan.n_small_keys(scratch.n_small_terms);
    scratch.kernels->join(scratch.small_terms.data(), plan.small_keys(scratch.n_small_terms),
                          n_keys, room(n_keys));
  }
  // Is the next key not one that was found before?
  bool is_first_of_its_key(const TileEvent& event, const FoundKeys& keys,
                           TupleKeyScratch& scratch) const;
  // Appends the runs of keys that were found, and stops where these are enough for a while.
  void find_runs(const TileEvent& event, FoundKeys& keys, TupleKeyScratch& scratch,
                 Counters& counters) const;
  // The same in a plan with guards.
  void find_guarded(const TileEvent& event, FoundKeys& keys, TupleKeyScratch& scratch,
                    Counters& counters) const;
  // False: all targets are settled.
  bool verify(const EventBatch& events, const TileEvent& event, const Run* runs, std::size_t n_runs,
              TupleKeyScratch& scratch, Collector& out, bool& has_values, Counters& counters) const;
  void load_ranks(const TileEvent& event, TupleKeyScratch& scratch) const {
    for (std::size_t at = event.ranks_begin; at < event.ranks_end; ++at) {
      scratch.ranks[scratch.slot_ranks[at].slot] = scratch.slot_ranks[at].rank;
    }
  }
  void unload_ranks(const TileEvent& event, TupleKeyScratch& scratch) const {
    for (std::size_t at = event.ranks_begin; at < event.ranks_end; ++at) {
      const std::uint32_t slot = scratch.slot_ranks[at].slot;
      scratch.ranks[slot] = defaults_[slot];
    }
  }

  std::shared_ptr<const FilterTable> table_;
  Ranks ranks_;
  Header header_;
  Column<AttributeSlots> slots_;    // [n_attributes]
  Column<std::uint32_t> defaults_;  // [n_slots]
  Column<std::uint64_t> records_;
  Column<std::uint8_t> plan_of_width_;  // plans_.size(): test all records
  std::vector<KeyIndex> plans_;
  LikelyFilters likely_;
  void prefetch_record(std::uint32_t record) const {
    prefetch_line(records_.data() + record);
    prefetch_line(records_.data() + record + prefetch_distance_);
  }
  // A record's second cache line, or the first again, in units of 8 bytes.
  std::uint32_t prefetch_distance_ = 3;
};

}  // namespace tamis::tuple_key
