// Matches events by the keys of an index of tuple-key.
#include <algorithm>
#include <bit>
#include <utility>

#include "common/simd.hpp"
#include "engines/tuple_key/index.hpp"

namespace tamis::tuple_key {
namespace {

// Keys of several events are looked up before their records are fetched, to hide misses; so few
// that the records stay in the L1 cache until they are tested.
constexpr std::size_t kTileKeys = 256;
constexpr std::size_t kMostTiledKeys = 1024;  // an event with more is matched alone
constexpr std::size_t kTileEvents = 16;
constexpr std::uint32_t kGuardedStep = 256;  // filters whose guards are tested in one go
constexpr std::size_t kFewKeys = 8;          // that are compared each with each
constexpr std::size_t kListsAhead = 8;  // fetched, of a plan whose records lie in another order
// The same of lists with guards, which are read sooner than memory brings them.
constexpr std::size_t kGuardedAhead = 16;
// After so many hits it is worth a look whether all targets are settled; with fewer targets sooner.
constexpr std::size_t kLeastHits = 8, kMostHits = 256;
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

// Roughly, to compare two ways through an event: a key, a filter behind guards, a record, a word
// of lines.
double work_ns(const Counters& before, const Counters& after) {
  return 2.0 * static_cast<double>(after.cells - before.cells) +
         0.2 * static_cast<double>(after.filters - before.filters) +
         8.0 * static_cast<double>(after.candidates - before.candidates) +
         0.3 * static_cast<double>(after.bits - before.bits);
}

}  // namespace

std::unique_ptr<Scratch> TupleKeyIndex::make_scratch() const {
  auto scratch = std::make_unique<TupleKeyScratch>();
  scratch->ranks.assign(defaults_.begin(), defaults_.end());
  scratch->keys.resize(kTileKeys + kMostTiledKeys + 16);
  scratch->found.resize(kTileKeys + kMostTiledKeys + 17);
  scratch->hits.resize(kMostHits);
  if (std::any_of(plans_.begin(), plans_.end(),
                  [](const KeyIndex& plan) { return plan.has_guards(); })) {
    scratch->event_guards = std::make_unique<EventGuards>();
    scratch->add_no_guard();
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
    scratch.load_guards(event);
    find_runs(event, event.found, scratch, counters);
    scratch.unload_guards(event);
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
      scratch.load_guards(event);
      find_runs(event, event.found, scratch, counters);
      scratch.unload_guards(event);
      goes_on = verify(events, event, scratch.runs.data() + n_runs, scratch.runs.size() - n_runs,
                       scratch, out, has_values, counters);
      scratch.runs.resize(n_runs);
    }
    unload_ranks(event, scratch);
  }
  scratch.tile.clear();
}

bool TupleKeyIndex::match_likely(TupleKeyScratch& scratch, Collector& out,
                                 Counters& counters) const {
  // Lines of one event are as a rule not in the caches. An event reads about as many stages as the
  // one before.
  const auto prefetch = [&](std::size_t stage, std::uint32_t line) {
    const std::uint64_t* const words = likely_.lines(stage)[line].words;
    for (std::size_t word = 0; word < kLineFilters / 64; word += 8) prefetch_line(words + word);
  };
  scratch.likely_lines.clear();
  for (const auto& [attribute, rank] : scratch.attributes) {
    const std::uint32_t line = likely_.line_of(attribute, rank);
    if (line == LikelyFilters::kNoLine) continue;
    scratch.likely_lines.push_back(line);
    prefetch(0, line);
  }
  const std::size_t n_foreseen = std::exchange(scratch.n_likely_stages, 0);
  for (std::size_t stage = 0; stage < likely_.n_stages(); ++stage) {
    ++scratch.n_likely_stages;
    if (stage + 1 < n_foreseen) {
      for (const std::uint32_t line : scratch.likely_lines) prefetch(stage + 1, line);
    }
    LikelyLine found;
    scratch.kernels->add_lines(likely_.lines(stage), scratch.likely_lines.data(),
                               scratch.likely_lines.size(), likely_.needed(stage), found);
    counters.bits += scratch.likely_lines.size() * std::size(found.words);
    for (std::size_t word = 0; word < std::size(found.words); ++word) {
      for (std::uint64_t bits = found.words[word]; bits != 0; bits &= bits - 1) {
        const auto bit = static_cast<std::size_t>(std::countr_zero(bits));
        out.add(likely_.filter(stage, 64 * word + bit));
      }
      if (out.has_all()) return false;
    }
  }
  return true;
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
  scratch.load_guards(event);
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
  scratch.unload_guards(event);
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
  const bool may_settle = likely_.n_stages() > 0 && out.can_repeat() &&
                          out.n_reachable() <= LikelyFilters::kMostTargets;
  LikelyOrNot& likely_or_not = scratch.likely_or_not;
  for (std::size_t each = begin; each < end; ++each) {
    TileEvent event;
    event.event = each;
    if (may_settle && (likely_or_not.is_trial() || likely_or_not.takes_likely())) {
      finish_tile(events, scratch, out, counters);
      begin_tile();
      const Counters before = counters;
      prepare(events, event, scratch);
      out.begin_event();
      if (!likely_or_not.takes_likely() || match_likely(scratch, out, counters)) {
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

}  // namespace tamis::tuple_key
