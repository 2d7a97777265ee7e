// Readers that never wait against a writer: what they hold is whole, and nothing stays behind.
#include "matcher/published.hpp"

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "check.hpp"

namespace tamis {
namespace {

// Two halves that agree while it lives, and a count of those that live.
struct Item : std::enable_shared_from_this<Item> {
  explicit Item(std::uint64_t given) : first(given), second(~given) { ++n_alive; }
  ~Item() {
    first = second = 0;
    --n_alive;
  }
  bool is_whole() const { return first == ~second; }

  std::uint64_t first, second;
  static inline std::atomic<int> n_alive{0};
};

// `n_readers` threads read while one writes versions 1 to `n_versions`.
void read_beside_a_writer(int n_readers, std::uint64_t n_versions, std::size_t n_kept) {
  {
    Published<Item> published;
    published.write(std::make_shared<const Item>(0));
    std::atomic<std::uint64_t> n_written{0};
    std::atomic<int> n_bad{0}, n_begun{0};
    std::atomic<bool> is_done{false};
    std::vector<std::thread> readers;
    for (int reader = 0; reader < n_readers; ++reader) {
      readers.emplace_back([&] {
        std::deque<std::shared_ptr<const Item>> kept;
        std::uint64_t last = 0;
        ++n_begun;
        while (!is_done) {
          const std::uint64_t before = n_written;
          const std::shared_ptr<const Item> item = published.read();
          // Never torn, never older than what was written before the call, never backwards.
          if (!item->is_whole() || item->first < before || item->first < last) ++n_bad;
          last = item->first;
          kept.push_back(item);
          if (kept.size() > n_kept) kept.pop_front();
          if (!kept.front()->is_whole()) ++n_bad;
        }
      });
    }
    while (n_begun < n_readers) std::this_thread::yield();
    for (std::uint64_t version = 1; version <= n_versions; ++version) {
      published.write(std::make_shared<const Item>(version));
      n_written = version;
      if (version % 64 == 0) std::this_thread::yield();
    }
    is_done = true;
    for (std::thread& reader : readers) reader.join();
    CHECK_EQ(n_bad.load(), 0);
    CHECK_EQ(published.read()->first, n_versions);
    published.write(std::make_shared<const Item>(n_versions + 1));
    CHECK_EQ(Item::n_alive.load(), 1);  // nothing old is kept once nobody reads
  }
  CHECK_EQ(Item::n_alive.load(), 0);
}

TEST(readers_see_whole_items_and_the_newest_that_was_written_before) {
  read_beside_a_writer(6, 20'000, 3);
}

TEST(more_readers_than_hazards_get_along) { read_beside_a_writer(80, 500, 1); }

TEST(an_item_that_a_reader_holds_outlives_its_successors) {
  Published<Item> published;
  published.write(std::make_shared<const Item>(1));
  const std::shared_ptr<const Item> held = published.read();
  for (std::uint64_t version = 2; version < 100; ++version) {
    published.write(std::make_shared<const Item>(version));
  }
  CHECK(held->is_whole());
  CHECK_EQ(held->first, 1u);
  CHECK_EQ(held.use_count(), 1);  // the writer let go of it
  CHECK_EQ(Item::n_alive.load(), 2);
}

TEST(a_child_that_forgot_the_readers_lets_go_of_everything_old) {
  Published<Item> published;
  published.write(std::make_shared<const Item>(1));
  published.forget_readers();
  CHECK_EQ(published.read()->first, 1u);
  published.write(std::make_shared<const Item>(2));
  CHECK_EQ(Item::n_alive.load(), 1);
}

struct Spare {
  std::atomic<int> n_users{0};
  int n_uses = 0;  // plain: a sanitizer sees two users at once
};

TEST(a_spare_has_one_user_at_a_time) {
  Spares<Spare> spares;
  std::atomic<int> n_shared{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 6; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5000; ++round) {
        std::unique_ptr<Spare> first = spares.take(), second = spares.take();
        if (first->n_users++ != 0 || second->n_users++ != 0) ++n_shared;
        ++first->n_uses;
        ++second->n_uses;
        --first->n_users;
        --second->n_users;
        spares.give(std::move(first));
        spares.give(std::move(second));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(n_shared.load(), 0);
}

TEST(spares_beyond_the_places_are_freed) {
  Spares<Spare> spares;
  std::vector<std::unique_ptr<Spare>> taken;
  for (int item = 0; item < 200; ++item) taken.push_back(spares.take());
  for (std::unique_ptr<Spare>& item : taken) spares.give(std::move(item));
  CHECK(spares.take() != nullptr);
}

}  // namespace
}  // namespace tamis
