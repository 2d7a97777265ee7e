#include "tuple_key_cuda.hpp"

#include <algorithm>
#include <bit>

#include "device_match.hpp"
#include "engines/tuple_key.hpp"
#include "engines/tuple_key/items.hpp"
#include "engines/tuple_key/records.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace cuda {
namespace {

using namespace tuple_key;

constexpr std::size_t kBitsPerKey = 16;
// So that keys of an event seldom have one bit together.
constexpr std::size_t kLeastBits = std::size_t{1} << 16;

constexpr std::size_t kTasksOfEvent = 16;  // room for so many, on average
// One event must fit: every set of its attributes, and the filters that need none.
constexpr std::size_t kMostTasksOfEvent = (std::size_t{1} << kTupleKeyMostAttributes) + 1;

// The filters by the hash of the attributes they need.
struct SetKeys {
  std::vector<std::uint64_t> hashed;  // hash << 32 | filter, sorted
  std::vector<KeyWord> words;
  std::vector<std::uint32_t> starts;  // where the records of each key begin, with tags
  std::uint32_t shift = 0, start_mask = 0, sizes = 0;

  // Filters that need nothing, or too much for any event that the device takes, are left out.
  explicit SetKeys(const RecordEncoder& encoder) {
    const FilterTerms& terms = encoder.terms();
    for (std::size_t filter = 0; filter < terms.size(); ++filter) {
      const std::span<const FilterTerm> of = terms[filter];
      if (of.empty() || of.size() > kTupleKeyMostAttributes) continue;
      std::uint32_t hash = 0;
      for (const FilterTerm& term : of) hash ^= presence_hash(term.attribute);
      hashed.push_back(std::uint64_t{hash} << 32 | filter);
      sizes |= std::uint32_t{1} << of.size();
    }
    std::sort(hashed.begin(), hashed.end());
  }

  // `record_at` [hashed.size() + 1]
  void place(const std::vector<std::uint32_t>& record_at) {
    std::size_t n_keys = 0;
    for (std::size_t at = 0; at < hashed.size(); ++at) {
      n_keys += at == 0 || hashed[at] >> 32 != hashed[at - 1] >> 32;
    }
    const std::size_t n_bits =
        std::min(std::bit_ceil(std::max(kLeastBits, n_keys * kBitsPerKey)), std::size_t{1} << 32);
    shift = 32 - static_cast<std::uint32_t>(std::countr_zero(n_bits));
    start_mask = static_cast<std::uint32_t>(std::bit_ceil(std::uint64_t{record_at.back()} + 1) - 1);
    words.resize(n_bits / 32);
    std::uint32_t last_hash = 0;
    for (std::size_t at = 0; at < hashed.size(); ++at) {
      const auto hash = static_cast<std::uint32_t>(hashed[at] >> 32);
      const std::uint64_t bit = std::uint64_t{hash} >> shift;
      KeyWord& word = words[bit / 32];
      if ((word.bits >> (bit % 32) & 1) == 0) {
        word.bits |= std::uint32_t{1} << (bit % 32);
        starts.push_back(record_at[at] | tag_of(hash, start_mask));
      } else if (hash != last_hash) {
        starts.back() &= start_mask;  // several keys: no tag
      }
      last_hash = hash;
    }
    starts.push_back(record_at.back());
    std::uint32_t n_before = 0;
    for (KeyWord& word : words) {
      word.n_before = n_before;
      n_before += static_cast<std::uint32_t>(std::popcount(word.bits));
    }
  }

  std::uint32_t longest_run() const {
    std::uint32_t longest = 0;
    for (std::size_t key = 0; key + 1 < starts.size(); ++key) {
      longest = std::max(longest, (starts[key + 1] & start_mask) - (starts[key] & start_mask));
    }
    return longest;
  }
};

}  // namespace

TupleKeyOnDevice::TupleKeyOnDevice(const FilterTable& table) {
  const Ranks ranks(table);
  RecordEncoder encoder(table, ranks);
  ranks_.emplace(table, ranks, encoder, stream_);
  SetKeys keys(encoder);
  std::vector<FilterIdx> always;
  std::uint64_t n_units = 0;
  for (FilterIdx filter = 0; filter < table.size(); ++filter) {
    if (encoder.is_impossible(filter) || !encoder.terms()[filter].empty()) continue;
    always.push_back(filter);
    n_units += encoder.size_of(filter);
  }
  for (const std::uint64_t each : keys.hashed) {
    n_units += encoder.size_of(static_cast<FilterIdx>(each));
  }
  if (n_units >= std::uint64_t{1} << 32) {
    throw ArgumentError("a segment of engine tuple-key-cuda must not exceed 32 GiB of records");
  }
  std::vector<std::uint64_t> records(n_units + kRecordPad);
  std::uint32_t end = 0;
  view_.least_record = ~std::uint32_t{0} / 2;
  const auto write = [&](FilterIdx filter) {
    encoder.write(filter, records.data() + end);
    view_.least_record = std::min(view_.least_record, encoder.size_of(filter));
    end += encoder.size_of(filter);
  };
  for (const FilterIdx filter : always) write(filter);
  view_.always_end = end;
  std::vector<std::uint32_t> record_at;
  record_at.reserve(keys.hashed.size() + 1);
  for (const std::uint64_t each : keys.hashed) {
    record_at.push_back(end);
    write(static_cast<FilterIdx>(each));
  }
  record_at.push_back(end);
  keys.place(record_at);

  words_ = to_device(std::span<const KeyWord>(keys.words), stream_);
  starts_ = to_device(std::span<const std::uint32_t>(keys.starts), stream_);
  records_ = to_device(std::span<const std::uint64_t>(records), stream_);
  view_.attributes = ranks_->attributes();
  view_.slots = ranks_->slots();
  view_.words = words_.data();
  view_.starts = starts_.data();
  view_.records = records_.data();
  view_.n_attributes = static_cast<std::uint32_t>(table.n_attributes());
  view_.key_sizes = keys.sizes;
  view_.shift = keys.shift;
  view_.start_mask = keys.start_mask;
  view_.lane_bytes = encoder.lane_bytes();
  view_.has_long_runs = std::max(keys.longest_run(), view_.always_end) > kTupleKeyLongRun;
}

std::size_t TupleKeyOnDevice::n_bytes() const {
  return sizeof(*this) + ranks_->n_bytes() + words_.n_bytes() + starts_.n_bytes() +
         records_.n_bytes();
}

TupleKeyBuffers::TupleKeyBuffers(std::size_t most_events)
    : most_events_(most_events),
      values_(kTupleKeyMostAttributes * most_events),
      tasks_(std::max(kTasksOfEvent * most_events, kMostTasksOfEvent)),
      counts_(sizeof *TupleKeyWork{}.n_tasks) {}

void TupleKeyBuffers::match(const TupleKeyOnDevice& index, const NumberEvents& events,
                            Stream stream) {
  if (events.n_events > most_events_) {
    throw ArgumentError("a launch must have at most " + std::to_string(most_events_) + " events");
  }
  const TupleKeyWork work{values_.data(), tasks_.data(), tasks_.size(),
                          reinterpret_cast<std::uint64_t*>(counts_.next())};
  launch_tuple_key_match(index.view(), events, work, counts_.results(), stream);
}

}  // namespace cuda

namespace {

using namespace cuda;

constexpr std::size_t kMostEvents = 1 << 16;  // of one launch
using TupleKeyCudaScratch = DeviceScratch<TupleKeyBuffers>;

class TupleKeyCudaIndex final : public Index {
 public:
  TupleKeyCudaIndex(std::shared_ptr<const FilterTable> table, const Parameters& parameters)
      : table_(std::move(table)),
        on_device_(*table_),
        on_host_(build_tuple_key(table_, host_parameters(parameters))) {}

  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<TupleKeyCudaScratch>(kMostEvents, kTupleKeyMostAttributes, false,
                                                 TupleKeyBuffers(kMostEvents),
                                                 on_host_->make_scratch());
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override {
    match_on_device(on_device_, *table_, *on_host_, events, begin, end,
                    static_cast<TupleKeyCudaScratch&>(scratch), out);
  }
  bool reads_columns() const override { return true; }
  std::size_t n_bytes() const override {
    return sizeof(*this) + on_device_.n_bytes() + on_host_->n_bytes();
  }

 private:
  static Parameters host_parameters(const Parameters& given) {
    Parameters parameters = given;
    parameters.insert({{"groups", 0}, {"guards", 0}, {"key_terms", 3}});
    return parameters;
  }

  std::shared_ptr<const FilterTable> table_;
  TupleKeyOnDevice on_device_;
  std::unique_ptr<Index> on_host_;
};

}  // namespace

std::unique_ptr<Index> build_tuple_key_cuda(std::shared_ptr<const FilterTable> table,
                                            const Parameters& parameters) {
  return std::make_unique<TupleKeyCudaIndex>(std::move(table), parameters);
}

}  // namespace tamis
