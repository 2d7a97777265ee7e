#include "tuple_key_cuda.hpp"

#include <algorithm>
#include <bit>

#include "engines/tuple_key.hpp"
#include "engines/tuple_key/items.hpp"
#include "engines/tuple_key/records.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace cuda {
namespace {

using namespace tuple_key;

constexpr std::size_t kBitsPerKey = 16;

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
    const std::size_t n_bits = std::min(
        std::bit_ceil(std::max<std::size_t>(32, n_keys * kBitsPerKey)), std::size_t{1} << 32);
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
};

}  // namespace

TupleKeyOnDevice::TupleKeyOnDevice(const FilterTable& table) {
  const Ranks ranks(table);
  RecordEncoder encoder(table, ranks);
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
  std::vector<std::uint64_t> records(n_units);
  std::uint32_t end = 0;
  const auto write = [&](FilterIdx filter) {
    encoder.write(filter, records.data() + end);
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

  std::vector<TupleKeyAttribute> attributes(table.n_attributes());
  std::vector<TupleKeySlot> slots(encoder.defaults.size());
  std::vector<Integers> integers;
  flags_.resize(attributes.size());
  std::vector<std::size_t> integers_at(attributes.size());
  for (AttributeId attribute = 0; attribute < attributes.size(); ++attribute) {
    const AttributeSlots& of = encoder.slots[attribute];
    if (of.is_used()) flags_[attribute] |= TupleKeyAttribute::kUsed;
    if (!ranks.has_integer_cuts(attribute)) flags_[attribute] |= TupleKeyAttribute::kHost;
    const auto set_slot = [&](std::uint32_t slot, std::uint32_t view) {
      if (slot != kNoSlot) slots[slot] = {attribute | view, encoder.defaults[slot]};
    };
    set_slot(of.all, 0);
    set_slot(of.numbers, 0);
    set_slot(of.strings, TupleKeySlot::kStrings);
    IntegerCuts& cuts = attributes[attribute].cuts;
    cuts = ranks.integer_cuts(attribute);
    integers_at[attribute] = integers.size();
    integers.insert(integers.end(), cuts.integers, cuts.integers + (cuts.n_integers + 63) / 64);
  }
  for (const std::uint64_t each : keys.hashed) {
    for (const FilterTerm& term : encoder.terms()[static_cast<FilterIdx>(each)]) {
      flags_[term.attribute] |= TupleKeyAttribute::kTerm;
    }
  }
  integers_ = to_device(std::span<const Integers>(integers), stream_);
  for (AttributeId attribute = 0; attribute < attributes.size(); ++attribute) {
    attributes[attribute].cuts.integers = integers_.data() + integers_at[attribute];
    attributes[attribute].flags = flags_[attribute];
    attributes[attribute].hash = presence_hash(attribute);
  }
  attributes_ = to_device(std::span<const TupleKeyAttribute>(attributes), stream_);
  slots_ = to_device(std::span<const TupleKeySlot>(slots), stream_);
  words_ = to_device(std::span<const KeyWord>(keys.words), stream_);
  starts_ = to_device(std::span<const std::uint32_t>(keys.starts), stream_);
  records_ = to_device(std::span<const std::uint64_t>(records), stream_);
  view_.attributes = attributes_.data();
  view_.slots = slots_.data();
  view_.words = words_.data();
  view_.starts = starts_.data();
  view_.records = records_.data();
  view_.n_attributes = static_cast<std::uint32_t>(attributes.size());
  view_.key_sizes = keys.sizes;
  view_.shift = keys.shift;
  view_.start_mask = keys.start_mask;
  view_.lane_bytes = encoder.lane_bytes();
}

std::size_t TupleKeyOnDevice::n_bytes() const {
  return sizeof(*this) + flags_.capacity() * sizeof flags_[0] + integers_.n_bytes() +
         attributes_.n_bytes() + slots_.n_bytes() + words_.n_bytes() + starts_.n_bytes() +
         records_.n_bytes();
}

TupleKeyBuffers::TupleKeyBuffers(std::size_t most_events, std::size_t most_events_in_all,
                                 std::size_t most_pairs)
    : most_events_(most_events),
      places_(kTupleKeyMostAttributes * most_events),
      tasks_(3 * TupleKeyWork::most_tasks(most_events)),
      pairs_(most_pairs),
      left_(most_events_in_all),
      counts_(kMostLaunches + 2),
      n_tasks_(kMostLaunches) {}

TupleKeyResults TupleKeyBuffers::results() const {
  return {pairs_.data(), left_.data(), counts_.data(), pairs_.size()};
}

void TupleKeyBuffers::begin(Stream stream) {
  n_launches_ = n_brought_ = 0;
  clear(counts_.data(), counts_.n_bytes(), stream);
  clear(n_tasks_.data(), n_tasks_.n_bytes(), stream);
}

void TupleKeyBuffers::match(const TupleKeyOnDevice& index, const TupleKeyEvents& events,
                            Stream stream) {
  if (events.n_events > most_events_ || n_launches_ == kMostLaunches) {
    throw ArgumentError("a launch must have at most " + std::to_string(most_events_) +
                        " events, and there are at most " + std::to_string(kMostLaunches));
  }
  const std::size_t most_tasks = TupleKeyWork::most_tasks(most_events_);
  const TupleKeyWork work{places_.data(),
                          tasks_.data(),
                          tasks_.data() + most_tasks,
                          tasks_.data() + 2 * most_tasks,
                          n_tasks_.data() + n_launches_++,
                          static_cast<std::uint32_t>(most_events_)};
  launch_tuple_key_match(index.view(), events, work, results(), stream);
}

void TupleKeyBuffers::bring(const TupleKeyPinned& to, Stream stream) {
  if (n_brought_ == kMostLaunches) throw ArgumentError("too many results were brought");
  launch_tuple_key_bring(results(), to, counts_.data() + 1 + n_brought_++, stream);
}

}  // namespace cuda

namespace {

using namespace cuda;

constexpr std::size_t kMostEvents = 1 << 16;  // of one launch
constexpr std::size_t kFirstPairs = 1 << 18, kMostPairs = 1 << 24;

// What crosses the bus, in pinned memory that the kernel reads and writes.
class TupleKeyCudaScratch final : public Scratch {
 public:
  OwnStream stream;
  PinnedArray<std::uint32_t> offsets{kMostEvents + 1};
  PinnedArray<std::uint32_t> attributes{kMostEvents * kTupleKeyMostAttributes};
  PinnedArray<double> values{kMostEvents * kTupleKeyMostAttributes};
  PinnedArray<TupleKeyPair> pairs{kFirstPairs};
  PinnedArray<std::uint32_t> left{kMostEvents};
  PinnedArray<TupleKeyCounts> counts{1};
  TupleKeyBuffers buffers{kMostEvents, kMostEvents, kFirstPairs};
  std::vector<std::uint32_t> begins;  // [events + 1] of each event's filters
  std::vector<TupleKeyPair> sorted;
  std::vector<bool> is_left;  // [events]
  ValueByAttribute values_of;
  std::unique_ptr<Scratch> on_host;
};

class TupleKeyCudaIndex final : public Index {
 public:
  TupleKeyCudaIndex(std::shared_ptr<const FilterTable> table, const Parameters& parameters)
      : table_(std::move(table)),
        on_device_(*table_),
        on_host_(build_tuple_key(table_, host_parameters(parameters))) {}

  std::unique_ptr<Scratch> make_scratch() const override {
    auto scratch = std::make_unique<TupleKeyCudaScratch>();
    scratch->on_host = on_host_->make_scratch();
    return scratch;
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& given_scratch,
             Collector& out) const override {
    auto& scratch = static_cast<TupleKeyCudaScratch&>(given_scratch);
    for (std::size_t n_events = 0; begin < end; begin += n_events) {
      n_events = std::min(end - begin, kMostEvents);
      pack(events, begin, n_events, scratch);
      run(n_events, scratch);
      // Too many pairs: fewer events at a time, down to one, which the host can take.
      while (scratch.counts.data()->n_pairs > scratch.pairs.size() && n_events > 1) {
        n_events /= 2;
        run(n_events, scratch);
      }
      if (scratch.counts.data()->n_pairs > scratch.pairs.size()) {
        on_host_->match(events, begin, begin + 1, *scratch.on_host, out);
      } else {
        collect(events, begin, n_events, scratch, out);
      }
    }
  }
  std::size_t n_bytes() const override {
    return sizeof(*this) + on_device_.n_bytes() + on_host_->n_bytes();
  }

 private:
  static Parameters host_parameters(const Parameters& given) {
    Parameters parameters = given;
    parameters.insert({{"groups", 0}, {"guards", 0}, {"key_terms", 3}});
    return parameters;
  }
  void pack(const EventBatch& events, std::size_t begin, std::size_t n_events,
            TupleKeyCudaScratch& scratch) const;
  void run(std::size_t n_events, TupleKeyCudaScratch& scratch) const;
  void collect(const EventBatch& events, std::size_t begin, std::size_t n_events,
               TupleKeyCudaScratch& scratch, Collector& out) const;

  std::shared_ptr<const FilterTable> table_;
  TupleKeyOnDevice on_device_;
  std::unique_ptr<Index> on_host_;
};

// An event that the device cannot take has no attributes there, and no pairs that count.
void TupleKeyCudaIndex::pack(const EventBatch& events, std::size_t begin, std::size_t n_events,
                             TupleKeyCudaScratch& scratch) const {
  scratch.is_left.assign(n_events, false);
  std::uint32_t n_cells = 0;
  scratch.offsets.data()[0] = 0;
  for (std::size_t event = 0; event < n_events; ++event) {
    const std::uint32_t first = n_cells;
    for (std::uint64_t at = events.offsets[begin + event]; at < events.offsets[begin + event + 1];
         ++at) {
      const AttributeId attribute = events.attributes[at];
      if (attribute >= on_device_.n_attributes() || !on_device_.is_used(attribute)) continue;
      const EventValue& value = events.values[at];
      if (value.kind != Kind::number || value.residue != 0 || !on_device_.takes(attribute) ||
          n_cells - first == kTupleKeyMostAttributes) {
        scratch.is_left[event] = true;
        break;
      }
      scratch.attributes.data()[n_cells] = attribute;
      scratch.values.data()[n_cells++] = value.nearest;
    }
    if (scratch.is_left[event]) n_cells = first;
    scratch.offsets.data()[event + 1] = n_cells;
  }
}

void TupleKeyCudaIndex::run(std::size_t n_events, TupleKeyCudaScratch& scratch) const {
  TupleKeyEvents packed;
  packed.offsets = scratch.offsets.data();
  packed.attributes = scratch.attributes.data();
  packed.values = scratch.values.data();
  packed.n_events = static_cast<std::uint32_t>(n_events);
  for (;;) {
    scratch.buffers.begin(scratch.stream);
    scratch.buffers.match(on_device_, packed, scratch.stream);
    scratch.buffers.bring({scratch.pairs.data(), scratch.left.data(), scratch.counts.data()},
                          scratch.stream);
    synchronize(scratch.stream);
    const std::size_t n_pairs = scratch.counts.data()->n_pairs, n_room = scratch.pairs.size();
    if (n_pairs <= n_room || n_room == kMostPairs) return;
    const std::size_t n_more = std::min(n_pairs + n_pairs / 4, kMostPairs);
    PinnedArray<TupleKeyPair> pairs(n_more);
    scratch.buffers = TupleKeyBuffers(kMostEvents, kMostEvents, n_more);
    scratch.pairs = std::move(pairs);
  }
}

void TupleKeyCudaIndex::collect(const EventBatch& events, std::size_t begin, std::size_t n_events,
                                TupleKeyCudaScratch& scratch, Collector& out) const {
  const std::size_t n_left = scratch.counts.data()->n_left;
  for (std::size_t at = 0; at < n_left; ++at) scratch.is_left[scratch.left.data()[at]] = true;
  const std::span<const TupleKeyPair> pairs(scratch.pairs.data(), scratch.counts.data()->n_pairs);
  const auto event_of = [](const TupleKeyPair& pair) {
    return pair.event & ~TupleKeyPair::kVerify;
  };
  // By event: counted, then each to its place.
  scratch.begins.assign(n_events + 2, 0);
  for (const TupleKeyPair& pair : pairs) ++scratch.begins[event_of(pair) + 2];
  for (std::size_t event = 2; event < scratch.begins.size(); ++event) {
    scratch.begins[event] += scratch.begins[event - 1];
  }
  scratch.sorted.resize(pairs.size());
  for (const TupleKeyPair& pair : pairs) {
    scratch.sorted[scratch.begins[event_of(pair) + 1]++] = pair;
  }
  out.counters.filters += pairs.size();
  for (std::size_t event = 0; event < n_events; ++event) {
    if (scratch.is_left[event]) {
      on_host_->match(events, begin + event, begin + event + 1, *scratch.on_host, out);
      continue;
    }
    out.begin_event();
    bool has_values = false;
    for (std::uint32_t at = scratch.begins[event]; at < scratch.begins[event + 1]; ++at) {
      const TupleKeyPair& pair = scratch.sorted[at];
      if ((pair.event & TupleKeyPair::kVerify) != 0) {
        if (out.has(pair.filter)) continue;
        if (!has_values) {
          scratch.values_of.load(events, begin + event, table_->n_attributes(), table_->space());
        }
        has_values = true;
        ++out.counters.candidates;
        if (!table_->accepts(pair.filter, scratch.values_of)) continue;
      }
      out.add(pair.filter);
    }
  }
}

}  // namespace

std::unique_ptr<Index> build_tuple_key_cuda(std::shared_ptr<const FilterTable> table,
                                            const Parameters& parameters) {
  return std::make_unique<TupleKeyCudaIndex>(std::move(table), parameters);
}

}  // namespace tamis
