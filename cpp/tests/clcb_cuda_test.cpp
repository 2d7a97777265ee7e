// Engine `clcb-cuda` against `naive`: on the shim, or on a GPU where this is tamis_gpu_tests.
#include "cuda/clcb_cuda.hpp"

#include "places.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

using namespace testing;

TEST(clcb_cuda_answers_as_naive_does_for_every_kind_of_filter) {
  check_against_naive("clcb-cuda", {{}, {{"name_bits", 8}}, {{"stream", 0}, {"name_bits", 1}}},
                      1500, 17);
}

TEST(clcb_cuda_knows_on_which_side_of_a_border_a_point_is) { check_borders("clcb-cuda"); }

TEST(clcb_cuda_answers_where_blocks_are_not_full) {
  Random random(23);
  for (const std::size_t n_filters : {0, 1, 255, 256, 257, 5000}) {
    PlacedWorkload workload;
    workload.n_filters = n_filters;
    workload.c = 1;
    workload.m = 12;
    workload.radius = 0.5;  // thousands match: results come in two copies
    workload.n_events = 9;
    const auto table = workload.table(random);
    const EventBatch events = workload.events(random);
    CHECK(answer_of("clcb-cuda", table, events).filters ==
          answer_of("naive", table, events).filters);
  }
}

TEST(clcb_cuda_needs_no_position_for_filters_without_a_circle) {
  const auto table = table_of(Space::plane,
                              {"NEAR(0, 0, 1)", "NOT NEAR(0, 0, 1)", "a0 > 0", "a0 IS NULL", "TRUE",
                               "NEAR(0, 0, 1) AND a0 > 0"},
                              1);
  EventBatch events;
  events.n_known = 1;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();  // no batch position at all
  CHECK(answer_of("clcb-cuda", table, events).filters ==
        std::vector<std::vector<std::uint32_t>>({{2, 4}}));
}

TEST(clcb_cuda_counts_up_to_254_constraints_and_refuses_more) {
  const auto conjunction = [](int n_constraints) {
    std::string text = "NEAR(0, 0, 1)";
    for (int name = 0; name < n_constraints; ++name)
      text += " AND a" + std::to_string(name) + " = 1";
    return text;
  };
  EventBatch events;
  events.n_known = 254;
  // More events than runs: a count that ran over would show in a later one.
  for (int event = 0; event < 10; ++event) {
    for (AttributeId attribute = 0; attribute < 254; ++attribute) {
      const bool is_right = event % 3 != 0 || attribute != 253;
      events.add(attribute, EventValue::of(std::int64_t{is_right}));
    }
    events.add_position(event == 4 ? 2 : 0, 1);
    events.end_event();
  }
  const auto table = table_of(Space::plane, {conjunction(254), conjunction(253)}, 254);
  CHECK(answer_of("clcb-cuda", table, events).filters == answer_of("naive", table, events).filters);
  CHECK_THROWS(built("clcb-cuda", table_of(Space::plane, {conjunction(255)}, 255)), ArgumentError,
               "at most 254 constraints, not 255");
  CHECK_EQ(find_engine("clcb-cuda").n_most_constraints, 254u);
}

TEST(clcb_cuda_times_its_steps_without_a_stream) {
  Random random(3);
  PlacedWorkload workload;
  workload.n_filters = 500;
  const auto table = workload.table(random);
  const EventBatch events = workload.events(random);
  for (const bool has_stream : {true, false}) {
    const auto index = built("clcb-cuda", table, {{"stream", has_stream}});
    const auto scratch = index->make_scratch();
    answer_of(*index, table->size(), events, *scratch);
    const ClcbTimes times = clcb_times(*scratch);
    CHECK_EQ(times.loc_ns > 0, !has_stream);
    CHECK_EQ(times.copy_results_ns > 0, !has_stream);
  }
}

TEST(clcb_cuda_says_what_its_parameters_must_be) {
  const auto table = table_of(Space::plane, {"a0 = 1"}, 1);
  CHECK_THROWS(built("clcb-cuda", table, {{"name_bits", 0}}), ArgumentError, "between 1 and 8");
  CHECK_THROWS(built("clcb-cuda", table, {{"name_bits", 2.5}}), ArgumentError, "a whole number");
}

}  // namespace
}  // namespace tamis
