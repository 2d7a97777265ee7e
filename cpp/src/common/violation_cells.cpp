#include "common/violation_cells.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "tamis/error.hpp"
#include "tamis/prefetch.hpp"

namespace tamis {
namespace {

// Holes of a constraint are marked rank by rank if they have this many, besides one for each of
// them: those of != and NOT IN always, and small ones of IN.
constexpr std::size_t kMaxHoleRanks = 16;
// However few constraints an attribute has. More cells than a tile has constraints would only cost.
constexpr std::size_t kMinCells = 16;
// Of a run; where it is longer, the machine sees the stream by itself.
constexpr std::size_t kMaxFetched = 2048;

std::uint64_t bit_of(std::size_t id) { return std::uint64_t{1} << (id % 64); }
void set_bit(std::vector<BitLine>& lines, std::size_t id) {
  lines[id / 512].words[id / 64 % 8] |= bit_of(id);
}
void clear_bit(std::vector<BitLine>& lines, std::size_t id) {
  lines[id / 512].words[id / 64 % 8] &= ~bit_of(id);
}
bool has_bit(const std::vector<BitLine>& lines, std::size_t id) {
  return (lines[id / 512].words[id / 64 % 8] & bit_of(id)) != 0;
}

}  // namespace

ViolationCells::ViolationCells(std::shared_ptr<const FilterTable> table, std::size_t n_cells,
                               FilterIdx n_first)
    : table_(std::move(table)), ranks_(*table_) {
  make_axes(n_cells);
  const std::size_t n_filters = table_->size();
  tiles_.resize((n_filters + kTileFilters - 1) / kTileFilters);
  for (std::size_t each = 0; each < tiles_.size(); ++each) {
    Tile& tile = tiles_[each];
    tile.first = static_cast<FilterIdx>(each * kTileFilters);
    tile.n_filters =
        static_cast<std::uint32_t>(std::min<std::size_t>(kTileFilters, n_filters - tile.first));
    tile.n_words = (tile.n_filters / 512 + 1) * 8;
    tile.vacant.resize(tile.n_words / 8);
    tile.verified.resize(tile.n_words / 8);
    fill_tile(tile, n_first);
  }
}

void ViolationCells::make_axes(std::size_t n_cells) {
  axes_.resize(table_->n_attributes());
  std::vector<double> lows(axes_.size(), std::numeric_limits<double>::infinity());
  std::vector<double> highs(axes_.size(), -std::numeric_limits<double>::infinity());
  const auto widen = [&](AttributeId attribute, const NumberRange& range) {
    for (const double value : {range.low, range.high}) {
      if (!std::isfinite(value)) continue;
      lows[attribute] = std::min(lows[attribute], value);
      highs[attribute] = std::max(highs[attribute], value);
    }
  };
  for (FilterIdx filter = 0; filter < table_->size(); ++filter) {
    const Range& constraints = table_->filter(filter).constraints;
    for (std::uint32_t at = 0; at < constraints.count; ++at) {
      const Constraint& constraint = table_->constraint(constraints.first + at);
      ++axes_[constraint.attribute].n_constraints;
      if (constraint.is_interval()) {
        widen(constraint.attribute, table_->number(constraint.set));
        continue;
      }
      const Range& numbers = table_->general(constraint).numbers;
      for (std::uint32_t each = 0; each < numbers.count; ++each) {
        widen(constraint.attribute, table_->number(numbers.first + each));
      }
    }
  }

  const std::size_t n_tiles = (table_->size() + kTileFilters - 1) / kTileFilters;
  for (std::size_t each = 0; each < axes_.size(); ++each) {
    const auto attribute = static_cast<AttributeId>(each);
    Axis& axis = axes_[each];
    axis.first_edge = static_cast<std::uint32_t>(edges_.size());
    if (axis.n_constraints == 0) continue;
    used_.push_back(attribute);
    const auto most = static_cast<std::uint32_t>(
        std::min(n_cells, std::max(kMinCells, axis.n_constraints / n_tiles)));
    const std::uint32_t first_string = ranks_.rank(attribute, EventValue::of(std::string_view("")));
    const std::uint32_t first_other = ranks_.rank(attribute, EventValue::of(false));
    const std::uint32_t n_numbers = std::min(most, first_string);
    const double low = lows[each], width = highs[each] - lows[each];
    const bool is_by_value = first_string > most && width > 0 && std::isfinite(width);
    for (std::uint32_t cell = 0; cell < n_numbers; ++cell) {
      std::uint64_t edge = std::uint64_t{first_string} * cell / n_numbers;
      if (is_by_value && cell > 0) {
        edge = ranks_.rank(attribute, EventValue::of(low + width * cell / n_numbers));
      }
      edges_.push_back(static_cast<std::uint32_t>(edge));
    }
    const std::uint32_t n_string_ranks = first_other - first_string;
    const std::uint32_t n_strings = std::min(most, n_string_ranks);
    for (std::uint32_t cell = 0; cell < n_strings; ++cell) {
      edges_.push_back(first_string + static_cast<std::uint32_t>(std::uint64_t{n_string_ranks} *
                                                                 cell / n_strings));
    }
    axis.n_ordered = n_numbers + (n_string_ranks > 1 ? n_strings : 0);
    for (std::uint32_t rank = first_other; rank <= ranks_.n_ranks(attribute); ++rank) {
      edges_.push_back(rank);
    }
    axis.n_cells = static_cast<std::uint32_t>(edges_.size()) - axis.first_edge - 1;
  }
}

std::uint32_t ViolationCells::cell_of(AttributeId attribute, std::uint32_t rank) const {
  const Axis& axis = axes_[attribute];
  const std::uint32_t* first = edges_.data() + axis.first_edge;
  // The last edge at or before the rank; edges of empty cells are the same as the next one.
  std::uint32_t count = axis.n_cells;
  const std::uint32_t* at = first;
  while (count > 1) {
    const std::uint32_t half = count / 2;
    at += at[half] <= rank ? half : 0;
    count -= half;
  }
  return static_cast<std::uint32_t>(at - first);
}

bool ViolationCells::take_apart(FilterIdx idx, std::vector<Pair>& pairs,
                                std::vector<Hole>& holes) const {
  const FilterTable::Filter& filter = table_->filter(idx);
  bool needs_verify = filter.areas.count > 0 || filter.residuals.count > 0;
  pairs.clear();
  holes.clear();
  std::vector<RankInterval> intervals;
  for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
    const Constraint& constraint = table_->constraint(filter.constraints.first + at);
    const AttributeId attribute = constraint.attribute;
    needs_verify |= Ranks::needs_verify(*table_, constraint);
    ranks_.intervals(constraint, intervals);
    const auto add = [&](End end, std::uint32_t rank) {
      pairs.push_back({attribute, end, rank, cell_of(attribute, rank)});
    };
    if (intervals.empty()) {
      add(kHigh, 0);  // every value violates it
      continue;
    }
    if (intervals.front().low > 0) add(kLow, intervals.front().low);
    if (intervals.back().high < ranks_.n_ranks(attribute)) add(kHigh, intervals.back().high);
    std::size_t n_hole_ranks = 0;
    for (std::size_t each = 1; each < intervals.size(); ++each) {
      n_hole_ranks += intervals[each].low - intervals[each - 1].high;
    }
    if (n_hole_ranks > kMaxHoleRanks + intervals.size()) {
      needs_verify = true;
      continue;
    }
    for (std::size_t each = 1; each < intervals.size(); ++each) {
      for (std::uint32_t rank = intervals[each - 1].high; rank < intervals[each].low; ++rank) {
        holes.push_back({attribute, rank, 0});
      }
    }
  }
  return needs_verify;
}

void ViolationCells::fill_tile(Tile& tile, FilterIdx n_first) {
  struct Raw {
    std::uint32_t side, cell, rank;
    std::uint16_t id;
  };
  std::vector<Raw> raws;
  std::vector<Pair> pairs;
  std::vector<Hole> holes;
  tile.sides.assign(2 * axes_.size(), 0);
  for (std::uint32_t each = 0; each < tile.n_filters; ++each) {
    const auto id = static_cast<std::uint16_t>(each);
    if (tile.first + each >= n_first) {
      set_bit(tile.vacant, id);
      ++tile.n_vacant;
      continue;
    }
    if (take_apart(tile.first + each, pairs, holes)) set_bit(tile.verified, id);
    for (const Pair& pair : pairs) {
      raws.push_back({2 * pair.attribute + pair.end, pair.cell, pair.rank, id});
      ++tile.sides[raws.back().side];
    }
    for (Hole& hole : holes) {
      hole.id = id;
      tile.holes.push_back(hole);
    }
  }
  std::sort(tile.holes.begin(), tile.holes.end());
  tile.hole_begins.assign(axes_.size() + 1, 0);
  for (const Hole& hole : tile.holes) ++tile.hole_begins[hole.attribute + 1];
  for (std::size_t at = 1; at < tile.hole_begins.size(); ++at) {
    tile.hole_begins[at] += tile.hole_begins[at - 1];
  }

  // The pairs by side and cell, in the order of filters within a cell.
  std::size_t n_begins = 0;
  for (std::size_t side = 0; side < tile.sides.size(); ++side) {
    if (tile.sides[side] == 0) {
      tile.sides[side] = kNone;
      continue;
    }
    tile.sides[side] = static_cast<std::uint32_t>(n_begins);
    n_begins += axes_[side / 2].n_cells + std::size_t{1};
  }
  std::vector<std::uint32_t> next(n_begins);
  for (const Raw& raw : raws) ++next[tile.sides[raw.side] + raw.cell];
  std::uint32_t n_pairs = 0;
  for (std::uint32_t& count : next) n_pairs += std::exchange(count, n_pairs);
  tile.begins = next;
  tile.ids.resize(raws.size());
  tile.ranks.resize(raws.size());
  for (const Raw& raw : raws) {
    const std::uint32_t at = next[tile.sides[raw.side] + raw.cell]++;
    tile.ids[at] = raw.id;
    tile.ranks[at] = raw.rank;
  }
}

ViolationCells::Event ViolationCells::make_event() const {
  Event event;
  // Tiles but the last have one size, and it is the largest.
  if (!tiles_.empty()) event.marks.resize(tiles_.front().n_words / 8);
  return event;
}

void ViolationCells::locate(const EventBatch& events, std::size_t each, Event& out) const {
  out.values.load(events, each, axes_.size(), table_->space());
  out.present.clear();
  out.absent.clear();
  for (const AttributeId attribute : used_) {
    const EventValue& value = out.values[attribute];
    if (value.kind == Kind::absent) {
      out.absent.push_back(attribute);
      continue;
    }
    const std::uint32_t rank = ranks_.rank(attribute, value);
    out.present.push_back({attribute, rank, cell_of(attribute, rank)});
  }
}

void ViolationCells::fetch(const Tile& tile, const Run& run) {
  const std::uint32_t first = std::min(run.compare_at, run.mark_at);
  const char* ids = reinterpret_cast<const char*>(tile.ids.data() + first);
  const std::size_t n_bytes =
      std::min(kMaxFetched, (run.n_compared + run.n_marked) * sizeof(tile.ids[0]));
  for (std::size_t at = 0; at < n_bytes; at += 64) prefetch_line_far(ids + at);
  const char* ranks = reinterpret_cast<const char*>(tile.ranks.data() + run.compare_at);
  for (std::size_t at = 0; at < std::min(kMaxFetched, run.n_compared * sizeof(tile.ranks[0]));
       at += 64) {
    prefetch_line_far(ranks + at);
  }
}

ViolationCells::Run ViolationCells::low_run(const Tile& tile, const Place& place,
                                            std::uint32_t end_cell, Counters& counters) const {
  const std::uint32_t* begins = begins_of(tile, place.attribute, kLow);
  if (begins == nullptr) return {};
  const std::uint32_t first = begins[place.cell], last = begins[place.cell + 1];
  const Run run{first, last - first, last, std::max(last, begins[end_cell]) - last};
  fetch(tile, run);
  counters.constraints += run.n_compared;
  counters.filters += run.n_marked;
  counters.cells += std::max(end_cell, place.cell + 1) - place.cell;
  return run;
}

ViolationCells::Run ViolationCells::high_run(const Tile& tile, const Place& place,
                                             std::uint32_t begin_cell, Counters& counters) const {
  const std::uint32_t* begins = begins_of(tile, place.attribute, kHigh);
  if (begins == nullptr) return {};
  const std::uint32_t first = begins[place.cell], last = begins[place.cell + 1];
  const Run run{first, last - first, begins[begin_cell], first - begins[begin_cell]};
  fetch(tile, run);
  counters.constraints += run.n_compared;
  counters.filters += run.n_marked;
  counters.cells += place.cell + 1 - begin_cell;
  return run;
}

void ViolationCells::mark_low(const Tile& tile, const Place& place, const Run& run, Event& event,
                              const SimdKernels& kernels) const {
  std::uint64_t* words = event.words();
  const std::uint16_t* ids = tile.ids.data();
  for (std::uint32_t at = run.compare_at; at < run.compare_at + run.n_compared; ++at) {
    words[ids[at] >> 6] |= std::uint64_t{place.rank < tile.ranks[at]} << (ids[at] & 63);
  }
  kernels.mark_bits(words, ids + run.mark_at, run.n_marked);
}

void ViolationCells::mark_high(const Tile& tile, const Place& place, const Run& run, Event& event,
                               const SimdKernels& kernels) const {
  std::uint64_t* words = event.words();
  const std::uint16_t* ids = tile.ids.data();
  kernels.mark_bits(words, ids + run.mark_at, run.n_marked);
  for (std::uint32_t at = run.compare_at; at < run.compare_at + run.n_compared; ++at) {
    words[ids[at] >> 6] |= std::uint64_t{place.rank >= tile.ranks[at]} << (ids[at] & 63);
  }
}

void ViolationCells::mark_holes(const Tile& tile, const Place& place, Event& event,
                                Counters& counters) const {
  const auto begin = tile.holes.begin() + tile.hole_begins[place.attribute];
  const auto end = tile.holes.begin() + tile.hole_begins[place.attribute + 1];
  if (begin == end) return;
  for (auto hole = std::lower_bound(begin, end, Hole{place.attribute, place.rank, 0});
       hole != end && hole->rank == place.rank; ++hole) {
    event.words()[hole->id >> 6] |= std::uint64_t{1} << (hole->id & 63);
    ++counters.filters;
  }
  ++counters.cells;
}

void ViolationCells::mark_absent(const Tile& tile, AttributeId attribute, Event& event,
                                 const SimdKernels& kernels, Counters& counters) const {
  const std::uint32_t* begins = begins_of(tile, attribute, kHigh);
  if (begins == nullptr) return;
  const std::uint32_t n_cells = axes_[attribute].n_cells;
  kernels.mark_bits(event.words(), tile.ids.data() + begins[0], begins[n_cells] - begins[0]);
  counters.filters += begins[n_cells] - begins[0];
  counters.cells += n_cells;
}

void ViolationCells::collect(const Tile& tile, Event& event, Collector& out) const {
  std::uint64_t* words = event.words();
  const std::size_t n_words = (tile.n_filters + std::size_t{63}) / 64;
  if (const std::size_t rest = tile.n_filters % 64; rest != 0) {
    words[n_words - 1] |= ~std::uint64_t{0} << rest;
  }
  std::uint64_t n_candidates = 0;
  for (std::size_t at = 0; at < n_words; ++at) {
    std::uint64_t open = ~words[at];
    if (open == 0) continue;
    const std::uint64_t verified = tile.verified[at / 8].words[at % 8];
    for (; open != 0; open &= open - 1) {
      const int bit = std::countr_zero(open);
      const auto filter = static_cast<FilterIdx>(tile.first + 64 * at + static_cast<unsigned>(bit));
      if (verified >> bit & 1) {
        ++n_candidates;
        if (out.has(filter) || !table_->accepts(filter, event.values)) continue;
      }
      out.add(filter);
    }
  }
  out.counters.candidates += n_candidates;
  out.counters.bits += n_words;
}

bool ViolationCells::has(FilterIdx filter) const {
  return filter < table_->size() && !has_bit(tiles_[tile_of(filter)].vacant, id_of(filter));
}

void ViolationCells::insert(FilterIdx filter) {
  if (filter >= table_->size() || has(filter)) {
    throw ArgumentError("a filter to insert must be of the table and not in the index, not " +
                        std::to_string(filter));
  }
  Tile& tile = tiles_[tile_of(filter)];
  const std::uint16_t id = id_of(filter);
  std::vector<Pair> pairs;
  std::vector<Hole> holes;
  if (take_apart(filter, pairs, holes)) set_bit(tile.verified, id);
  for (const Pair& pair : pairs) add_pair(tile, pair, id);
  for (Hole& hole : holes) {
    hole.id = id;
    tile.holes.insert(std::lower_bound(tile.holes.begin(), tile.holes.end(), hole), hole);
    for (std::size_t at = hole.attribute + std::size_t{1}; at <= axes_.size(); ++at) {
      ++tile.hole_begins[at];
    }
  }
  clear_bit(tile.vacant, id);
  --tile.n_vacant;
}

void ViolationCells::erase(FilterIdx filter) {
  if (!has(filter)) {
    throw ArgumentError("a filter to erase must be in the index, not " + std::to_string(filter));
  }
  Tile& tile = tiles_[tile_of(filter)];
  const std::uint16_t id = id_of(filter);
  std::vector<Pair> pairs;
  std::vector<Hole> holes;
  take_apart(filter, pairs, holes);
  for (const Pair& pair : pairs) {
    const std::uint32_t* begins = begins_of(tile, pair.attribute, pair.end);
    for (std::uint32_t at = begins[pair.cell]; at < begins[pair.cell + 1]; ++at) {
      if (tile.ids[at] != id || tile.ranks[at] != pair.rank) continue;
      tile.ids[at] = static_cast<std::uint16_t>(tile.n_filters);
      break;
    }
  }
  for (Hole& hole : holes) {
    hole.id = id;
    tile.holes.erase(std::lower_bound(tile.holes.begin(), tile.holes.end(), hole));
    for (std::size_t at = hole.attribute + std::size_t{1}; at <= axes_.size(); ++at) {
      --tile.hole_begins[at];
    }
  }
  clear_bit(tile.verified, id);
  set_bit(tile.vacant, id);
  ++tile.n_vacant;
}

void ViolationCells::add_pair(Tile& tile, const Pair& pair, std::uint16_t id) {
  const std::uint32_t side = 2 * pair.attribute + pair.end;
  for (;;) {
    if (tile.sides[side] != kNone) {
      const std::uint32_t* begins = tile.begins.data() + tile.sides[side];
      for (std::uint32_t at = begins[pair.cell]; at < begins[pair.cell + 1]; ++at) {
        if (tile.ids[at] != tile.n_filters) continue;
        tile.ids[at] = id;
        tile.ranks[at] = pair.rank;
        return;
      }
    }
    grow_side(tile, side);
  }
}

void ViolationCells::grow_side(Tile& tile, std::uint32_t side) {
  const std::uint32_t n_cells = axes_[side / 2].n_cells;
  const auto unused = static_cast<std::uint16_t>(tile.n_filters);
  if (tile.sides[side] == kNone) {
    tile.sides[side] = static_cast<std::uint32_t>(tile.begins.size());
    tile.begins.resize(tile.begins.size() + n_cells + 1);
  }
  const std::uint32_t place = tile.sides[side];
  std::vector<std::uint32_t> begins(n_cells + std::size_t{1});
  for (std::uint32_t cell = 0; cell < n_cells; ++cell) {
    begins[cell] = static_cast<std::uint32_t>(tile.ids.size());
    const std::uint32_t first = tile.begins[place + cell], last = tile.begins[place + cell + 1];
    std::uint32_t n_kept = 0;
    for (std::uint32_t at = first; at < last; ++at) {
      if (tile.ids[at] == unused) continue;
      tile.ids.push_back(tile.ids[at]);
      tile.ranks.push_back(tile.ranks[at]);
      ++n_kept;
    }
    const std::size_t room = n_kept / 4 + 4;
    tile.ids.insert(tile.ids.end(), room, unused);
    tile.ranks.insert(tile.ranks.end(), room, 0);
  }
  begins[n_cells] = static_cast<std::uint32_t>(tile.ids.size());
  tile.n_wasted += tile.begins[place + n_cells] - tile.begins[place];
  std::copy(begins.begin(), begins.end(), tile.begins.begin() + place);
  if (tile.n_wasted > tile.ids.size() / 2) compact(tile);
}

void ViolationCells::compact(Tile& tile) {
  std::vector<std::uint16_t> ids;
  std::vector<std::uint32_t> ranks;
  ids.reserve(tile.ids.size() - tile.n_wasted);
  ranks.reserve(tile.ids.size() - tile.n_wasted);
  for (std::size_t side = 0; side < tile.sides.size(); ++side) {
    if (tile.sides[side] == kNone) continue;
    std::uint32_t* begins = tile.begins.data() + tile.sides[side];
    const std::uint32_t n_cells = axes_[side / 2].n_cells;
    const std::uint32_t first = begins[0], last = begins[n_cells];
    const auto moved_to = static_cast<std::uint32_t>(ids.size());
    ids.insert(ids.end(), tile.ids.begin() + first, tile.ids.begin() + last);
    ranks.insert(ranks.end(), tile.ranks.begin() + first, tile.ranks.begin() + last);
    for (std::uint32_t cell = 0; cell <= n_cells; ++cell) begins[cell] += moved_to - first;
  }
  tile.ids = std::move(ids);
  tile.ranks = std::move(ranks);
  tile.n_wasted = 0;
}

std::size_t ViolationCells::n_bytes() const {
  const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  std::size_t total =
      ranks_.n_bytes() + bytes(axes_) + bytes(used_) + bytes(edges_) + bytes(tiles_);
  for (const Tile& tile : tiles_) {
    total += bytes(tile.sides) + bytes(tile.begins) + bytes(tile.ranks) + bytes(tile.ids) +
             bytes(tile.holes) + bytes(tile.hole_begins) + bytes(tile.vacant) +
             bytes(tile.verified);
  }
  return total;
}

}  // namespace tamis
