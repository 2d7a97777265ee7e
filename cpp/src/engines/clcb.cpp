// `clcb`: location-aware content-based matching (papers/003, section 4), the CPU's twin of the CUDA
// algorithm.
//
// Nothing is indexed by place: every filter is looked at, by kernels so plain that this is fast.
// Loc compares a Bloom filter of names and then a circle, Cont evaluates the constraints of what is
// left, Zip makes subscriptions unique.
//
//     blooms_    u32     names of the filter, `name_bits` bits each            BF
//     circles_   4 × f64 centre and limit, the only thing that a move changes  FPos, SqDist
//     filters_   u32     which filter of the table this is
//
//     ├──── placed: filters with a circle ────┤├─ unplaced ─┤   one numbering for all three;
//     circles_ 0                                  n_placed_          n   ends at n_placed_
//
//     pass over the filters, tile by tile, for up to `events_per_pass` events at a time:
//       tile ─ find_subsets (SIMD) ─► numbers ─ circle, doubles ─► located, one list for each event
//     then, event by event:
//       located ─ constraints, other areas, residuals ─► collector
//
// A placed filter's circle is its smallest area that is not negated; its other areas are verified.
// Unplaced are filters without any, and those with negated areas only.
//
// Invariants: a filter stands in one place; a filter whose names an event lacks may be located (the
// Bloom filter has false positives), one that matches always is.
//
// Cost for an event: n Bloom tests, a circle for each filter that they leave, an evaluation for
// each filter whose circle holds. docs/engines/clcb.md has the formula.
#include "clcb.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/name_blooms.hpp"
#include "common/placed_filter.hpp"
#include "common/simd.hpp"
#include "common/thread_pool.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

// Filters of a tile: 16 KB of Bloom filters, which stay in the first cache while the events of a
// pass take turns on them.
constexpr std::uint32_t kTile = 4096;

struct Circle {
  Point centre;
  double limit = 0;
};

// What Loc needs of an event: the paper's InputBF and InputPos.
struct Input {
  std::uint32_t missing = 0;  // bits that no name of the event sets
  bool has_position = false;
  Point position;
};

// What one thread has found.
struct Worker {
  std::vector<std::uint32_t> named;                 // [kTile] those of a tile whose names fit
  std::vector<std::vector<std::uint32_t>> located;  // [events_per_pass]
  ValueByAttribute event;                           // what Cont needs of one: Attrs
  std::uint64_t n_blooms = 0, n_named = 0, n_located = 0, n_evaluated = 0;
};

class ClcbScratch final : public Scratch {
 public:
  std::vector<Input> inputs;    // [events_per_pass]
  std::vector<Worker> workers;  // [filter_threads]
};

struct Settings {
  std::size_t name_bits = 0;
  std::size_t events_per_pass = 0;
  std::size_t filter_threads = 0;
};

class ClcbIndex final : public Index {
 public:
  ClcbIndex(std::shared_ptr<const FilterTable> table, const Settings& settings)
      : table_(std::move(table)),
        settings_(settings),
        names_(table_->n_attributes(), settings.name_bits) {
    place_filters();
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    auto scratch = std::make_unique<ClcbScratch>();
    scratch->inputs.resize(settings_.events_per_pass);
    scratch->workers.resize(settings_.filter_threads);
    for (Worker& worker : scratch->workers) {
      worker.named.resize(kTile);
      worker.located.resize(settings_.events_per_pass);
    }
    return scratch;
  }

  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;

  std::size_t n_bytes() const override {
    const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
    return sizeof(*this) + names_.n_bytes() + bytes(blooms_) + bytes(circles_) + bytes(filters_);
  }

 private:
  void place_filters();

  void prepare(const EventBatch& events, std::size_t event, Input& input) const;
  void locate(std::uint32_t begin, std::uint32_t end, std::span<const Input> inputs,
              Worker& worker) const;
  void run_task(std::size_t task, const EventBatch& events, std::size_t first_event,
                std::span<const Input> inputs, Worker& worker) const;
  // The kernel Cont, for one filter: its count of constraints that hold ends at the first that
  // does not.
  bool holds(std::uint32_t number, const ValueByAttribute& event,
             std::uint64_t& n_evaluated) const {
    return accepts_content(*table_, table_->filter(filters_[number]), event, 0, number < n_placed_,
                           n_evaluated);
  }

  std::shared_ptr<const FilterTable> table_;
  Settings settings_;
  NameBlooms names_;
  std::uint32_t n_placed_ = 0;
  std::vector<std::uint32_t> blooms_;  // [n_filters]
  std::vector<Circle> circles_;        // [n_placed]
  std::vector<FilterIdx> filters_;     // [n_filters]
};

void ClcbIndex::place_filters() {
  const auto n_filters = static_cast<FilterIdx>(table_->size());
  for (FilterIdx idx = 0; idx < n_filters; ++idx) {
    n_placed_ += smallest_area(*table_, table_->filter(idx)) != kNoArea;
  }
  blooms_.resize(n_filters);
  circles_.resize(n_placed_);
  filters_.resize(n_filters);
  std::uint32_t placed = 0, unplaced = n_placed_;
  for (FilterIdx idx = 0; idx < n_filters; ++idx) {
    const FilterTable::Filter& filter = table_->filter(idx);
    const std::uint32_t area = smallest_area(*table_, filter);
    const std::uint32_t number = area == kNoArea ? unplaced++ : placed++;
    if (area != kNoArea) circles_[number] = {table_->area(area).centre, table_->area(area).limit};
    blooms_[number] = names_.of(*table_, filter);
    filters_[number] = idx;
  }
}

void ClcbIndex::prepare(const EventBatch& events, std::size_t event, Input& input) const {
  input.missing = names_.missing(events, event);
  input.has_position = events.has_position(event);
  if (input.has_position) {
    input.position = to_point(table_->space(), events.x[event], events.y[event]);
  }
}

// The kernel Loc, on filters that are all placed or all unplaced.
void ClcbIndex::locate(std::uint32_t begin, std::uint32_t end, std::span<const Input> inputs,
                       Worker& worker) const {
  const SimdKernels& kernels = simd();
  const bool is_placed = begin < n_placed_;
  std::uint32_t* const named = worker.named.data();
  for (std::uint32_t tile = begin; tile < end; tile += kTile) {
    const std::uint32_t n_filters = std::min(kTile, end - tile);
    for (std::size_t each = 0; each < inputs.size(); ++each) {
      const Input& input = inputs[each];
      if (is_placed && !input.has_position) continue;
      const std::size_t n_named =
          kernels.find_subsets(blooms_.data() + tile, n_filters, input.missing, named);
      worker.n_blooms += n_filters;
      worker.n_named += n_named;
      std::size_t n_located = 0;
      const Point point = input.position;
      for (std::size_t at = 0; at < n_named; ++at) {
        const std::uint32_t number = tile + named[at];
        named[n_located] = number;
        n_located +=
            !is_placed || is_within(point, circles_[number].centre, circles_[number].limit);
      }
      worker.n_located += n_located;
      worker.located[each].insert(worker.located[each].end(), named, named + n_located);
    }
  }
}

// A thread's share of the filters: Loc, and Cont where several threads share them.
void ClcbIndex::run_task(std::size_t task, const EventBatch& events, std::size_t first_event,
                         std::span<const Input> inputs, Worker& worker) const {
  const std::size_t n_tasks = settings_.filter_threads;
  for (std::size_t each = 0; each < inputs.size(); ++each) worker.located[each].clear();
  const auto share = [&](std::uint32_t first, std::uint32_t last) {
    const std::uint64_t size = last - first;
    locate(first + static_cast<std::uint32_t>(size * task / n_tasks),
           first + static_cast<std::uint32_t>(size * (task + 1) / n_tasks), inputs, worker);
  };
  share(0, n_placed_);
  share(n_placed_, static_cast<std::uint32_t>(filters_.size()));
  if (n_tasks == 1) return;
  for (std::size_t each = 0; each < inputs.size(); ++each) {
    if (worker.located[each].empty()) continue;
    worker.event.load(events, first_event + each, table_->n_attributes(), table_->space());
    std::erase_if(worker.located[each], [&](std::uint32_t number) {
      return !holds(number, worker.event, worker.n_evaluated);
    });
  }
}

void ClcbIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                      Scratch& given_scratch, Collector& out) const {
  ClcbScratch& scratch = static_cast<ClcbScratch&>(given_scratch);
  const bool is_shared = settings_.filter_threads > 1;
  for (std::size_t first = begin; first < end; first += settings_.events_per_pass) {
    const std::size_t n_inputs = std::min(settings_.events_per_pass, end - first);
    const std::span<const Input> inputs(scratch.inputs.data(), n_inputs);
    for (std::size_t each = 0; each < n_inputs; ++each) {
      prepare(events, first + each, scratch.inputs[each]);
    }
    if (is_shared) {
      parallel_for(settings_.filter_threads, settings_.filter_threads, [&](std::size_t task) {
        run_task(task, events, first, inputs, scratch.workers[task]);
      });
    } else {
      run_task(0, events, first, inputs, scratch.workers[0]);
    }
    for (std::size_t each = 0; each < n_inputs; ++each) {
      out.begin_event();
      for (Worker& worker : scratch.workers) {
        if (worker.located[each].empty()) continue;
        if (!is_shared) {
          worker.event.load(events, first + each, table_->n_attributes(), table_->space());
        }
        for (const std::uint32_t number : worker.located[each]) {
          const FilterIdx idx = filters_[number];
          if (is_shared || (!out.has(idx) && holds(number, worker.event, worker.n_evaluated))) {
            out.add(idx);
          }
        }
      }
    }
  }
  for (Worker& worker : scratch.workers) {
    out.counters.bits += std::exchange(worker.n_blooms, 0);
    out.counters.filters += std::exchange(worker.n_named, 0);
    out.counters.candidates += std::exchange(worker.n_located, 0);
    out.counters.constraints += std::exchange(worker.n_evaluated, 0);
  }
}

constexpr Parameter kParameters[] = {
    {"name_bits", 2, 1, 8, "bits that a name sets in a Bloom filter of 32"},
    {"events_per_pass", 16, 1, 256, "events that share a pass over the filters"},
    {"filter_threads", 1, 1, 256, "threads that share the filters of one pass"},
};

std::size_t whole(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine clcb must be a whole number, not " + std::to_string(value));
  }
  return static_cast<std::size_t>(value);
}

}  // namespace

constinit const std::span<const Parameter> kClcbParameters = kParameters;

std::unique_ptr<Index> build_clcb(std::shared_ptr<const FilterTable> table,
                                  const Parameters& parameters) {
  const Settings settings{whole(parameters, "name_bits"), whole(parameters, "events_per_pass"),
                          whole(parameters, "filter_threads")};
  return std::make_unique<ClcbIndex>(std::move(table), settings);
}

}  // namespace tamis
