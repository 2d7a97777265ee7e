// Indexes that can be changed (common/updatable_index.hpp) against `naive`.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "against_naive.hpp"
#include "common/updatable_index.hpp"

namespace tamis::against_naive {

// Inserts and erases at random, and what must not be.
template <typename Build>
void check_updates(Build build, const Parameters& parameters) {
  Random random(29);
  std::vector<std::string> predicates(1500);
  for (std::string& each : predicates) each = random_predicate(random, 6);
  const auto table = table_of(predicates, 6);
  const EventBatch events = random_events(random, 40, 6);
  const auto expected = answer_of("naive", table, events).filters;
  const auto n_filters = static_cast<FilterIdx>(table->size());
  std::vector<bool> is_in(n_filters);
  const FilterIdx n_first = n_filters / 3;
  std::fill(is_in.begin(), is_in.begin() + n_first, true);
  const std::unique_ptr<UpdatableIndex> index = build(table, parameters, n_first);
  const auto scratch = index->make_scratch();
  for (int round = 0; round < 8; ++round) {
    for (int change = 0; change < 1500; ++change) {
      const auto filter = static_cast<FilterIdx>(below(random, n_filters));
      if (is_in[filter]) {
        index->erase(filter);
      } else {
        index->insert(filter);
      }
      is_in[filter] = !is_in[filter];
    }
    const auto found = answer_of(*index, n_filters, events, *scratch).filters;
    for (std::size_t event = 0; event < found.size(); ++event) {
      std::vector<std::uint32_t> right;
      for (const std::uint32_t filter : expected[event]) {
        if (is_in[filter]) right.push_back(filter);
      }
      CHECK(found[event] == right);
    }
  }
  const auto erased =
      static_cast<FilterIdx>(std::find(is_in.begin(), is_in.end(), false) - is_in.begin());
  CHECK_THROWS(index->erase(erased), ArgumentError, "must be in the index");
  index->insert(erased);
  CHECK_THROWS(index->insert(erased), ArgumentError, "not in the index");
  CHECK_THROWS(index->insert(n_filters), ArgumentError, "of the table");
}

}  // namespace tamis::against_naive
