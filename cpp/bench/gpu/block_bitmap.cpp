// block-bitmap-cuda: events of hem-default, 20 attributes and doubles each.
#include "engines/block_bitmap.hpp"

#include "cuda/block_bitmap_cuda.hpp"
#include "parts.hpp"
#include "pinned_run.hpp"

namespace tamis::bench {
namespace {

// In pinned memory and on the device: the given ones, then others drawn alike.
class WideEvents {
 public:
  static constexpr std::size_t kWidth = 20;  // attributes of each event

  WideEvents(const EventBatch& sample, std::size_t n_events) : here_(n_events), there_(n_events) {
    Random random(8);
    for (std::size_t event = 0; event <= n_events; ++event) {
      here_.offsets.data()[event] = static_cast<std::uint32_t>(event * kWidth);
    }
    for (std::size_t at = 0; at < n_events * kWidth; ++at) {
      const std::size_t event = at / kWidth;
      here_.attributes.data()[at] = static_cast<std::uint32_t>(at % kWidth);
      here_.values.data()[at] = event < sample.size()
                                    ? sample.values[sample.offsets[event] + at % kWidth].nearest
                                    : static_cast<double>(1 + below(random, 1'000'000));
    }
  }

  cuda::NumberEvents here(std::size_t first, std::size_t n) const { return here_.view(first, n); }
  cuda::NumberEvents there(std::size_t first, std::size_t n) const { return there_.view(first, n); }
  void copy(std::size_t first, std::size_t n, cuda::Stream stream) const {
    const auto bring = [&](auto& to, const auto& from, std::size_t begin, std::size_t count) {
      cuda::copy_to_device(to.data() + begin, from.data() + begin, count * sizeof *from.data(),
                           stream);
    };
    bring(there_.offsets, here_.offsets, first, n + 1);
    bring(there_.attributes, here_.attributes, first * kWidth, n * kWidth);
    bring(there_.values, here_.values, first * kWidth, n * kWidth);
  }
  static std::size_t n_bytes(std::size_t n_events) {
    return n_events * (4 + kWidth * (4 + sizeof(double)));
  }

 private:
  template <template <typename> typename Array>
  struct Columns {
    explicit Columns(std::size_t n_events)
        : offsets(n_events + 1), attributes(kWidth * n_events), values(kWidth * n_events) {}
    cuda::NumberEvents view(std::size_t first, std::size_t n) const {
      cuda::NumberEvents events;
      events.offsets = offsets.data();
      events.attributes = attributes.data();
      events.values = values.data();
      events.first_event = static_cast<std::uint32_t>(first);
      events.n_events = static_cast<std::uint32_t>(n);
      return events;
    }
    Array<std::uint32_t> offsets, attributes;
    Array<double> values;
  };
  Columns<cuda::PinnedArray> here_;
  Columns<cuda::DeviceArray> there_;
};

}  // namespace

void bench_block_bitmap(double share, std::size_t n_most) {
  constexpr std::size_t kMostEvents = std::size_t{1} << 20, kMostPairs = std::size_t{1} << 25;
  constexpr const char* kEngine = "block-bitmap-cuda";
  Workload workload = hem_default(share);
  workload.answer_by_naive();
  auto begin = Clock::now();
  const auto lines = build_block_bitmap(workload.table, {{"layout", 1}, {"tuple_size", 3}});
  const double lines_s = seconds_since(begin);
  begin = Clock::now();
  const cuda::BlockBitmapOnDevice index(*workload.table, *lines);
  Figure("build", kEngine, workload.name)
      .add("n_filters", workload.table->size())
      .add("seconds", lines_s + seconds_since(begin))
      .add("lines_seconds", lines_s)
      .add("index_bytes", index.n_bytes())
      .add("n_constraints", workload.table->n_constraints())
      .add("n_blocks", index.view().n_blocks)
      .add("n_tuples", index.view().n_tuples);
  WideEvents events(workload.events, n_most);
  const std::size_t n_launch = cuda::BlockBitmapBuffers::most_events(index);
  PinnedRun run(kEngine, workload, index, events, cuda::BlockBitmapBuffers(index, n_launch),
                PartSizes{n_launch, n_launch}, kMostEvents, kMostPairs);
  run.verify(n_most);
  for (const std::size_t n : {std::size_t{1}, n_most / 100, n_most / 10, n_most}) {
    run.measure(n, 11);
  }
  for (const std::size_t n : {std::size_t{1}, n_most / 100, std::min(n_launch, n_most)}) {
    run.measure_steps(n, [&](auto& buffers, const cuda::NumberEvents& of, cuda::Stream stream,
                             auto after) { buffers.match(index, of, stream, after); });
  }
}

}  // namespace tamis::bench
