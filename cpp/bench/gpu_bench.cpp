// Latency and breakdown of the papers' GPU engines on their default workloads, as 000 table 4 and
// figure 14 and 003 figure 6 have them, and HEM beside its twin on the CPU; then our engines, from
// packed events in pinned memory to pairs in pinned memory, beside what the bus alone takes:
// `tamis_gpu_bench [share of the workload] [papers | ours | an engine]`.
//
// Workloads are drawn as `pcm-default`, `clcb-default` and `hem-default` of tamis.workloads are, by
// this file: where the GPU is, PyArrow may not be. Every answer is compared with that of `naive`.
// Times are of encoded events to collected targets, medians over single events.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numbers>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "common/placed_filter.hpp"
#include "cuda/block_bitmap_cuda.hpp"
#include "cuda/ccm.hpp"
#include "cuda/clcb_cuda.hpp"
#include "cuda/spatial_grid_cuda.hpp"
#include "cuda/tuple_key_cuda.hpp"
#include "engines/block_bitmap.hpp"
#include "tamis/ast.hpp"
#include "tamis/collector.hpp"
#include "tamis/engine.hpp"
#include "tamis/normal_form.hpp"

namespace tamis {
namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

struct Workload {
  std::string name;
  std::shared_ptr<FilterTable> table = std::make_shared<FilterTable>(Space::plane);
  std::vector<std::uint32_t> slot_of, target_of;
  std::size_t n_targets = 0;
  EventBatch events;
  std::vector<std::vector<std::uint32_t>> expected;  // of naive, by event
};

class Writer {
 public:
  explicit Writer(Workload& workload) : workload_(workload) {
    for (int name = 0; name < 100; ++name) names_.intern("a" + std::to_string(name));
  }
  void add(const std::string& filter, std::uint32_t target) {
    parse(filter, ast_);
    workload_.table->append(to_normal_form(ast_), names_);
    workload_.slot_of.push_back(static_cast<std::uint32_t>(workload_.slot_of.size()));
    workload_.target_of.push_back(target);
  }

 private:
  Workload& workload_;
  Catalogue names_;
  Ast ast_;
};

std::vector<std::size_t> distinct(Random& random, std::size_t count, std::size_t limit) {
  std::vector<std::size_t> all(limit);
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (std::size_t at = 0; at < count; ++at)
    std::swap(all[at], all[at + below(random, limit - at)]);
  all.resize(count);
  return all;
}

// 000 table 1.
Workload pcm_default(double share) {
  Workload all;
  all.name = "pcm-default";
  all.n_targets = 10;
  Random random(1);
  const char* const operators[] = {" = ", " != ", " < ", " > "};
  Writer writer(all);
  const auto n_filters = static_cast<std::size_t>(250'000 * share);
  for (std::size_t filter = 0; filter < n_filters; ++filter) {
    std::string text;
    for (const std::size_t name : distinct(random, 3 + below(random, 3), 100)) {
      text += (text.empty() ? "a" : " AND a") + std::to_string(name) + operators[below(random, 4)] +
              std::to_string(below(random, 100));
    }
    writer.add(text, static_cast<std::uint32_t>(filter % 10));
  }
  all.events.n_known = 100;
  const std::size_t n_events = share > 1 ? 50 : 1000;  // naive answers them all
  for (std::size_t event = 0; event < n_events; ++event) {
    for (const std::size_t name : distinct(random, 3 + below(random, 3), 100)) {
      all.events.add(static_cast<AttributeId>(name),
                     EventValue::of(static_cast<std::int64_t>(below(random, 100))));
    }
    all.events.end_event();
  }
  return all;
}

// Places in the unit square: uniform, or around 1,000 hot spots that are popular by Zipf's law.
class Places {
 public:
  explicit Places(bool is_zipf) {
    Random random(5);
    std::vector<double> weights;
    for (int spot = 0; is_zipf && spot < 1000; ++spot) {
      spots_.push_back({uniform_(random), uniform_(random)});
      weights.push_back(1.0 / (spot + 1));
    }
    popular_ = std::discrete_distribution<std::size_t>(weights.begin(), weights.end());
  }
  // Floats, so that packed events have them exactly.
  std::pair<float, float> operator()(Random& random) {
    if (spots_.empty()) {
      const auto x = static_cast<float>(uniform_(random));
      return {x, static_cast<float>(uniform_(random))};
    }
    const auto& [x, y] = spots_[popular_(random)];
    const auto near = [&](double at) {
      return static_cast<float>(std::clamp(at + 0.05 * normal_(random), 0.0, 1.0));
    };
    const float near_x = near(x);
    return {near_x, near(y)};
  }

 private:
  std::uniform_real_distribution<double> uniform_{0, 1};
  std::normal_distribution<double> normal_{0, 1};
  std::discrete_distribution<std::size_t> popular_;
  std::vector<std::pair<double, double>> spots_;
};

// 003 table 1; `always`: content that every event has and every filter accepts, figure 6(b).
Workload clcb_default(double share, bool always, bool is_zipf = false, std::size_t n_radii = 1) {
  Workload all;
  all.name = std::string(always ? "clcb-always" : "clcb-default") +
             (is_zipf ? ", Zipf positions" : "") + (n_radii > 1 ? ", several radii" : "");
  Places places(is_zipf);
  const auto n_subscriptions = static_cast<std::size_t>(250'000 * share);
  all.n_targets = n_subscriptions;
  Random random(2);
  const double radius = std::sqrt(0.0001 / std::numbers::pi);
  Writer writer(all);
  for (std::size_t filter = 0; filter < 10 * n_subscriptions; ++filter) {
    const auto [x, y] = places(random);
    // One radius, or that one, half of it and twice.
    const double of_size[] = {1, 0.5, 2};
    std::string text = "NEAR(" + std::to_string(x) + ", " + std::to_string(y) + ", " +
                       std::to_string(radius * of_size[filter % n_radii]) + ")";
    const std::size_t group = always ? 0 : below(random, 20);
    for (const std::size_t name : distinct(random, 3 + below(random, 3), 5)) {
      text += " AND a" + std::to_string(5 * group + name);
      const std::string value = std::to_string(below(random, 100));
      const std::size_t kind = below(random, 10);
      text += always ? " >= 0"
                     : (kind == 0  ? " = "
                        : kind < 6 ? " != "
                        : kind < 8 ? " < "
                                   : " > ") +
                           value;
    }
    writer.add(text, static_cast<std::uint32_t>(filter / 10));
  }
  all.events.n_known = 100;
  for (std::size_t event = 0; event < 200; ++event) {
    const std::size_t group = always ? 0 : below(random, 20);
    for (const std::size_t name : distinct(random, always ? 5 : 3 + below(random, 3), 5)) {
      all.events.add(static_cast<AttributeId>(5 * group + name),
                     EventValue::of(static_cast<std::int64_t>(below(random, 100))));
    }
    const auto [x, y] = places(random);
    all.events.add_position(x, y);
    all.events.end_event();
  }
  return all;
}

// 002 table 2.
Workload hem_default(double share) {
  Workload all;
  all.name = "hem-default";
  const auto n_filters = static_cast<std::size_t>(1'000'000 * share);
  all.n_targets = n_filters;
  Random random(3);
  Writer writer(all);
  for (std::size_t filter = 0; filter < n_filters; ++filter) {
    std::string text;
    for (const std::size_t name : distinct(random, 10, 20)) {
      const std::size_t low = 1 + below(random, 700'000);
      text += (text.empty() ? "a" : " AND a") + std::to_string(name) + " BETWEEN " +
              std::to_string(low) + " AND " + std::to_string(low + 300'000);
    }
    writer.add(text, static_cast<std::uint32_t>(filter));
  }
  all.events.n_known = 100;
  for (std::size_t event = 0; event < 200; ++event) {
    for (AttributeId name = 0; name < 20; ++name) {
      all.events.add(name, EventValue::of(static_cast<std::int64_t>(1 + below(random, 1'000'000))));
    }
    all.events.end_event();
  }
  return all;
}

class Run {
 public:
  Run(const Workload& workload, const char* engine, const Parameters& given) : workload_(workload) {
    const Engine& found = find_engine(engine);
    const auto before = Clock::now();
    index_ = found.build(workload.table, complete_parameters(found, given));
    build_s_ = std::chrono::duration<double>(Clock::now() - before).count();
    scratch_ = index_->make_scratch();
  }

  // µs for the events from `begin` to `end` in one call.
  double match(std::size_t begin, std::size_t end) {
    const auto before = Clock::now();
    Collector::Setup setup;
    setup.slot_of = workload_.slot_of.data();
    setup.target_of = workload_.target_of.data();
    setup.targets_id = 2;
    setup.n_targets = workload_.n_targets;
    Collector out(setup, stamps_, buffers_);
    index_->match(workload_.events, begin, end, *scratch_, out);
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - before).count();
    for (std::size_t event = 0; event < end - begin; ++event) {
      std::vector<std::uint32_t> targets(out.targets().begin() + out.begin(event),
                                         out.targets().begin() + out.end(event));
      std::sort(targets.begin(), targets.end());
      found_.push_back(std::move(targets));
    }
    return us;
  }
  std::vector<std::vector<std::uint32_t>> take_found() { return std::exchange(found_, {}); }
  const Scratch& scratch() const { return *scratch_; }
  double build_s() const { return build_s_; }
  double n_mb() const { return static_cast<double>(index_->n_bytes()) / 1e6; }

 private:
  const Workload& workload_;
  std::unique_ptr<Index> index_;
  std::unique_ptr<Scratch> scratch_;
  Stamps stamps_;
  CollectorBuffers buffers_;
  std::vector<std::vector<std::uint32_t>> found_;
  double build_s_ = 0;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void verify(const Workload& workload, Run& run, const char* what) {
  if (run.take_found() == workload.expected) return;
  std::printf("%s: WRONG ANSWERS\n", what);
  std::exit(1);
}

void expect(Workload& workload) {
  Run naive(workload, "naive", {});
  naive.match(0, workload.events.size());
  workload.expected = naive.take_found();
  std::size_t n_targets = 0;
  for (const auto& each : workload.expected) n_targets += each.size();
  std::printf("\n%s: %zu filters, %zu constraints, %zu events, %.2f targets an event\n",
              workload.name.c_str(), workload.table->size(), workload.table->n_constraints(),
              workload.events.size(),
              static_cast<double>(n_targets) / static_cast<double>(workload.events.size()));
}

std::string shown(const Parameters& parameters) {
  std::string all;
  for (const auto& [name, value] : parameters) {
    all += " " + name + "=" + std::to_string(static_cast<int>(value));
  }
  return all;
}

// Single events, median; then all in one call.
std::unique_ptr<Run> measure(const Workload& workload, const char* engine,
                             const Parameters& given) {
  auto run = std::make_unique<Run>(workload, engine, given);
  const std::size_t n_events = workload.events.size();
  std::vector<double> singles, batches;
  for (int round = 0; round < 4; ++round) {
    for (std::size_t event = 0; event < n_events; ++event) {
      const double us = run->match(event, event + 1);
      if (round > 0) singles.push_back(us);
    }
    verify(workload, *run, engine);
    batches.push_back(run->match(0, n_events) / static_cast<double>(n_events));
    verify(workload, *run, engine);
  }
  std::printf("%-10s single %8.2f us  batch %8.2f us/event  build %5.2f s  %6.1f MB %s\n", engine,
              median(singles), median(batches), run->build_s(), run->n_mb(), shown(given).c_str());
  std::fflush(stdout);
  return run;
}

template <typename... Steps>
void print_steps(double n_events, Steps... steps) {
  const auto print = [&](const char* name, std::int64_t ns) {
    std::printf("   %s %.2f", name, static_cast<double>(ns) / n_events / 1000);
  };
  (print(steps.first, steps.second), ...);
  std::printf("   us, mean of single events\n");
}
using Step = std::pair<const char*, std::int64_t>;

void bench_ccm(double share) {
  Workload workload = pcm_default(share);
  expect(workload);
  measure(workload, "ocm", {});
  for (const double selection : {1, 0}) {
    for (const double n_events : {1, 2, 4, 8, 16, 32}) {
      measure(workload, "ccm", {{"filter_selection", selection}, {"events_per_kernel", n_events}});
    }
    const Parameters waiting{{"filter_selection", selection}, {"stream", 0}};
    Run run(workload, "ccm", waiting);
    CcmTimes before;
    for (int round = 0; round < 2; ++round) {
      before = ccm_times(run.scratch());
      for (std::size_t event = 0; event < workload.events.size(); ++event) {
        run.match(event, event + 1);
      }
      verify(workload, run, "ccm");
    }
    const CcmTimes times = ccm_times(run.scratch());
    std::printf("ccm steps%s\n", shown(waiting).c_str());
    print_steps(static_cast<double>(workload.events.size()),
                Step{"input", times.input_ns - before.input_ns},
                Step{"copy input", times.copy_input_ns - before.copy_input_ns},
                Step{"kernel", times.kernel_ns - before.kernel_ns},
                Step{"copy results", times.copy_results_ns - before.copy_results_ns},
                Step{"reset", times.reset_ns - before.reset_ns});
  }
}

void bench_clcb(double share, bool always) {
  Workload workload = clcb_default(share, always);
  expect(workload);
  measure(workload, "clcb", {});
  measure(workload, "clcb-cuda", {});
  measure(workload, "clcb-cuda", {{"stream", 0}});
  Run run(workload, "clcb-cuda", {{"stream", 0}});
  ClcbTimes before;
  for (int round = 0; round < 2; ++round) {
    before = clcb_times(run.scratch());
    for (std::size_t event = 0; event < workload.events.size(); ++event) {
      run.match(event, event + 1);
    }
    verify(workload, run, "clcb-cuda");
  }
  const ClcbTimes times = clcb_times(run.scratch());
  std::printf("clcb-cuda steps stream=0\n");
  print_steps(static_cast<double>(workload.events.size()),
              Step{"copy input", times.copy_input_ns - before.copy_input_ns},
              Step{"Loc", times.loc_ns - before.loc_ns},
              Step{"Cont", times.cont_ns - before.cont_ns},
              Step{"Zip", times.zip_ns - before.zip_ns},
              Step{"copy results", times.copy_results_ns - before.copy_results_ns});
}

void bench_hem(double share) {
  Workload workload = hem_default(share);
  expect(workload);
  for (const double are_joined : {1, 0}) {
    measure(workload, "hem", {{"joined_ends", are_joined}});
    measure(workload, "hem-cuda", {{"joined_ends", are_joined}});
  }
}

// Packed events, five cells of four bytes each, in pinned memory, cell after cell.
class PackedEvents {
 public:
  static constexpr std::uint32_t kWidth = 5;
  PackedEvents(const EventBatch& sample, std::size_t n_events)
      : stride_(n_events), cells_(kWidth * n_events) {
    Random random(7);
    for (std::size_t event = 0; event < n_events; ++event) {
      const bool is_sample = event < sample.size();
      std::uint32_t cells[kWidth];
      std::fill_n(cells, kWidth, cuda::NumberEvents::kNoCell);
      if (is_sample) {
        for (std::uint64_t at = sample.offsets[event]; at < sample.offsets[event + 1]; ++at) {
          cells[at - sample.offsets[event]] =
              sample.attributes[at] << 16 | static_cast<std::uint32_t>(sample.values[at].nearest);
        }
      }
      const std::size_t n_names = is_sample ? 0 : 3 + below(random, 3);
      for (std::size_t at = 0; at < n_names;) {
        const auto name = static_cast<std::uint32_t>(below(random, 100));
        const auto is_name = [&](std::uint32_t cell) { return cell >> 16 == name; };
        if (std::any_of(cells, cells + at, is_name)) continue;
        cells[at++] = name << 16 | static_cast<std::uint32_t>(below(random, 100));
      }
      for (std::size_t at = 0; at < kWidth; ++at) cells_.data()[at * n_events + event] = cells[at];
    }
  }
  const std::uint32_t* data() const { return cells_.data(); }
  std::size_t stride() const { return stride_; }
  std::size_t n_bytes(std::size_t n_events) const { return n_events * kWidth * 4; }

 private:
  std::size_t stride_;
  cuda::PinnedArray<std::uint32_t> cells_;
};

// Ways from packed events to pairs.
class PackedRun {
 public:
  PackedRun(const cuda::TupleKeyOnDevice& index, const PackedEvents& events, std::size_t n_most)
      : index_(index), events_(events), cells_there_(PackedEvents::kWidth * n_most) {}

  // The kernel reads pinned memory.
  void direct(std::size_t n_events) { match(events_.data(), n_events, kMostPart, false); }
  // All events are on the device.
  void on_device(std::size_t n_events) { match(cells_there_.data(), n_events, kMostPart, false); }
  // Copied there in parts, each matched while the next is on its way.
  void in_parts(std::size_t n_events) {
    match(cells_there_.data(), n_events, std::clamp(n_events / 8, kLeastPart, kMostPart), true);
  }
  void copy_only(std::size_t n_events) {
    copy(0, n_events, copies_);
    cuda::synchronize(copies_);
  }
  std::size_t n_pairs() const { return counts_.data()->n_pairs; }
  std::span<const cuda::MatchPair> pairs() const { return {pairs_.data(), n_pairs()}; }

 private:
  static constexpr std::size_t kMostPairs = std::size_t{1} << 25;
  static constexpr std::size_t kLeastPart = std::size_t{1} << 18;
  static constexpr std::size_t kMostPart = std::size_t{1} << 19;

  void match(const std::uint32_t* cells, std::size_t n_events, std::size_t n_part, bool copies) {
    buffers_.begin(stream_);
    std::size_t part = 0;
    for (std::size_t first = 0; first < n_events; first += n_part, ++part) {
      const std::size_t n = std::min(n_part, n_events - first);
      if (copies) {
        copy(first, n, copies_);
        cuda::record(marks_[part % std::size(marks_)], copies_);
        cuda::wait_for(marks_[part % std::size(marks_)], stream_);
      }
      cuda::NumberEvents events;
      events.cells = cells;
      events.n_cells = PackedEvents::kWidth;
      events.stride = static_cast<std::uint32_t>(events_.stride());
      events.first_event = static_cast<std::uint32_t>(first);
      events.n_events = static_cast<std::uint32_t>(n);
      buffers_.match(index_, events, stream_);
      buffers_.bring({pairs_.data(), left_.data(), counts_.data()}, stream_);
    }
    cuda::synchronize(stream_);
    const std::size_t n_left = counts_.data()->n_left;
    if (n_left == 0 && n_pairs() <= kMostPairs) return;
    std::printf("tuple-key-cuda: %zu events are left, %zu pairs\n", n_left, n_pairs());
    std::exit(1);
  }
  void copy(std::size_t first, std::size_t n_events, void* stream) {
    cuda::copy_rows_to_device(cells_there_.data() + first, events_.data() + first,
                              events_.stride() * 4, n_events * 4, PackedEvents::kWidth, stream);
  }

  const cuda::TupleKeyOnDevice& index_;
  const PackedEvents& events_;
  cuda::OwnStream stream_, copies_;
  cuda::OwnMark marks_[8];
  cuda::DeviceArray<std::uint32_t> cells_there_;
  cuda::TupleKeyBuffers buffers_{kMostPart, std::size_t{1} << 24, kMostPairs};
  cuda::PinnedArray<cuda::MatchPair> pairs_{kMostPairs};
  cuda::PinnedArray<std::uint32_t> left_{1 << 24};
  cuda::PinnedArray<cuda::MatchCounts> counts_{1};
};

// Events of clcb-default: five cells of four bytes and a position of two floats, in pinned memory.
struct PackedPlacedEvents {
  static constexpr std::uint32_t kWidth = 5;
  static constexpr std::size_t kBytes = 4 * kWidth + 8;
  std::size_t stride;
  cuda::PinnedArray<std::uint32_t> cells;
  cuda::PinnedArray<float> positions;

  PackedPlacedEvents(const EventBatch& sample, std::size_t n_events, bool is_zipf)
      : stride(n_events), cells(kWidth * n_events), positions(2 * n_events) {
    Random random(8);
    Places places(is_zipf);
    for (std::size_t event = 0; event < n_events; ++event) {
      std::pair<float, float> at = places(random);
      for (std::size_t cell = 0; cell < kWidth; ++cell) {
        cells.data()[cell * stride + event] = cuda::NumberEvents::kNoCell;
      }
      const auto add = [&](std::size_t cell, std::size_t name, std::size_t value) {
        cells.data()[cell * stride + event] = static_cast<std::uint32_t>(name << 16 | value);
      };
      if (event < sample.size()) {
        at = {static_cast<float>(sample.x[event]), static_cast<float>(sample.y[event])};
        for (std::uint64_t cell = sample.offsets[event]; cell < sample.offsets[event + 1]; ++cell) {
          add(cell - sample.offsets[event], sample.attributes[cell],
              static_cast<std::size_t>(sample.values[cell].nearest));
        }
      } else {
        const std::size_t group = below(random, 20), n_names = 3 + below(random, 3);
        const std::size_t first = below(random, 5);
        for (std::size_t cell = 0; cell < n_names; ++cell) {
          add(cell, 5 * group + (first + cell) % 5, below(random, 100));
        }
      }
      positions.data()[2 * event] = at.first;
      positions.data()[2 * event + 1] = at.second;
    }
  }
};

// From packed events to pairs, as PackedRun does it.
class GridRun {
 public:
  GridRun(cuda::GridOnDevice& index, const PackedPlacedEvents& events)
      : index_(index),
        events_(events),
        cells_(events.cells.size()),
        positions_(events.positions.size()) {}

  void direct(std::size_t n_events) {
    match(events_.cells.data(), events_.positions.data(), n_events, kMostPart, false);
  }
  void on_device(std::size_t n_events) {
    match(cells_.data(), positions_.data(), n_events, kMostPart, false);
  }
  void in_parts(std::size_t n_events) {
    match(cells_.data(), positions_.data(), n_events,
          std::clamp(n_events / 8, kLeastPart, kMostPart), true);
  }
  void copy_only(std::size_t n_events) {
    copy(0, n_events, copies_);
    cuda::synchronize(copies_);
  }
  void move_all(const float* places) {
    index_.move_all(places, stream_);
    cuda::synchronize(stream_);
  }
  std::size_t n_pairs() const { return found_.n_pairs(); }
  std::vector<std::vector<std::uint32_t>> of_first(std::size_t n_events) const {
    std::vector<std::vector<std::uint32_t>> all(n_events);
    for (std::size_t at = 0; at < n_pairs(); ++at) {
      const cuda::MatchPair& pair = found_.pinned().pairs[at];
      if (pair.event < n_events) all[pair.event].push_back(pair.filter);
    }
    for (auto& each : all) std::sort(each.begin(), each.end());
    return all;
  }

 private:
  static constexpr std::size_t kMostPairs = std::size_t{1} << 26;
  static constexpr std::size_t kLeastPart = std::size_t{1} << 16;
  static constexpr std::size_t kMostPart = std::size_t{1} << 17;

  void match(const std::uint32_t* cells, const float* positions, std::size_t n_events,
             std::size_t n_part, bool copies) {
    buffers_.begin(stream_);
    std::size_t part = 0;
    for (std::size_t first = 0; first < n_events; first += n_part, ++part) {
      const std::size_t n = std::min(n_part, n_events - first);
      if (copies) {
        copy(first, n, copies_);
        cuda::record(marks_[part % std::size(marks_)], copies_);
        cuda::wait_for(marks_[part % std::size(marks_)], stream_);
      }
      cuda::NumberEvents events;
      events.cells = cells;
      events.n_cells = PackedPlacedEvents::kWidth;
      events.stride = static_cast<std::uint32_t>(events_.stride);
      events.flat_positions = positions;
      events.first_event = static_cast<std::uint32_t>(first);
      events.n_events = static_cast<std::uint32_t>(n);
      buffers_.match(index_, events, stream_);
      buffers_.bring(found_.pinned(), stream_);
    }
    cuda::synchronize(stream_);
    const cuda::MatchCounts& counts = *found_.pinned().counts;
    if (found_.is_whole() && counts.n_left == 0) return;
    std::printf("spatial-grid-cuda: %zu events are left, %zu pairs, %zu lost\n",
                static_cast<std::size_t>(counts.n_left), n_pairs(),
                static_cast<std::size_t>(counts.n_lost));
    std::exit(1);
  }
  void copy(std::size_t first, std::size_t n_events, void* stream) {
    cuda::copy_rows_to_device(cells_.data() + first, events_.cells.data() + first,
                              events_.stride * 4, n_events * 4, PackedPlacedEvents::kWidth, stream);
    cuda::copy_to_device(positions_.data() + 2 * first, events_.positions.data() + 2 * first,
                         n_events * 8, stream);
  }

  cuda::GridOnDevice& index_;
  const PackedPlacedEvents& events_;
  cuda::OwnStream stream_, copies_;
  cuda::OwnMark marks_[8];
  cuda::DeviceArray<std::uint32_t> cells_;
  cuda::DeviceArray<float> positions_;
  cuda::GridBuffers buffers_{kMostPart, std::size_t{1} << 24, kMostPairs};
  cuda::FoundPairs found_{std::size_t{1} << 24, kMostPairs};
};

template <typename Work>
double median_us(Work work, int n_rounds = 15) {
  std::vector<double> all;
  for (int round = 0; round < n_rounds; ++round) {
    const auto begin = Clock::now();
    work();
    all.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return median(all);
}

void bench_spatial_grid(double share, bool is_zipf, std::size_t n_radii, std::size_t n_most) {
  Workload workload = clcb_default(share, false, is_zipf, n_radii);
  workload.target_of = workload.slot_of;
  workload.n_targets = workload.slot_of.size();
  expect(workload);
  const auto before = Clock::now();
  cuda::GridOnDevice index(*workload.table, {});
  std::printf("spatial-grid-cuda build %.2f s  %.1f MB\n",
              std::chrono::duration<double>(Clock::now() - before).count(),
              static_cast<double>(index.n_bytes()) / 1e6);
  const PackedPlacedEvents events(workload.events, n_most, is_zipf);
  GridRun run(index, events);
  const auto check = [&](const std::vector<std::vector<std::uint32_t>>& expected) {
    if (run.of_first(expected.size()) == expected) return;
    std::printf("spatial-grid-cuda: WRONG ANSWERS\n");
    std::exit(1);
  };
  run.direct(workload.events.size());
  check(workload.expected);
  run.in_parts(n_most);
  check(workload.expected);
  for (std::size_t n = 1; n <= n_most; n *= 10) {
    const double direct = median_us([&] { run.direct(n); });
    const double in_parts = median_us([&] { run.in_parts(n); });
    const double bus = median_us([&] { run.copy_only(n); });
    const double kernel = median_us([&] { run.on_device(n); });
    const auto rate = [&](double of) { return static_cast<double>(n) / of; };
    std::printf(
        "%9zu events  direct %9.1f us %8.1f M/s   in parts %8.1f M/s   on device %8.1f M/s   "
        "bus %8.1f M/s (%.1f GB/s)  pairs %zu  of the bus %.0f %%\n",
        n, direct, rate(direct), rate(in_parts), rate(kernel), rate(bus),
        static_cast<double>(PackedPlacedEvents::kBytes * n) / bus / 1e3, run.n_pairs(),
        100 * bus / std::min(direct, in_parts));
    std::fflush(stdout);
  }
  // Everybody somewhere else.
  const cuda::PinnedArray<float> places(2 * index.n_places());
  Random random(9);
  Places draw(is_zipf);
  for (std::size_t place = 0; place < index.n_places(); ++place) {
    std::tie(places.data()[2 * place], places.data()[2 * place + 1]) = draw(random);
  }
  const double all = median_us([&] { run.move_all(places.data()); });
  std::printf("%zu areas moved and indexed again in %.1f us, %.1f GB/s of new places\n",
              index.n_places(), all, static_cast<double>(8 * index.n_places()) / all / 1e3);
  std::fflush(stdout);
  run.direct(workload.events.size());
  std::vector<std::vector<std::uint32_t>> expected(workload.events.size());
  ValueByAttribute values;
  const FilterTable& table = *workload.table;
  for (std::size_t event = 0; event < expected.size(); ++event) {
    values.load(workload.events, event, table.n_attributes(), Space::plane);
    for (FilterIdx filter = 0; filter < table.size(); ++filter) {
      const Point centre{places.data()[2 * std::size_t{filter}],
                         places.data()[2 * std::size_t{filter} + 1], 0};
      if (!is_within(values.position(), centre,
                     table.area(table.filter(filter).areas.first).limit)) {
        continue;
      }
      std::uint64_t n_evaluated = 0;
      if (accepts_content(table, table.filter(filter), values, 0, 1, n_evaluated)) {
        expected[event].push_back(filter);
      }
    }
  }
  check(expected);
}

void bench_tuple_key(double share, std::size_t n_most) {
  Workload workload = pcm_default(share);
  workload.target_of = workload.slot_of;
  workload.n_targets = workload.slot_of.size();
  expect(workload);
  const auto before = Clock::now();
  const cuda::TupleKeyOnDevice index(*workload.table);
  std::printf(
      "tuple-key-cuda build %.2f s  %.1f MB, %.1f bytes a constraint\n",
      std::chrono::duration<double>(Clock::now() - before).count(),
      static_cast<double>(index.n_bytes()) / 1e6,
      static_cast<double>(index.n_bytes()) / static_cast<double>(workload.table->n_constraints()));
  const PackedEvents events(workload.events, n_most);
  PackedRun run(index, events, n_most);
  const auto check = [&](void (PackedRun::*way)(std::size_t), std::size_t n_events) {
    (run.*way)(n_events);
    std::vector<std::vector<std::uint32_t>> found(workload.events.size());
    for (const cuda::MatchPair& pair : run.pairs()) {
      if (pair.event < found.size()) found[pair.event].push_back(pair.filter);
    }
    for (auto& each : found) std::sort(each.begin(), each.end());
    if (found == workload.expected) return;
    std::printf("tuple-key-cuda: WRONG ANSWERS\n");
    std::exit(1);
  };
  check(&PackedRun::direct, workload.events.size());
  check(&PackedRun::in_parts, n_most);
  check(&PackedRun::direct, n_most);
  for (std::size_t n = 1; n <= n_most; n *= 10) {
    const auto us = [&](void (PackedRun::*way)(std::size_t)) {
      return median_us([&] { (run.*way)(n); });
    };
    const double direct = us(&PackedRun::direct), in_parts = us(&PackedRun::in_parts);
    const double bus = us(&PackedRun::copy_only), kernel = us(&PackedRun::on_device);
    const auto rate = [&](double of) { return static_cast<double>(n) / of; };
    std::printf(
        "%9zu events  direct %9.1f us %8.1f M/s   in parts %8.1f M/s   on device %8.1f M/s   "
        "bus %8.1f M/s (%.1f GB/s)  pairs %zu  of the bus %.0f %%\n",
        n, direct, rate(direct), rate(in_parts), rate(kernel), rate(bus),
        static_cast<double>(events.n_bytes(n)) / bus / 1e3, run.n_pairs(),
        100 * bus / std::min(direct, in_parts));
    std::fflush(stdout);
  }
}

// Events of hem-default in pinned memory: the given ones, then others drawn alike; and ways from
// them to pairs in pinned memory.
class BlockBitmapRun {
 public:
  static constexpr std::size_t kWidth = 20;  // attributes of each event

  BlockBitmapRun(const cuda::BlockBitmapOnDevice& index, const EventBatch& sample,
                 std::size_t n_most)
      : index_(index), here_(n_most), there_(n_most) {
    Random random(8);
    for (std::size_t event = 0; event <= n_most; ++event) {
      here_.offsets.data()[event] = static_cast<std::uint32_t>(event * kWidth);
    }
    for (std::size_t at = 0; at < n_most * kWidth; ++at) {
      const std::size_t event = at / kWidth;
      here_.attributes.data()[at] = static_cast<std::uint32_t>(at % kWidth);
      here_.values.data()[at] = event < sample.size()
                                    ? sample.values[sample.offsets[event] + at % kWidth].nearest
                                    : static_cast<double>(1 + below(random, 1'000'000));
    }
  }

  // Kernels read pinned memory.
  void direct(std::size_t n_events) { match(here_, n_events, n_part(n_events), false); }
  // All events are on the device; copy_only() has been called for them.
  void on_device(std::size_t n_events) { match(there_, n_events, n_part(n_events), false); }
  // Copied there in parts, each matched while the next is on its way.
  void in_parts(std::size_t n_events) { match(there_, n_events, n_part(n_events), true); }
  void copy_only(std::size_t n_events) {
    copy(0, n_events);
    cuda::synchronize(copies_);
  }
  static std::size_t n_bytes(std::size_t n_events) {
    return n_events * (4 + kWidth * (4 + sizeof(double)));
  }
  std::span<const cuda::MatchPair> pairs() const {
    return {pairs_.data(), counts_.data()->n_pairs};
  }

  // Of one launch with its events on the device: µs of each step, with a wait after each.
  void print_steps(std::size_t n_events) {
    copy_only(n_events);
    std::vector<std::pair<const char*, double>> steps;
    for (int round = 0; round < 3; ++round) {
      steps.clear();
      buffers_.begin(stream_);
      cuda::synchronize(stream_);
      auto before = Clock::now();
      const auto after = [&](const char* name) {
        cuda::synchronize(stream_);
        const auto now = Clock::now();
        steps.emplace_back(name, std::chrono::duration<double, std::micro>(now - before).count());
        before = now;
      };
      buffers_.match(index_, events_of(there_, 0, n_events), stream_, after);
      buffers_.bring({pairs_.data(), left_.data(), counts_.data()}, stream_);
      after("bring");
    }
    std::printf("%9zu events, one launch:", n_events);
    for (const auto& [name, us] : steps) std::printf("   %s %.1f us", name, us);
    std::printf("\n");
  }
  std::size_t most_events() const { return most_events_; }

 private:
  static constexpr std::size_t kMostPairs = std::size_t{1} << 25;

  template <template <typename> typename Array>
  struct Events {
    explicit Events(std::size_t n_events)
        : offsets(n_events + 1), attributes(kWidth * n_events), values(kWidth * n_events) {}
    Array<std::uint32_t> offsets, attributes;
    Array<double> values;
  };
  template <typename Of>
  static cuda::NumberEvents events_of(const Of& of, std::size_t first, std::size_t n_events) {
    cuda::NumberEvents events;
    events.offsets = of.offsets.data();
    events.attributes = of.attributes.data();
    events.values = of.values.data();
    events.first_event = static_cast<std::uint32_t>(first);
    events.n_events = static_cast<std::uint32_t>(n_events);
    return events;
  }
  // Of a launch, all of them alike.
  std::size_t n_part(std::size_t n_events) const {
    const std::size_t n_parts = (n_events + most_events_ - 1) / most_events_;
    return (n_events + n_parts - 1) / n_parts;
  }
  template <typename Of>
  void match(const Of& of, std::size_t n_events, std::size_t n_part, bool copies) {
    buffers_.begin(stream_);
    std::size_t part = 0;
    for (std::size_t first = 0; first < n_events; first += n_part, ++part) {
      const std::size_t n = std::min(n_part, n_events - first);
      if (copies) {
        copy(first, n);
        cuda::record(marks_[part % std::size(marks_)], copies_);
        cuda::wait_for(marks_[part % std::size(marks_)], stream_);
      }
      buffers_.match(index_, events_of(of, first, n), stream_);
      buffers_.bring({pairs_.data(), left_.data(), counts_.data()}, stream_);
    }
    cuda::synchronize(stream_);
    if (counts_.data()->n_left == 0 && counts_.data()->n_pairs <= kMostPairs) return;
    std::printf("block-bitmap-cuda: %zu events are left, %zu pairs\n",
                static_cast<std::size_t>(counts_.data()->n_left),
                static_cast<std::size_t>(counts_.data()->n_pairs));
    std::exit(1);
  }
  void copy(std::size_t first, std::size_t n_events) {
    const auto bring = [&](auto& to, const auto& from, std::size_t begin, std::size_t count) {
      cuda::copy_to_device(to.data() + begin, from.data() + begin, count * sizeof *from.data(),
                           copies_);
    };
    bring(there_.offsets, here_.offsets, first, n_events + 1);
    bring(there_.attributes, here_.attributes, first * kWidth, n_events * kWidth);
    bring(there_.values, here_.values, first * kWidth, n_events * kWidth);
  }

  const cuda::BlockBitmapOnDevice& index_;
  Events<cuda::PinnedArray> here_;
  Events<cuda::DeviceArray> there_;
  cuda::OwnStream stream_, copies_;
  cuda::OwnMark marks_[8];
  std::size_t most_events_ = cuda::BlockBitmapBuffers::most_events(index_);
  cuda::BlockBitmapBuffers buffers_{index_, most_events_, std::size_t{1} << 20, kMostPairs};
  cuda::PinnedArray<cuda::MatchPair> pairs_{kMostPairs};
  cuda::PinnedArray<std::uint32_t> left_{1 << 20};
  cuda::PinnedArray<cuda::MatchCounts> counts_{1};
};

void bench_block_bitmap(double share, std::size_t n_most) {
  Workload workload = hem_default(share);
  expect(workload);
  auto before = Clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(Clock::now() - std::exchange(before, Clock::now()))
        .count();
  };
  const auto lines = build_block_bitmap(workload.table, {{"layout", 1}, {"tuple_size", 3}});
  const double lines_s = seconds();
  const cuda::BlockBitmapOnDevice index(*workload.table, *lines);
  std::printf("block-bitmap-cuda build %.2f s + %.2f s  %.1f MB  %u blocks, %u tuples\n", lines_s,
              seconds(), static_cast<double>(index.n_bytes()) / 1e6, index.view().n_blocks,
              index.view().n_tuples);
  BlockBitmapRun run(index, workload.events, n_most);
  const auto check = [&](void (BlockBitmapRun::*way)(std::size_t), std::size_t n_events) {
    (run.*way)(n_events);
    std::vector<std::vector<std::uint32_t>> found(workload.events.size());
    for (const cuda::MatchPair& pair : run.pairs()) {
      if (pair.event < found.size()) found[pair.event].push_back(pair.filter);
    }
    for (auto& each : found) std::sort(each.begin(), each.end());
    if (found == workload.expected) return;
    std::printf("block-bitmap-cuda: WRONG ANSWERS\n");
    std::exit(1);
  };
  check(&BlockBitmapRun::direct, workload.events.size());
  check(&BlockBitmapRun::in_parts, n_most);
  check(&BlockBitmapRun::direct, n_most);
  check(&BlockBitmapRun::on_device, n_most);
  for (const std::size_t n : {std::size_t{1}, n_most / 100, n_most / 10, n_most}) {
    const auto us = [&](void (BlockBitmapRun::*way)(std::size_t)) {
      std::vector<double> all;
      for (int round = 0; round < 11; ++round) {
        const auto begin = Clock::now();
        (run.*way)(n);
        all.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      }
      return median(all);
    };
    const double direct = us(&BlockBitmapRun::direct), in_parts = us(&BlockBitmapRun::in_parts);
    const double bus = us(&BlockBitmapRun::copy_only), there = us(&BlockBitmapRun::on_device);
    const auto rate = [&](double of) { return static_cast<double>(n) / of; };
    std::printf(
        "%9zu events  direct %9.1f us %7.2f M/s   in parts %9.1f us %7.2f M/s   on device %7.2f "
        "M/s   bus %7.1f M/s (%.1f GB/s)  pairs %zu\n",
        n, direct, rate(direct), in_parts, rate(in_parts), rate(there), rate(bus),
        static_cast<double>(BlockBitmapRun::n_bytes(n)) / bus / 1e3, run.pairs().size());
    std::fflush(stdout);
  }
  for (const std::size_t n : {std::size_t{1}, n_most / 100, std::min(run.most_events(), n_most)}) {
    run.print_steps(n);
  }
}

}  // namespace
}  // namespace tamis

int main(int argc, char** argv) {
  const double share = argc > 1 ? std::atof(argv[1]) : 1;
  const std::string what = argc > 2 ? argv[2] : "";
  const auto is_wanted = [&](const char* group, const char* engine) {
    return what.empty() || what == group || what == engine;
  };
  if (is_wanted("papers", "ccm")) tamis::bench_ccm(share);
  if (is_wanted("papers", "clcb-cuda")) {
    tamis::bench_clcb(share, false);
    tamis::bench_clcb(share, true);
  }
  if (is_wanted("papers", "hem-cuda")) tamis::bench_hem(share);
  if (is_wanted("ours", "tuple-key-cuda")) {
    tamis::bench_tuple_key(share, 10'000'000);
    if (share == 1) tamis::bench_tuple_key(40, 1'000'000);
  }
  if (is_wanted("ours", "block-bitmap-cuda")) tamis::bench_block_bitmap(share, 1'000'000);
  if (is_wanted("ours", "spatial-grid-cuda")) {
    tamis::bench_spatial_grid(share, false, 1, 10'000'000);
    tamis::bench_spatial_grid(share, true, 1, 1'000'000);
    tamis::bench_spatial_grid(share, false, 3, 1'000'000);
  }
}
