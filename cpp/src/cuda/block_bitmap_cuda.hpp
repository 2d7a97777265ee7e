// `block-bitmap-cuda`: the blocks of `block-bitmap` on a GPU, whose lines stand in shared memory
// while all events of a batch that visit the block go by.
//
//     host                        pinned                      device
//     EventBatch ── pack ──►  attributes, numbers  ◄─ read ─  rank ─ find ─ verify
//     Collector  ◄─ sort ──   (event, filter)      ◄─ write ─┘  summaries, lines, records
//        ▲                    events that it leaves ─┘
//        └── block-bitmap on the host: events with strings, very many attributes or odd numbers
//
// The index on the device is a copy of that on the host, lines whatever the cost would say. Every
// filter is there: what its record cannot say, the host verifies.
#pragma once

#include <optional>

#include "block_bitmap_launch.hpp"
#include "number_batch.hpp"
#include "tamis/engine.hpp"

namespace tamis {

inline constexpr Parameter kBlockBitmapCudaParameters[] = {
    {"tuple_size", 3, 1, 3, "attributes by which filters are divided into blocks, at most"},
};

namespace cuda {

// The index on the device, for callers that have their events in pinned memory.
class BlockBitmapOnDevice {
 public:
  // `lines`: an index of the table, by build_lines.
  BlockBitmapOnDevice(const FilterTable& table, const Index& lines);

  const BlockBitmapIndexView& view() const { return view_; }
  const RanksOnDevice& ranks() const { return *ranks_; }
  std::size_t n_used() const { return n_used_; }  // attributes that filters have
  std::size_t n_bytes() const;                    // on the device, and a few here

 private:
  OwnStream stream_;
  std::size_t n_used_ = 0;
  std::optional<RanksOnDevice> ranks_;
  DeviceArray<block_bitmap::Scale> scales_;
  DeviceArray<BlockTuple> tuples_;
  DeviceArray<std::uint32_t> columns_;
  DeviceArray<FilterBlock> blocks_;
  DeviceArray<BlockSummary> summaries_;
  DeviceArray<LinePart> lines_;
  DeviceArray<std::uint32_t> records_;
  BlockBitmapIndexView view_{};
};

// What the kernels need besides an index, for the launches of one stream.
class BlockBitmapBuffers {
 public:
  // Events of a launch.
  BlockBitmapBuffers(const BlockBitmapOnDevice& index, std::size_t most_events);
  // Events of a launch whose buffers stay below 256 MB, but for tables of very many attributes.
  static std::size_t most_events(const BlockBitmapOnDevice& index);

  // Of a call: where its pairs go, its launches, how many pairs there are.
  void begin(const MatchResults& to, Stream stream) { counts_.begin(to, stream); }
  void match(const BlockBitmapOnDevice& index, const NumberEvents& events, Stream stream) {
    match(index, events, stream, [](const char*) {});
  }
  // Calls after(name) when a step has been started.
  template <typename After>
  void match(const BlockBitmapOnDevice& index, const NumberEvents& events, Stream stream,
             After after) {
    const BlockBitmapWork work = next_work(events);
    const MatchResults results = counts_.results();
    launch_block_bitmap_rank(index.view(), events, work, results, stream);
    after("rank");
    launch_block_bitmap_find(index.view(), events, work, results, stream);
    after("find");
    launch_block_bitmap_verify(index.view(), events, work, results, stream);
    after("verify");
  }
  void finish(Stream stream) { counts_.finish(stream); }
  CallCounts& counts() { return counts_; }

 private:
  BlockBitmapWork next_work(const NumberEvents& events);

  std::size_t most_events_;
  DeviceArray<std::uint32_t> ranks_, is_left_;
  DeviceArray<std::uint8_t> rows_;
  DeviceArray<ColumnCells> columns_;
  DeviceArray<BlockCandidate> candidates_;
  CallCounts counts_;  // with n_candidates of each launch
};

}  // namespace cuda

// Throws UnavailableError where the GPU has no room.
std::unique_ptr<Index> build_block_bitmap_cuda(std::shared_ptr<const FilterTable> table,
                                               const Parameters&);

}  // namespace tamis
