// tuple-key-cuda: events of pcm-default, 16 bytes each.
#include "cuda/tuple_key_cuda.hpp"
#include "parts.hpp"
#include "pinned_run.hpp"

namespace tamis::bench {
namespace {

// The sample, then others drawn alike.
void draw(PackedEvents& events, const EventBatch& sample, std::size_t n_events) {
  Random random(7);
  for (std::size_t event = events.put(sample); event < n_events; ++event) {
    const std::size_t n_names = 3 + below(random, 3);
    std::size_t names[cuda::PackedCells::kCells];
    for (std::size_t at = 0; at < n_names;) {
      names[at] = below(random, 100);
      if (std::find(names, names + at, names[at]) != names + at) continue;
      events.put(event, at, names[at], below(random, 100));
      ++at;
    }
  }
}

}  // namespace

void bench_tuple_key(double share, std::size_t n_most) {
  constexpr std::size_t kMostEvents = std::size_t{1} << 24, kMostPairs = std::size_t{1} << 25;
  constexpr PartSizes kSizes{std::size_t{1} << 19, std::size_t{1} << 16};
  constexpr const char* kEngine = "tuple-key-cuda";
  Workload workload = pcm_default(share);
  workload.target_filters();
  workload.answer_by_naive();
  const auto begin = Clock::now();
  const cuda::TupleKeyOnDevice index(*workload.table);
  Figure("build", kEngine, workload.name)
      .add("n_filters", workload.table->size())
      .add("seconds", seconds_since(begin))
      .add("index_bytes", index.n_bytes())
      .add("n_constraints", workload.table->n_constraints());
  PackedEvents events(n_most, false);
  draw(events, workload.events, n_most);
  PinnedRun run(kEngine, workload, index, events, cuda::TupleKeyBuffers(kSizes.most), kSizes,
                kMostEvents, kMostPairs);
  run.verify(n_most);
  for (const std::size_t n : powers_of_ten(n_most)) run.measure(n, 15);
}

}  // namespace tamis::bench
