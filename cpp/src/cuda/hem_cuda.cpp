// `hem-cuda`: HEM (papers/002, sections 4.2 and 4.3) on a GPU, for comparison with `hem`.
//
// The host finds the rank, cell and group of each value, as `hem` does; the device ORs the bitsets
// of the groups, a thread for each word, marks the pairs of the cells between, a thread each, and
// collects what is not marked.
//
//     bitsets  [n_bitsets][n_words]   of all tiles side by side, each with room for 65,536 filters
//     bits, ranks  [n_pairs]          attribute after attribute: high end, low end, holes; cell
//     after
//                                     cell, tile after tile
//     begins_  host: first pair of each cell of each side
//
//     event ─ locate ─► sources, runs (pinned) ─ copy ─► OR ─► mark ─► collect ─ copy ─► verify
//
// Invariants: a bit of `unused` is set if and only if no filter has it; holes have rank 0, so that
// a run of them marks all.
//
// Cost for an event: sources · n / 64 words, a thread for each pair of the longest run times the
// runs, and a number for each match back.
#include "hem_cuda.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "buffers.hpp"
#include "common/violation_cells.hpp"
#include "common/violation_groups.hpp"
#include "hem_launch.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

using namespace cuda;
using Tile = ViolationCells::Tile;

constexpr std::uint32_t kNone = ViolationCells::kNone;
constexpr std::uint32_t kTileBits = 65536;
static_assert(ViolationCells::kTileFilters < kTileBits);
// Of what was found, what comes back together with how many: one copy for nearly all events.
constexpr std::size_t kFirstResults = 1023;

class HemCudaScratch final : public Scratch {
 public:
  OwnStream stream;
  ViolationCells::Event event;
  std::vector<std::uint32_t> sources;
  std::vector<HemRun> runs;
  PinnedArray<std::uint32_t> input;        // sources, then runs
  DeviceArray<std::uint32_t> input_there;  // the same
  DeviceArray<std::uint64_t> marks;
  DeviceArray<std::uint32_t> results;  // how many, and which
  PinnedArray<std::uint32_t> found;
};

class HemCudaIndex final : public Index {
 public:
  HemCudaIndex(std::shared_ptr<const FilterTable> table, std::size_t n_cells,
               const ViolationGroups::Settings& settings)
      : cells_(table, n_cells, static_cast<FilterIdx>(table->size())),
        groups_(cells_, settings, static_cast<FilterIdx>(table->size())),
        n_words_(static_cast<std::uint32_t>(cells_.tiles().size() * (kTileBits / 64))) {
    copy_bitsets();
    copy_pairs();
    groups_.drop_bitsets();
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    auto scratch = std::make_unique<HemCudaScratch>();
    scratch->event = cells_.make_event();
    const std::size_t n_attributes = cells_.n_attributes();
    const std::size_t n_most = 2 * n_attributes + 3 * n_attributes * sizeof(HemRun) / 4;
    scratch->input = PinnedArray<std::uint32_t>(n_most);
    scratch->input_there = DeviceArray<std::uint32_t>(n_most);
    scratch->marks = DeviceArray<std::uint64_t>(n_words_);
    scratch->results = DeviceArray<std::uint32_t>(1 + cells_.table()->size());
    scratch->found = PinnedArray<std::uint32_t>(1 + cells_.table()->size());
    // The first results are copied before it is known how many there are.
    clear(scratch->results.data(), scratch->results.n_bytes(), scratch->stream);
    return scratch;
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override {
    return sizeof(*this) + cells_.n_bytes() + groups_.n_bytes() + bitsets_.n_bytes() +
           unused_.n_bytes() + bits_.n_bytes() + ranks_.n_bytes() +
           (begins_.capacity() + sides_.capacity()) * sizeof(std::uint32_t) +
           holes_.capacity() * sizeof(Hole);
  }

 private:
  struct Hole {
    AttributeId attribute = 0;
    std::uint32_t rank = 0, bit = 0;
    friend bool operator<(const Hole& a, const Hole& b) {
      return a.attribute != b.attribute ? a.attribute < b.attribute : a.rank < b.rank;
    }
  };

  void copy_bitsets();
  void copy_pairs();
  void find_work(const EventBatch& events, std::size_t event, HemCudaScratch& scratch,
                 Counters& counters) const;
  void run(HemCudaScratch& scratch) const;

  ViolationCells cells_;
  ViolationGroups groups_;
  std::uint32_t n_words_;
  OwnStream stream_;
  std::vector<std::uint32_t> sides_;   // [2 * n_attributes] first of begins_
  std::vector<std::uint32_t> begins_;  // of each cell, and the end of the last one
  std::vector<Hole> holes_;            // sorted
  std::uint32_t first_hole_ = 0;       // among the pairs
  DeviceArray<std::uint64_t> bitsets_, unused_;
  DeviceArray<std::uint32_t> bits_, ranks_;
};

void HemCudaIndex::copy_bitsets() {
  const std::vector<Tile>& tiles = cells_.tiles();
  std::vector<std::uint64_t> words(n_words_, ~std::uint64_t{0});
  for (FilterIdx filter = 0; filter < cells_.table()->size(); ++filter) {
    const std::size_t bit =
        ViolationCells::tile_of(filter) * kTileBits + ViolationCells::id_of(filter);
    words[bit / 64] &= ~(std::uint64_t{1} << (bit % 64));
  }
  unused_ = to_device(std::span<const std::uint64_t>(words), stream_);
  bitsets_ = DeviceArray<std::uint64_t>(std::size_t{groups_.n_bitsets()} * n_words_);
  for (std::uint32_t idx = 0; idx < groups_.n_bitsets(); ++idx) {
    std::fill(words.begin(), words.end(), 0);
    for (std::size_t at = 0; at < tiles.size(); ++at) {
      const std::size_t n_words = std::min<std::size_t>(tiles[at].n_words, kTileBits / 64);
      std::memcpy(words.data() + at * (kTileBits / 64), groups_.bitset(at, idx), n_words * 8);
    }
    copy_to_device(bitsets_.data() + std::size_t{idx} * n_words_, words.data(), n_words_ * 8,
                   stream_);
    synchronize(stream_);
  }
}

void HemCudaIndex::copy_pairs() {
  const std::vector<Tile>& tiles = cells_.tiles();
  std::vector<std::uint32_t> bits, ranks;
  for (std::uint32_t side = 0; side < 2 * cells_.n_attributes(); ++side) {
    sides_.push_back(static_cast<std::uint32_t>(begins_.size()));
    for (std::uint32_t cell = 0; cell < cells_.axis(side / 2).n_cells; ++cell) {
      begins_.push_back(static_cast<std::uint32_t>(bits.size()));
      for (std::size_t each = 0; each < tiles.size(); ++each) {
        const Tile& tile = tiles[each];
        if (tile.sides[side] == kNone) continue;
        const std::uint32_t* const begins = tile.begins.data() + tile.sides[side];
        for (std::uint32_t at = begins[cell]; at < begins[cell + 1]; ++at) {
          if (tile.ids[at] >= tile.n_filters) continue;  // room for one to come
          bits.push_back(static_cast<std::uint32_t>(each * kTileBits + tile.ids[at]));
          ranks.push_back(tile.ranks[at]);
        }
      }
    }
    begins_.push_back(static_cast<std::uint32_t>(bits.size()));
  }
  for (std::size_t each = 0; each < tiles.size(); ++each) {
    for (const ViolationCells::Hole& hole : tiles[each].holes) {
      holes_.push_back(
          {hole.attribute, hole.rank, static_cast<std::uint32_t>(each * kTileBits + hole.id)});
    }
  }
  std::sort(holes_.begin(), holes_.end());
  first_hole_ = static_cast<std::uint32_t>(bits.size());
  for (const Hole& hole : holes_) {
    bits.push_back(hole.bit);
    ranks.push_back(0);
  }
  bits_ = to_device(std::span<const std::uint32_t>(bits), stream_);
  ranks_ = to_device(std::span<const std::uint32_t>(ranks), stream_);
}

// The bitsets to OR and the runs to mark.
void HemCudaIndex::find_work(const EventBatch& events, std::size_t event, HemCudaScratch& scratch,
                             Counters& counters) const {
  cells_.locate(events, event, scratch.event);
  scratch.sources.clear();
  scratch.runs.clear();
  const auto add_run = [&](std::uint32_t first, std::uint32_t last, std::uint32_t rank,
                           bool is_low) {
    if (first < last) scratch.runs.push_back({first, last - first, rank, is_low});
  };
  for (const ViolationCells::Place& place : scratch.event.present) {
    const ViolationGroups::Step step = groups_.step_of(place);
    if (step.high_bitset != kNone) scratch.sources.push_back(step.high_bitset);
    if (step.low_bitset != kNone && step.low_bitset != step.high_bitset) {
      scratch.sources.push_back(step.low_bitset);
    }
    const std::uint32_t* const low = begins_.data() + sides_[2 * place.attribute];
    const std::uint32_t* const high = begins_.data() + sides_[2 * place.attribute + 1];
    add_run(high[step.begin_cell], high[place.cell + 1], place.rank, false);
    add_run(low[place.cell], low[std::max(step.end_cell, place.cell + 1)], place.rank, true);
    const auto [first, last] =
        std::equal_range(holes_.begin(), holes_.end(), Hole{place.attribute, place.rank, 0});
    add_run(first_hole_ + static_cast<std::uint32_t>(first - holes_.begin()),
            first_hole_ + static_cast<std::uint32_t>(last - holes_.begin()), 0, false);
  }
  for (const AttributeId attribute : scratch.event.absent) {
    const std::uint32_t all = groups_.bitset_of_all(attribute);
    if (all != kNone) {
      scratch.sources.push_back(all);
      continue;
    }
    const std::uint32_t* const high = begins_.data() + sides_[2 * attribute + 1];
    add_run(high[0], high[cells_.axis(attribute).n_cells], kNone, false);
  }
  counters.bits += scratch.sources.size() * n_words_;
  for (const HemRun& run : scratch.runs) counters.constraints += run.count;
}

void HemCudaIndex::run(HemCudaScratch& scratch) const {
  const Stream stream = scratch.stream;
  const auto n_sources = static_cast<std::uint32_t>(scratch.sources.size());
  const auto n_runs = static_cast<std::uint32_t>(scratch.runs.size());
  std::uint32_t longest = 0;
  for (const HemRun& run : scratch.runs) longest = std::max(longest, run.count);
  // Runs first: they need no more alignment than numbers do.
  const std::size_t n_run_words = n_runs * sizeof(HemRun) / 4;
  if (n_runs > 0) {
    std::memcpy(scratch.input.data(), scratch.runs.data(), n_runs * sizeof(HemRun));
  }
  std::copy(scratch.sources.begin(), scratch.sources.end(), scratch.input.data() + n_run_words);
  if (n_runs + n_sources > 0) {
    copy_to_device(scratch.input_there.data(), scratch.input.data(), (n_run_words + n_sources) * 4,
                   stream);
  }
  const HemFilters filters{bitsets_.data(),
                           unused_.data(),
                           bits_.data(),
                           ranks_.data(),
                           scratch.marks.data(),
                           scratch.results.data(),
                           scratch.results.data() + 1,
                           n_words_};
  launch_hem_or(filters, scratch.input_there.data() + n_run_words, n_sources, stream);
  launch_hem_mark(filters, reinterpret_cast<const HemRun*>(scratch.input_there.data()), n_runs,
                  longest, stream);
  launch_hem_collect(filters, stream);
  const auto copy_results = [&](std::size_t first, std::size_t last) {
    copy_to_host(scratch.found.data() + first, scratch.results.data() + first,
                 (last - first) * sizeof(std::uint32_t), stream);
    synchronize(stream);
  };
  const std::size_t n_first = std::min(kFirstResults, cells_.table()->size());
  copy_results(0, 1 + n_first);
  const std::size_t n_found = scratch.found.data()[0];
  if (n_found > n_first) copy_results(1 + n_first, 1 + n_found);
}

void HemCudaIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                         Scratch& given_scratch, Collector& out) const {
  HemCudaScratch& scratch = static_cast<HemCudaScratch&>(given_scratch);
  for (std::size_t event = begin; event < end; ++event) {
    out.begin_event();
    if (n_words_ == 0) continue;
    find_work(events, event, scratch, out.counters);
    run(scratch);
    const std::span<const std::uint32_t> found(scratch.found.data() + 1, scratch.found.data()[0]);
    for (const std::uint32_t bit : found) {
      const Tile& tile = cells_.tiles()[bit / kTileBits];
      const std::uint32_t id = bit % kTileBits;
      const FilterIdx filter = tile.first + id;
      if (out.has(filter)) continue;
      if ((tile.verified[id / 512].words[id / 64 % 8] >> (id % 64) & 1) != 0) {
        ++out.counters.candidates;
        if (!cells_.table()->accepts(filter, scratch.event.values)) continue;
      }
      out.add(filter);
    }
  }
}

std::size_t whole(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine hem-cuda must be a whole number, not " + std::to_string(value));
  }
  return static_cast<std::size_t>(value);
}

}  // namespace

std::unique_ptr<Index> build_hem_cuda(std::shared_ptr<const FilterTable> table,
                                      const Parameters& parameters) {
  return std::make_unique<HemCudaIndex>(
      std::move(table), whole(parameters, "c"),
      ViolationGroups::Settings{whole(parameters, "g"), whole(parameters, "joined_ends") != 0,
                                parameters.at("bytes_per_constraint")});
}

}  // namespace tamis
