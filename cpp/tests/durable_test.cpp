// A durable matcher under threads: changes, matches and checkpoints at once, then opened again.
#include <stdlib.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "storage/journal.hpp"
#include "tamis/matcher.hpp"

namespace tamis {
namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/tamis-durable-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() {
    for (const std::string inner : {"/m/aside", "/m", ""}) {
      const std::string folder = path + inner;
      if (!exists(folder)) continue;
      for (const std::string& name : list_directory(folder)) {
        ::remove((folder + "/" + name).c_str());
      }
      ::remove(folder.c_str());
    }
  }
  std::string path;
};

MatcherOptions options_of(const Folder& folder, SyncPolicy policy) {
  MatcherOptions options;
  options.n_threads = 2;
  options.storage = {folder.path + "/m", true, policy};
  return options;
}

TEST(a_durable_matcher_comes_back_as_it_was_after_changes_beside_checkpoints) {
  for (const SyncPolicy policy : {SyncPolicy::grouped, SyncPolicy::none}) {
    const Folder folder;
    constexpr std::int64_t kIds = 400;
    {
      Matcher matcher(options_of(folder, policy));
      std::atomic<bool> is_done{false};
      std::thread checkpoints([&] {
        while (!is_done) matcher.checkpoint();
      });
      std::thread matches([&] {
        while (!is_done) {
          const View view = matcher.view();
          EventBatch events;
          events.encode_for(view.names());
          if (view.names().size() > 0) events.add(0, EventValue::of(std::int64_t{1}));
          events.end_event();
          matcher.match(view, events, {Output::ids, Deliver::subscribers});
        }
      });
      for (int round = 0; round < 4; ++round) {
        for (std::int64_t id = 0; id < kIds; ++id) {
          const std::string predicate = "x = " + std::to_string(id * round);
          const NewSubscription row{IdView::of(id), predicate, std::nullopt};
          CHECK(matcher.subscribe({&row, 1}).empty());
        }
        for (std::int64_t id = 0; id < kIds; id += 3) {
          const IdView view = IdView::of(id);
          if (round < 3) matcher.unsubscribe({&view, 1});
        }
      }
      is_done = true;
      checkpoints.join();
      matches.join();
      matcher.close();
    }
    Matcher again(options_of(folder, policy));
    CHECK_EQ(again.size(), static_cast<std::size_t>(kIds));
    for (std::int64_t id = 0; id < kIds; ++id) {
      CHECK_EQ(again.predicate(IdView::of(id)), "x = " + std::to_string(id * 3));
    }
    CHECK_THROWS(Matcher(options_of(folder, policy)), StorageError, "is open for writing");
  }
}

}  // namespace
}  // namespace tamis
