// `spatial-grid-cuda`: the places of `spatial-grid` on a GPU, where a batch looks for them and
// where they are put into buckets again when they move.
//
//     host                        pinned                      device
//     EventBatch ── pack ──►  numbers, points      ◄─ read ─  rank ─ buckets ─ lattice ─ circle ─
//     Collector  ◄─ sort ──   (event, filter)      ◄─ write ─┘                        records
//     follow ──────────────►  moves                ─────────► centres ─ count ─ allot ─ scatter
//
// Events that the device cannot take are matched by `spatial-grid` on the host.
#pragma once

#include <optional>

#include "number_batch.hpp"
#include "spatial_grid_launch.hpp"
#include "tamis/engine.hpp"

namespace tamis {

namespace cuda {

// The index on the device, for callers that have their events packed in pinned memory.
class GridOnDevice {
 public:
  // Every filter is a place of its own: it stands under the rarest of its names. `owners`
  // [n_filters] or empty: whose they are, if they are to move.
  GridOnDevice(const FilterTable& table, std::span<const std::uint32_t> owners);

  const GridView& view() const { return view_; }
  const RanksOnDevice& ranks() const { return *ranks_; }
  std::size_t n_places() const { return view_.n_places; }
  // The places with a circle of a slot, if the device alone decides about its filters; else none.
  struct Range {
    std::uint32_t slot = 0, first = 0, n_places = 0;
  };
  Range movable_of(std::uint32_t slot) const;

  // Nobody may match meanwhile. What is handed over must stay until the stream is through.
  //
  // New centres of some places, each at most once; then index_again().
  void move(const GridMoves& moves, Stream stream);
  void index_again(Stream stream);
  // New centres of all places in the plane, in pinned memory, and their buckets. Places are in the
  // order of filters, without those that accept nothing; those without a circle stay.
  void move_all(const float* positions, Stream stream);
  std::size_t n_bytes() const;  // on the device, and a few here

 private:
  void clear_buckets(Stream stream);

  OwnStream stream_;
  OwnMark begin_;
  static constexpr std::size_t kParts = 8;
  OwnMark marks_[kParts];
  std::optional<RanksOnDevice> ranks_;
  std::vector<Range> movable_;  // by slot
  DeviceArray<GridLevel> levels_;
  DeviceArray<std::uint8_t> terms_;
  DeviceArray<std::uint32_t> sizes_, starts_;
  DeviceArray<GridEntry> entries_;
  DeviceArray<GridHome> homes_;
  DeviceArray<std::uint64_t> records_;
  DeviceArray<GridTicket> tickets_;
  DeviceArray<float> positions_;  // on their way, once all have moved
  DeviceArray<std::uint64_t> n_entries_;
  GridView view_{};
};

// What the kernels need besides an index, for the launches of one stream.
class GridBuffers {
 public:
  // For each event of a launch, on average.
  static constexpr std::size_t kTasks = 32;

  explicit GridBuffers(std::size_t most_events);  // of a launch

  // Of a call: where its pairs go, its launches, how many pairs there are.
  void begin(const MatchResults& to, Stream stream) { counts_.begin(to, stream); }
  void match(const GridOnDevice& index, const NumberEvents& events, Stream stream);
  void finish(Stream stream) { counts_.finish(stream); }
  CallCounts& counts() { return counts_; }

 private:
  std::size_t most_events_;
  DeviceArray<std::byte> events_;
  DeviceArray<GridTask> tasks_;
  CallCounts counts_;
};

}  // namespace cuda

// Throw UnavailableError where the GPU has no room.
std::unique_ptr<Index> build_spatial_grid_cuda(std::shared_ptr<const FilterTable> table,
                                               const Parameters&);
// With the slot of each filter: gives a MovableIndex.
std::unique_ptr<Index> build_owned_spatial_grid_cuda(std::shared_ptr<const FilterTable> table,
                                                     const Parameters& parameters,
                                                     std::span<const std::uint32_t> slot_of);

}  // namespace tamis
