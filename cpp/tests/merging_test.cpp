// Changes while a large merge is under way, which others go on beside.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "check.hpp"
#include "ids_at.hpp"
#include "places.hpp"
#include "tamis/matcher.hpp"

namespace tamis {
namespace {

using namespace testing;

std::string area_at(std::int64_t x) { return "NEAR(" + std::to_string(x) + ", 0, 0.25)"; }

void check_changes_beside_a_large_merge(const char* engine) {
  constexpr std::int64_t kFar = 110'000;  // more than a small merge takes
  constexpr std::int64_t kPlaces = 50, kNear = 12'000;
  MatcherOptions options;
  options.engine = engine;
  options.space = Space::plane;
  Matcher matcher(options);
  std::vector<std::string> predicates;
  std::vector<NewSubscription> rows;
  for (std::int64_t id = 0; id < kFar; ++id) predicates.push_back(area_at(-1 - id));
  for (std::int64_t id = 0; id < kFar; ++id) {
    rows.push_back({IdView::of(id), predicates[static_cast<std::size_t>(id)], std::nullopt});
  }
  CHECK(matcher.subscribe(rows).empty());

  std::map<std::int64_t, std::int64_t> place_of;  // of each id
  Random random(3);
  const auto check_some = [&](std::size_t n_places) {
    for (std::size_t at = 0; at < n_places; ++at) {
      const auto x = static_cast<std::int64_t>(below(random, kPlaces));
      std::vector<std::int64_t> expected;
      for (const auto& [id, place] : place_of) {
        if (place == x) expected.push_back(id);
      }
      CHECK(ids_at(matcher, static_cast<double>(x), 0) == expected);
    }
  };
  const auto move = [&](std::int64_t id) {
    const auto x = static_cast<std::int64_t>(below(random, kPlaces));
    const Move row{IdView::of(id), static_cast<double>(x), 0, std::nullopt};
    CHECK(matcher.move({&row, 1}).empty());
    place_of[id] = x;
  };
  for (std::int64_t each = 0; each < kNear; ++each) {
    const std::int64_t id = kFar + each;
    const std::string predicate = area_at(each % kPlaces);
    const NewSubscription row{IdView::of(id), predicate, std::nullopt};
    CHECK(matcher.subscribe({&row, 1}).empty());
    place_of[id] = each % kPlaces;
    if (each % 3 == 0) move(kFar + static_cast<std::int64_t>(below(random, each + 1)));
    if (each % 7 == 0) move(static_cast<std::int64_t>(below(random, kFar)));
    if (each % 5 == 0) {
      const std::int64_t gone = place_of.begin()->first;
      const IdView view = IdView::of(gone);
      matcher.unsubscribe({&view, 1});
      place_of.erase(gone);
      // It is far away again, and may be asked to move.
      const NewSubscription back{view, predicates[0], std::nullopt};
      CHECK(matcher.subscribe({&back, 1}).empty());
    }
    if (each % 500 == 0) check_some(4);
  }
  check_some(10);
  matcher.flush();
  CHECK(!matcher.stats().is_merging);
  check_some(kPlaces);
}

TEST(changes_go_on_beside_a_large_merge) { check_changes_beside_a_large_merge("spatial-grid"); }
TEST(planned_changes_go_on_beside_a_large_merge) { check_changes_beside_a_large_merge("auto"); }
TEST(text_changes_go_on_beside_a_large_merge) { check_changes_beside_a_large_merge("tuple-key"); }

// After a flush each segment is more than 16 times as large as all that are smaller.
TEST(flush_joins_segments_of_about_one_size) {
  for (const char* engine : {"tuple-key", "auto"}) {
    MatcherOptions options;
    options.engine = engine;
    Matcher matcher(options);
    Random random(5);
    std::int64_t next = 0;
    for (int round = 0; round < 40; ++round) {
      const std::int64_t n_new =
          1 + static_cast<std::int64_t>(below(random, round % 7 == 0 ? 9000 : 300));
      std::vector<std::string> predicates;
      for (std::int64_t at = 0; at < n_new; ++at) {
        predicates.push_back("a = " + std::to_string((next + at) % 1000) + " AND b > 5");
      }
      std::vector<NewSubscription> rows;
      for (const std::string& predicate : predicates) {
        rows.push_back({IdView::of(next++), predicate, std::nullopt});
      }
      CHECK(matcher.subscribe(rows).empty());
      matcher.flush();
      const MatcherStats stats = matcher.stats();
      std::vector<std::size_t> sizes;
      for (const SegmentStats& each : stats.segments) {
        CHECK(each.is_indexed);
        sizes.push_back(each.n_filters);
      }
      std::sort(sizes.begin(), sizes.end());
      std::size_t n_smaller = 0;
      for (const std::size_t size : sizes) {
        if (n_smaller > 0) CHECK(size > 16 * n_smaller);
        n_smaller += size;
      }
      CHECK_EQ(n_smaller, static_cast<std::size_t>(next));
      CHECK_EQ(stats.n_delta_filters, 0u);
    }
  }
}

}  // namespace
}  // namespace tamis
