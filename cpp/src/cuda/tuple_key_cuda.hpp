// `tuple-key-cuda`: the records of `tuple-key` on a GPU under keys of whole sets, a thread for each
// event.
//
//     host                        pinned                      device
//     EventBatch ── pack ──►  attributes, numbers  ◄─ read ─  rank ─ hash ─ probe ─ test records
//     Collector  ◄─ sort ──   (event, filter)      ◄─ write ─┘      bitmap, starts, records
//        ▲                    events that it leaves ─┘
//        └── tuple-key on the host: events with strings, many attributes or odd numbers
//
// Events and pairs cross the bus once; a kernel reads the former and writes the latter. A filter's
// key is the set of all attributes that it needs; those that need more than ten are on the host
// alone, since the device takes no event that has so many.
#pragma once

#include <optional>

#include "number_batch.hpp"
#include "tamis/engine.hpp"
#include "tuple_key_launch.hpp"

namespace tamis {

inline constexpr Parameter kTupleKeyCudaParameters[] = {
    {"event_attributes", 0, 0, 1e6,
     "attributes of an event, on average, for the index on the host; 0: not known"},
};

namespace cuda {

// The index on the device, for callers that have their events packed in pinned memory.
class TupleKeyOnDevice {
 public:
  explicit TupleKeyOnDevice(const FilterTable& table);

  const TupleKeyIndexView& view() const { return view_; }
  const RanksOnDevice& ranks() const { return *ranks_; }
  std::size_t n_bytes() const;  // on the device, and a few here

 private:
  OwnStream stream_;
  std::optional<RanksOnDevice> ranks_;
  DeviceArray<tuple_key::KeyWord> words_;
  DeviceArray<std::uint32_t> starts_;
  DeviceArray<std::uint64_t> records_;
  TupleKeyIndexView view_{};
};

// What the kernels need besides an index, for the launches of one stream.
class TupleKeyBuffers {
 public:
  explicit TupleKeyBuffers(std::size_t most_events);  // of a launch

  // Of a call: where its pairs go, its launches, how many pairs there are.
  void begin(const MatchResults& to, Stream stream) { counts_.begin(to, stream); }
  void match(const TupleKeyOnDevice& index, const NumberEvents& events, Stream stream);
  void finish(Stream stream) { counts_.finish(stream); }
  CallCounts& counts() { return counts_; }

 private:
  std::size_t most_events_;
  DeviceArray<RankedValue> values_;
  DeviceArray<TupleKeyTask> tasks_;
  CallCounts counts_;
};

}  // namespace cuda

// Throws UnavailableError where the GPU has no room.
std::unique_ptr<Index> build_tuple_key_cuda(std::shared_ptr<const FilterTable> table,
                                            const Parameters&);

}  // namespace tamis
