// Engine `hem-cuda` against `naive`: on the shim, or on a GPU where this is tamis_gpu_tests.
#include "against_naive.hpp"
#include "common/violation_cells.hpp"

namespace tamis {
namespace {

using namespace against_naive;

TEST(hem_cuda_answers_as_naive_does_for_every_kind_of_constraint) {
  check_every_kind(
      "hem-cuda",
      {{}, {{"joined_ends", 0}}, {{"c", 7}, {"g", 3}}, {{"g", 1}, {"bytes_per_constraint", 0}}});
}

// The shim takes the threads one by one: few events, in more than one tile.
TEST(hem_cuda_answers_across_tiles) {
  const Equalities workload = equalities(ViolationCells::kTileFilters + 100, 1, 4, 3000, 4, 4);
  const Answer expected = answer_of("naive", workload.table, workload.events);
  CHECK(answer_of("hem-cuda", workload.table, workload.events).filters == expected.filters);
}

TEST(hem_cuda_brings_back_more_than_one_copy_takes) {
  const Equalities workload = equalities(6000, 1, 2, 2, 2, 6);
  const Answer expected = answer_of("naive", workload.table, workload.events);
  CHECK(expected.filters[0].size() > 2000);
  CHECK(answer_of("hem-cuda", workload.table, workload.events).filters == expected.filters);
}

TEST(hem_cuda_answers_for_empty_tables_and_filters_without_names) {
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();
  events.end_event();
  CHECK(answer_of("hem-cuda", table_of({}, 0), events).filters ==
        std::vector<std::vector<std::uint32_t>>(2));
  const auto table = table_of({"TRUE", "a0 IS NULL", "NEAR(0, 0, 1)", "a1 IS NULL", "a0 > 0"}, 2);
  CHECK(answer_of("hem-cuda", table, events).filters == answer_of("naive", table, events).filters);
}

TEST(hem_cuda_says_what_its_parameters_must_be) {
  const auto table = table_of({"a0 = 1"}, 1);
  CHECK_THROWS(built("hem-cuda", table, {{"c", 0}}), ArgumentError, "between 1 and 65536");
  CHECK_THROWS(built("hem-cuda", table, {{"g", 2.5}}), ArgumentError, "a whole number");
}

}  // namespace
}  // namespace tamis
