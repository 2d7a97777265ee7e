// Engine `ccm` against `naive`: on the shim, or on a GPU where this is tamis_gpu_tests.
#include "cuda/ccm.hpp"

#include <algorithm>
#include <thread>

#include "against_naive.hpp"
#include "cuda/input.hpp"

namespace tamis {
namespace {

using namespace against_naive;

TEST(ccm_answers_as_naive_does_for_every_kind_of_constraint) {
  check_every_kind("ccm", {{},
                           {{"filter_selection", 0}},
                           {{"name_vector_bits", 3}, {"events_per_kernel", 1}},
                           {{"stream", 0}, {"events_per_kernel", 32}}});
}

TEST(ccm_counts_up_to_15_constraints_and_refuses_more) {
  const auto conjunction = [](int n_constraints) {
    std::string text = "a0 = 1";
    for (int name = 1; name < n_constraints; ++name) {
      text += " AND a" + std::to_string(name) + " = 1";
    }
    return text;
  };
  EventBatch events;
  events.n_known = 16;
  // More events than stages: a count that ran over would show in a later one.
  for (int event = 0; event < 40; ++event) {
    for (AttributeId attribute = 0; attribute < 16; ++attribute) {
      const bool is_right = event % 3 != 0 || attribute != 14;
      events.add(attribute, EventValue::of(std::int64_t{is_right}));
    }
    events.end_event();
  }
  const auto table = table_of({conjunction(15), conjunction(1), conjunction(14)}, 16);
  const Answer expected = answer_of("naive", table, events);
  for (const double n_events : {1, 3, 8}) {
    CHECK(answer_of("ccm", table, events, {{"events_per_kernel", n_events}}).filters ==
          expected.filters);
  }
  CHECK_THROWS(built("ccm", table_of({conjunction(16)}, 16)), ArgumentError,
               "at most 15 constraints, not 16");
  CHECK_EQ(find_engine("ccm").n_most_constraints, 15u);
}

// An event with more rows than constant memory has room for takes several kernels.
TEST(ccm_answers_for_inputs_beyond_constant_memory) {
  Random random(5);
  std::vector<std::string> predicates(3 * cuda::kMostLines);
  for (std::string& text : predicates) {
    // Pairs of names, so that there are as many tables.
    const std::size_t first = below(random, 90);
    const std::size_t second = (first + 1 + below(random, 89)) % 90;
    text = "a" + std::to_string(first) + " > 0 AND a" + std::to_string(second) + " > 1";
  }
  const auto table = table_of(predicates, 90);
  EventBatch events;
  events.n_known = 90;
  for (int event = 0; event < 6; ++event) {
    for (AttributeId attribute = 0; attribute < 90; ++attribute) {
      if (event != 3) {
        events.add(attribute, EventValue::of(static_cast<std::int64_t>(below(random, 3))));
      }
    }
    events.end_event();
  }
  const Answer expected = answer_of("naive", table, events);
  const Answer answer = answer_of("ccm", table, events, {{"events_per_kernel", 4}});
  CHECK(answer.filters == expected.filters);
  // At least a row for each table, in each kernel of four events.
  CHECK(answer.counters.cells / events.size() > cuda::kMostLines / 2);
}

// With few targets the device finds these instead of filters.
TEST(ccm_finds_subscribers_on_the_device) {
  Equalities workload = equalities(3000, 2, 12, 3, 6, 50);
  std::vector<std::uint32_t> slot_of(workload.table->size()), target_of(workload.table->size());
  std::iota(slot_of.begin(), slot_of.end(), 0u);
  for (std::uint32_t& target : target_of)
    target = static_cast<std::uint32_t>(&target - target_of.data()) % 700;
  const auto found = [&](const char* engine, std::uint64_t targets_id, Output output) {
    const std::unique_ptr<Index> index = built(engine, workload.table);
    const std::unique_ptr<Scratch> scratch = index->make_scratch();
    std::vector<std::vector<std::uint32_t>> all;
    std::vector<std::uint64_t> bits;
    for (int call = 0; call < 2; ++call) {
      Collector::Setup setup;
      setup.output = output;
      setup.slot_of = slot_of.data();
      setup.target_of = target_of.data();
      setup.targets_id = targets_id;
      setup.n_targets = 700;
      setup.words_per_event = 11;
      bits.assign(11 * workload.n_events, 0);
      setup.bits = bits.data();
      Stamps stamps;
      CollectorBuffers buffers;
      Collector out(setup, stamps, buffers);
      index->match(workload.events, 0, workload.n_events, *scratch, out);
      // What the device finds as a filter, the host looks at.
      if (std::string_view(engine) == "ccm") CHECK_EQ(out.counters.candidates, 0u);
      all.clear();
      for (std::size_t event = 0; event < workload.n_events; ++event) {
        auto& targets = all.emplace_back();
        if (output == Output::ids) {
          targets.assign(out.targets().begin() + out.begin(event),
                         out.targets().begin() + out.end(event));
        } else {
          targets.assign(bits.begin() + 11 * event, bits.begin() + 11 * (event + 1));
        }
        if (output == Output::ids) std::sort(targets.begin(), targets.end());
      }
    }
    return all;
  };
  const auto expected = found("bit-vector", 0, Output::ids);
  CHECK(std::any_of(expected.begin(), expected.end(),
                    [](const auto& each) { return each.size() > 20; }));
  CHECK(found("ccm", 0, Output::ids) == expected);
  CHECK(found("ccm", 2, Output::ids) == expected);
  CHECK(found("ccm", 1, Output::bitset) == found("bit-vector", 0, Output::bitset));
}

TEST(ccm_answers_for_empty_tables_and_filters_without_names) {
  EventBatch events;
  events.n_known = 2;
  events.add(0, EventValue::of(std::int64_t{1}));
  events.end_event();
  events.end_event();
  CHECK(answer_of("ccm", table_of({}, 0), events).filters ==
        std::vector<std::vector<std::uint32_t>>(2));
  const auto table = table_of({"TRUE", "a0 IS NULL", "NEAR(0, 0, 1)", "a1 IS NULL", "a0 > 0"}, 2);
  CHECK(answer_of("ccm", table, events).filters == answer_of("naive", table, events).filters);
}

// Threads have their own counters and streams, but there is one constant memory.
TEST(ccm_and_clcb_cuda_answer_several_threads_at_once) {
  const Equalities workload = equalities(2000, 2, 10, 3, 5, 40);
  const auto expected = answer_of("naive", workload.table, workload.events).filters;
  const std::unique_ptr<Index> indexes[] = {built("ccm", workload.table),
                                            built("clcb-cuda", workload.table)};
  std::vector<Answer> answers(6);
  std::vector<std::thread> threads;
  for (std::size_t each = 0; each < answers.size(); ++each) {
    threads.emplace_back([&, each] {
      const Index& index = *indexes[each % 2];
      const std::unique_ptr<Scratch> scratch = index.make_scratch();
      answers[each] = answer_of(index, 2000, workload.events, *scratch);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Answer& answer : answers) CHECK(answer.filters == expected);
}

TEST(ccm_visits_what_ocm_visits) {
  const Equalities workload = equalities(5000, 3, 40, 5, 8, 100);
  for (const double bits : {8, 64}) {
    const Counters ocm =
        answer_of("ocm", workload.table, workload.events, {{"name_vector_bits", bits}}).counters;
    const Counters ccm =
        answer_of("ccm", workload.table, workload.events, {{"name_vector_bits", bits}}).counters;
    CHECK_EQ(ccm.filters, ocm.filters);
    CHECK_EQ(ccm.cells, ocm.cells);
    CHECK_EQ(ccm.bits, ocm.bits);
  }
}

TEST(ccm_times_its_steps_without_a_stream) {
  const Equalities workload = equalities(2000, 2, 10, 3, 5, 20);
  for (const bool has_stream : {true, false}) {
    const auto index = built("ccm", workload.table, {{"stream", has_stream}});
    const auto scratch = index->make_scratch();
    answer_of(*index, workload.table->size(), workload.events, *scratch);
    const CcmTimes times = ccm_times(*scratch);
    CHECK(times.input_ns > 0);
    CHECK_EQ(times.kernel_ns > 0, !has_stream);
    CHECK_EQ(times.copy_results_ns > 0, !has_stream);
  }
}

TEST(ccm_says_what_its_parameters_must_be) {
  const auto table = table_of({"a0 = 1"}, 1);
  CHECK_THROWS(built("ccm", table, {{"events_per_kernel", 33}}), ArgumentError, "between 1 and 32");
  CHECK_THROWS(built("ccm", table, {{"name_vector_bits", 2.5}}), ArgumentError, "a whole number");
}

}  // namespace
}  // namespace tamis
