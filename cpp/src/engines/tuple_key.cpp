// `tuple-key`: each filter stands under one key of up to three terms, and an event looks up the
// keys that it has.
//
// Ours; no paper. A term is "attribute present" or "attribute = value"; which terms make a filter's
// key is decided by estimated cost (tuple_key/planner.hpp). Few filters share a key with an event
// by chance, so that little is left to test, and a test is one step of SIMD on a dense record.
//
//     event ─► ranks ─► terms by group ─► hashes of all keys      (tuple_key/key_index.hpp)
//                                           │ bitmap with counts: is there such a key?
//                                           ▼
//     starts    │ …  │ …  │                 where its records begin
//                 ▼
//     records   │ always … │ filter lanes │ filter lanes │ …      (tuple_key/kernels.hpp)
//
// or, in a plan with guards, in a list: two more terms of each filter, which the event must have
// before its record is fetched.
//
// Before that, if few subscribers are all that matters: the filters that accept most events
// (tuple_key/likely.hpp).
//
// Records lie in the order of a plan's keys, so that those of one key are neighbours; a further
// plan for events of other widths has copies in its own order, or, where records are large, entries
// that refer to them. Filters without any term (IS NULL, areas alone, TRUE) are at the front and
// are tested for each event. An event that would probe more keys than there are filters tests all
// records instead.
//
// Invariants: a filter that accepts an event has its key among the event's keys, in each plan;
// records decide, names and all, and what lanes cannot say the filter table decides.
//
// Cost: see docs/engines/tuple-key.md.
#include "engines/tuple_key.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "common/ranks.hpp"
#include "common/simd.hpp"
#include "engines/tuple_key/kernels.hpp"
#include "engines/tuple_key/key_index.hpp"
#include "engines/tuple_key/likely.hpp"
#include "engines/tuple_key/planner.hpp"
#include "engines/tuple_key/records.hpp"
#include "tamis/error.hpp"
#include "tamis/huge_pages.hpp"
#include "tamis/prefetch.hpp"

namespace tamis {
namespace {

using namespace tuple_key;

// Keys of several events are looked up before their records are fetched, to hide misses; so few
// that the records stay in the L1 cache until they are tested.
constexpr std::size_t kTileKeys = 256;
constexpr std::size_t kMostTiledKeys = 1024;  // an event with more is matched alone
constexpr std::size_t kTileEvents = 16;
constexpr std::size_t kMostRuns = 256;       // of one event that are fetched before they are tested
constexpr std::uint32_t kGuardedStep = 256;  // filters whose guards are tested in one go
constexpr std::size_t kLikelyRuns = 32;      // of an event that are tested together
constexpr std::size_t kFewKeys = 8;          // that are compared each with each
constexpr std::size_t kListsAhead = 8;  // fetched, of a plan whose records lie in another order
// The same of lists with guards, which are read sooner than memory brings them.
constexpr std::size_t kGuardedAhead = 16;
// After so many hits it is worth a look whether all targets are settled; with fewer targets sooner.
constexpr std::size_t kLeastHits = 8, kMostHits = 256;
constexpr double kMostRecordBytes = 18;        // for a constraint, of all copies of records
constexpr std::size_t kCachedWords = 1 << 16;  // of a bitmap that is not worth fetching ahead

const Kernels& best_kernels() {
#if defined(__x86_64__)
  switch (simd_level()) {
    case SimdLevel::avx512:
      return kKernelsAvx512;
    case SimdLevel::avx2:
      return kKernelsAvx2;
    case SimdLevel::v2:
      break;
  }
#endif
  return kKernelsV2;
}

// Roughly, to compare two ways through an event: a key, a filter behind guards, a record.
double work_ns(const Counters& before, const Counters& after) {
  return 2.0 * static_cast<double>(after.cells - before.cells) +
         0.2 * static_cast<double>(after.filters - before.filters) +
         8.0 * static_cast<double>(after.candidates - before.candidates);
}

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
};

struct Settings {
  Planner::Settings planner;
};

class TupleKeyIndex final : public Index {
 public:
  TupleKeyIndex(std::shared_ptr<const FilterTable> table, const Settings& settings);
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
  // An event by itself, its likely filters first.
  void match_likely_first(const EventBatch& events, TileEvent& event, TupleKeyScratch& scratch,
                          Collector& out, Counters& counters) const;
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

  static void load_guards(const TileEvent& event, TupleKeyScratch& scratch) {
    for (std::size_t at = event.guards_begin; at < event.guards_end; ++at) {
      const std::uint32_t guard = scratch.guards[at];
      scratch.event_guards->words[guard / 32] |= 1u << (guard % 32);
      scratch.event_guards->folded[guard / 16 % EventGuards::kFoldedWords] |=
          static_cast<std::uint16_t>(1u << (guard % 16));
    }
  }
  static void unload_guards(const TileEvent& event, TupleKeyScratch& scratch) {
    for (std::size_t at = event.guards_begin; at < event.guards_end; ++at) {
      const std::uint32_t guard = scratch.guards[at];
      scratch.event_guards->words[guard / 32] = 0;
      scratch.event_guards->folded[guard / 16 % EventGuards::kFoldedWords] = 0;
    }
    if (event.guards_begin < event.guards_end) add_no_guard(*scratch.event_guards);
  }
  static void add_no_guard(EventGuards& guards) {
    static_assert(kNoGuard == 0);
    guards.words[0] = 1;
    guards.folded[0] = 1;
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

TupleKeyIndex::TupleKeyIndex(std::shared_ptr<const FilterTable> table, const Settings& settings)
    : table_(std::move(table)), ranks_(*table_) {
  RecordEncoder encoder(*table_, ranks_);
  const std::size_t n_filters = table_->size();
  header_.lane_bytes = encoder.lane_bytes();
  std::uint64_t n_units = 0;
  for (FilterIdx filter = 0; filter < n_filters; ++filter) {
    if (!encoder.is_impossible(filter)) n_units += encoder.size_of(filter);
  }
  const Planner planner(
      encoder.terms(), table_->n_attributes(),
      8.0 * static_cast<double>(n_units) / static_cast<double>(std::max<std::size_t>(1, n_filters)),
      settings.planner);

  // A further plan has its own copies of records, in its own order, where memory allows.
  const std::size_t n_plans = planner.plans().size();
  const double bytes_of_copy =
      8.0 * static_cast<double>(n_units) /
      static_cast<double>(std::max<std::size_t>(1, table_->n_constraints()));
  const std::size_t n_copies =
      std::clamp(static_cast<std::size_t>(kMostRecordBytes / std::max(1.0, bytes_of_copy)),
                 std::size_t{1}, n_plans);
  likely_ = LikelyFilters(planner, encoder.terms(), table_->n_attributes());
  std::uint64_t n_likely_units = 0;
  for (const std::uint32_t filter : likely_.filters()) n_likely_units += encoder.size_of(filter);
  if (n_units * n_copies + n_likely_units >= std::uint64_t{1} << 32) {
    throw ArgumentError("a segment of engine tuple-key must not exceed 32 GiB of records");
  }
  std::vector<std::uint64_t> records;
  records.reserve(n_units * n_copies + n_likely_units + kRecordPadding / 8);
  advise_huge_pages(records.data(), records.capacity() * sizeof records[0]);
  records.resize(records.capacity());
  std::vector<std::uint32_t> record_at(n_filters);
  std::uint32_t at = 0;
  const auto write = [&](FilterIdx filter) {
    encoder.write(filter, records.data() + at);
    record_at[filter] = at;
    at += encoder.size_of(filter);
  };
  for (FilterIdx filter = 0; filter < n_filters; ++filter) {
    if (encoder.terms()[filter].empty() && !encoder.is_impossible(filter)) write(filter);
  }
  header_.always_end = at;
  std::vector<std::uint32_t> order;
  for (std::size_t each = 0; each < n_plans; ++each) {
    plans_.emplace_back(planner, planner.plans()[each], encoder.terms(), table_->n_attributes(),
                        order);
    // Behind guards so few records are tested that their order does not matter.
    const bool is_in_order = each < n_copies && !plans_.back().has_guards();
    if (is_in_order || each == 0) {
      for (const std::uint32_t filter : order) write(filter);
    }
    plans_.back().place_records(order, record_at, at, is_in_order);
    if (each == 0) header_.records_end = at;
  }
  std::vector<std::uint32_t> places;
  for (const std::uint32_t filter : likely_.filters()) {
    places.push_back(at);
    write(filter);
  }
  likely_.place_records(std::move(places));
  header_.n_plans = static_cast<std::uint32_t>(plans_.size());
  slots_ = std::move(encoder.slots);
  defaults_ = std::move(encoder.defaults);
  records_ = std::move(records);
  plan_of_width_ = planner.plan_of_width();
}

TupleKeyIndex::TupleKeyIndex(std::shared_ptr<const FilterTable> table,
                             const SectionReader& sections)
    : table_(std::move(table)),
      ranks_(*table_, sections),
      slots_(sections.column<AttributeSlots>("tuple_key/slots")),
      defaults_(sections.column<std::uint32_t>("tuple_key/defaults")),
      records_(sections.column<std::uint64_t>("tuple_key/records")),
      plan_of_width_(sections.column<std::uint8_t>("tuple_key/plan_of_width")) {
  const std::span<const Header> header = sections.span<Header>("tuple_key/header");
  if (header.size() != 1 || slots_.size() != table_->n_attributes() || plan_of_width_.empty() ||
      records_.size() * 8 < header[0].records_end * std::size_t{8} + kRecordPadding) {
    throw Error("the index of engine tuple-key must be that of its table, not of another");
  }
  header_ = header[0];
  for (std::uint32_t plan = 0; plan < header_.n_plans; ++plan) {
    plans_.emplace_back(sections, "tuple_key/plan" + std::to_string(plan) + "/");
  }
  likely_ = LikelyFilters(sections);
}

void TupleKeyIndex::save(SectionWriter& sections) const {
  ranks_.save(sections);
  sections.write("tuple_key/slots", slots_);
  sections.write("tuple_key/defaults", defaults_);
  sections.write("tuple_key/records", records_);
  sections.write("tuple_key/plan_of_width", plan_of_width_);
  sections.write("tuple_key/header", &header_, sizeof header_);
  for (std::size_t plan = 0; plan < plans_.size(); ++plan) {
    plans_[plan].save(sections, "tuple_key/plan" + std::to_string(plan) + "/");
  }
  likely_.save(sections);
}

std::unique_ptr<Scratch> TupleKeyIndex::make_scratch() const {
  auto scratch = std::make_unique<TupleKeyScratch>();
  scratch->ranks.assign(defaults_.begin(), defaults_.end());
  scratch->keys.resize(kTileKeys + kMostTiledKeys + 16);
  scratch->found.resize(kTileKeys + kMostTiledKeys + 17);
  scratch->hits.resize(kMostHits);
  if (likely_.size() > 0 || std::any_of(plans_.begin(), plans_.end(),
                                        [](const KeyIndex& plan) { return plan.has_guards(); })) {
    scratch->event_guards = std::make_unique<EventGuards>();
    add_no_guard(*scratch->event_guards);
  }
  return scratch;
}

// The event's ranks, behind those of the tile.
void TupleKeyIndex::prepare(const EventBatch& events, TileEvent& event,
                            TupleKeyScratch& scratch) const {
  scratch.attributes.clear();
  event.ranks_begin = scratch.slot_ranks.size();
  const std::size_t n_attributes = slots_.size();
  for (std::uint64_t at = events.offsets[event.event]; at < events.offsets[event.event + 1]; ++at) {
    const AttributeId attribute = events.attributes[at];
    if (attribute >= n_attributes) continue;
    const AttributeSlots& of = slots_[attribute];
    if (!of.is_used()) continue;
    const EventValue& value = events.values[at];
    const std::uint32_t rank = ranks_.rank(attribute, value);
    if (of.all != kNoSlot) scratch.slot_ranks.push_back({of.all, rank});
    if (of.numbers != kNoSlot && value.kind == Kind::number) {
      scratch.slot_ranks.push_back({of.numbers, rank});
    }
    if (of.strings != kNoSlot && value.kind == Kind::string) {
      scratch.slot_ranks.push_back({of.strings, rank});
    }
    scratch.attributes.emplace_back(attribute, rank);
  }
  event.ranks_end = scratch.slot_ranks.size();
}

// Its plan and its terms.
void TupleKeyIndex::prepare_keys(TileEvent& event, TupleKeyScratch& scratch) const {
  event.plan = plan_of_width_[std::min(scratch.attributes.size(), plan_of_width_.size() - 1)];
  if (event.plan == plans_.size()) return;
  const KeyIndex& plan = plans_[event.plan];
  event.guards_begin = scratch.guards.size();
  if (plan.has_guards()) {
    for (const auto& [attribute, rank] : scratch.attributes) {
      plan.for_each_guard(attribute, rank,
                          [&](std::uint16_t guard) { scratch.guards.push_back(guard); });
    }
  }
  event.guards_end = scratch.guards.size();
  event.is_small = plan.has_small_keys(scratch.attributes.size());
  if (event.is_small) {
    scratch.n_small_terms = 0;
    for (const auto& [attribute, rank] : scratch.attributes) {
      if (!plan.is_small_term(attribute)) continue;
      plan.add_small_term(attribute, rank, scratch.n_small_terms++, scratch.small_terms.data());
    }
    return;
  }
  scratch.terms.clear(plan.n_groups());
  for (const auto& [attribute, rank] : scratch.attributes) {
    plan.add_terms(attribute, rank, scratch.terms);
  }
}

// Of those that have records: a key with another's bit and not its tag does not count.
bool TupleKeyIndex::is_first_of_its_key(const TileEvent& event, const FoundKeys& keys,
                                        TupleKeyScratch& scratch) const {
  const std::uint32_t key = scratch.found[keys.next].key;
  if (!keys.first) return scratch.seen.insert(event.event, key);
  for (std::size_t before = *keys.first; before < keys.next; ++before) {
    if (scratch.found[before].key != key) continue;
    const Run run = plans_[event.plan].run_of(scratch.found[before]);
    if (run.begin != run.end) return false;
  }
  return true;
}

void TupleKeyIndex::find_runs(const TileEvent& event, FoundKeys& keys, TupleKeyScratch& scratch,
                              Counters& counters) const {
  const KeyIndex& plan = plans_[event.plan];
  if (plan.has_guards()) return find_guarded(event, keys, scratch, counters);
  const std::size_t n_most = scratch.runs.size() + kMostRuns;
  // Lists are fetched while those before them are read; all at once they would wait in line.
  const auto prefetch_list = [&](std::size_t key) {
    if (key < keys.end) plan.prefetch_list(plan.run_of(scratch.found[key]));
  };
  if (!plan.is_in_order()) {
    for (std::size_t ahead = 0; ahead < kListsAhead; ++ahead) prefetch_list(keys.next + ahead);
  }
  for (; keys.next < keys.end && scratch.runs.size() < n_most; ++keys.next) {
    const Run run = plan.run_of(scratch.found[keys.next]);
    if (!plan.is_in_order()) prefetch_list(keys.next + kListsAhead);
    if (run.begin == run.end) continue;
    if (keys.n_entries_done == 0 && !is_first_of_its_key(event, keys, scratch)) continue;
    if (plan.is_in_order()) {
      prefetch_record(run.begin);
      scratch.runs.push_back(run);
      continue;
    }
    std::uint32_t entry = run.begin + keys.n_entries_done;
    const std::uint32_t end = std::min(run.end, entry + static_cast<std::uint32_t>(kMostRuns));
    for (; entry < end; ++entry) {
      const std::uint32_t record = plan.entries()[entry];
      prefetch_record(record);
      scratch.runs.push_back({record, record + 1});
    }
    if (entry < run.end) {
      keys.n_entries_done = entry - run.begin;
      return;
    }
    keys.n_entries_done = 0;
  }
}

void TupleKeyIndex::find_guarded(const TileEvent& event, FoundKeys& keys, TupleKeyScratch& scratch,
                                 Counters& counters) const {
  const KeyIndex& plan = plans_[event.plan];
  // Where all lists are comes first: their starts are on the way already.
  const std::size_t first = keys.next;
  scratch.lists.clear();
  for (std::size_t key = first; key < keys.end; ++key) {
    scratch.lists.push_back(plan.run_of(scratch.found[key]));
  }
  const auto prefetch_guards = [&](std::size_t key) {
    if (key < keys.end) plan.prefetch_guards(scratch.lists[key - first]);
  };
  for (std::size_t ahead = 0; ahead < kGuardedAhead; ++ahead) prefetch_guards(first + ahead);
  std::size_t n_passed = 0;
  for (; keys.next < keys.end && n_passed < kMostRuns; ++keys.next) {
    const Run run = scratch.lists[keys.next - first];
    prefetch_guards(keys.next + kGuardedAhead);
    if (run.begin == run.end) continue;
    if (keys.n_entries_done == 0 && !is_first_of_its_key(event, keys, scratch)) continue;
    std::uint32_t place = run.begin + keys.n_entries_done;
    while (place < run.end && n_passed < kMostRuns) {
      const std::uint32_t end =
          std::min(run.end, place / kChunkFilters * kChunkFilters + kGuardedStep);
      const std::size_t n_more = scratch.kernels->guard(
          plan.chunks(), place, end, *scratch.event_guards, scratch.passed.data() + n_passed);
      counters.filters += end - place - n_more;
      for (const std::size_t all = n_passed + n_more; n_passed < all; ++n_passed) {
        plan.prefetch_entry(scratch.passed[n_passed]);
      }
      place = end;
    }
    if (place < run.end) {
      keys.n_entries_done = place - run.begin;
      break;
    }
    counters.filters -= plan.n_fillers(run);
    keys.n_entries_done = 0;
  }
  for (std::size_t at = 0; at < n_passed; ++at) {
    const std::uint32_t record = plan.entries()[scratch.passed[at]];
    prefetch_record(record);
    scratch.runs.push_back({record, record + 1});
  }
}

bool TupleKeyIndex::verify(const EventBatch& events, const TileEvent& event, const Run* runs,
                           std::size_t n_runs, TupleKeyScratch& scratch, Collector& out,
                           bool& has_values, Counters& counters) const {
  Verification state{};
  state.records = records_.data();
  state.ranks = scratch.ranks.data();
  state.runs = runs;
  state.n_runs = n_runs;
  state.hits = scratch.hits.data();
  state.n_most_hits = std::clamp(out.n_reachable(), kLeastHits, kMostHits);
  const auto test = header_.lane_bytes == 1   ? scratch.kernels->verify8
                    : header_.lane_bytes == 2 ? scratch.kernels->verify16
                                              : scratch.kernels->verify32;
  bool goes_on = true;
  while (goes_on && state.run < state.n_runs) {
    test(state);
    for (std::size_t at = 0; at < state.n_hits; ++at) {
      const auto filter = static_cast<FilterIdx>(state.hits[at]);
      if (state.hits[at] >> 48 & kVerify) {
        if (out.has(filter)) continue;
        if (!has_values) {
          scratch.values.load(events, event.event, table_->n_attributes(), table_->space());
          has_values = true;
        }
        if (!table_->accepts(filter, scratch.values)) continue;
      }
      out.add(filter);
    }
    goes_on = state.n_hits == 0 || !out.has_all();
  }
  counters.candidates += state.n_candidates;
  counters.filters += state.n_candidates;
  counters.constraints += state.n_lanes;
  return goes_on;
}

// The events of a tile: each step for all of them, so that the misses of one overlap with those of
// the others.
void TupleKeyIndex::finish_tile(const EventBatch& events, TupleKeyScratch& scratch, Collector& out,
                                Counters& counters) const {
  const auto probe = scratch.kernels->probe;
  scratch.runs.clear();
  scratch.seen.clear();
  for (TileEvent& event : scratch.tile) {
    const KeyIndex& plan = plans_[event.plan];
    const std::size_t n_keys = event.keys_end - event.keys_begin;
    counters.cells += n_keys;
    const std::size_t n_found = probe(scratch.keys.data() + event.keys_begin, n_keys, plan.words(),
                                      plan.shift(), scratch.found.data() + event.keys_begin);
    event.found = {event.keys_begin, event.keys_begin + n_found};
    if (n_found <= kFewKeys) event.found.first = event.keys_begin;
    for (std::size_t at = event.found.next; at < event.found.end; ++at) {
      plan.prefetch_start(scratch.found[at]);
    }
  }
  for (TileEvent& event : scratch.tile) {
    event.runs_begin = scratch.runs.size();
    if (header_.always_end > 0) scratch.runs.push_back({0, header_.always_end});
    load_guards(event, scratch);
    find_runs(event, event.found, scratch, counters);
    unload_guards(event, scratch);
    event.runs_end = scratch.runs.size();
  }
  const std::size_t n_runs = scratch.runs.size();
  for (TileEvent& event : scratch.tile) {
    out.begin_event();
    // The beginning of a long list may have nothing, and its end may.
    if (event.runs_begin == event.runs_end && event.found.next == event.found.end) continue;
    load_ranks(event, scratch);
    bool has_values = false;
    bool goes_on = verify(events, event, scratch.runs.data() + event.runs_begin,
                          event.runs_end - event.runs_begin, scratch, out, has_values, counters);
    while (goes_on && event.found.next < event.found.end) {
      load_guards(event, scratch);
      find_runs(event, event.found, scratch, counters);
      unload_guards(event, scratch);
      goes_on = verify(events, event, scratch.runs.data() + n_runs, scratch.runs.size() - n_runs,
                       scratch, out, has_values, counters);
      scratch.runs.resize(n_runs);
    }
    unload_ranks(event, scratch);
  }
  scratch.tile.clear();
}

void TupleKeyIndex::match_likely_first(const EventBatch& events, TileEvent& event,
                                       TupleKeyScratch& scratch, Collector& out,
                                       Counters& counters) const {
  out.begin_event();
  load_ranks(event, scratch);
  event.guards_begin = scratch.guards.size();
  for (const auto& [attribute, rank] : scratch.attributes) {
    scratch.guards.push_back(guard_of(presence_hash(attribute)));
  }
  event.guards_end = scratch.guards.size();
  load_guards(event, scratch);
  bool goes_on = true, has_values = false;
  scratch.runs.clear();
  const auto flush = [&] {
    goes_on = verify(events, event, scratch.runs.data(), scratch.runs.size(), scratch, out,
                     has_values, counters);
    scratch.runs.clear();
  };
  for (std::size_t tier = 0; goes_on && tier < likely_.n_tiers(); ++tier) {
    for (const auto& [attribute, rank] : scratch.attributes) {
      const Run list = likely_.list(tier, attribute);
      for (std::uint32_t begin = list.begin; goes_on && begin < list.end; begin += kGuardedStep) {
        const std::uint32_t end = std::min(list.end, begin + kGuardedStep);
        const std::size_t n_passed = scratch.kernels->guard(
            likely_.chunks(), begin, end, *scratch.event_guards, scratch.passed.data());
        counters.filters += end - begin - n_passed;
        for (std::size_t at = 0; at < n_passed; ++at) {
          const std::uint32_t place = likely_.place(scratch.passed[at]);
          scratch.runs.push_back({place, place + 1});
        }
        if (scratch.runs.size() >= kLikelyRuns) flush();
      }
      if (!goes_on) break;
    }
    if (goes_on) flush();
  }
  unload_guards(event, scratch);
  unload_ranks(event, scratch);
  if (!goes_on) return;
  prepare_keys(event, scratch);
  match_alone(events, event, scratch, out, counters);
}

// An event with many keys, or one that tests all records.
void TupleKeyIndex::match_alone(const EventBatch& events, const TileEvent& event,
                                TupleKeyScratch& scratch, Collector& out,
                                Counters& counters) const {
  load_ranks(event, scratch);
  bool has_values = false;
  const auto verify_runs = [&](const Run* runs, std::size_t n_runs) {
    return verify(events, event, runs, n_runs, scratch, out, has_values, counters);
  };
  if (event.plan == plans_.size()) {
    const Run all{0, header_.records_end};
    verify_runs(&all, 1);
    unload_ranks(event, scratch);
    return;
  }
  scratch.seen.clear();
  load_guards(event, scratch);
  const Run always{0, header_.always_end};
  bool goes_on = header_.always_end == 0 || verify_runs(&always, 1);
  const KeyIndex& plan = plans_[event.plan];
  const auto probe = scratch.kernels->probe;
  std::size_t n_keys = 0;
  const bool is_cached = plan.n_words() <= kCachedWords;
  const auto flush = [&] {
    counters.cells += n_keys;
    for (std::size_t at = 0; !is_cached && at < n_keys; ++at) plan.prefetch_word(scratch.keys[at]);
    const std::size_t n_found =
        probe(scratch.keys.data(), n_keys, plan.words(), plan.shift(), scratch.found.data());
    n_keys = 0;
    for (std::size_t at = 0; at < n_found; ++at) {
      plan.prefetch_start(scratch.found[at]);
    }
    for (FoundKeys found{0, n_found, 0}; goes_on && found.next < found.end;) {
      scratch.runs.clear();
      find_runs(event, found, scratch, counters);
      goes_on = verify_runs(scratch.runs.data(), scratch.runs.size());
    }
  };
  const std::size_t n_room = scratch.keys.size();
  if (goes_on) {
    const auto room = [&](std::size_t n_more) -> std::uint32_t* {
      if (n_keys + n_more > n_room) {
        flush();
        if (!goes_on) return nullptr;
        // One attribute's keys alone pass the room only where events have thousands of attributes.
        if (n_more > scratch.keys.size()) {
          scratch.keys.resize(n_more);
          scratch.found.resize(n_more + 1);
        }
      }
      std::uint32_t* place = scratch.keys.data() + n_keys;
      n_keys += n_more;
      return place;
    };
    write_keys(event, scratch, room);
    if (goes_on) flush();
  }
  unload_guards(event, scratch);
  unload_ranks(event, scratch);
}

void TupleKeyIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                          Scratch& given_scratch, Collector& out) const {
  TupleKeyScratch& scratch = static_cast<TupleKeyScratch&>(given_scratch);
  Counters counters;
  std::size_t n_keys = 0;
  scratch.kernels = &best_kernels();
  scratch.tile.clear();
  scratch.slot_ranks.clear();
  scratch.guards.clear();
  const auto begin_tile = [&] {
    scratch.slot_ranks.clear();
    scratch.guards.clear();
    n_keys = 0;
  };
  const bool may_settle =
      likely_.size() > 0 && out.can_repeat() && out.n_reachable() <= LikelyFilters::kMostTargets;
  LikelyOrNot& likely_or_not = scratch.likely_or_not;
  for (std::size_t each = begin; each < end; ++each) {
    TileEvent event;
    event.event = each;
    if (may_settle && (likely_or_not.is_trial() || likely_or_not.takes_likely())) {
      finish_tile(events, scratch, out, counters);
      begin_tile();
      const Counters before = counters;
      prepare(events, event, scratch);
      if (likely_or_not.takes_likely()) {
        match_likely_first(events, event, scratch, out, counters);
      } else {
        out.begin_event();
        prepare_keys(event, scratch);
        match_alone(events, event, scratch, out, counters);
      }
      likely_or_not.done(work_ns(before, counters));
      begin_tile();
      continue;
    }
    if (may_settle) likely_or_not.done(0);
    prepare(events, event, scratch);
    prepare_keys(event, scratch);
    const bool is_scan = event.plan == plans_.size();
    if (is_scan || (!event.is_small && plans_[event.plan].n_keys(scratch.terms) > kMostTiledKeys)) {
      finish_tile(events, scratch, out, counters);
      out.begin_event();
      match_alone(events, event, scratch, out, counters);
      begin_tile();
      continue;
    }
    event.keys_begin = n_keys;
    const KeyIndex& plan = plans_[event.plan];
    write_keys(event, scratch, [&](std::size_t n_more) {
      std::uint32_t* place = scratch.keys.data() + n_keys;
      n_keys += n_more;
      return place;
    });
    event.keys_end = n_keys;
    // The last event's words are read at once.
    if (plan.n_words() > kCachedWords && each + 1 < end) {
      for (std::size_t at = event.keys_begin; at < n_keys; ++at) {
        plan.prefetch_word(scratch.keys[at]);
      }
    }
    scratch.tile.push_back(event);
    if (scratch.tile.size() == kTileEvents || n_keys > kTileKeys) {
      finish_tile(events, scratch, out, counters);
      begin_tile();
    }
  }
  finish_tile(events, scratch, out, counters);
  out.counters += counters;
}

std::size_t TupleKeyIndex::n_bytes() const {
  std::size_t n_all = sizeof(*this) + ranks_.n_bytes() + slots_.n_bytes() + defaults_.n_bytes() +
                      records_.n_bytes() + plan_of_width_.n_bytes() + likely_.n_bytes();
  for (const KeyIndex& plan : plans_) n_all += sizeof(plan) + plan.n_bytes();
  return n_all;
}

constexpr Parameter kParameters[] = {
    {"event_attributes", 0, 0, 1e6, "attributes of an event, on average; 0: not known"},
    {"key_terms", 3, 1, 3, "terms of a key, at most"},
    {"groups", 0, 0, 16, "groups of attributes that a key must not cross; 0: by cost"},
    {"guards", 0, 0, 2, "two more terms beside each key's filters; 0: by cost; 1: no; 2: yes"},
};

std::uint32_t whole(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine tuple-key must be a whole number, not " +
                        std::to_string(value));
  }
  return static_cast<std::uint32_t>(value);
}

}  // namespace

constinit const std::span<const Parameter> kTupleKeyParameters = kParameters;

std::unique_ptr<Index> build_tuple_key(std::shared_ptr<const FilterTable> table,
                                       const Parameters& parameters) {
  Settings settings;
  settings.planner.event_attributes = parameters.at("event_attributes");
  settings.planner.key_terms = whole(parameters, "key_terms");
  settings.planner.n_groups = whole(parameters, "groups");
  settings.planner.guards = static_cast<Choice>(whole(parameters, "guards"));
  return std::make_unique<TupleKeyIndex>(std::move(table), settings);
}

std::unique_ptr<Index> open_tuple_key(std::shared_ptr<const FilterTable> table, const Parameters&,
                                      const SectionReader& sections) {
  return std::make_unique<TupleKeyIndex>(std::move(table), sections);
}

}  // namespace tamis
