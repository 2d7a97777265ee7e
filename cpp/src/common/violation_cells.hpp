// Violation cells: for every value of an attribute, the filters that it rules out. What `rein`,
// `ada-rein` and `hem` have in common.
//
// A constraint is a set of rank intervals, and a value outside of them violates it. The first rank
// that it accepts stands as a pair (rank, filter) in a cell of the low end: values below violate
// it. The first rank that it no longer accepts stands in a cell of the high end: values from there
// on violate it. Cells divide the ranks of an attribute, by value where they are numbers:
//
//     ranks   numbers                      strings            FALSE TRUE NaN absent
//     cells   uniform over [min, max]      uniform over ranks   one each
//             of all bounds                                                       event in cell 5:
//     low     │ . │ . │ . │ . │ . │ ? │ x │ x │ x │ x │ x │    x ruled out, ? compared, . not
//     high    │ x │ x │ x │ x │ x │ ? │ . │ . │ . │ . │ . │
//
// What lies between two intervals of one constraint is a hole: its ranks rule the filter out one by
// one (`!=` has one hole of one rank). Where holes have many ranks (IN of distant values), they are
// left out and the filter is verified; so are filters with patterns, areas and residuals. Absent is
// a rank like others, the last one: it violates every constraint that has a pair in the high end.
//
// Filters lie in tiles of 65,535: a filter is 16 bits there, and the bits of a tile's filters
// (8 KiB) stay in the first-level cache.
//
//     Tile   sides_  [2 * n_attributes]  first of the side's begins; kNone: it has no pairs
//            begins  of each cell, and the end of the last one
//            ids     u16 [n_pairs]       kept apart from ranks: whole cells are marked without them
//            ranks   u32 [n_pairs]
//            holes   (attribute, rank, id), sorted
//
// Insertion needs room in a cell: unused pairs have the id behind the tile's last filter, whose bit
// nobody reads. A side without room is written again, behind the others, with a quarter more.
//
// Invariants: pairs of a side lie in the order of cells; a filter that is not in the cells is
// vacant. Cost: 12 bytes for an interval.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/ranks.hpp"
#include "common/simd.hpp"
#include "tamis/collector.hpp"
#include "tamis/event_batch.hpp"
#include "tamis/filter_table.hpp"

namespace tamis {

struct alignas(64) BitLine {
  std::uint64_t words[8] = {};
};

class ViolationCells {
 public:
  static constexpr FilterIdx kTileFilters = 65535;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  enum End : std::uint32_t { kLow, kHigh };

  // The first `n_first` filters of the table; the others can be inserted. At most `n_cells` for the
  // numbers of an attribute and as many for its strings.
  ViolationCells(std::shared_ptr<const FilterTable> table, std::size_t n_cells, FilterIdx n_first);

  struct Axis {
    std::uint32_t first_edge = 0;
    std::uint32_t n_cells = 0;
    std::uint32_t n_ordered = 0;  // of them, the first: numbers, and strings if there are bounds
    std::uint32_t n_constraints = 0;  // of filters, not of residuals
  };
  struct Place {
    AttributeId attribute = 0;
    std::uint32_t rank = 0;
    std::uint32_t cell = 0;
  };
  // An event as the cells see it, for each attribute that has constraints.
  struct Event {
    ValueByAttribute values;
    std::vector<Place> present;
    std::vector<AttributeId> absent;
    std::vector<BitLine> marks;  // of one tile's filters
    std::uint64_t* words() { return marks[0].words; }
  };
  struct Hole {
    AttributeId attribute = 0;
    std::uint32_t rank = 0;
    std::uint16_t id = 0;
    friend bool operator<(const Hole& a, const Hole& b) {
      if (a.attribute != b.attribute) return a.attribute < b.attribute;
      return a.rank != b.rank ? a.rank < b.rank : a.id < b.id;
    }
    friend bool operator==(const Hole&, const Hole&) = default;
  };
  struct Tile {
    FilterIdx first = 0;
    std::uint32_t n_filters = 0;
    std::size_t n_words = 0;  // of its bitsets, a multiple of 8 with room for the unused id
    std::size_t n_vacant = 0;
    std::size_t n_wasted = 0;  // pairs that no side has any more
    std::vector<std::uint32_t> sides, begins, ranks;
    std::vector<std::uint16_t> ids;
    std::vector<Hole> holes;
    std::vector<std::uint32_t> hole_begins;  // [n_attributes + 1]
    std::vector<BitLine> vacant, verified;   // filters not in the cells; filters to be verified
  };

  const std::shared_ptr<const FilterTable>& table() const { return table_; }
  const Ranks& ranks() const { return ranks_; }
  std::size_t n_attributes() const { return axes_.size(); }
  const Axis& axis(AttributeId attribute) const { return axes_[attribute]; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  static std::size_t tile_of(FilterIdx filter) { return filter / kTileFilters; }
  static std::uint16_t id_of(FilterIdx filter) {
    return static_cast<std::uint16_t>(filter % kTileFilters);
  }
  std::uint32_t cell_of(AttributeId attribute, std::uint32_t rank) const;

  Event make_event() const;
  void locate(const EventBatch& events, std::size_t event, Event& out) const;

  // The pairs of one side that a value meets: those of its own cell, to be compared, and those of
  // whole cells beside it, to be marked. Both lie next to each other.
  struct Run {
    std::uint32_t compare_at = 0, n_compared = 0;
    std::uint32_t mark_at = 0, n_marked = 0;
  };
  // At the low end, the cells behind the value's up to `end_cell` are marked; at the high end,
  // those before it from `begin_cell` on. Fetches the pairs into the cache: find the runs of all
  // attributes first, then mark them.
  Run low_run(const Tile& tile, const Place& place, std::uint32_t end_cell,
              Counters& counters) const;
  Run high_run(const Tile& tile, const Place& place, std::uint32_t begin_cell,
               Counters& counters) const;
  // Sets the bits of `event.marks` that the value at `place` rules out.
  void mark_low(const Tile& tile, const Place& place, const Run& run, Event& event,
                const SimdKernels& kernels) const;
  void mark_high(const Tile& tile, const Place& place, const Run& run, Event& event,
                 const SimdKernels& kernels) const;
  void mark_holes(const Tile& tile, const Place& place, Event& event, Counters& counters) const;
  void mark_absent(const Tile& tile, AttributeId attribute, Event& event,
                   const SimdKernels& kernels, Counters& counters) const;
  // Adds the filters of the tile that are not marked, after verification where it is needed.
  void collect(const Tile& tile, Event& event, Collector& out) const;

  struct Pair {
    AttributeId attribute = 0;
    End end = kLow;
    std::uint32_t rank = 0, cell = 0;
  };
  // The pairs of a filter, in `pairs`, and its holes (without id). Is it to be verified?
  bool take_apart(FilterIdx filter, std::vector<Pair>& pairs, std::vector<Hole>& holes) const;
  // Throws ArgumentError if the filter is not in the table, or is (not) in the cells already.
  void insert(FilterIdx filter);
  void erase(FilterIdx filter);
  bool has(FilterIdx filter) const;

  std::size_t n_bytes() const;

 private:
  static void fetch(const Tile& tile, const Run& run);
  void make_axes(std::size_t n_cells);
  void fill_tile(Tile& tile, FilterIdx n_first);
  void add_pair(Tile& tile, const Pair& pair, std::uint16_t id);
  void grow_side(Tile& tile, std::uint32_t side);
  void compact(Tile& tile);
  const std::uint32_t* begins_of(const Tile& tile, AttributeId attribute, End end) const {
    const std::uint32_t place = tile.sides[2 * attribute + end];
    return place == kNone ? nullptr : tile.begins.data() + place;
  }

  std::shared_ptr<const FilterTable> table_;
  Ranks ranks_;
  std::vector<Axis> axes_;            // [n_attributes]
  std::vector<AttributeId> used_;     // attributes with constraints
  std::vector<std::uint32_t> edges_;  // first rank of each cell, and the end of the last one
  std::vector<Tile> tiles_;
};

}  // namespace tamis
