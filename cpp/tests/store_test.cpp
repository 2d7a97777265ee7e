// A store that was opened from an image: mapped slots and numbers die, are used again and saved.
#include "matcher/store.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "folder.hpp"
#include "storage/journal.hpp"
#include "tamis/matcher.hpp"

namespace tamis {
namespace {

using testing::Folder;

struct Row {
  std::string predicate, subscriber;
  bool has_filters = true;
};
using Model = std::map<std::string, Row>;

void add(Store& store, Model& model, const std::string& id, const Row& row, std::uint64_t version) {
  store.add(IdView::of(id), row.predicate, IdView::of(row.subscriber), row.has_filters, version);
  model[id] = row;
}

void check_is(const Store& store, const Model& model) {
  CHECK_EQ(store.n_live(), model.size());
  std::set<std::string> subscribers, seen;
  for (const auto& [id, row] : model) {
    const std::uint32_t slot = store.find(IdView::of(id));
    CHECK(slot != Store::kNone);
    if (slot == Store::kNone) continue;
    CHECK(store.id(slot) == IdView::of(id));
    CHECK_EQ(store.predicate(slot), row.predicate);
    CHECK(store.subscriber_id(store.subscriber_of(slot)) == IdView::of(row.subscriber));
    subscribers.insert(row.subscriber);
  }
  CHECK_EQ(store.n_live_subscribers(), subscribers.size());
  store.for_each_live([&](std::uint32_t slot) { seen.emplace(store.id(slot).string); });
  CHECK_EQ(seen.size(), model.size());
  CHECK_EQ(store.find(IdView::of("nobody")), Store::kNone);
  std::vector<IdView> ids = {IdView::of("nobody")};
  for (const auto& [id, row] : model) ids.push_back(IdView::of(id));
  std::vector<std::uint32_t> slots(ids.size());
  store.find_many(slots, [&](std::size_t at) { return ids[at]; });
  for (std::size_t at = 0; at < ids.size(); ++at) CHECK_EQ(slots[at], store.find(ids[at]));
}

std::uint64_t save(const Store& store, const std::string& path, std::uint64_t version,
                   const std::vector<bool>& is_used) {
  ImageWriter image(path);
  store.save(version, store.n_slots(), store.n_subscriber_numbers(), is_used, image);
  image.finish();
  return image.n_bytes();
}

TEST(mapped_slots_and_numbers_are_used_again_over_generations) {
  const Folder folder;
  Model model;
  auto store = std::make_unique<Store>();
  for (int id = 0; id < 3000; ++id) {
    add(*store, model, "s" + std::to_string(id),
        {"x = " + std::to_string(id), "u" + std::to_string(id % 700), id % 5 != 0}, 2);
  }
  std::mt19937 random(7);
  std::string path = folder / "0";
  std::uint64_t n_bytes = save(*store, path, 2, {});
  for (int generation = 1; generation <= 6; ++generation) {
    const std::string before = read_file(path);
    store = std::make_unique<Store>();  // the one before is gone, and its heap with it
    store->open(Image::open(path, n_bytes), Space::plane);
    check_is(*store, model);
    const std::size_t n_slots = store->n_slots(), n_numbers = store->n_subscriber_numbers();
    CHECK_EQ(store->n_bytes() > 0, true);

    // A third dies: by whole subscribers, and by chance.
    std::vector<std::uint32_t> dead;
    for (auto at = model.begin(); at != model.end();) {
      if (at->second.subscriber.back() != '0' + generation && random() % 4 != 0) {
        ++at;
        continue;
      }
      const std::uint32_t slot = store->find(IdView::of(at->first));
      store->kill(slot, 5);
      if (at->second.has_filters) dead.push_back(slot);  // of the others the store knows itself
      at = model.erase(at);
    }
    const std::size_t n_dead = store->n_dead();
    CHECK(n_dead > 100);
    check_is(*store, model);
    {
      const EpochHold reader = store->hold_epoch();
      store->retire(dead);
      store->free_retired();
      CHECK_EQ(store->n_dead(), n_dead);  // somebody may still see them
    }
    store->free_retired();
    CHECK_EQ(store->n_dead(), 0u);

    for (std::size_t each = 0; each < n_dead; ++each) {
      const std::string id = "g" + std::to_string(generation) + "-" + std::to_string(each);
      // Half of the subscribers are new, half are known or were.
      const std::string subscriber = each % 2 ? id : "u" + std::to_string(random() % 700);
      add(*store, model, id,
          {each % 7 ? std::string(each % 40, 'y') : "", subscriber, each % 3 > 0}, 6);
    }
    CHECK_EQ(store->n_slots(), n_slots);  // all of them in places that others had
    CHECK(store->n_subscriber_numbers() <= n_numbers + n_dead);
    check_is(*store, model);
    CHECK(read_file(path) == before);  // the image that is mapped never changes

    path = folder / std::to_string(generation);
    n_bytes = save(*store, path, 6, {});
  }
}

TEST(dead_slots_with_filters_stay_dead_in_an_image_and_free_ones_free) {
  const Folder folder;
  Store store;
  Model model;
  for (int id = 0; id < 10; ++id) {
    add(store, model, std::to_string(id), {"x = 1", id < 5 ? "ann" : "bob", true}, 2);
  }
  std::vector<bool> is_used(10);
  for (const int id : {0, 1, 5, 6, 7, 8, 9}) {
    const std::uint32_t slot = store.find(IdView::of(std::to_string(id)));
    store.kill(slot, 3);
    model.erase(std::to_string(id));
    is_used[slot] = id == 0 || id == 9;  // their filters are in a segment
  }
  const std::uint64_t n_bytes = save(store, folder / "image", 3, is_used);
  // At the version before, everything lived.
  const std::uint64_t n_older_bytes = save(store, folder / "older", 2, {});

  Store opened;
  opened.open(Image::open(folder / "image", n_bytes), Space::plane);
  check_is(opened, model);
  CHECK_EQ(opened.n_dead(), 2u);
  CHECK_EQ(opened.n_live_subscribers(), 1u);
  CHECK_EQ(opened.subscriber_of(9), opened.subscriber_of(9));
  std::size_t n_lived = 0;
  opened.for_each_at(4, opened.n_slots(), [&](std::uint32_t) { ++n_lived; });
  CHECK_EQ(n_lived, 3u);
  // The five free ones first; then the dead ones, when they are merged away.
  for (int id = 20; id < 25; ++id) {
    add(opened, model, std::to_string(id), {"x = 2", "carl", true}, 5);
  }
  CHECK_EQ(opened.n_slots(), 10u);
  opened.retire({0, 9});
  opened.free_retired();
  CHECK_EQ(opened.n_dead(), 0u);
  for (int id = 25; id < 27; ++id) {
    add(opened, model, std::to_string(id), {"x = 2", "bob", true}, 5);
  }
  CHECK_EQ(opened.n_slots(), 10u);
  CHECK(opened.n_subscriber_numbers() <= 3);
  check_is(opened, model);

  Store older;
  older.open(Image::open(folder / "older", n_older_bytes), Space::plane);
  CHECK_EQ(older.n_live(), 10u);
  CHECK_EQ(older.n_live_subscribers(), 2u);
}

TEST(an_empty_store_is_saved_and_opened_and_filled) {
  const Folder folder;
  Store empty;
  const std::uint64_t n_bytes = save(empty, folder / "empty", 1, {});
  Store opened;
  opened.open(Image::open(folder / "empty", n_bytes), Space::plane);
  Model model;
  check_is(opened, model);
  for (int id = 0; id < 100; ++id) {
    add(opened, model, std::to_string(id), {"TRUE", std::to_string(id), true}, 2);
  }
  check_is(opened, model);
  // All dead and none of them used: no subscriber is left, and every slot is free.
  for (const auto& [id, row] : model) opened.kill(opened.find(IdView::of(id)), 3);
  const std::uint64_t n_dead_bytes = save(opened, folder / "dead", 3, {});
  Store free;
  free.open(Image::open(folder / "dead", n_dead_bytes), Space::plane);
  model.clear();
  check_is(free, model);
  add(free, model, "again", {"TRUE", "again", true}, 4);
  check_is(free, model);
  CHECK_EQ(free.n_slots(), 100u);
}

TEST(save_removes_what_a_save_has_left_and_nothing_else) {
  const Folder folder;
  make_directory(folder / "m.tmp");
  write_file_atomically(folder / "m.tmp/thesis.txt", "years of work");
  Matcher matcher(MatcherOptions{});
  CHECK_THROWS(matcher.save(folder / "m"), StorageError, "m.tmp: is needed for saving");
  CHECK_EQ(read_file(folder / "m.tmp/thesis.txt"), "years of work");
  remove_file(folder / "m.tmp/thesis.txt");
  write_file_atomically(folder / "m.tmp/image-1.tamis", "half of an im");
  matcher.save(folder / "m");
  CHECK(!exists(folder / "m.tmp"));
}

// ── a matcher over several lives ────────────────────────────────────────────────────────────

MatcherOptions options_of(const std::string& directory, const char* engine) {
  MatcherOptions options;
  options.engine = engine;
  options.n_threads = 2;
  options.storage = {directory, true, SyncPolicy::none};
  return options;
}

// Targets of one event with x = `value`, in order.
std::vector<std::string> answer_of(const Matcher& matcher, std::int64_t value, Deliver deliver) {
  const View view = matcher.view();
  EventBatch events;
  events.encode_for(view.names());
  for (AttributeId attribute = 0; attribute < view.names().size(); ++attribute) {
    if (view.names().name(attribute) == "x") events.add(attribute, EventValue::of(value));
  }
  events.end_event();
  const MatchResult result = matcher.match(view, events, {Output::ids, deliver});
  std::vector<std::string> found;
  for (const std::uint32_t target : result.targets) found.emplace_back(result.id(target).string);
  std::sort(found.begin(), found.end());
  return found;
}

TEST(a_matcher_lives_many_lives_and_is_matched_through_each) {
  for (const char* engine : {"naive", "ocm"}) {
    const Folder folder;
    constexpr std::int64_t kValues = 10;
    constexpr int kIds = 600;
    std::map<std::string, std::pair<std::int64_t, std::string>> model;  // id -> value, subscriber
    std::mt19937 random(3);
    for (int life = 0; life < 5; ++life) {
      Matcher matcher(options_of(folder / "m", engine));
      CHECK_EQ(matcher.size(), model.size());
      std::atomic<bool> is_done{false};
      std::atomic<int> n_twice{0};
      std::vector<std::thread> threads;
      for (int reader = 0; reader < 2; ++reader) {
        threads.emplace_back([&, reader] {
          for (std::int64_t value = 0; !is_done; value = (value + 1) % kValues) {
            const std::vector<std::string> found =
                answer_of(matcher, value, reader ? Deliver::subscribers : Deliver::subscriptions);
            if (std::adjacent_find(found.begin(), found.end()) != found.end()) ++n_twice;
          }
        });
      }
      threads.emplace_back([&] {
        while (!is_done) matcher.checkpoint();
      });
      for (int change = 0; change < 1200; ++change) {
        const std::string id = "s" + std::to_string(random() % kIds);
        if (model.contains(id) && random() % 3 == 0) {
          const IdView view = IdView::of(id);
          matcher.unsubscribe({&view, 1});
          model.erase(id);
        } else {
          const std::int64_t value = random() % kValues;
          const std::string subscriber = "u" + std::to_string(random() % 50);
          const std::string predicate = "x = " + std::to_string(value) + " OR (x IS NULL AND x" +
                                        std::to_string(change % 5) + " = 1)";
          const NewSubscription row{IdView::of(id), predicate, IdView::of(subscriber)};
          CHECK(matcher.subscribe({&row, 1}).empty());
          model[id] = {value, subscriber};
        }
        if (change % 300 == 299) matcher.flush();
      }
      is_done = true;
      for (std::thread& thread : threads) thread.join();
      CHECK_EQ(n_twice.load(), 0);
      for (std::int64_t value = 0; value < kValues; ++value) {
        std::vector<std::string> ids;
        std::set<std::string> subscribers;
        for (const auto& [id, row] : model) {
          if (row.first != value) continue;
          ids.push_back(id);
          subscribers.insert(row.second);
        }
        CHECK(answer_of(matcher, value, Deliver::subscriptions) == ids);
        CHECK(answer_of(matcher, value, Deliver::subscribers) ==
              std::vector<std::string>(subscribers.begin(), subscribers.end()));
      }
      if (life % 2) matcher.close();
    }
  }
}

}  // namespace
}  // namespace tamis
