#include "spatial_grid_cuda.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>
#include <new>
#include <random>
#include <shared_mutex>

#include "device_match.hpp"
#include "engines/spatial_grid.hpp"
#include "engines/spatial_grid/places.hpp"
#include "engines/tuple_key/items.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace cuda {
namespace {

using namespace spatial_grid;
using tuple_key::kVerify;
using tuple_key::RecordEncoder;

// An event has some five names and buckets divide areas by a hundred: where names divide them, a
// row of cells costs five probes, and an area 1/25.
constexpr GridCosts kCosts{.probe = 10, .area = 1, .crowded_probe = 250, .is_by_row = true};
constexpr std::size_t kBucketsPerKey = 4;
constexpr std::size_t kMostBuckets = std::size_t{1} << 26;

// Do two different (cell, term) within the reach of one event have the same number?
bool has_clash(const GridLevel& level, bool is_flat, std::uint32_t n_terms) {
  constexpr std::int32_t kMost = kGridMostCells - 1;
  const auto last_term = static_cast<std::int32_t>(n_terms) - 1;
  for (std::int32_t z = is_flat ? 0 : -kMost; z <= (is_flat ? 0 : kMost); ++z) {
    for (std::int32_t y = -kMost; y <= kMost; ++y) {
      for (std::int32_t x = -kMost; x <= kMost; ++x) {
        for (std::int32_t term = 0; term <= last_term; ++term) {
          if ((x | y | z | term) == 0) continue;
          if (level.number_of(x, y, z, static_cast<std::uint32_t>(term)) == 0) return true;
        }
      }
    }
  }
  return false;
}

// What the places of a level look up.
struct LevelKeys {
  std::vector<std::uint64_t> hashes;  // of (cell, term)
  Cell low{kMostCell, kMostCell, kMostCell}, high{-kMostCell, -kMostCell, -kMostCell};
  std::uint32_t last_term = 0;
  bool has_any = false;

  void add(const Cell& cell, std::uint32_t level, std::uint32_t term) {
    hashes.push_back(hash_key({cell, level, term}));
    for (std::int32_t Cell::* axis : {&Cell::x, &Cell::y, &Cell::z}) {
      low.*axis = std::min(low.*axis, cell.*axis);
      high.*axis = std::max(high.*axis, cell.*axis);
    }
    last_term = std::max(last_term, term);
  }
  // How many (cell, term) there are in the box around all, which can be more than a number takes.
  double n_in_box() const { return side(&Cell::x) * side(&Cell::y) * side(&Cell::z) * n_terms(); }
  // With cells that an event reaches from outside.
  double side(std::int32_t Cell::* axis) const {
    return static_cast<double>(high.*axis) - low.*axis + kGridMostCells;
  }
  double n_terms() const { return last_term + 1.0; }
};

// Factors and the number of buckets.
void set_buckets(GridLevel& level, LevelKeys& keys, bool is_flat) {
  const std::uint32_t n_terms = level.level.names != 0 ? kGridTerms : 1;
  std::sort(keys.hashes.begin(), keys.hashes.end());
  const auto end = std::unique(keys.hashes.begin(), keys.hashes.end());
  const std::size_t n_around = n_terms * (is_flat ? 121u : 1331u);
  const std::size_t n_keys = static_cast<std::size_t>(end - keys.hashes.begin());
  const std::size_t n_wanted = std::clamp<std::size_t>(
      std::bit_ceil(std::max(8 * n_around, kBucketsPerKey * n_keys)), kGridChunk, kMostBuckets);
  // One for each key, if the places fill the space well enough.
  if (keys.n_in_box() <= static_cast<double>(n_wanted)) {
    const auto side = [&](std::int32_t Cell::* axis) {
      return static_cast<std::uint32_t>(keys.side(axis));
    };
    level.mask = static_cast<std::uint32_t>(n_wanted - 1);
    level.y_factor = side(&Cell::x);
    level.z_factor = level.y_factor * side(&Cell::y);
    level.term_factor = level.z_factor * (is_flat ? 1 : side(&Cell::z));
    if (!has_clash(level, is_flat, n_terms)) return;
  }
  std::size_t n_buckets = n_wanted;
  std::mt19937 random(1);
  const auto odd = [&] { return static_cast<std::uint32_t>(random()) | 1; };
  for (int tried = 0;; ++tried) {
    if (tried > 0 && tried % 16 == 0) n_buckets *= 2;
    level.mask = static_cast<std::uint32_t>(n_buckets - 1);
    level.y_factor = odd();
    level.z_factor = is_flat ? 0 : odd();
    level.term_factor = odd();
    if (!has_clash(level, is_flat, n_terms)) return;
  }
}

}  // namespace

GridOnDevice::GridOnDevice(const FilterTable& table, std::span<const std::uint32_t> owners) {
  const bool is_flat = table.space() == Space::plane;
  const Ranks ranks(table);
  RecordEncoder encoder(table, ranks, 1);
  ranks_.emplace(table, ranks, encoder, stream_);
  const Places made = make_places(table, {}, is_flat, kCosts);
  const std::size_t n_attributes = table.n_attributes();

  std::vector<GridHome> homes;
  std::vector<std::uint64_t> records;
  std::vector<LevelKeys> keys(made.levels.size());
  if (made.levels.size() > kGridMostLevels) {
    throw ArgumentError("areas of engine spatial-grid-cuda have too many sizes");
  }
  std::vector<bool> must_stay;  // beside movable_
  for (PlaceIdx idx = 0; idx < made.places.size(); ++idx) {
    const Place& from = made.places[idx];
    const FilterIdx filter = from.first;
    if (encoder.is_impossible(filter)) continue;
    constexpr std::size_t kLine = GridRecord::kLine;
    const std::size_t at = records.size(), at_filter = at + GridRecord::kWords;
    const std::size_t n_words =
        GridRecord::kWords + std::max<std::size_t>(encoder.size_of(filter), 1 + kRecordPad);
    records.resize(at + (n_words + kLine - 1) / kLine * kLine);
    const GridRecord place{from.centre.x, from.centre.y, from.centre.z, from.limit};
    std::memcpy(&records[at], &place, sizeof place);
    encoder.write(filter, &records[at_filter]);
    std::uint64_t flags = from.has_circle != 0 ? GridRecord::kCircle : 0;
    if (from.has_circle == 0 && table.filter(filter).areas.count > 0) flags |= kVerify;
    records[at_filter] |= flags << 48;
    if (!owners.empty()) {
      if (movable_.empty() || movable_.back().slot != owners[filter]) {
        movable_.push_back({owners[filter], static_cast<std::uint32_t>(homes.size()), 0});
        must_stay.push_back(false);
      }
      Range& of = movable_.back();
      if (of.n_places == 0) of.first = static_cast<std::uint32_t>(homes.size());
      // Those with a circle must follow one another.
      const bool is_next = of.first + of.n_places == homes.size();
      if ((records[at_filter] >> 48 & kVerify) != 0 || (from.has_circle != 0 && !is_next)) {
        must_stay.back() = true;
      }
      of.n_places += from.has_circle;
    }
    const AttributeId pivot = made.pivots[idx];
    const std::uint32_t term = pivot == kNoPivot ? 0 : grid_term(pivot);
    if (from.level != made.everywhere()) {
      keys[from.level].add(made.levels[from.level].cell_of(from.centre), from.level, term);
    }
    std::uint32_t bloom = 0;
    for (const tuple_key::FilterTerm& needed : encoder.terms()[filter]) {
      bloom |= grid_bloom(needed.attribute);
    }
    homes.push_back(GridHome::of(at / GridRecord::kWords, bloom, from.level, term));
    if (term == 0) keys[from.level].has_any = true;
  }
  if (records.size() / GridRecord::kWords > std::uint64_t{1} << GridHome::kRecordBits) {
    throw ArgumentError("a segment of engine spatial-grid-cuda must not exceed 8 GiB of records");
  }
  std::size_t n_movable = 0;
  for (std::size_t at = 0; at < movable_.size(); ++at) {
    if (!must_stay[at] && movable_[at].n_places > 0) movable_[n_movable++] = movable_[at];
  }
  movable_.resize(n_movable);
  std::sort(movable_.begin(), movable_.end(),
            [](const Range& a, const Range& b) { return a.slot < b.slot; });

  std::vector<GridLevel> levels(made.levels.size());
  std::size_t n_buckets = 0;
  for (std::uint32_t at = 0; at < levels.size(); ++at) {
    GridLevel& level = levels[at];
    level.level = made.levels[at];
    level.first_bucket = static_cast<std::uint32_t>(n_buckets);
    level.has_cells = at != made.everywhere();
    level.has_any = keys[at].has_any;
    if (level.has_cells != 0) {
      level.limit = is_flat ? GridLattice<true>::limit_of(level.level)
                            : GridLattice<false>::limit_of(level.level);
      set_buckets(level, keys[at], is_flat);
    } else {
      level.mask = kGridChunk - 1;
      level.term_factor = 1;
    }
    n_buckets += std::size_t{level.mask} + 1;
  }
  const std::size_t n_places = homes.size();
  levels_ = to_device(std::span<const GridLevel>(levels), stream_);
  terms_ = to_device(std::span<const std::uint8_t>(made.terms), stream_);
  homes_ = to_device(std::span<const GridHome>(homes), stream_);
  records_ = to_device(std::span<const std::uint64_t>(records), stream_);
  sizes_ = DeviceArray<std::uint32_t>(n_buckets);
  starts_ = DeviceArray<std::uint32_t>(n_buckets / kGridChunk * kGridStride);
  entries_ = DeviceArray<GridEntry>(2 * n_places);  // all may be in buckets that are there twice
  tickets_ = DeviceArray<GridTicket>(n_places);
  n_entries_ = DeviceArray<std::uint64_t>(1);
  view_.attributes = ranks_->attributes();
  view_.slots = ranks_->slots();
  view_.levels = levels_.data();
  view_.terms = terms_.data();
  view_.sizes = sizes_.data();
  view_.starts = starts_.data();
  view_.entries = entries_.data();
  view_.homes = homes_.data();
  view_.records = reinterpret_cast<GridRecord*>(records_.data());
  view_.n_attributes = static_cast<std::uint32_t>(n_attributes);
  view_.n_levels = static_cast<std::uint32_t>(levels.size());
  view_.n_buckets = static_cast<std::uint32_t>(n_buckets);
  view_.n_places = static_cast<std::uint32_t>(n_places);
  view_.lane_bytes = encoder.lane_bytes();
  view_.is_flat = is_flat;
  index_again(stream_);
  synchronize(stream_);
}

GridOnDevice::Range GridOnDevice::movable_of(std::uint32_t slot) const {
  const auto found =
      std::lower_bound(movable_.begin(), movable_.end(), slot,
                       [](const Range& range, std::uint32_t of) { return range.slot < of; });
  return found != movable_.end() && found->slot == slot ? *found : Range{};
}

void GridOnDevice::clear_buckets(Stream stream) {
  clear(sizes_.data(), sizes_.n_bytes(), stream);
  clear(n_entries_.data(), n_entries_.n_bytes(), stream);
}

void GridOnDevice::move(const GridMoves& moves, Stream stream) {
  launch_grid_move(view_, moves, stream);
}

void GridOnDevice::index_again(Stream stream) {
  clear_buckets(stream);
  launch_grid_count(view_, 0, view_.n_places, nullptr, tickets_.data(), stream);
  launch_grid_place(view_, tickets_.data(), n_entries_.data(), stream);
}

// In parts, each counted while the next is on its way.
void GridOnDevice::move_all(const float* positions, Stream stream) {
  if (view_.is_flat == 0) throw ArgumentError("two floats say where a place is in the plane only");
  if (positions_.size() == 0) positions_ = DeviceArray<float>(2 * n_places());
  record(begin_, stream);
  wait_for(begin_, stream_);
  clear_buckets(stream);
  const std::size_t n_part = (n_places() + kParts - 1) / kParts;
  for (std::size_t part = 0; part < kParts && part * n_part < n_places(); ++part) {
    const std::size_t first = part * n_part, n = std::min(n_part, n_places() - first);
    copy_to_device(positions_.data() + 2 * first, positions + 2 * first, 2 * n * sizeof(float),
                   stream_);
    record(marks_[part], stream_);
    wait_for(marks_[part], stream);
    launch_grid_count(view_, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(n),
                      positions_.data(), tickets_.data(), stream);
  }
  launch_grid_place(view_, tickets_.data(), n_entries_.data(), stream);
}

std::size_t GridOnDevice::n_bytes() const {
  return sizeof(*this) + ranks_->n_bytes() + movable_.capacity() * sizeof movable_[0] +
         levels_.n_bytes() + terms_.n_bytes() + sizes_.n_bytes() + starts_.n_bytes() +
         homes_.n_bytes() + records_.n_bytes() + entries_.n_bytes() + tickets_.n_bytes() +
         positions_.n_bytes();
}

GridBuffers::GridBuffers(std::size_t most_events)
    : most_events_(most_events),
      events_(kGridEventBytes * most_events),
      tasks_(kTasks * most_events),
      counts_(kGridSegments * sizeof(GridCounts)) {}

void GridBuffers::match(const GridOnDevice& index, const NumberEvents& events, Stream stream) {
  if (events.n_events > most_events_) {
    throw ArgumentError("a launch must have at most " + std::to_string(most_events_) + " events");
  }
  const GridWork work{events_.data(), tasks_.data(), reinterpret_cast<GridCounts*>(counts_.next()),
                      tasks_.size() / kGridSegments};
  launch_grid_match(index.view(), events, work, counts_.results(), stream);
}

}  // namespace cuda

namespace {

using namespace cuda;

constexpr std::size_t kMostEvents = 1 << 16;  // of one launch
constexpr std::size_t kMostMoves = 1 << 16;   // of one launch

using SpatialGridCudaScratch = DeviceScratch<GridBuffers>;

// Moves wait on the host until the next batch, which takes them to the device before it matches.
class SpatialGridCudaIndex final : public MovableIndex {
 public:
  SpatialGridCudaIndex(std::shared_ptr<const FilterTable> table,
                       std::span<const std::uint32_t> owners, std::unique_ptr<Index> on_host)
      : table_(std::move(table)),
        on_device_(*table_, owners),
        on_host_(std::move(on_host)),
        movable_on_host_(dynamic_cast<MovableIndex&>(*on_host_)) {}

  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<SpatialGridCudaScratch>(
        kMostEvents, kGridMostAttributes, true, GridBuffers(kMostEvents), on_host_->make_scratch());
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& given_scratch,
             Collector& out) const override;
  bool reads_columns() const override { return true; }
  std::size_t n_bytes() const override {
    return sizeof(*this) + on_device_.n_bytes() + on_host_->n_bytes();
  }

  void attach(std::shared_ptr<const Centres> centres) override {
    movable_on_host_.attach(std::move(centres));
  }
  bool can_move(std::uint32_t slot) override {
    return on_device_.movable_of(slot).n_places > 0 && movable_on_host_.can_move(slot);
  }
  void follow(std::uint32_t slot, const Point& point) override;
  void prefetch(std::span<const SlotMove> moves) const override {
    movable_on_host_.prefetch(moves);
  }
  bool is_worn() const override { return movable_on_host_.is_worn(); }
  void forget_readers() override {
    movable_on_host_.forget_readers();
    // Whoever held them is in the parent.
    new (&device_mutex_) std::shared_mutex;
    new (&moves_mutex_) std::mutex;
  }

 private:
  using Moves = std::vector<std::pair<std::uint32_t, Point>>;  // slot, centre
  // With all moves that came before on the device. Nobody moves there while it is held.
  std::shared_lock<std::shared_mutex> enter(Stream stream) const;
  void take_moves(Stream stream) const;
  void take(const Moves& moves, Stream stream) const;
  static void keep_last(Moves& moves);

  std::shared_ptr<const FilterTable> table_;
  mutable GridOnDevice on_device_;
  std::unique_ptr<Index> on_host_;
  MovableIndex& movable_on_host_;
  mutable std::shared_mutex device_mutex_;  // alone: to move
  mutable Moves taking_;                    // on their way, and still here if that fails
  mutable std::atomic<bool> is_behind_{false};
  mutable std::mutex moves_mutex_;
  mutable Moves moves_;
};

void SpatialGridCudaIndex::follow(std::uint32_t slot, const Point& point) {
  {
    const std::lock_guard lock(moves_mutex_);
    // Where nobody matches, the moves that wait must not fill memory.
    if (moves_.size() > 2 * on_device_.n_places() + kMostMoves) keep_last(moves_);
    if (moves_.size() == moves_.capacity()) moves_.reserve(2 * moves_.size() + 64);
  }
  movable_on_host_.follow(slot, point);
  const std::lock_guard lock(moves_mutex_);
  moves_.emplace_back(slot, point);
}

std::shared_lock<std::shared_mutex> SpatialGridCudaIndex::enter(Stream stream) const {
  for (;;) {
    take_moves(stream);
    std::shared_lock together(device_mutex_);
    if (!is_behind_) return together;
  }
}

void SpatialGridCudaIndex::take_moves(Stream stream) const {
  const auto is_idle = [&] {
    const std::lock_guard lock(moves_mutex_);
    return moves_.empty() && !is_behind_;
  };
  if (is_idle()) return;
  const std::unique_lock alone(device_mutex_);
  if (is_idle()) return;
  {
    const std::lock_guard lock(moves_mutex_);
    taking_.insert(taking_.end(), moves_.begin(), moves_.end());
    moves_.clear();
  }
  is_behind_ = true;  // until all of it is done: nobody may match in between
  keep_last(taking_);
  take(taking_, stream);
  taking_.clear();
  is_behind_ = false;
}

// The last move of a slot counts; the threads of a kernel have no order.
void SpatialGridCudaIndex::keep_last(Moves& moves) {
  std::reverse(moves.begin(), moves.end());
  std::stable_sort(moves.begin(), moves.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  moves.erase(std::unique(moves.begin(), moves.end(),
                          [](const auto& a, const auto& b) { return a.first == b.first; }),
              moves.end());
}

void SpatialGridCudaIndex::take(const Moves& moves, Stream stream) const {
  const PinnedArray<std::uint32_t> which(kMostMoves);
  const PinnedArray<double> points(3 * kMostMoves);
  GridMoves some{which.data(), points.data(), 0};
  const auto flush = [&] {
    on_device_.move(some, stream);
    synchronize(stream);
    some.n_moves = 0;
  };
  for (const auto& [slot, point] : moves) {
    const GridOnDevice::Range of = on_device_.movable_of(slot);
    for (std::uint32_t place = of.first; place < of.first + of.n_places; ++place) {
      if (some.n_moves == kMostMoves) flush();
      which.data()[some.n_moves] = place;
      double* const to = points.data() + 3 * std::size_t{some.n_moves++};
      to[0] = point.x, to[1] = point.y, to[2] = point.z;
    }
  }
  flush();
  on_device_.index_again(stream);
  synchronize(stream);
}

void SpatialGridCudaIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                                 Scratch& given_scratch, Collector& out) const {
  auto& scratch = static_cast<SpatialGridCudaScratch&>(given_scratch);
  match_on_device(on_device_, *table_, *on_host_, events, begin, end, scratch, out,
                  [&] { return enter(scratch.stream); });
}

}  // namespace

std::unique_ptr<Index> build_spatial_grid_cuda(std::shared_ptr<const FilterTable> table,
                                               const Parameters& parameters) {
  std::unique_ptr<Index> on_host = build_spatial_grid(table, parameters);
  return std::make_unique<SpatialGridCudaIndex>(std::move(table), std::span<const std::uint32_t>(),
                                                std::move(on_host));
}

std::unique_ptr<Index> build_owned_spatial_grid_cuda(std::shared_ptr<const FilterTable> table,
                                                     const Parameters& parameters,
                                                     std::span<const std::uint32_t> slot_of) {
  std::unique_ptr<Index> on_host = build_owned_spatial_grid(table, parameters, slot_of);
  return std::make_unique<SpatialGridCudaIndex>(std::move(table), slot_of, std::move(on_host));
}

}  // namespace tamis
