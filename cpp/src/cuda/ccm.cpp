// `ccm`: Parallel Content Matching on a GPU (papers/000, section 3.3).
//
// The host selects tables and rows by the event's names, as `ocm` does (common/name_tables.hpp);
// the device evaluates their constraints, a thread each, and counts those that hold by atomic
// additions. What reaches its size sets the byte of its interface.
//
//     host     NameTables ─ select ─► InputParts (pinned) ─► constant memory, 64 KB
//     device   DeviceColumns  ConstrBF, ConstrOp, ConstrVal, ConstrFilterId
//              filters        FiltersInfo: size, interface
//              counts         FiltersCount, u32 for each filter: a half-byte for each of 8 stages
//              interfaces     a byte each ─► pinned ─► collector
//
//     for each kernel:  input ─ copy ─ evaluate ─ copy results ─┬─ reset (counts: every 8th time)
//                                                               └─ the host goes on from here
//
// An interface is a target of the collector, if targets are fewer than filters, nothing is dead and
// the device decides every constraint. Otherwise it is the filter, and the host verifies what is
// left of it. Filters without a countable constraint are verified for each event.
//
// Invariants: between kernels interfaces are 0, and so are the half-bytes of stages to come.
//
// Cost for an event: that of selection (docs/engines/ocm.md), a thread for each constraint of the
// longest row times the rows, and one byte for each interface back.
#include "ccm.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "buffers.hpp"
#include "ccm_launch.hpp"
#include "columns.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

using namespace cuda;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kStages = 8;

struct Settings {
  NameTables::Settings names;
  bool has_stream = true;
  std::size_t events_per_kernel = 1;
};

// What the results of a kernel are about.
struct Interfaces {
  bool are_targets = false;
  std::uint32_t count = 0;
  std::uint32_t stride = 0;  // a multiple of 16
  const CcmFilter* filters = nullptr;
};

class CcmScratch final : public Scratch {
 public:
  OwnStream stream;
  OwnMark has_results;
  NameSelection selection;
  InputParts input;
  ValueByAttribute event;
  DeviceArray<std::uint32_t> counts;      // [events_per_kernel * n_filters]
  DeviceArray<std::uint8_t> interfaces;   // [events_per_kernel * stride]
  PinnedArray<std::uint8_t> found;        // the same
  DeviceArray<CcmFilter> target_filters;  // FiltersInfo with targets as interfaces
  std::uint64_t targets_id = 0;           // whose these are
  std::uint32_t stage = 0;
  bool is_clean = false;  // do the invariants hold?
  CcmTimes times;
};

class CcmIndex final : public Index {
 public:
  CcmIndex(std::shared_ptr<const FilterTable> table, const Settings& settings)
      : table_(std::move(table)),
        settings_(settings),
        names_(*table_, settings.names),
        columns_(*table_, names_, stream_),
        n_filters_(static_cast<std::uint32_t>(names_.infos().size())) {
    for (std::uint32_t place = 0; place < n_filters_; ++place) {
      n_for_host_ += needs_host(place);
    }
    filters_ = make_filters([](std::uint32_t place) { return place; });
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    auto scratch = std::make_unique<CcmScratch>();
    scratch->counts = DeviceArray<std::uint32_t>(settings_.events_per_kernel * n_filters_);
    return scratch;
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override {
    return sizeof(*this) + names_.n_bytes() + columns_.n_bytes() + filters_.n_bytes();
  }

 private:
  bool needs_host(std::uint32_t place) const {
    return names_.infos()[place].has_rest || columns_.undecided()[place];
  }
  template <typename InterfaceOf>
  DeviceArray<CcmFilter> make_filters(InterfaceOf interface_of) const {
    std::vector<CcmFilter> filters(n_filters_);
    for (std::uint32_t place = 0; place < n_filters_; ++place) {
      filters[place] = {names_.infos()[place].size, interface_of(place)};
    }
    return to_device(std::span<const CcmFilter>(filters), stream_);
  }
  Interfaces choose_interfaces(const Collector& out, CcmScratch& scratch) const;
  void run(const Interfaces& interfaces, std::size_t n_events, CcmScratch& scratch) const;
  void collect(const std::uint8_t* found, const Interfaces& interfaces, const EventBatch& events,
               std::size_t event, CcmScratch& scratch, Collector& out) const;

  std::shared_ptr<const FilterTable> table_;
  Settings settings_;
  OwnStream stream_;
  NameTables names_;
  DeviceColumns columns_;
  std::uint32_t n_filters_;  // in tables
  std::size_t n_for_host_ = 0;
  DeviceArray<CcmFilter> filters_;  // FiltersInfo with filters as interfaces
};

Interfaces CcmIndex::choose_interfaces(const Collector& out, CcmScratch& scratch) const {
  Interfaces interfaces{false, n_filters_, 0, filters_.data()};
  const std::uint32_t* const target_of = out.target_of();
  if (target_of != nullptr && n_for_host_ == 0 && out.n_targets() < n_filters_) {
    if (scratch.targets_id == 0 || scratch.targets_id != out.targets_id()) {
      scratch.target_filters = make_filters(
          [&](std::uint32_t place) { return target_of[names_.infos()[place].filter]; });
      scratch.targets_id = out.targets_id();
    }
    interfaces = {true, static_cast<std::uint32_t>(out.n_targets()), 0,
                  scratch.target_filters.data()};
  }
  interfaces.stride = (interfaces.count + 15) / 16 * 16;
  const std::size_t n_bytes = settings_.events_per_kernel * interfaces.stride;
  if (scratch.interfaces.size() < n_bytes) {
    scratch.interfaces = DeviceArray<std::uint8_t>(n_bytes);
    scratch.found = PinnedArray<std::uint8_t>(n_bytes);
    scratch.is_clean = false;
  }
  return interfaces;
}

// One kernel, from the input to the results.
void CcmIndex::run(const Interfaces& interfaces, std::size_t n_events, CcmScratch& scratch) const {
  const Stream stream = scratch.stream;
  auto before = Clock::now();
  // Without a stream each step waits for the one before, and is timed.
  const auto end_step = [&](std::int64_t& step_ns) {
    if (settings_.has_stream) return;
    synchronize(stream);
    const auto now = Clock::now();
    step_ns += std::chrono::nanoseconds(now - before).count();
    before = now;
  };
  if (!scratch.is_clean) {
    clear(scratch.counts.data(), scratch.counts.n_bytes(), stream);
    clear(scratch.interfaces.data(), scratch.interfaces.n_bytes(), stream);
    scratch.stage = 0;
  }
  scratch.is_clean = false;
  const CcmState state{scratch.counts.data(), scratch.interfaces.data(), n_filters_,
                       interfaces.stride};
  const std::lock_guard lock(constant_memory);
  for (std::size_t idx = 0; idx < scratch.input.n_parts(); ++idx) {
    const InputParts::Part part = scratch.input.part(idx);
    copy_input(part.input, part.n_lines, stream);
    end_step(scratch.times.copy_input_ns);
    launch_ccm_evaluate(part.n_lines, part.longest_row, columns_.columns(), interfaces.filters,
                        state, scratch.stage, stream);
    end_step(scratch.times.kernel_ns);
  }
  copy_to_host(scratch.found.data(), scratch.interfaces.data(), n_events * interfaces.stride,
               stream);
  record(scratch.has_results, stream);
  end_step(scratch.times.copy_results_ns);
  scratch.stage = (scratch.stage + 1) % kStages;
  launch_ccm_reset(state, static_cast<std::uint32_t>(n_events),
                   scratch.stage == 0 ? static_cast<std::uint32_t>(settings_.events_per_kernel) : 0,
                   stream);
  end_step(scratch.times.reset_ns);
  wait_for(scratch.has_results);
  scratch.is_clean = true;
}

void CcmIndex::collect(const std::uint8_t* found, const Interfaces& interfaces,
                       const EventBatch& events, std::size_t event, CcmScratch& scratch,
                       Collector& out) const {
  bool is_loaded = false;
  const auto accepts = [&](FilterIdx filter) {
    ++out.counters.candidates;
    if (!is_loaded) scratch.event.load(events, event, table_->n_attributes(), table_->space());
    is_loaded = true;
    return table_->accepts(filter, scratch.event);
  };
  for (std::uint32_t first = 0; first < interfaces.count; first += 8) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, found + first, sizeof bytes);
    if (bytes == 0) continue;
    for (std::uint32_t at = first; at < first + 8; ++at) {
      if (found[at] == 0) continue;
      if (interfaces.are_targets) {
        out.add_target(at);
        continue;
      }
      const FilterIdx filter = names_.infos()[at].filter;
      if (out.has(filter)) continue;
      if (!needs_host(at) || accepts(filter)) out.add(filter);
    }
  }
  for (const FilterIdx filter : names_.always()) {
    if (!out.has(filter) && accepts(filter)) out.add(filter);
  }
}

void CcmIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                     Scratch& given_scratch, Collector& out) const {
  CcmScratch& scratch = static_cast<CcmScratch&>(given_scratch);
  const Interfaces interfaces = choose_interfaces(out, scratch);
  for (std::size_t first = begin; first < end; first += settings_.events_per_kernel) {
    const std::size_t n_events = std::min(settings_.events_per_kernel, end - first);
    const auto before = Clock::now();
    scratch.input.clear();
    for (std::size_t each = 0; each < n_events; ++each) {
      names_.select(events, first + each, scratch.selection);
      scratch.input.add(scratch.selection, each);
      out.counters.filters += names_.n_filters(scratch.selection);
      out.counters.cells += scratch.selection.visits.size();
      for (const NameSelection::Line& line : scratch.selection.lines) {
        out.counters.bits += line.end - line.begin;
      }
    }
    scratch.input.finish();
    scratch.times.input_ns += std::chrono::nanoseconds(Clock::now() - before).count();
    const bool has_work = scratch.input.n_lines() > 0;
    if (has_work) run(interfaces, n_events, scratch);
    for (std::size_t each = 0; each < n_events; ++each) {
      out.begin_event();
      const Interfaces none{interfaces.are_targets, 0, 0, nullptr};
      collect(scratch.found.data() + each * interfaces.stride, has_work ? interfaces : none, events,
              first + each, scratch, out);
    }
  }
}

std::size_t whole(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine ccm must be a whole number, not " + std::to_string(value));
  }
  return static_cast<std::size_t>(value);
}

}  // namespace

std::unique_ptr<Index> build_ccm(std::shared_ptr<const FilterTable> table,
                                 const Parameters& parameters) {
  for (FilterIdx idx = 0; idx < table->size(); ++idx) {
    const std::uint32_t n_constraints = table->filter(idx).constraints.count;
    if (n_constraints > kCcmMostConstraints) {
      throw ArgumentError("a filter of engine ccm must have at most 15 constraints, not " +
                          std::to_string(n_constraints));
    }
  }
  Settings settings;
  settings.names = {.name_vector_bits = whole(parameters, "name_vector_bits"),
                    .has_filter_selection = whole(parameters, "filter_selection") != 0,
                    .n_most_counted = kCcmMostConstraints};
  settings.has_stream = whole(parameters, "stream") != 0;
  settings.events_per_kernel = whole(parameters, "events_per_kernel");
  return std::make_unique<CcmIndex>(std::move(table), settings);
}

CcmTimes ccm_times(const Scratch& scratch) { return static_cast<const CcmScratch&>(scratch).times; }

}  // namespace tamis
