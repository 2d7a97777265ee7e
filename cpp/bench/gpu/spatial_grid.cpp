// spatial-grid-cuda: events of clcb-default, 28 bytes each; then all areas moved.
#include <tuple>

#include "common/placed_filter.hpp"
#include "cuda/spatial_grid_cuda.hpp"
#include "parts.hpp"
#include "pinned_run.hpp"

namespace tamis::bench {
namespace {

// The sample, then others drawn alike.
void draw(PackedEvents& events, const EventBatch& sample, std::size_t n_events, bool is_zipf) {
  Random random(8);
  Places places(is_zipf);
  for (std::size_t event = events.put(sample); event < n_events; ++event) {
    events.put_position(event, places(random));
    const std::size_t group = below(random, 20), n_names = 3 + below(random, 3);
    const std::size_t first = below(random, 5);
    for (std::size_t cell = 0; cell < n_names; ++cell) {
      events.put(event, cell, 5 * group + (first + cell) % 5, below(random, 100));
    }
  }
}

// What the filters answer where each area's centre is at one of `places`.
Answers answers_at(const Workload& workload, const float* places) {
  const FilterTable& table = *workload.table;
  Answers all(workload.events.size());
  ValueByAttribute values;
  for (std::size_t event = 0; event < all.size(); ++event) {
    values.load(workload.events, event, table.n_attributes(), Space::plane);
    for (FilterIdx filter = 0; filter < table.size(); ++filter) {
      const Point centre{places[2 * std::size_t{filter}], places[2 * std::size_t{filter} + 1], 0};
      if (!is_within(values.position(), centre,
                     table.area(table.filter(filter).areas.first).limit)) {
        continue;
      }
      std::uint64_t n_evaluated = 0;
      if (accepts_content(table, table.filter(filter), values, 0, 1, n_evaluated)) {
        all[event].push_back(filter);
      }
    }
  }
  return all;
}

}  // namespace

void bench_spatial_grid(double share, bool is_zipf, std::size_t n_radii, std::size_t n_most) {
  constexpr std::size_t kMostEvents = std::size_t{1} << 24, kMostPairs = std::size_t{1} << 26;
  constexpr PartSizes kSizes{std::size_t{1} << 17, std::size_t{1} << 16};
  constexpr const char* kEngine = "spatial-grid-cuda";
  Workload workload = clcb_default(share, false, is_zipf, n_radii);
  workload.target_filters();
  workload.answer_by_naive();
  const auto begin = Clock::now();
  cuda::GridOnDevice index(*workload.table, {});
  Figure("build", kEngine, workload.name)
      .add("n_filters", workload.table->size())
      .add("seconds", seconds_since(begin))
      .add("index_bytes", index.n_bytes())
      .add("n_constraints", workload.table->n_constraints());
  PackedEvents events(n_most, true);
  draw(events, workload.events, n_most, is_zipf);
  PinnedRun run(kEngine, workload, index, events, cuda::GridBuffers(kSizes.most), kSizes,
                kMostEvents, kMostPairs);
  run.verify(n_most);
  for (const std::size_t n : powers_of_ten(n_most)) run.measure(n, 15);

  // Everybody somewhere else.
  const cuda::PinnedArray<float> places(2 * index.n_places());
  Random random(9);
  Places draw_place(is_zipf);
  for (std::size_t place = 0; place < index.n_places(); ++place) {
    std::tie(places.data()[2 * place], places.data()[2 * place + 1]) = draw_place(random);
  }
  const cuda::DeviceArray<float> there(places.size());
  constexpr int kRounds = 15;
  const double bus = median_seconds(kRounds, [&] {
    cuda::copy_to_device(there.data(), places.data(), places.n_bytes(), run.stream());
    cuda::synchronize(run.stream());
  });
  const double all = median_seconds(kRounds, [&] {
    index.move_all(places.data(), run.stream());
    cuda::synchronize(run.stream());
  });
  run.direct(workload.events.size());
  run.check(answers_at(workload, places.data()));
  Figure("move", kEngine, workload.name)
      .add("n_filters", workload.table->size())
      .add("n_areas", index.n_places())
      .add("seconds", all)
      .add("bytes", places.n_bytes())
      .add("bound", "bus")
      .add("bound_seconds", bus)
      .add("rounds", kRounds)
      .add("verified", workload.events.size());
}

}  // namespace tamis::bench
