// `spatial-grid`: circles in buckets of (cell, name), on a grid for each size of circle.
//
// Ours; the workload is that of papers/003. The filters of a subscription that share an area are
// one place (spatial_grid/places.hpp). A place stands in one bucket: that of the cell of its centre
// and, where cells are crowded, of a name that all of its filters need. An event looks at the
// buckets of the cells around it.
//
//     event ─► cells around it, on each level of radii         (spatial_grid/cells.hpp)
//                │ × any name, and its own names where buckets are divided by names
//                ▼
//     table ─► bucket ─► xy │ xy │ xy │ …   SIMD: near enough on the cell's lattice?
//                           │                                  (spatial_grid/buckets.hpp)
//                           ▼
//     places    │ centre limit filters │    the exact distance test
//                           │
//     blooms    │ f │ f │ f │ …             has the event the names of the filter?
//                           │
//     filter table                          constraints, other areas, residuals ─► collector
//
// Places without a cell (no area that the event must lie in, or one that is everything) stand on a
// level of their own, in buckets by a name or a value; there a Bloom filter takes the place of xy.
//
// Areas move while others match: spatial_grid/moving.hpp. Until the first move there is nothing of
// that, and the arrays may be those of a file.
//
// Each step is made for all places of an event, and fetches what the next step reads: its misses
// overlap.
//
// Invariants: a place that contains the event is in a bucket that the event looks at; the lattice
// and the Bloom filters leave out nothing that matches.
//
// Cost: see docs/engines/spatial-grid.md.
#include "engines/spatial_grid.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "common/name_blooms.hpp"
#include "common/placed_filter.hpp"
#include "common/simd.hpp"
#include "engines/spatial_grid/buckets.hpp"
#include "engines/spatial_grid/cells.hpp"
#include "engines/spatial_grid/moving.hpp"
#include "engines/spatial_grid/places.hpp"
#include "tamis/error.hpp"
#include "tamis/prefetch.hpp"

namespace tamis {
namespace {

using namespace spatial_grid;

constexpr std::size_t kNameBits = 2;  // of 32, as in 003
// Events that are matched before what has moved away is forgotten for them.
constexpr std::size_t kEventsPerPass = 16;

struct Probe {
  std::uint64_t hash = 0;
  BucketKey key;
  std::uint32_t xy = 0, z = 0;  // of the event on the cell's lattice
  std::int32_t limit = 0;       // -1: the lattice says nothing
};

struct Candidate {
  FilterIdx filter = 0;
  std::uint32_t place = 0;  // in scratch.places
};

class SpatialGridScratch final : public Scratch {
 public:
  ValueByAttribute values;
  std::vector<Probe> probes;
  std::vector<BucketEntries> found;
  std::vector<PlaceIdx> places;  // first those that may contain the event, then those that do
  std::size_t n_places = 0;
  std::vector<std::uint32_t> subsets;
  std::vector<Candidate> candidates;
  // Where areas move, a place may be found through several entries.
  std::vector<std::uint64_t> stamp_of;  // [n_places] or empty
  std::uint64_t stamp = 0;
};

class SpatialGridIndex final : public MovableIndex {
 public:
  SpatialGridIndex(std::shared_ptr<const FilterTable> table, std::span<const std::uint32_t> owners);
  SpatialGridIndex(std::shared_ptr<const FilterTable> table, const SectionReader& sections);

  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<SpatialGridScratch>();
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override;
  void save(SectionWriter& sections) const override;

  void attach(std::shared_ptr<const Centres> centres) override { centres_ = std::move(centres); }
  bool can_move(std::uint32_t slot) override;
  void follow(std::uint32_t slot, const Point& point) override;
  void prefetch(std::span<const SlotMove> moves) const override;
  bool is_worn() const override { return own_moving_ != nullptr && own_moving_->is_worn(); }
  void forget_readers() override {
    if (own_moving_) own_moving_->forget_readers();
  }

 private:
  bool is_flat() const { return table_->space() == Space::plane; }
  std::uint32_t everywhere() const { return static_cast<std::uint32_t>(levels_.size()) - 1; }

  // `moving` is null where nothing has moved.
  void match_some(const EventBatch& events, std::size_t begin, std::size_t end,
                  const MovingGrid* moving, SpatialGridScratch& scratch, Collector& out,
                  Counters& counters) const;
  void find_probes(const EventBatch& events, std::size_t event, const MovingGrid* moving,
                   SpatialGridScratch& scratch) const;
  void find_places(std::uint32_t missing, const MovingGrid* moving, SpatialGridScratch& scratch,
                   Counters& counters) const;
  // The place that the slot's area is, if that can move.
  PlaceIdx find_movable(PlaceIdx first, PlaceIdx end) const;
  void find_candidates(std::uint32_t missing, SpatialGridScratch& scratch, const Collector& out,
                       Counters& counters) const;
  void verify(SpatialGridScratch& scratch, Collector& out, Counters& counters) const;

  std::shared_ptr<const FilterTable> table_;
  NameBlooms names_;
  Column<Level> levels_;
  Column<Place> places_;
  Column<std::uint8_t> terms_;    // [n_levels * n_attributes], of TermKind
  Column<std::uint32_t> blooms_;  // [n_filters]
  Buckets buckets_;

  std::shared_ptr<const Centres> centres_;
  std::atomic<MovingGrid*> moving_{nullptr};
  // --- the writer's ---
  std::unique_ptr<MovingGrid> own_moving_;
  std::vector<PlaceIdx> movable_of_;  // [slots] kNoPlace, or the place that can move
  bool knows_movable_ = false;
};

constexpr PlaceIdx kNoPlace = ~PlaceIdx{0};

SpatialGridIndex::SpatialGridIndex(std::shared_ptr<const FilterTable> table,
                                   std::span<const std::uint32_t> owners)
    : table_(std::move(table)), names_(table_->n_attributes(), kNameBits) {
  std::vector<std::uint32_t> blooms(table_->size());
  for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
    blooms[idx] = names_.of(*table_, table_->filter(idx));
  }
  Places made = make_places(*table_, owners, is_flat());
  std::vector<Entry> entries(made.places.size());
  for (PlaceIdx idx = 0; idx < entries.size(); ++idx) {
    const Place& place = made.places[idx];
    if (place.level != made.everywhere()) {
      entries[idx] = make_entry(made.levels[place.level], place, place.centre, idx);
      continue;
    }
    // Of the names that all of its filters need.
    std::uint32_t bloom = blooms[place.first];
    for (std::uint32_t at = 1; at < place.n_filters; ++at) bloom &= blooms[place.first + at];
    entries[idx] = {{{}, place.level, place.term}, bloom, 0, idx};
  }
  buckets_ = Buckets(entries, is_flat());
  levels_ = std::move(made.levels);
  places_ = std::move(made.places);
  terms_ = std::move(made.terms);
  blooms_ = std::move(blooms);
  places_.shrink();
  blooms_.shrink();
}

SpatialGridIndex::SpatialGridIndex(std::shared_ptr<const FilterTable> table,
                                   const SectionReader& sections)
    : table_(std::move(table)),
      names_(table_->n_attributes(), kNameBits),
      levels_(sections.column<Level>("spatial_grid/levels")),
      places_(sections.column<Place>("spatial_grid/places")),
      terms_(sections.column<std::uint8_t>("spatial_grid/terms")),
      blooms_(sections.column<std::uint32_t>("spatial_grid/blooms")),
      buckets_(sections, table_->space() == Space::plane) {
  if (levels_.empty() || blooms_.size() != table_->size() ||
      terms_.size() != levels_.size() * table_->n_attributes()) {
    throw Error("the index of engine spatial-grid must be that of its table, not of another");
  }
}

void SpatialGridIndex::save(SectionWriter& sections) const {
  sections.write("spatial_grid/levels", levels_);
  sections.write("spatial_grid/places", places_);
  sections.write("spatial_grid/terms", terms_);
  sections.write("spatial_grid/blooms", blooms_);
  buckets_.save(sections);
}

// A slot's one circle can move if it is the only area of its predicate and stands in its filters as
// an area alone.
PlaceIdx SpatialGridIndex::find_movable(PlaceIdx first, PlaceIdx end) const {
  PlaceIdx found = kNoPlace;
  for (PlaceIdx idx = first; idx < end; ++idx) {
    const Place& place = places_[idx];
    if (place.has_circle && (found != kNoPlace || place.level == everywhere())) return kNoPlace;
    if (place.has_circle) found = idx;
    for (FilterIdx at = place.first; at < place.first + place.n_filters; ++at) {
      const FilterTable::Filter& filter = table_->filter(at);
      if (filter.residuals.count > 0 || filter.areas.count != place.has_circle) return kNoPlace;
      if (place.has_circle && !table_->area(filter.areas.first).is_only) return kNoPlace;
    }
  }
  return found;
}

bool SpatialGridIndex::can_move(std::uint32_t slot) {
  if (!knows_movable_) {
    const auto n_places = static_cast<PlaceIdx>(places_.size());
    for (PlaceIdx begin = 0, end = 0; begin < n_places; begin = end) {
      const std::uint32_t owner = places_[begin].owner;
      while (end < n_places && places_[end].owner == owner) ++end;
      if (movable_of_.size() <= owner) movable_of_.resize(owner + std::size_t{1}, kNoPlace);
      movable_of_[owner] = find_movable(begin, end);
    }
    knows_movable_ = true;
  }
  return slot < movable_of_.size() && movable_of_[slot] != kNoPlace;
}

void SpatialGridIndex::follow(std::uint32_t slot, const Point& point) {
  const PlaceIdx idx = movable_of_[slot];
  const Place& place = places_[idx];
  if (!own_moving_) {
    if (point == place.centre) return;  // it was built there
    own_moving_ = std::make_unique<MovingGrid>(buckets_, places_.size(), is_flat());
    moving_.store(own_moving_.get(), std::memory_order_release);
  }
  own_moving_->move(make_entry(levels_[place.level], place, point, idx));
}

void SpatialGridIndex::prefetch(std::span<const SlotMove> moves) const {
  if (!own_moving_) return;
  for (const SlotMove& move : moves) {
    const PlaceIdx idx = movable_of_[move.slot];
    prefetch_line(&places_[idx].level);
    own_moving_->prefetch(idx);
  }
  std::array<Entry, MovingGrid::kMostPrefetched> entries;
  const std::size_t n = std::min(moves.size(), entries.size());
  for (std::size_t at = 0; at < n; ++at) {
    const PlaceIdx idx = movable_of_[moves[at].slot];
    const Place& place = places_[idx];
    entries[at] = make_entry(levels_[place.level], place, moves[at].point, idx);
  }
  own_moving_->prefetch({entries.data(), n});
}

// The buckets that the event looks at.
void SpatialGridIndex::find_probes(const EventBatch& events, std::size_t event,
                                   const MovingGrid* moving, SpatialGridScratch& scratch) const {
  scratch.probes.clear();
  const std::size_t n_attributes = table_->n_attributes();
  const auto add = [&](Probe probe, std::uint64_t hash_of_cell, std::uint32_t term) {
    probe.key.term = term;
    probe.hash = hash_key(hash_of_cell, term);
    if (moving == nullptr) {
      buckets_.prefetch(probe.hash);
    } else {
      moving->prefetch(probe.hash);
    }
    scratch.probes.push_back(probe);
  };
  const auto add_terms = [&](const Probe& probe) {
    const std::uint64_t hash = hash_cell(probe.key.level, probe.key.cell);
    add(probe, hash, kAnyTerm);
    if (!levels_[probe.key.level].names) return;
    const std::uint8_t* const terms = terms_.data() + probe.key.level * n_attributes;
    for (std::uint64_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
      const AttributeId attribute = events.attributes[at];
      if (attribute >= n_attributes || terms[attribute] == 0) continue;
      if (terms[attribute] & kNameTerm) add(probe, hash, name_term(attribute));
      if (terms[attribute] & kValueTerm) {
        add(probe, hash, value_term(attribute, hash_value(events.values[at])));
      }
    }
  };
  Probe probe;
  probe.key.level = everywhere();
  add_terms(probe);
  if (!scratch.values.has_position()) return;
  const Point& point = scratch.values.position();
  for (std::uint32_t at = 0; at < everywhere(); ++at) {
    const Level& level = levels_[at];
    probe.key.level = at;
    for_each_cell(level, point, is_flat(), [&](const Cell& cell) {
      probe.key.cell = cell;
      probe.limit = cell.is_last() ? -1 : level.limit;
      probe.xy = Level::pack(level.lattice_of(point.x, cell.x), level.lattice_of(point.y, cell.y));
      probe.z = Level::pack(level.lattice_of(point.z, cell.z), 0);
      add_terms(probe);
    });
  }
}

void SpatialGridIndex::find_places(std::uint32_t missing, const MovingGrid* moving,
                                   SpatialGridScratch& scratch, Counters& counters) const {
  std::size_t n_most = 0;
  scratch.found.clear();
  for (const Probe& probe : scratch.probes) {
    const BucketEntries entries = moving == nullptr ? buckets_.find(probe.hash, probe.key)
                                                    : moving->find(probe.hash, probe.key);
    for (std::uint32_t at = 0; at < entries.size; at += 16) prefetch_line(entries.xy + at);
    scratch.found.push_back(entries);
    n_most += entries.size;
  }
  counters.cells += scratch.probes.size();
  counters.filters += n_most;
  constexpr std::size_t kRoom = 16;  // that find_near writes beyond
  if (scratch.places.size() < n_most + kRoom) scratch.places.resize(2 * n_most + kRoom);
  const SimdKernels& kernels = simd();
  PlaceIdx* next = scratch.places.data();
  for (std::size_t at = 0; at < scratch.probes.size(); ++at) {
    const Probe& probe = scratch.probes[at];
    const BucketEntries& entries = scratch.found[at];
    if (entries.size == 0) continue;
    PlaceIdx* const first = next;
    if (probe.key.level == everywhere()) {
      const std::size_t n = kernels.find_subsets(entries.xy, entries.size, missing, first);
      for (std::size_t each = 0; each < n; ++each) first[each] = entries.places[first[each]];
      next += n;
    } else if (probe.limit < 0) {
      next = std::copy(entries.places, entries.places + entries.size, first);
    } else {
      next += kernels.find_near(entries.xy, entries.z, entries.places, entries.size, probe.xy,
                                probe.z, probe.limit, first);
    }
    for (const PlaceIdx* each = first; each < next; ++each) {
      prefetch_line(places_.data() + *each);
    }
  }
  if (moving != nullptr) {
    for (const PlaceIdx* each = scratch.places.data(); each < next; ++each) {
      centres_->prefetch(places_[*each].owner);
    }
  }
  const Point& point = scratch.values.position();
  const bool has_position = scratch.values.has_position();
  ++scratch.stamp;
  std::size_t n_within = 0;
  PlaceIdx* const all = scratch.places.data();
  for (const PlaceIdx* each = all; each < next; ++each) {
    const Place& place = places_[*each];
    if (place.has_circle) {
      Centre centre{0, 0, place.centre};
      if (moving != nullptr) centres_->read(place.owner, centre);
      if (!has_position || !is_within(point, centre.point, place.limit)) continue;
    }
    if (moving != nullptr &&
        std::exchange(scratch.stamp_of[*each], scratch.stamp) == scratch.stamp) {
      continue;
    }
    prefetch_line(blooms_.data() + place.first);
    prefetch_line(blooms_.data() + place.first + place.n_filters - 1);
    all[n_within++] = *each;
  }
  scratch.n_places = n_within;
}

// The filters of the places whose names the event has.
void SpatialGridIndex::find_candidates(std::uint32_t missing, SpatialGridScratch& scratch,
                                       const Collector& out, Counters& counters) const {
  scratch.candidates.clear();
  const SimdKernels& kernels = simd();
  for (std::uint32_t at = 0; at < scratch.n_places; ++at) {
    const Place& place = places_[scratch.places[at]];
    counters.bits += place.n_filters;
    if (scratch.subsets.size() < place.n_filters) scratch.subsets.resize(place.n_filters);
    const std::size_t n = kernels.find_subsets(blooms_.data() + place.first, place.n_filters,
                                               missing, scratch.subsets.data());
    for (std::size_t each = 0; each < n; ++each) {
      const FilterIdx filter = place.first + scratch.subsets[each];
      prefetch_line(&table_->filter(filter));
      out.prefetch(filter);
      scratch.candidates.push_back({filter, at});
    }
  }
}

void SpatialGridIndex::verify(SpatialGridScratch& scratch, Collector& out,
                              Counters& counters) const {
  for (const Candidate& each : scratch.candidates) {
    out.prefetch_target(each.filter);
    const Range& constraints = table_->filter(each.filter).constraints;
    if (constraints.count > 0) prefetch_line(&table_->constraint(constraints.first));
  }
  for (const Candidate& each : scratch.candidates) {
    const Range& constraints = table_->filter(each.filter).constraints;
    if (constraints.count == 0) continue;
    const Constraint& first = table_->constraint(constraints.first);
    if (first.is_interval()) {
      prefetch_line(&table_->number(first.set));
    } else {
      prefetch_line(&table_->general(first));
    }
  }
  std::uint32_t matched = ~std::uint32_t{0};  // a place: its other filters have the same owner
  for (const Candidate& each : scratch.candidates) {
    if (each.place == matched || out.has(each.filter)) continue;
    ++counters.candidates;
    const bool has_circle = places_[scratch.places[each.place]].has_circle != 0;
    if (!accepts_content(*table_, table_->filter(each.filter), scratch.values, 0, has_circle,
                         counters.constraints)) {
      continue;
    }
    out.add(each.filter);
    matched = each.place;
    if (out.has_all()) return;
  }
}

void SpatialGridIndex::match_some(const EventBatch& events, std::size_t begin, std::size_t end,
                                  const MovingGrid* moving, SpatialGridScratch& scratch,
                                  Collector& out, Counters& counters) const {
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    scratch.values.load(events, each, table_->n_attributes(), table_->space());
    const std::uint32_t missing = names_.missing(events, each);
    find_probes(events, each, moving, scratch);
    find_places(missing, moving, scratch, counters);
    find_candidates(missing, scratch, out, counters);
    verify(scratch, out, counters);
  }
}

void SpatialGridIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                             Scratch& given_scratch, Collector& out) const {
  auto& scratch = static_cast<SpatialGridScratch&>(given_scratch);
  Counters counters;
  while (begin < end) {
    const std::size_t next = std::min(end, begin + kEventsPerPass);
    if (const MovingGrid* const moving = moving_.load(std::memory_order_acquire)) {
      if (scratch.stamp_of.size() < places_.size()) scratch.stamp_of.resize(places_.size());
      const ReaderGate::Pass pass = moving->enter();
      match_some(events, begin, next, moving, scratch, out, counters);
    } else {
      match_some(events, begin, next, nullptr, scratch, out, counters);
    }
    begin = next;
  }
  out.counters += counters;
}

std::size_t SpatialGridIndex::n_bytes() const {
  return sizeof(*this) + names_.n_bytes() + levels_.n_bytes() + places_.n_bytes() +
         terms_.n_bytes() + blooms_.n_bytes() + buckets_.n_bytes() +
         movable_of_.capacity() * sizeof(PlaceIdx) + (own_moving_ ? own_moving_->n_bytes() : 0);
}

}  // namespace

constinit const std::span<const Parameter> kSpatialGridParameters = {};

std::unique_ptr<Index> build_spatial_grid(std::shared_ptr<const FilterTable> table,
                                          const Parameters&) {
  return std::make_unique<SpatialGridIndex>(std::move(table), std::span<const std::uint32_t>());
}

std::unique_ptr<Index> build_owned_spatial_grid(std::shared_ptr<const FilterTable> table,
                                                const Parameters&,
                                                std::span<const std::uint32_t> slot_of) {
  return std::make_unique<SpatialGridIndex>(std::move(table), slot_of);
}

std::unique_ptr<Index> open_spatial_grid(std::shared_ptr<const FilterTable> table,
                                         const Parameters&, const SectionReader& sections) {
  return std::make_unique<SpatialGridIndex>(std::move(table), sections);
}

}  // namespace tamis
