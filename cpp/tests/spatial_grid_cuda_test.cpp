// Engine `spatial-grid-cuda` against `naive`: on the shim, or on a GPU where this is
// tamis_gpu_tests. What it shares with `spatial-grid` is in spatial_grid_test.cpp, moves in
// move_test.cpp.
#include "cuda/spatial_grid_cuda.hpp"

#include "common/placed_filter.hpp"
#include "places.hpp"

namespace tamis {
namespace {

using namespace testing;

TEST(spatial_grid_cuda_answers_as_naive_does_for_every_kind_of_filter) {
  check_against_naive("spatial-grid-cuda", {{}}, 1500, 31);
}

TEST(spatial_grid_cuda_answers_as_naive_does_with_crowded_cells) {
  check_against_naive("spatial-grid-cuda", {{}}, 6000, 32);
}

TEST(spatial_grid_cuda_knows_on_which_side_of_a_border_a_point_is) {
  check_borders("spatial-grid-cuda");
}

// Circles of three sizes with two names each out of 300, more than terms; crowded in a corner.
struct NamedPlaces {
  static constexpr std::size_t kNames = 300, kFilters = 4000, kEvents = 300;
  std::shared_ptr<FilterTable> table;
  EventBatch events;

  NamedPlaces() {
    Random random(5);
    std::vector<std::string> predicates;
    const auto at = [&] {
      const double u = static_cast<double>(below(random, 4096)) / 4096;
      return u * u * u;
    };
    const auto name = [&](std::size_t of) { return " AND a" + std::to_string(of); };
    for (std::size_t filter = 0; filter < kFilters; ++filter) {
      const double radii[] = {0.02, 0.1, 0.4};
      const std::size_t first = 2 * below(random, kNames / 2);
      predicates.push_back(near(at(), at(), one_of(random, radii)) + name(first) + " > " +
                           std::to_string(below(random, 5)) + name(first + 1) + " != 3");
    }
    table = table_of(Space::plane, predicates, kNames);
    events.n_known = kNames;
    for (std::size_t event = 0; event < kEvents; ++event) {
      const std::size_t first = 2 * below(random, kNames / 2 - 2);
      for (std::size_t each = 0; each < 4; ++each) {
        events.add(static_cast<AttributeId>(first + each),
                   EventValue::of(static_cast<std::int64_t>(below(random, 8))));
      }
      events.add_position(at(), at());
      events.end_event();
    }
  }
};

TEST(spatial_grid_cuda_takes_more_names_than_terms_and_crowds) {
  const NamedPlaces workload;
  const Answer expected = answer_of("naive", workload.table, workload.events);
  CHECK(n_matches(expected) > 1000);
  CHECK(answer_of("spatial-grid-cuda", workload.table, workload.events).filters ==
        expected.filters);
}

// Packed events, straight to the kernels; then all places somewhere else.
TEST(spatial_grid_cuda_moves_all_places_at_once) {
  const NamedPlaces workload;
  const FilterTable& table = *workload.table;
  const EventBatch& events = workload.events;
  cuda::GridOnDevice grid(table, {});
  CHECK_EQ(grid.n_places(), NamedPlaces::kFilters);
  constexpr std::size_t kStride = NamedPlaces::kEvents;
  cuda::OwnStream stream;
  const cuda::PinnedArray<cuda::PackedCells> cells(kStride);
  const cuda::PinnedArray<float> positions(2 * kStride), places(2 * grid.n_places());
  for (std::size_t event = 0; event < kStride; ++event) {
    cells.data()[event] = cuda::PackedCells::none();
    for (std::uint32_t at = 0; at < 4; ++at) {
      cells.data()[event].set(at, events.attributes[4 * event + at],
                              static_cast<std::int32_t>(events.values[4 * event + at].nearest));
    }
    positions.data()[2 * event] = static_cast<float>(events.x[event]);
    positions.data()[2 * event + 1] = static_cast<float>(events.y[event]);
  }
  Random random(6);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t at = 0; at < places.size(); ++at) {
      places.data()[at] = static_cast<float>(below(random, 1000)) / 512;
    }
    if (round > 0) grid.move_all(places.data(), stream);
    cuda::NumberEvents packed;
    packed.packed = cells.data();
    packed.n_packed = 1;
    packed.flat_positions = positions.data();
    packed.n_events = kStride;
    cuda::GridBuffers buffers(1 << 15);
    cuda::FoundPairs found(512, 1 << 18);
    buffers.begin(found.pinned(), stream);
    buffers.match(grid, packed, stream);
    buffers.finish(stream);
    cuda::synchronize(stream);
    CHECK(found.is_whole());
    CHECK_EQ(found.pinned().counts->n_left, 0u);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs, expected;
    for (std::size_t at = 0; at < found.n_pairs(); ++at) {
      pairs.emplace_back(found.pinned().pairs[at].event, found.pinned().pairs[at].filter);
    }
    ValueByAttribute values;
    for (std::uint32_t event = 0; event < kStride; ++event) {
      values.load(events, event, table.n_attributes(), Space::plane);
      for (FilterIdx filter = 0; filter < table.size(); ++filter) {
        const Area& area = table.area(table.filter(filter).areas.first);
        const Point centre =
            round == 0 ? area.centre
                       : Point{places.data()[2 * filter], places.data()[2 * filter + 1], 0};
        std::uint64_t n_evaluated = 0;
        if (is_within(values.position(), centre, area.limit) &&
            accepts_content(table, table.filter(filter), values, 0, 1, n_evaluated)) {
          expected.emplace_back(event, filter);
        }
      }
    }
    std::sort(pairs.begin(), pairs.end());
    CHECK(!expected.empty());
    CHECK(pairs == expected);
  }
}

// A place that everybody is in: tasks and candidates overflow, and nothing is lost.
TEST(spatial_grid_cuda_loses_nothing_that_does_not_fit) {
  std::vector<std::string> predicates;
  for (int filter = 0; filter < 6000; ++filter) {
    predicates.push_back(near(0, 0, 10) + " AND a0 != " + std::to_string(filter % 7));
  }
  const auto table = table_of(Space::plane, predicates, 1);
  EventBatch events;
  events.n_known = 1;
  for (int event = 0; event < 500; ++event) {
    events.add(0, EventValue::of(std::int64_t{event % 9}));
    events.add_position(event % 3 == 0 ? 100 : 0, 0);
    events.end_event();
  }
  CHECK(answer_of("spatial-grid-cuda", table, events).filters ==
        answer_of("naive", table, events).filters);
}

}  // namespace
}  // namespace tamis
