// Areas that move: in place in spatial-grid, by text elsewhere; beside matches and merges; and from
// a directory again.
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/reader_gate.hpp"
#include "engines/spatial_grid/moving.hpp"
#include "folder.hpp"
#include "ids_at.hpp"
#include "places.hpp"
#include "storage/journal.hpp"
#include "tamis/centres.hpp"
#include "tamis/matcher.hpp"

namespace tamis {
namespace {

using namespace testing;

MatcherOptions options_of(const std::string& engine, Space space = Space::plane) {
  MatcherOptions options;
  options.engine = engine;
  options.space = space;
  return options;
}

void subscribe(Matcher& matcher, std::int64_t id, const std::string& predicate) {
  const NewSubscription row{IdView::of(id), predicate, std::nullopt};
  CHECK(matcher.subscribe({&row, 1}).empty());
}

void move(Matcher& matcher, std::int64_t id, double x, double y,
          std::optional<std::uint32_t> area = std::nullopt) {
  const Move row{IdView::of(id), x, y, area};
  CHECK(matcher.move({&row, 1}).empty());
}

std::size_t n_moved(const Matcher& matcher) { return matcher.stats().n_moved; }

TEST(centres_are_read_whole_while_they_move) {
  Centres centres;
  centres.grow_to(1);
  Centre centre;
  CHECK(!centres.read(0, centre));
  centres.move(0, {0, 0, {0, 0, 0}});
  std::atomic<bool> is_done{false};
  std::atomic<int> n_torn{0};
  std::thread reader([&] {
    Centre seen;
    while (!is_done) {
      if (!centres.read(0, seen)) ++n_torn;
      if (seen.x != seen.y || seen.x != seen.point.x || seen.x != seen.point.z) ++n_torn;
    }
  });
  for (int round = 1; round < 100000; ++round) {
    const auto at = static_cast<double>(round);
    centres.move(0, {at, at, {at, at, at}});
  }
  is_done = true;
  reader.join();
  CHECK_EQ(n_torn.load(), 0);
  centres.forget(0);
  CHECK(!centres.has_moved(0));
}

TEST(a_gate_keeps_what_a_reader_may_see) {
  ReaderGate gate;
  const std::uint64_t before = gate.epoch();
  {
    const ReaderGate::Pass pass = gate.enter();
    for (int round = 0; round < 5; ++round) gate.try_advance();
    CHECK(gate.n_over() <= before);
  }
  gate.try_advance();
  gate.try_advance();
  CHECK(gate.n_over() > before);
}

void check_moves_as_new(const char* engine) {
  for (const Space space : {Space::plane, Space::earth}) {
    Random random(41);
    Matcher grid(options_of(engine, space));
    Matcher naive(options_of("naive", space));
    std::vector<NewSubscription> rows;
    std::vector<std::string> predicates;
    constexpr std::int64_t kIds = 600;
    for (std::int64_t id = 0; id < kIds; ++id) {
      predicates.push_back(random_placed_predicate(random, space, 3));
    }
    for (std::int64_t id = 0; id < kIds; ++id) {
      rows.push_back({IdView::of(id), predicates[static_cast<std::size_t>(id)], std::nullopt});
    }
    for (Matcher* matcher : {&grid, &naive}) {
      CHECK(matcher->subscribe(rows).empty());
      matcher->flush();
    }
    for (int round = 0; round < 4000; ++round) {
      const std::int64_t id = static_cast<std::int64_t>(below(random, kIds));
      const testing::Place to = random_place(random, space);
      const Move row{IdView::of(id), to.x, to.y, std::nullopt};
      const std::vector<RowError> errors = grid.move({&row, 1});
      const std::vector<RowError> expected = naive.move({&row, 1});
      CHECK_EQ(errors.size(), expected.size());
      if (!errors.empty()) CHECK_EQ(errors[0].reason, expected[0].reason);
      CHECK_EQ(grid.predicate(row.id), naive.predicate(row.id));
      if (round % 1000 == 500) grid.flush();
      if (round % 20 == 0) {
        const testing::Place at = random_place(random, space);
        const auto value = static_cast<std::int64_t>(below(random, 5));
        CHECK(ids_at(grid, at.x, at.y, value) == ids_at(naive, at.x, at.y, value));
        CHECK(ids_at(grid, to.x, to.y, value) == ids_at(naive, to.x, to.y, value));
      }
    }
    CHECK(n_moved(grid) > 50);  // in place
    CHECK_EQ(n_moved(naive), 0u);
  }
}

TEST(moves_answer_as_new_subscriptions_do) { check_moves_as_new("spatial-grid"); }
TEST(spatial_grid_cuda_moves_as_new_subscriptions_do) { check_moves_as_new("spatial-grid-cuda"); }

TEST(a_subscription_moves_in_one_piece_with_all_its_filters) {
  Matcher matcher(options_of("spatial-grid"));
  subscribe(matcher, 1, "NEAR(0, 0, 1) AND (a0 = 1 OR a0 = 2 OR a1 = 3)");
  subscribe(matcher, 2, "NEAR(0, 0, 1) AND a0 = 1 OR a1 = 7");
  subscribe(matcher, 3, "NOT NEAR(0, 0, 1)");
  subscribe(matcher, 4, "NEAR(0, 0, 1) AND NEAR(0, 0, 2)");
  matcher.flush();
  for (const std::int64_t id : {1, 2}) move(matcher, id, 50, 50);
  CHECK_EQ(n_moved(matcher), 2u);
  CHECK(ids_at(matcher, 50, 50) == std::vector<std::int64_t>({1, 2, 3}));
  CHECK(ids_at(matcher, 0, 0) == std::vector<std::int64_t>({4}));
  CHECK(ids_at(matcher, 0, 0, 7) == std::vector<std::int64_t>({2, 4}));
  CHECK_EQ(matcher.predicate(IdView::of(std::int64_t{1})),
           "NEAR(50.0, 50.0, 1) AND (a0 = 1 OR a0 = 2 OR a1 = 3)");
  move(matcher, 3, 50, 50);
  move(matcher, 4, 50, 50, 1);
  CHECK_EQ(n_moved(matcher), 2u);  // those by text
  CHECK(ids_at(matcher, 50, 50) == std::vector<std::int64_t>({1, 2}));
  CHECK(ids_at(matcher, 0, 0) == std::vector<std::int64_t>({3}));
}

TEST(rows_of_one_table_move_several_areas_of_a_subscription) {
  for (const char* engine : {"spatial-grid", "naive"}) {
    Matcher matcher(options_of(engine));
    subscribe(matcher, 1, "NEAR(0, 0, 1) OR NEAR(5, 5, 1)");
    matcher.flush();
    const Move rows[] = {{IdView::of(std::int64_t{1}), 10, 10, 0},
                         {IdView::of(std::int64_t{1}), 20, 20, 1},
                         {IdView::of(std::int64_t{1}), 30, 30, 0}};
    CHECK(matcher.move(rows).empty());
    CHECK_EQ(matcher.predicate(rows[0].id), "NEAR(30.0, 30.0, 1) OR NEAR(20.0, 20.0, 1)");
    CHECK_EQ(matcher.size(), 1u);
  }
}

// Moves are made in groups, by segment: tables of sizes around that of a group, in which
// subscriptions move again, go to one cell, lie in different segments, and move by text.
TEST(tables_of_every_size_move_as_their_rows_do) {
  for (const Space space : {Space::plane, Space::earth}) {
    Random random(43);
    Matcher grid(options_of("spatial-grid", space));
    Matcher naive(options_of("naive", space));
    constexpr std::int64_t kIds = 200;
    for (std::int64_t id = 0; id < kIds; ++id) {
      const std::string area = "NEAR(" + std::to_string(id % 20) + ", 0, 3)";
      for (Matcher* matcher : {&grid, &naive}) {
        subscribe(*matcher, id, id % 10 == 0 ? area + " OR NEAR(0, 5, 3)" : area + " AND a0 > 0");
        if (id == kIds / 2) matcher->flush();
      }
    }
    for (const std::size_t n_rows : {0, 1, 15, 16, 17, 31, 33, 300}) {
      for (int round = 0; round < 6; ++round) {
        std::vector<Move> rows;
        for (std::size_t row = 0; row < n_rows; ++row) {
          const auto id = static_cast<std::int64_t>(below(random, round % 2 == 0 ? kIds : 5));
          const auto to = static_cast<double>(below(random, round < 3 ? 30 : 2));
          rows.push_back({IdView::of(id), to, to / 2, std::nullopt});
          if (id % 10 == 0) rows.back().area = static_cast<std::uint32_t>(below(random, 2));
        }
        for (Matcher* matcher : {&grid, &naive}) CHECK(matcher->move(rows).empty());
        for (std::int64_t id = 0; id < kIds; ++id) {
          CHECK_EQ(grid.predicate(IdView::of(id)), naive.predicate(IdView::of(id)));
        }
        for (int at = 0; at < 30; at += 3) {
          CHECK(ids_at(grid, at, at / 2.0) == ids_at(naive, at, at / 2.0));
        }
      }
      grid.flush();
    }
    CHECK(n_moved(grid) > 50);
  }
}

TEST(a_bad_row_moves_nothing) {
  Matcher matcher(options_of("spatial-grid"));
  subscribe(matcher, 1, "NEAR(0, 0, 1)");
  matcher.flush();
  const Move rows[] = {{IdView::of(std::int64_t{1}), 10, 10, std::nullopt},
                       {IdView::of(std::int64_t{2}), 10, 10, std::nullopt},
                       {IdView::of(std::int64_t{1}), 10, 10, 1}};
  const std::vector<RowError> errors = matcher.move(rows);
  CHECK_EQ(errors.size(), 2u);
  CHECK_EQ(errors[0].row, 1u);
  CHECK_EQ(errors[1].row, 2u);
  CHECK(ids_at(matcher, 0, 0) == std::vector<std::int64_t>({1}));
  CHECK_EQ(n_moved(matcher), 0u);
}

TEST(a_slot_that_is_used_again_has_not_moved) {
  Matcher matcher(options_of("spatial-grid"));
  for (std::int64_t id = 0; id < 50; ++id) subscribe(matcher, id, "NEAR(0, 0, 1)");
  matcher.flush();
  for (std::int64_t id = 0; id < 50; ++id) move(matcher, id, 9, 9);
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t id = 0; id < 50; ++id) subscribe(matcher, id, "NEAR(0, 0, 1)");
    subscribe(matcher, 1000 + round, "NEAR(0, 0, 1)");
    matcher.flush();
  }
  CHECK_EQ(n_moved(matcher), 0u);
  CHECK_EQ(ids_at(matcher, 0, 0).size(), 53u);
  CHECK(ids_at(matcher, 9, 9).empty());
}

// Everybody moves all the time between places that all contain the event, or none of which does.
void check_readers_beside_moves(const char* engine) {
  Matcher matcher(options_of(engine));
  constexpr std::int64_t kIds = 300;
  for (std::int64_t id = 0; id < kIds; ++id) {
    subscribe(matcher, id, id % 2 == 0 ? "NEAR(0, 0, 10)" : "NEAR(100, 100, 10)");
  }
  matcher.flush();
  std::atomic<bool> is_done{false};
  std::atomic<int> n_wrong{0}, n_reads{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      while (!is_done) {
        const std::vector<std::int64_t> ids = ids_at(matcher, 0, 0);
        bool is_right = ids.size() == kIds / 2;
        for (std::size_t at = 0; at < ids.size() && is_right; ++at) {
          is_right = ids[at] == static_cast<std::int64_t>(2 * at);
        }
        n_wrong += !is_right;
        ++n_reads;
      }
    });
  }
  Random random(3);
  const auto some = [&] { return static_cast<double>(below(random, 1201)) / 100 - 6; };
  for (int round = 0; round < 300 || n_reads < 50; ++round) {
    std::vector<Move> rows;
    for (std::int64_t id = 0; id < kIds; ++id) {
      const double away = id % 2 == 0 ? 0 : 100;
      rows.push_back({IdView::of(id), away + some(), away + some(), std::nullopt});
    }
    CHECK(matcher.move(rows).empty());
  }
  is_done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK_EQ(n_wrong.load(), 0);
  CHECK_EQ(n_moved(matcher), static_cast<std::size_t>(kIds));
}

TEST(readers_see_every_subscription_at_its_old_or_its_new_place) {
  check_readers_beside_moves("spatial-grid");
}
TEST(spatial_grid_cuda_shows_every_subscription_at_its_old_or_its_new_place) {
  check_readers_beside_moves("spatial-grid-cuda");
}

TEST(no_move_is_lost_while_everything_is_merged) {
  for (const bool is_durable : {false, true}) {
    const Folder folder;
    MatcherOptions options = options_of("spatial-grid");
    if (is_durable) options.storage = {folder / "m", true, SyncPolicy::none, false, false};
    std::map<std::int64_t, double> at;
    {
      Matcher matcher(options);
      constexpr std::int64_t kIds = 3000;
      for (std::int64_t id = 0; id < kIds; ++id) {
        subscribe(matcher, id, "NEAR(0, 0, 0.25)");
        at[id] = 0;
      }
      matcher.flush();
      std::atomic<bool> is_done{false};
      std::thread merges([&] {
        for (std::int64_t round = 0; !is_done; ++round) {
          for (std::int64_t id = 0; id < 3000; ++id) {
            subscribe(matcher, kIds + id, "NEAR(-5, 0, 0.25)");
          }
          matcher.flush();
          if (is_durable) matcher.checkpoint();
        }
      });
      Random random(17);
      for (int round = 0; round < 60; ++round) {
        std::vector<Move> rows;
        for (int row = 0; row < 500; ++row) {
          const auto id = static_cast<std::int64_t>(below(random, kIds));
          at[id] = static_cast<double>(1 + below(random, 40));
          rows.push_back({IdView::of(id), at[id], 0, std::nullopt});
        }
        CHECK(matcher.move(rows).empty());
      }
      is_done = true;
      merges.join();
      for (int x = 0; x <= 40; ++x) {
        std::vector<std::int64_t> expected;
        for (const auto& [id, place] : at) {
          if (place == x) expected.push_back(id);
        }
        CHECK(ids_at(matcher, x, 0) == expected);
      }
      matcher.close();
    }
    if (!is_durable) continue;
    for (const char* engine : {"spatial-grid", "spatial-grid-cuda", "naive", "clcb"}) {
      options.engine = engine;
      Matcher again(options);
      for (const bool is_flushed : {false, true}) {
        if (is_flushed) again.flush();
        for (int x = 0; x <= 40; ++x) {
          std::vector<std::int64_t> expected;
          for (const auto& [id, place] : at) {
            if (place == x) expected.push_back(id);
          }
          CHECK(ids_at(again, x, 0) == expected);
        }
      }
      again.close();
    }
  }
}

TEST(endless_moves_do_not_fill_memory) {
  Matcher matcher(options_of("spatial-grid"));
  constexpr std::int64_t kIds = 500;
  for (std::int64_t id = 0; id < kIds; ++id) subscribe(matcher, id, "NEAR(0, 0, 1)");
  matcher.flush();
  const std::size_t n_merges = matcher.stats().n_merges;
  Random random(5);
  std::size_t most = 0;
  std::vector<Move> rows(kIds);
  for (int round = 0; round < 400; ++round) {
    // A crowd that wanders off to where nobody has been.
    for (std::int64_t id = 0; id < kIds; ++id) {
      const double x = 1e4 * round + 100.0 * static_cast<double>(below(random, 40));
      rows[static_cast<std::size_t>(id)] = {IdView::of(id), x, -x, std::nullopt};
    }
    CHECK(matcher.move(rows).empty());
    if (round % 50 != 49) continue;
    matcher.flush();
    const MatcherStats stats = matcher.stats();
    for (const SegmentStats& each : stats.segments) most = std::max(most, each.n_index_bytes);
  }
  CHECK(matcher.stats().n_merges > n_merges);  // it was built again
  CHECK(most < 4'000'000);
  CHECK_EQ(n_moved(matcher), static_cast<std::size_t>(kIds));
}

TEST(moves_come_back_from_the_log_and_from_an_image) {
  for (const Space space : {Space::plane, Space::earth}) {
    const Folder folder;
    MatcherOptions options = options_of("spatial-grid", space);
    options.storage = {folder / "m", true, SyncPolicy::none, false, false};
    {
      Matcher matcher(options);
      for (std::int64_t id = 0; id < 40; ++id) subscribe(matcher, id, "NEAR(1, 1, 0.5)");
      matcher.flush();
      for (std::int64_t id = 0; id < 20; ++id) move(matcher, id, 0.1, 45);
      matcher.checkpoint();
      for (std::int64_t id = 10; id < 30; ++id) move(matcher, id, 0.2, -45);
      matcher.save(folder / "saved");
      matcher.close();
    }
    for (const std::string name : {"m", "saved"}) {
      for (const char* engine : {"spatial-grid", "r-tree"}) {
        for (const bool is_read_only : {false, true}) {
          options.engine = engine;
          options.storage = {folder / name, false, SyncPolicy::none, is_read_only, true};
          Matcher again(options);
          CHECK_EQ(ids_at(again, 1, 1).size(), 10u);
          CHECK_EQ(ids_at(again, 0.1, 45).size(), 10u);
          CHECK_EQ(ids_at(again, 0.2, -45).size(), 20u);
          CHECK_EQ(again.predicate(IdView::of(std::int64_t{12})), "NEAR(0.2, -45.0, 0.5)");
          again.flush();
          CHECK_EQ(ids_at(again, 0.2, -45).size(), 20u);
          CHECK_EQ(again.predicate(IdView::of(std::int64_t{12})), "NEAR(0.2, -45.0, 0.5)");
          again.close();
        }
      }
    }
  }
}

}  // namespace
}  // namespace tamis
