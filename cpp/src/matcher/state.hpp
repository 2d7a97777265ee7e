// The inside of a matcher. Its functions are in changes.cpp, merging.cpp and durability.cpp.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "event_sample.hpp"
#include "plan.hpp"
#include "published.hpp"
#include "segment.hpp"
#include "snapshot.hpp"
#include "storage/journal.hpp"
#include "store.hpp"
#include "tamis/error.hpp"
#include "tamis/matcher.hpp"
#include "translator.hpp"

namespace tamis {

// Fewer dead slots are not worth a merge of everything.
inline constexpr std::size_t kMinDead = 4096;
// Plans are looked at after so many sampled events, then after twice as many each time, up to 16
// turns of the sample.
inline constexpr std::uint64_t kFirstLook = 64;
// Calls with many events must have taken so long before the first one: a look takes some 100 ms,
// and a process that Spark started may be gone after less.
inline constexpr double kWorthLookNs = 2e9;
inline constexpr std::uint64_t kMaxLookInterval = 16 * EventSample::kMostEvents;
// A delta begins so small, and is sealed at the latest when it has so many.
inline constexpr std::size_t kFirstDeltaFilters = 64;
inline constexpr std::size_t kMaxDeltaFilters = 2048;
// From here on it is merged as soon as that can be: events take longer the more it has.
inline constexpr std::size_t kLargeDeltaFilters = 512;

// Subscriptions read aside, with names of their own: a bad row leaves no trace.
struct Staged {
  explicit Staged(Space space) : table(std::make_shared<FilterTable>(space)) {}
  std::size_t first_row = 0;
  std::shared_ptr<FilterTable> table;
  Catalogue names;
  std::vector<std::uint32_t> n_filters;  // of each row
  std::vector<RowError> errors;
};

// Reads the predicates of some rows; stops at Matcher::kMaxRowErrors errors.
Staged read_rows(std::span<const NewSubscription> rows, std::size_t begin, std::size_t end,
                 Space space);

class Matcher::State {
 public:
  explicit State(const MatcherOptions& given) : options(given), naive_{&find_engine("naive"), {}} {
    if (given.engine == "auto") {
      if (!given.parameters.empty()) {
        throw ArgumentError("engine auto chooses parameters by itself: name the engine that has " +
                            given.parameters.begin()->first);
      }
      sample = std::make_unique<EventSample>();
      translator = std::make_unique<Translator>(
          given.device_from, given.n_threads, [this](const auto&... of) { return settle(of...); });
    } else {
      choice_ = EngineChoice{&find_engine(given.engine), {}};
      choice_->parameters = complete_parameters(*choice_->engine, given.parameters);
    }
    if (options.n_threads == 0) throw ArgumentError("threads must be at least 1, not 0");
    space_ = options.space.value_or(Space::plane);
    {
      const std::lock_guard lock(writer_);
      publish();
    }
    if (options.storage) {
      try {
        open_journal();
      } catch (...) {
        stop_merger();
        throw;
      }
    }
    all_states().add(this);
  }

  ~State() {
    all_states().remove(this);
    stop_merger();
  }

  std::vector<RowError> subscribe(std::span<const NewSubscription> rows);
  void unsubscribe(std::span<const IdView> ids);
  std::vector<RowError> move(std::span<const Move> rows);
  void flush();
  void save(const std::string& directory);
  void checkpoint();
  void close();
  Space space() const { return space_; }
  MatcherStats stats() const;
  std::vector<SegmentReasons> plan() const;

  std::shared_ptr<const Snapshot> snapshot() const { return published_.read(); }
  // Reads the store under the writer's lock.
  template <typename Read>
  auto read(Read read_store) const {
    const std::lock_guard lock(writer_);
    return read_store(*store_, id_type_);
  }

  MatcherOptions options;
  Spares<Workspace> workspaces;
  std::array<EventWork, 2> work_of;        // by CallKind::encodes
  std::unique_ptr<EventSample> sample;     // null: the engine is given
  std::unique_ptr<Translator> translator;  // null, too

  // Called while matching: lets the merging thread look at the plans, if it is time to.
  void after_sampling(bool is_timed) {
    if (sample->n_taken() < next_look_.load(std::memory_order_relaxed) &&
        !sample->has_other_use()) {
      return;
    }
    if (is_timed && translator->matched_ns() < kWorthLookNs) return;
    ask_for_look();
  }

 private:
  // Every live matcher, so that fork finds none of them in the middle of something.
  class AllStates {
   public:
    AllStates() {
      pthread_atfork([] { all_states().lock_all(); }, [] { all_states().unlock_all(false); },
                     [] { all_states().unlock_all(true); });
    }
    void add(State* state) {
      const std::lock_guard lock(mutex_);
      states_.push_back(state);
    }
    void remove(State* state) {
      const std::lock_guard lock(mutex_);
      states_.remove(state);
    }

   private:
    void lock_all() {
      mutex_.lock();
      for (State* state : states_) state->lock_for_fork();
    }
    void unlock_all(bool is_child) {
      for (State* state : states_) state->unlock_after_fork(is_child);
      mutex_.unlock();
    }
    std::mutex mutex_;
    std::list<State*> states_;
  };
  static AllStates& all_states() {
    static auto* const all = new AllStates;  // never destroyed: fork handlers stay
    return *all;
  }

  void stop_merger() {
    {
      const std::lock_guard lock(writer_);
      is_closing_ = true;
    }
    wake_merger_.notify_all();
    for (Merger* const merger : {&merger_, &small_merger_}) {
      if (merger->thread.joinable()) merger->thread.join();
    }
  }

  void lock_for_fork() {
    writer_.lock();
    if (sample) sample->lock();
  }
  void unlock_after_fork(bool is_child) {
    if (is_child) {
      // The merging threads are not here. What they had taken is still in the segments.
      for (Merger* const merger : {&merger_, &small_merger_}) {
        new (&merger->thread) std::thread();
        merger->end();
      }
      new (&wake_merger_) std::condition_variable();
      new (&merger_is_idle_) std::condition_variable();
      is_checkpointing_ = is_look_asked_ = false;
      n_flushing_ = 0;
      published_.forget_readers();
      for (const auto& segment : segments_) {
        for (const Group& group : segment->groups()) {
          if (group.movable() != nullptr) group.movable()->forget_readers();
        }
      }
      // The directory is the parent's. Its journal has a thread that is not here: never touch it.
      if (journal_ && journal_.release() != nullptr) closed_because_ = kForked;
    }
    if (sample) sample->unlock();
    writer_.unlock();
  }

  struct Merger;

  // --- all of these under writer_ ---
  std::vector<RowError> check_ids(std::span<const NewSubscription> rows, IdType& type) const;
  void take(std::span<const NewSubscription> rows, std::vector<Staged>& staged);
  void append(std::span<const NewSubscription> rows, Staged& staged);
  // The group in which the area of the slot can move, or null.
  const Group* find_movable(std::uint32_t slot) const;
  struct InPlace {
    const Group* group;
    std::uint32_t slot, row;
  };
  void move_in_place(std::span<const Move> rows, std::span<const InPlace> in_place);
  std::vector<RowError> move_by_text(std::span<const Move> rows,
                                     std::vector<NewSubscription>& moved,
                                     std::deque<std::string>& texts) const;
  // Calls follow(slot) for the slots that have moved since the merger became busy or this was
  // called before: for most while others may move, for the last ones under the lock.
  template <typename Follow>
  void for_each_moved(Merger& merger, std::unique_lock<std::mutex>& lock, Follow follow);
  std::vector<std::uint32_t> follow_moves(Merger& merger, const Segment& merged,
                                          std::unique_lock<std::mutex>& lock);
  void resubscribe(std::span<const std::uint32_t> slots);
  void kill(std::uint32_t slot) { store_->kill(slot, version_ + 1); }
  void seal_delta();
  void publish();
  // Beside merges that are under way.
  bool has_merge_to_do() const {
    if ((has_many_dead() && !small_merger_.is_busy) || is_delta_large()) return true;
    if (n_flushing_ > 0 && choose_merge().size() > 1) return true;
    std::size_t n_free = 0;
    return std::any_of(segments_.begin(), segments_.end(), [&](const auto& segment) {
      return is_free(segment) && (++n_free > kMaxSegments || !segment->is_indexed() ||
                                  is_worn(segment) || is_stale(segment));
    });
  }
  // Somebody waits for all of it: what a small merge is making is merged with the rest, or it would
  // stay beside a segment many times its size.
  bool must_wait_for_small_merge() const { return n_flushing_ > 0 && small_merger_.is_busy; }
  bool is_delta_large() const {
    return delta_ != nullptr && delta_->filters().size() >= kLargeDeltaFilters;
  }
  bool has_small_merge_to_do() const {
    return (merger_.is_long || is_checkpointing_) && !choose_small_merge().empty();
  }
  // Has no merge that is under way taken it?
  bool is_free(const std::shared_ptr<const Segment>& segment) const {
    return !merger_.has(segment) && !small_merger_.has(segment);
  }
  std::vector<std::shared_ptr<const Segment>> free_segments() const {
    std::vector<std::shared_ptr<const Segment>> free;
    std::copy_if(segments_.begin(), segments_.end(), std::back_inserter(free),
                 [this](const auto& segment) { return is_free(segment); });
    return free;
  }
  bool is_stale(const std::shared_ptr<const Segment>& segment) const {
    return std::find(stale_.begin(), stale_.end(), segment) != stale_.end();
  }
  static bool is_worn(const std::shared_ptr<const Segment>& segment) {
    return std::any_of(segment->groups().begin(), segment->groups().end(), [](const Group& group) {
      return group.movable() != nullptr && group.movable()->is_worn();
    });
  }
  static constexpr const char* kClosed = "the matcher is closed";
  static constexpr const char* kReadOnly =
      "the matcher was opened with read_only=True: it cannot be changed";
  static constexpr const char* kForked =
      "a durable matcher belongs to the process that opened it: change it there, or save a "
      "snapshot for this one to open";
  // Writes a change to the log, before it happens.
  static std::string encode_rows(std::span<const NewSubscription> rows);
  static std::string encode_moves(std::span<const Move> rows);
  bool is_durable() const { return options.storage.has_value(); }
  void log(std::string_view payload) {
    if (closed_because_ != nullptr) throw ArgumentError(closed_because_);
    store_->check_texts();
    if (journal_) journal_->append(payload);
  }
  bool wants_checkpoint() const {
    return journal_ && (is_checkpoint_asked_ || journal_->wants_checkpoint());
  }
  void open_journal();
  void begin_anew(Space space);
  void adopt(const std::shared_ptr<const Image>& image);
  void replay(const LogRecord& record, const std::string& path);
  void run_checkpoint(std::unique_lock<std::mutex>& lock);
  bool has_many_dead() const {
    return store_->n_dead_unmerged() > std::max(kMinDead, store_->n_live());
  }
  void wake_merger();
  std::vector<std::shared_ptr<const Segment>> choose_merge() const;
  std::vector<std::shared_ptr<const Segment>> choose_small_merge() const;

  // --- of engine="auto", in replanning.cpp ---
  void ask_for_look();  // not under writer_
  // Are there events that no plan has seen, enough of them for a flush to wait for?
  bool has_new_events() const;
  bool wants_twins() const;
  // Not under the lock: takes it. Of the merging thread.
  Translator::Settled settle(const Group& group, const Twin& beside, bool is_new);
  void translate(std::unique_lock<std::mutex>& lock);
  void put_off_look();
  void run_look(std::unique_lock<std::mutex>& lock);

  void run_merger();
  void run_small_merger();
  void wait_until_merged(std::unique_lock<std::mutex>& lock);
  struct Merged {
    std::shared_ptr<const Segment> segment;   // null: nothing is left
    std::vector<std::uint32_t> dropped;       // slots
    std::size_t n_inputs = 0;                 // filters
    std::shared_ptr<const SegmentPlan> plan;  // of engine="auto"
  };
  Merged merge(std::span<const std::shared_ptr<const Segment>> inputs, std::uint64_t version,
               const SampledEvents& events) const;
  void build(Merged& merged, SegmentFilters filters, const SampledEvents& events) const;
  // Merges what was chosen, and publishes it. Gives back how many filters there were.
  std::size_t run_merge(Merger& merger, std::vector<std::shared_ptr<const Segment>> inputs,
                        std::unique_lock<std::mutex>& lock);

  std::optional<EngineChoice> choice_;  // none: planned
  const EngineChoice naive_;
  Space space_ = Space::plane;

  mutable std::mutex writer_;
  std::shared_ptr<Store> store_ = std::make_shared<Store>();
  Catalogue catalogue_;
  std::vector<std::shared_ptr<const Segment>> segments_;
  std::shared_ptr<Delta> delta_;
  std::size_t next_delta_filters_ = kFirstDeltaFilters;
  IdType id_type_ = IdType::none;
  std::uint64_t version_ = 0;  // of the newest snapshot

  // A thread that merges. The first does all that there is to do, one after the other; while that
  // takes long, the second merges what is small.
  struct Merger {
    std::thread thread;
    bool is_busy = false;
    bool is_long = false;                                // what it does may take seconds
    std::vector<std::shared_ptr<const Segment>> inputs;  // of the merge under way
    // Slots that have moved in place since that merge began, each once.
    std::vector<std::uint32_t> moved;
    std::vector<bool> is_moved;  // [n_slots] or shorter

    bool has(const std::shared_ptr<const Segment>& segment) const {
      return std::find(inputs.begin(), inputs.end(), segment) != inputs.end();
    }
    void note_move(std::uint32_t slot, std::size_t n_slots) {
      if (is_moved.size() <= slot) is_moved.resize(n_slots);
      if (is_moved[slot]) return;
      is_moved[slot] = true;
      moved.push_back(slot);
    }
    void end() {
      is_busy = is_long = false;
      inputs.clear();
      moved.clear();
      is_moved.clear();
    }
  };
  bool is_merging() const { return merger_.is_busy || small_merger_.is_busy; }
  Merger merger_, small_merger_;
  std::condition_variable wake_merger_, merger_is_idle_;
  bool is_closing_ = false;
  std::size_t n_merges_ = 0;
  std::exception_ptr merge_error_;

  std::map<std::uint64_t, std::shared_ptr<const SegmentPlan>> plans_;  // by the segment's serial
  std::vector<std::shared_ptr<const Segment>> stale_;                  // to be planned again
  bool is_look_asked_ = false;
  int n_flushing_ = 0;                                // calls of flush() that wait
  std::atomic<std::uint64_t> next_look_{kFirstLook};  // in events that were taken to the sample
  std::uint64_t last_look_ = 0, look_interval_ = kFirstLook;
  std::chrono::steady_clock::time_point no_look_before_;
  // The same for a look because events come in another way. Each makes the next one wait twice as
  // long, so that uses that alternate do not keep a core busy.
  std::chrono::steady_clock::time_point no_other_look_before_;
  bool is_for_other_use_ = false;  // the look that is asked for
  int n_other_looks_ = 0;          // less those that were not

  std::unique_ptr<Journal> journal_;  // null: in memory alone, or closed
  JournalSizes sizes_when_read_;      // of a directory that was opened read-only
  const char* closed_because_ = nullptr;
  bool is_checkpointing_ = false, is_checkpoint_asked_ = false;
  std::size_t n_checkpoints_ = 0;  // that ended, well or not
  std::string checkpoint_error_;

  Published<Snapshot> published_;
};

}  // namespace tamis
