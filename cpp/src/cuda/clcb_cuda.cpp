// `clcb-cuda`: location-aware content-based matching on a GPU (papers/003, section 4).
//
// Every filter is looked at, by three kernels: Loc compares a Bloom filter of names and a circle, a
// thread for each filter; Cont evaluates the constraints on the event's names, a thread each, and
// counts for filters that Loc left; Zip compacts what matched. engines/clcb.cpp is the CPU's twin.
//
//     all by filter number: filters of NameTables (one table), then those without a countable
//     constraint
//       blooms   u32      BF             counts   u32  FCount, a byte for each of four runs
//       centres  3 × f64  FPos           matched  u8   SubsBV
//       limits   f64      SqDist         results  u32  SubsCount, then Subs
//       sizes    u8       counted constraints
//     columns    constraints by name, see input.hpp
//
// The circle is the smallest of a filter's areas that are not negated; the host verifies the
// others, residuals, and what the device cannot decide.
//
// Invariants: between events `matched` is 0, and so are the bytes of runs to come in `counts`.
//
// Cost for an event: a thread for each filter in Loc and Zip, and for each constraint on one of its
// names in Cont; a copy of Input there, and one of SubsCount and the first of Subs back.
#include "clcb_cuda.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "buffers.hpp"
#include "clcb_launch.hpp"
#include "columns.hpp"
#include "common/name_blooms.hpp"
#include "common/placed_filter.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

using namespace cuda;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kRuns = 4;
// Of Subs, what comes back together with SubsCount: one copy for nearly all events.
constexpr std::size_t kFirstResults = 1023;

class ClcbCudaScratch final : public Scratch {
 public:
  OwnStream stream;
  NameSelection selection;
  InputParts input;
  ValueByAttribute event;
  DeviceArray<std::uint32_t> counts;   // [n_filters]
  DeviceArray<std::uint8_t> matched;   // [n_filters]
  DeviceArray<std::uint32_t> results;  // [1 + n_filters]
  PinnedArray<std::uint32_t> found;    // [1 + n_filters]
  std::uint32_t run = 0;
  bool is_clean = false;  // do the invariants hold?
  ClcbTimes times;
};

class ClcbCudaIndex final : public Index {
 public:
  ClcbCudaIndex(std::shared_ptr<const FilterTable> table, std::size_t name_bits, bool has_stream)
      : table_(std::move(table)),
        has_stream_(has_stream),
        name_blooms_(table_->n_attributes(), name_bits),
        names_(*table_,
               {.has_filter_selection = false, .n_most_counted = kClcbCudaMostConstraints}),
        columns_(*table_, names_, stream_) {
    place_filters();
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    auto scratch = std::make_unique<ClcbCudaScratch>();
    const std::size_t n_filters = filters_.size();
    scratch->counts = DeviceArray<std::uint32_t>(n_filters);
    scratch->matched = DeviceArray<std::uint8_t>(n_filters);
    scratch->results = DeviceArray<std::uint32_t>(1 + n_filters);
    scratch->found = PinnedArray<std::uint32_t>(1 + n_filters);
    // The first results are copied before it is known how many there are.
    clear(scratch->results.data(), scratch->results.n_bytes(), scratch->stream);
    return scratch;
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override {
    return sizeof(*this) + names_.n_bytes() + name_blooms_.n_bytes() + columns_.n_bytes() +
           filters_.capacity() * sizeof(FilterIdx) + blooms_.n_bytes() + centres_.n_bytes() +
           limits_.n_bytes() + sizes_.n_bytes();
  }

 private:
  void place_filters();
  void run(const EventBatch& events, std::size_t event, ClcbCudaScratch& scratch) const;

  std::shared_ptr<const FilterTable> table_;
  bool has_stream_;
  OwnStream stream_;
  NameBlooms name_blooms_;
  NameTables names_;
  DeviceColumns columns_;
  std::vector<FilterIdx> filters_;  // [n_filters]
  std::vector<bool> needs_host_;    // [n_filters]
  DeviceArray<std::uint32_t> blooms_;
  DeviceArray<Point> centres_;
  DeviceArray<double> limits_;
  DeviceArray<std::uint8_t> sizes_;
};

void ClcbCudaIndex::place_filters() {
  std::vector<std::uint32_t> blooms;
  std::vector<Point> centres;
  std::vector<double> limits;
  std::vector<std::uint8_t> sizes;
  const auto add = [&](FilterIdx idx, std::uint8_t size, bool is_undecided) {
    const FilterTable::Filter& filter = table_->filter(idx);
    const std::uint32_t area = smallest_area(*table_, filter);
    const bool is_placed = area != kNoArea;
    filters_.push_back(idx);
    blooms.push_back(name_blooms_.of(*table_, filter));
    centres.push_back(is_placed ? table_->area(area).centre : Point{});
    limits.push_back(is_placed ? table_->area(area).limit
                               : std::numeric_limits<double>::quiet_NaN());
    sizes.push_back(size);
    needs_host_.push_back(is_undecided || filter.constraints.count > size ||
                          filter.areas.count > (is_placed ? 1u : 0u) || filter.residuals.count > 0);
  };
  for (std::size_t place = 0; place < names_.infos().size(); ++place) {
    const NameTables::FilterInfo& info = names_.infos()[place];
    add(info.filter, info.size, columns_.undecided()[place]);
  }
  for (const FilterIdx idx : names_.always()) add(idx, 0, false);
  const auto copied = [&](const auto& items) { return to_device(std::span(items), stream_); };
  blooms_ = copied(std::as_const(blooms));
  centres_ = copied(std::as_const(centres));
  limits_ = copied(std::as_const(limits));
  sizes_ = copied(std::as_const(sizes));
}

// The three kernels, from the input to the results.
void ClcbCudaIndex::run(const EventBatch& events, std::size_t event,
                        ClcbCudaScratch& scratch) const {
  const Stream stream = scratch.stream;
  auto before = Clock::now();
  // Without a stream each step waits for the one before, and is timed.
  const auto end_step = [&](std::int64_t& step_ns) {
    if (has_stream_) return;
    synchronize(stream);
    const auto now = Clock::now();
    step_ns += std::chrono::nanoseconds(now - before).count();
    before = now;
  };
  names_.select(events, event, scratch.selection);
  scratch.input.clear();
  scratch.input.add(scratch.selection, 0);
  scratch.input.finish();
  ClcbInput input{};
  input.missing = name_blooms_.missing(events, event);
  input.has_position = events.has_position(event);
  if (input.has_position) {
    input.position = to_point(table_->space(), events.x[event], events.y[event]);
  }
  const ClcbFilters filters{blooms_.data(),
                            centres_.data(),
                            limits_.data(),
                            sizes_.data(),
                            scratch.counts.data(),
                            scratch.matched.data(),
                            scratch.results.data(),
                            scratch.results.data() + 1,
                            static_cast<std::uint32_t>(filters_.size())};
  if (!scratch.is_clean) {
    clear(scratch.matched.data(), scratch.matched.n_bytes(), stream);
    scratch.run = 0;
  }
  scratch.is_clean = false;
  const std::lock_guard lock(constant_memory);
  const std::size_t n_parts = scratch.input.n_parts();
  if (n_parts > 0) copy_input(scratch.input.part(0).input, scratch.input.part(0).n_lines, stream);
  end_step(scratch.times.copy_input_ns);
  launch_clcb_loc(filters, input, scratch.run, stream);
  end_step(scratch.times.loc_ns);
  for (std::size_t idx = 0; idx < n_parts; ++idx) {
    const InputParts::Part part = scratch.input.part(idx);
    if (idx > 0) copy_input(part.input, part.n_lines, stream);
    launch_clcb_cont(part.n_lines, part.longest_row, columns_.columns(), filters, scratch.run,
                     stream);
  }
  end_step(scratch.times.cont_ns);
  launch_clcb_zip(filters, stream);
  end_step(scratch.times.zip_ns);
  const std::size_t n_first = std::min(kFirstResults, filters_.size());
  const auto copy_results = [&](std::size_t first, std::size_t last) {
    copy_to_host(scratch.found.data() + first, scratch.results.data() + first,
                 (last - first) * sizeof(std::uint32_t), stream);
    synchronize(stream);
  };
  copy_results(0, 1 + n_first);
  const std::size_t n_found = scratch.found.data()[0];
  if (n_found > n_first) copy_results(1 + n_first, 1 + n_found);
  end_step(scratch.times.copy_results_ns);
  scratch.run = (scratch.run + 1) % kRuns;
  scratch.is_clean = true;
}

void ClcbCudaIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                          Scratch& given_scratch, Collector& out) const {
  ClcbCudaScratch& scratch = static_cast<ClcbCudaScratch&>(given_scratch);
  for (std::size_t event = begin; event < end; ++event) {
    out.begin_event();
    if (filters_.empty()) continue;
    run(events, event, scratch);
    out.counters.bits += filters_.size();
    const std::span<const std::uint32_t> found(scratch.found.data() + 1, scratch.found.data()[0]);
    out.counters.candidates += found.size();
    bool is_loaded = false;
    for (const std::uint32_t number : found) {
      const FilterIdx filter = filters_[number];
      if (out.has(filter)) continue;
      if (needs_host_[number]) {
        if (!is_loaded) scratch.event.load(events, event, table_->n_attributes(), table_->space());
        is_loaded = true;
        if (!table_->accepts(filter, scratch.event)) continue;
      }
      out.add(filter);
    }
  }
}

std::size_t whole(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine clcb-cuda must be a whole number, not " +
                        std::to_string(value));
  }
  return static_cast<std::size_t>(value);
}

}  // namespace

std::unique_ptr<Index> build_clcb_cuda(std::shared_ptr<const FilterTable> table,
                                       const Parameters& parameters) {
  for (FilterIdx idx = 0; idx < table->size(); ++idx) {
    const std::uint32_t n_constraints = table->filter(idx).constraints.count;
    if (n_constraints > kClcbCudaMostConstraints) {
      throw ArgumentError("a filter of engine clcb-cuda must have at most 254 constraints, not " +
                          std::to_string(n_constraints));
    }
  }
  return std::make_unique<ClcbCudaIndex>(std::move(table), whole(parameters, "name_bits"),
                                         whole(parameters, "stream") != 0);
}

ClcbTimes clcb_times(const Scratch& scratch) {
  return static_cast<const ClcbCudaScratch&>(scratch).times;
}

}  // namespace tamis
