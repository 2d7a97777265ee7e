#include "tamis/matcher.hpp"

#include <malloc.h>
#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <thread>

#include "common/thread_pool.hpp"
#include "engines/naive.hpp"
#include "segment.hpp"
#include "snapshot.hpp"
#include "storage/journal.hpp"
#include "store.hpp"
#include "tamis/ast.hpp"
#include "tamis/error.hpp"
#include "tamis/move_area.hpp"
#include "tamis/normal_form.hpp"

namespace tamis {
namespace {

// A delta begins small and grows by this factor, each time it is full, up to the most.
constexpr std::size_t kFirstDeltaFilters = 64;
constexpr std::size_t kDeltaGrowth = 4;
constexpr std::size_t kMaxDeltaFilters = 4096;
// An indexed segment is merged with what is new if it is at most so many times larger.
constexpr std::size_t kSizeRatio = 4;
constexpr std::size_t kLargeMerge = 100'000;  // filters from which memory is given back at once
constexpr std::size_t kMinDead = 4096;       // fewer dead slots are not worth a merge of everything
constexpr std::size_t kRowsPerTask = 2048;   // of a batch of subscriptions read on several threads
constexpr std::size_t kEventsPerTask = 256;  // of a match on several threads, at most
// Filters times events below which waking another thread costs more than it brings.
constexpr std::size_t kMinParallelWork = std::size_t{1} << 20;
constexpr std::size_t kMaxBitsetBytes = std::size_t{8} << 30;
constexpr std::size_t kMaxSlots = std::size_t{1} << 31;

void check_areas(const Ast& ast, Space space) {
  for (const Node& node : ast.nodes) {
    if (node.kind == NodeKind::near && !is_place(space, node.x, node.y)) {
      throw LanguageError(
          "on earth, the x of NEAR is a longitude from -180 to 360 and the y a latitude from -90 "
          "to 90",
          node.offset);
    }
  }
}

// Subscriptions read aside, with names of their own: a bad row leaves no trace.
struct Staged {
  explicit Staged(Space space) : table(std::make_shared<FilterTable>(space)) {}
  std::size_t first_row = 0;
  std::shared_ptr<FilterTable> table;
  Catalogue names;
  std::vector<std::uint32_t> n_filters;  // of each row
  std::vector<RowError> errors;
};

Staged read_rows(std::span<const NewSubscription> rows, std::size_t begin, std::size_t end,
                 Space space) {
  Staged staged(space);
  staged.first_row = begin;
  Ast ast;
  for (std::size_t row = begin; row < end && staged.errors.size() < Matcher::kMaxRowErrors; ++row) {
    const std::size_t n_before = staged.table->size();
    try {
      parse(rows[row].predicate, ast);
      check_areas(ast, space);
      if (staged.errors.empty()) staged.table->append(to_normal_form(ast), staged.names);
    } catch (const LanguageError& error) {
      staged.errors.push_back({row, error.what(), error.offset()});
    }
    staged.n_filters.push_back(static_cast<std::uint32_t>(staged.table->size() - n_before));
  }
  return staged;
}

}  // namespace

std::string to_text(const IdView& id) {
  return id.type == IdType::integer ? std::to_string(id.integer)
                                    : "'" + std::string(id.string) + "'";
}

const Names& View::names() const { return *snapshot->names; }

IdView MatchResult::id(std::uint32_t target) const {
  return deliver == Deliver::subscribers ? snapshot->store->subscriber_id(target)
                                         : snapshot->store->id(target);
}

IdType MatchResult::id_type() const { return snapshot->id_type; }

class Matcher::State {
 public:
  explicit State(const MatcherOptions& given)
      : options(given),
        engine_(find_engine(given.engine == "auto" ? "naive" : given.engine)),
        naive_(find_engine("naive")) {
    options.parameters = complete_parameters(engine_, given.parameters);
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
  void save(const std::string& directory) const;
  void checkpoint();
  void close();
  Space space() const { return space_; }
  MatcherStats stats() const;

  std::shared_ptr<const Snapshot> snapshot() const {
    const std::lock_guard lock(publishing_);
    return published_;
  }
  // Reads the store under the writer's lock.
  template <typename Read>
  auto read(Read read_store) const {
    const std::lock_guard lock(writer_);
    return read_store(*store_, id_type_);
  }

  std::unique_ptr<Workspace> take_workspace() {
    const std::lock_guard lock(spare_mutex_);
    if (spare_.empty()) return std::make_unique<Workspace>();
    std::unique_ptr<Workspace> workspace = std::move(spare_.back());
    spare_.pop_back();
    return workspace;
  }
  void give_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(spare_mutex_);
    spare_.push_back(std::move(workspace));
  }

  MatcherOptions options;

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
    if (merger_.joinable()) merger_.join();
  }

  void lock_for_fork() {
    writer_.lock();
    publishing_.lock();
    spare_mutex_.lock();
  }
  void unlock_after_fork(bool is_child) {
    if (is_child) {
      // The merging thread is not here. What it had taken is still in the segments.
      new (&merger_) std::thread();
      new (&wake_merger_) std::condition_variable();
      new (&merger_is_idle_) std::condition_variable();
      is_merging_ = is_checkpointing_ = false;
      // The directory is the parent's. Its journal has a thread that is not here: never touch it.
      if (journal_ && journal_.release() != nullptr) closed_because_ = kForked;
    }
    spare_mutex_.unlock();
    publishing_.unlock();
    writer_.unlock();
  }

  // --- all of these under writer_ ---
  std::vector<RowError> check_ids(std::span<const NewSubscription> rows, IdType& type) const;
  void take(std::span<const NewSubscription> rows, std::vector<Staged>& staged);
  void append(std::span<const NewSubscription> rows, Staged& staged);
  void kill(std::uint32_t slot) { store_->kill(slot, version_ + 1); }
  void seal_delta();
  void publish();
  bool has_merge_to_do() const {
    return std::any_of(segments_.begin(), segments_.end(),
                       [](const auto& segment) { return !segment->is_indexed(); }) ||
           segments_.size() > kMaxSegments || has_many_dead();
  }
  static constexpr const char* kClosed = "the matcher is closed";
  static constexpr const char* kForked =
      "a durable matcher belongs to the process that opened it: change it there, or save a "
      "snapshot for this one to open";
  // Writes a change to the log, before it happens.
  static std::string encode_rows(std::span<const NewSubscription> rows);
  bool is_durable() const { return options.storage.has_value(); }
  void log(std::string_view payload) {
    if (closed_because_ != nullptr) throw ArgumentError(closed_because_);
    if (journal_) journal_->append(payload);
  }
  bool wants_checkpoint() const {
    return journal_ && (is_checkpoint_asked_ || journal_->wants_checkpoint());
  }
  void open_journal();
  void replay(const LogRecord& record, const std::string& path);
  void run_checkpoint(std::unique_lock<std::mutex>& lock);
  bool has_many_dead() const {
    return store_->n_dead_unmerged() > std::max(kMinDead, store_->n_live());
  }
  void wake_merger();
  std::vector<std::shared_ptr<const Segment>> choose_merge() const;

  void run_merger();
  struct Merged {
    std::shared_ptr<const Segment> segment;  // null: nothing is left
    std::vector<std::uint32_t> dropped;      // slots
    std::size_t n_inputs = 0;                // filters
  };
  Merged merge(std::span<const std::shared_ptr<const Segment>> inputs, std::uint64_t version) const;

  const Engine& engine_;
  const Engine& naive_;
  Space space_ = Space::plane;

  mutable std::mutex writer_;
  std::shared_ptr<Store> store_ = std::make_shared<Store>();
  Catalogue catalogue_;
  std::vector<std::shared_ptr<const Segment>> segments_;
  std::shared_ptr<Delta> delta_;
  std::size_t next_delta_filters_ = kFirstDeltaFilters;
  IdType id_type_ = IdType::none;
  std::uint64_t version_ = 0;  // of the newest snapshot

  std::thread merger_;
  std::condition_variable wake_merger_, merger_is_idle_;
  bool is_merging_ = false, is_closing_ = false;
  std::size_t n_merges_ = 0;
  std::exception_ptr merge_error_;

  std::unique_ptr<Journal> journal_;  // null: in memory alone, or closed
  const char* closed_because_ = nullptr;
  bool is_checkpointing_ = false, is_checkpoint_asked_ = false;
  std::size_t n_checkpoints_ = 0;  // that ended, well or not
  std::string checkpoint_error_;

  mutable std::mutex publishing_;  // held for a copy of the pointer alone
  std::shared_ptr<const Snapshot> published_;

  std::mutex spare_mutex_;
  std::vector<std::unique_ptr<Workspace>> spare_;
};

// --- changes
// ---------------------------------------------------------------------------------------

std::vector<RowError> Matcher::State::subscribe(std::span<const NewSubscription> rows) {
  const std::size_t n_tasks = (rows.size() + kRowsPerTask - 1) / kRowsPerTask;
  std::vector<Staged> staged(n_tasks, Staged(space_));
  parallel_for(n_tasks, options.n_threads, [&](std::size_t task) {
    const std::size_t begin = task * kRowsPerTask;
    staged[task] = read_rows(rows, begin, std::min(begin + kRowsPerTask, rows.size()), space_);
  });
  std::vector<RowError> errors;
  for (Staged& each : staged) {
    for (RowError& error : each.errors) {
      if (errors.size() < kMaxRowErrors) errors.push_back(std::move(error));
    }
  }
  if (!errors.empty()) return errors;
  const std::string payload = is_durable() ? encode_rows(rows) : std::string();

  const std::lock_guard lock(writer_);
  IdType type = id_type_;
  errors = check_ids(rows, type);
  if (!errors.empty() || rows.empty()) return errors;
  log(payload);
  id_type_ = type;
  take(rows, staged);
  return {};
}

std::vector<RowError> Matcher::State::check_ids(std::span<const NewSubscription> rows,
                                                IdType& type) const {
  std::vector<RowError> errors;
  for (std::size_t row = 0; row < rows.size() && errors.size() < kMaxRowErrors; ++row) {
    if (type == IdType::none) type = rows[row].id.type;
    const auto check = [&](const IdView& id, const char* what) {
      if (id.type == type) return;
      const char* wanted = type == IdType::integer ? "an integer" : "a string";
      errors.push_back({row,
                        std::string(what) + " must be " + wanted +
                            ", as the ids of this matcher are, not " + to_text(id),
                        std::nullopt});
    };
    check(rows[row].id, "id");
    if (rows[row].subscriber) check(*rows[row].subscriber, "subscriber");
  }
  if (errors.empty() && store_->n_slots() + rows.size() > kMaxSlots) {
    errors.push_back({0, "a matcher must not hold more than 2^31 subscriptions", std::nullopt});
  }
  return errors;
}

// Everything is checked: from here on only memory can fail.
void Matcher::State::take(std::span<const NewSubscription> rows, std::vector<Staged>& staged) {
  store_->free_retired();
  for (Staged& each : staged) append(rows, each);
  publish();
}

void Matcher::State::append(std::span<const NewSubscription> rows, Staged& staged) {
  const std::shared_ptr<const Names> names = staged.names.names();
  std::vector<AttributeId> attribute_of(names->size());
  for (AttributeId id = 0; id < attribute_of.size(); ++id) {
    attribute_of[id] = catalogue_.intern(names->name(id));
  }
  SegmentFilters own(space_);  // of a batch that is too large for a delta
  SegmentFilters* target = nullptr;
  // A new delta where the old one is full; but not for one predicate that is too large for any.
  const bool is_full = delta_ == nullptr || (!delta_->has_room_for(*staged.table) &&
                                             4 * delta_->filters().size() > delta_->n_most());
  if (is_full && staged.table->size() <= kMaxDeltaFilters / 2) {
    seal_delta();
    delta_ = std::make_shared<Delta>(space_, next_delta_filters_);
    next_delta_filters_ = std::min(next_delta_filters_ * kDeltaGrowth, kMaxDeltaFilters);
  }
  if (delta_ != nullptr && delta_->has_room_for(*staged.table)) {
    target = &delta_->filters();
    target->table->append(*staged.table, 0, static_cast<FilterIdx>(staged.table->size()),
                          attribute_of);
  } else {
    target = &own;
    staged.table->translate(attribute_of);
    own.table = staged.table;
  }
  for (std::size_t at = 0; at < staged.n_filters.size(); ++at) {
    const NewSubscription& row = rows[staged.first_row + at];
    if (const std::uint32_t old = store_->find(row.id); old != Store::kNone) kill(old);
    const std::uint32_t slot = store_->add(row.id, row.predicate, row.subscriber.value_or(row.id),
                                           staged.n_filters[at] > 0, version_ + 1);
    target->add(staged.n_filters[at], slot, store_->subscriber_of(slot));
  }
  if (own.size() > 0) {
    segments_.push_back(
        std::make_shared<const Segment>(std::move(own), naive_, Parameters{}, false));
  }
}

void Matcher::State::unsubscribe(std::span<const IdView> ids) {
  const std::lock_guard lock(writer_);
  for (const IdView& id : ids) {
    if (store_->find(id) == Store::kNone) {
      throw UnknownIdError("no subscription has the id " + to_text(id));
    }
  }
  if (ids.empty()) return;
  log(is_durable() ? encode_unsubscribe(ids) : std::string());
  store_->free_retired();
  for (const IdView& id : ids) {
    if (const std::uint32_t slot = store_->find(id); slot != Store::kNone) kill(slot);
  }
  publish();
}

std::vector<RowError> Matcher::State::move(std::span<const Move> rows) {
  std::vector<RowError> errors;
  const std::lock_guard lock(writer_);
  // A move is a new predicate under the same id and subscriber.
  std::vector<std::string> texts(rows.size());
  std::vector<NewSubscription> moved(rows.size());
  for (std::size_t row = 0; row < rows.size() && errors.size() < kMaxRowErrors; ++row) {
    const std::uint32_t slot = store_->find(rows[row].id);
    try {
      if (slot == Store::kNone) {
        throw UnknownIdError("no subscription has the id " + to_text(rows[row].id));
      }
      if (!std::isfinite(rows[row].x) || !std::isfinite(rows[row].y)) {
        throw ArgumentError("a centre must be two finite numbers");
      }
      if (!is_place(space_, rows[row].x, rows[row].y)) {
        throw ArgumentError(
            "on earth, a centre is a longitude from -180 to 360 and a latitude from -90 to 90");
      }
      texts[row] = move_area(store_->predicate(slot), rows[row].area, rows[row].x, rows[row].y);
    } catch (const Error& error) {
      errors.push_back({row, error.what(), std::nullopt});
      continue;
    }
    moved[row] = {store_->id(slot), texts[row], store_->subscriber_id(store_->subscriber_of(slot))};
  }
  if (!errors.empty() || rows.empty()) return errors;
  // The ids are views into slots that die on the way: a copy outlives them.
  std::vector<StoredId> kept;
  kept.reserve(2 * rows.size());
  for (NewSubscription& row : moved) {
    row.id = kept.emplace_back(row.id).view();
    row.subscriber = kept.emplace_back(*row.subscriber).view();
  }
  std::vector<Staged> staged;
  staged.push_back(read_rows(moved, 0, moved.size(), space_));
  if (!staged[0].errors.empty()) return staged[0].errors;
  log(is_durable() ? encode_rows(moved) : std::string());
  take(moved, staged);
  return {};
}

void Matcher::State::seal_delta() {
  if (delta_ != nullptr && delta_->filters().size() > 0) {
    SegmentFilters& filters = delta_->filters();
    SegmentFilters sealed(space_);
    sealed.table = filters.table;  // matches may still read it: nothing is appended any more
    sealed.slot_of = filters.slot_of;
    sealed.subscriber_of = filters.subscriber_of;
    segments_.push_back(
        std::make_shared<const Segment>(std::move(sealed), naive_, Parameters{}, false));
  }
  delta_ = nullptr;
}

void Matcher::State::publish() {
  store_->retire({});
  auto next = std::make_shared<Snapshot>();
  next->segments = segments_;
  next->delta = delta_;
  next->n_delta_filters = delta_ == nullptr ? 0 : delta_->filters().size();
  next->store = store_;
  next->names = catalogue_.names();
  next->epoch = store_->hold_epoch();
  next->version = ++version_;
  next->id_type = id_type_;
  next->n_slots = store_->n_slots();
  next->n_subscribers = store_->n_subscriber_numbers();
  next->has_dead = store_->n_dead() > 0;
  std::shared_ptr<const Snapshot> old = std::move(next);
  {
    const std::lock_guard lock(publishing_);
    old.swap(published_);
  }
  if (has_merge_to_do() || wants_checkpoint()) wake_merger();
}

// --- merging
// ---------------------------------------------------------------------------------------

void Matcher::State::wake_merger() {
  if (is_closing_) return;
  if (!merger_.joinable()) merger_ = std::thread([this] { run_merger(); });
  wake_merger_.notify_one();
}

// Everything that is not indexed, and indexed segments from the smallest up, while they are not
// much larger than what is taken already or there would be too many.
std::vector<std::shared_ptr<const Segment>> Matcher::State::choose_merge() const {
  if (has_many_dead()) return segments_;
  std::vector<std::shared_ptr<const Segment>> chosen, indexed;
  std::size_t n_chosen = 0;
  for (const auto& segment : segments_) {
    if (segment->is_indexed()) {
      indexed.push_back(segment);
    } else {
      chosen.push_back(segment);
      n_chosen += segment->size();
    }
  }
  std::sort(indexed.begin(), indexed.end(),
            [](const auto& a, const auto& b) { return a->size() < b->size(); });
  for (std::size_t at = 0; at < indexed.size(); ++at) {
    const std::size_t n_left = indexed.size() - at;
    if (indexed[at]->size() > kSizeRatio * n_chosen && n_left < kMaxSegments) break;
    chosen.push_back(indexed[at]);
    n_chosen += indexed[at]->size();
  }
  return chosen;
}

Matcher::State::Merged Matcher::State::merge(std::span<const std::shared_ptr<const Segment>> inputs,
                                             std::uint64_t version) const {
  Merged merged;
  SegmentFilters all(space_);
  std::size_t n_filters = 0;
  for (const auto& segment : inputs) {
    n_filters += segment->size();
    all.table->reserve_more(segment->table());
  }
  merged.n_inputs = n_filters;
  all.slot_of.reserve(n_filters);
  all.subscriber_of.reserve(n_filters);
  for (const auto& segment : inputs) {
    const std::vector<std::uint32_t>& slots = segment->slot_of();
    const auto is_dead = [&](std::size_t filter) {
      return store_->died_at[slots[filter]].load(std::memory_order_relaxed) <= version;
    };
    for (std::size_t begin = 0; begin < slots.size();) {
      std::size_t end = begin;
      if (is_dead(begin)) {
        for (; end < slots.size() && is_dead(end); ++end) {
          if (merged.dropped.empty() || merged.dropped.back() != slots[end]) {
            merged.dropped.push_back(slots[end]);
          }
        }
      } else {
        while (end < slots.size() && !is_dead(end)) ++end;
        all.table->append(segment->table(), static_cast<FilterIdx>(begin),
                          static_cast<FilterIdx>(end), {});
        const auto copy = [&](std::vector<std::uint32_t>& to,
                              const std::vector<std::uint32_t>& from) {
          to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
                    from.begin() + static_cast<std::ptrdiff_t>(end));
        };
        copy(all.slot_of, slots);
        copy(all.subscriber_of, segment->subscriber_of());
      }
      begin = end;
    }
  }
  if (all.size() > 0) {
    merged.segment =
        std::make_shared<const Segment>(std::move(all), engine_, options.parameters, true);
  }
  return merged;
}

void Matcher::State::run_merger() {
  std::unique_lock lock(writer_);
  for (;;) {
    wake_merger_.wait(lock, [this] {
      return is_closing_ || (has_merge_to_do() && !merge_error_) || wants_checkpoint();
    });
    if (is_closing_) return;
    if (wants_checkpoint()) {
      run_checkpoint(lock);
      continue;
    }
    is_merging_ = true;
    if (has_many_dead()) seal_delta();
    std::vector<std::shared_ptr<const Segment>> inputs = choose_merge();
    const std::uint64_t version = version_;
    lock.unlock();
    Merged merged;
    std::exception_ptr error;
    try {
      merged = merge(inputs, version);
    } catch (...) {
      error = std::current_exception();  // the inputs are still there; flush() tells
    }
    lock.lock();
    if (error) {
      merge_error_ = error;
    } else {
      std::erase_if(segments_, [&](const auto& segment) {
        return std::find(inputs.begin(), inputs.end(), segment) != inputs.end();
      });
      if (merged.segment) segments_.insert(segments_.begin(), std::move(merged.segment));
      ++n_merges_;
      store_->retire(std::move(merged.dropped));
      publish();
      store_->free_retired();
    }
    inputs.clear();
    const bool is_large = merged.n_inputs > kLargeMerge;
    merged = Merged();
    if (is_large) {
      lock.unlock();
      malloc_trim(0);  // or the pages of what was merged would stay with the process
      lock.lock();
    }
    is_merging_ = false;
    merger_is_idle_.notify_all();
  }
}

void Matcher::State::flush() {
  std::unique_lock lock(writer_);
  merge_error_ = nullptr;
  seal_delta();
  publish();
  merger_is_idle_.wait(lock,
                       [this] { return merge_error_ || (!has_merge_to_do() && !is_merging_); });
  if (merge_error_) std::rethrow_exception(std::exchange(merge_error_, nullptr));
}

// --- durability
// ------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kRowsPerRecord = 4096;

// What lived at a snapshot, as records of a log.
void write_rows(const Snapshot& snapshot, LogWriter& log) {
  const Store& store = *snapshot.store;
  std::vector<LogSubscribe> rows;
  const auto write = [&] {
    if (!rows.empty()) log.append(encode_subscribe(rows));
    rows.clear();
  };
  store.for_each_at(snapshot.version, snapshot.n_slots, [&](std::uint32_t slot) {
    const IdView id = store.id(slot);
    const IdView subscriber = store.subscriber_id(store.subscriber_of(slot));
    rows.push_back(
        {id, store.predicate(slot), subscriber == id ? std::nullopt : std::optional(subscriber)});
    if (rows.size() == kRowsPerRecord) write();
  });
  write();
}

}  // namespace

std::string Matcher::State::encode_rows(std::span<const NewSubscription> rows) {
  std::vector<LogSubscribe> records;
  records.reserve(rows.size());
  for (const NewSubscription& row : rows) {
    records.push_back({row.id, row.predicate, row.subscriber});
  }
  return encode_subscribe(records);
}

void Matcher::State::open_journal() {
  const StorageOptions& storage = *options.storage;
  // The space must be known before the first area is read.
  Journal::Opened opened = Journal::open(
      storage.directory, storage.create, storage.policy, options.space,
      [this](Space space) { space_ = space; },
      [this](const LogRecord& record, const std::string& path) { replay(record, path); });
  const std::lock_guard lock(writer_);
  journal_ = std::move(opened.journal);
}

void Matcher::State::replay(const LogRecord& record, const std::string& path) {
  const auto place = [&] { return "the record at byte " + std::to_string(record.offset); };
  if (record.kind == LogRecord::Kind::unsubscribe) {
    try {
      unsubscribe(record.ids);
    } catch (const UnknownIdError& error) {
      throw StorageError(path, place() + " cannot be applied: " + error.what());
    }
    return;
  }
  std::vector<NewSubscription> rows;
  rows.reserve(record.rows.size());
  for (const LogSubscribe& row : record.rows)
    rows.push_back({row.id, row.predicate, row.subscriber});
  const std::vector<RowError> errors = subscribe(rows);
  if (!errors.empty()) {
    throw StorageError(path, place() + " cannot be applied: " + errors[0].reason);
  }
}

void Matcher::State::run_checkpoint(std::unique_lock<std::mutex>& lock) {
  is_checkpointing_ = true;
  is_checkpoint_asked_ = false;
  try {
    journal_->rotate();
    const std::shared_ptr<const Snapshot> snapshot = this->snapshot();
    lock.unlock();
    journal_->write_checkpoint([&](LogWriter& log) { write_rows(*snapshot, log); });
    lock.lock();
    checkpoint_error_.clear();
  } catch (const std::exception& error) {
    // The logs so far still give the state; the journal asks again when they have grown.
    if (!lock.owns_lock()) lock.lock();
    journal_->put_off_checkpoint();
    checkpoint_error_ = error.what();
  }
  is_checkpointing_ = false;
  ++n_checkpoints_;
  merger_is_idle_.notify_all();
}

void Matcher::State::save(const std::string& directory) const {
  const std::shared_ptr<const Snapshot> saved = snapshot();
  Journal::save(directory, space_, [&](LogWriter& log) { write_rows(*saved, log); });
}

void Matcher::State::checkpoint() {
  std::unique_lock lock(writer_);
  if (closed_because_ != nullptr) throw ArgumentError(closed_because_);
  if (!journal_) throw ArgumentError("only a matcher that was opened from a directory has one");
  is_checkpoint_asked_ = true;
  const std::size_t n_before = n_checkpoints_ + (is_checkpointing_ ? 1 : 0);
  wake_merger();
  merger_is_idle_.wait(lock,
                       [&] { return n_checkpoints_ > n_before || closed_because_ != nullptr; });
  if (n_checkpoints_ <= n_before) throw ArgumentError(closed_because_);
  if (!checkpoint_error_.empty()) {
    throw StorageError(options.storage->directory, "the checkpoint failed: " + checkpoint_error_);
  }
}

void Matcher::State::close() {
  std::unique_ptr<Journal> journal;
  {
    std::unique_lock lock(writer_);
    if (closed_because_ == nullptr) closed_because_ = kClosed;
    merger_is_idle_.wait(lock, [this] { return !is_checkpointing_; });
    is_checkpoint_asked_ = false;
    journal = std::move(journal_);
  }
  merger_is_idle_.notify_all();
  if (journal) journal->sync();
}

MatcherStats Matcher::State::stats() const {
  const std::lock_guard lock(writer_);
  MatcherStats stats;
  stats.n_subscriptions = store_->n_live();
  stats.n_subscribers = store_->n_live_subscribers();
  stats.n_attributes = catalogue_.size();
  stats.n_delta_filters = delta_ == nullptr ? 0 : delta_->filters().size();
  stats.n_delta_bytes = delta_ == nullptr ? 0 : delta_->table().n_bytes();
  stats.n_dead = store_->n_dead();
  stats.n_store_bytes = store_->n_bytes();
  stats.n_merges = n_merges_;
  stats.version = version_;
  stats.is_merging = is_merging_;
  if (journal_) {
    stats.n_logs = journal_->n_logs();
    stats.n_log_bytes = journal_->n_bytes();
  }
  stats.checkpoint_error = checkpoint_error_;
  for (const auto& segment : segments_) {
    stats.segments.push_back({segment->engine().name, segment->is_indexed(), segment->size(),
                              segment->table().n_constraints(), segment->table().n_bytes(),
                              segment->index().n_bytes()});
  }
  return stats;
}

// --- the public face
// -------------------------------------------------------------------------------

Matcher::Matcher(const MatcherOptions& options) : state_(std::make_unique<State>(options)) {}
Matcher::~Matcher() = default;

const MatcherOptions& Matcher::options() const { return state_->options; }

std::vector<RowError> Matcher::subscribe(std::span<const NewSubscription> rows) {
  return state_->subscribe(rows);
}
void Matcher::unsubscribe(std::span<const IdView> ids) { state_->unsubscribe(ids); }
std::vector<RowError> Matcher::move(std::span<const Move> rows) { return state_->move(rows); }
void Matcher::flush() { state_->flush(); }
MatcherStats Matcher::stats() const { return state_->stats(); }
void Matcher::save(const std::string& directory) const { state_->save(directory); }
void Matcher::checkpoint() { state_->checkpoint(); }
void Matcher::close() { state_->close(); }
Space Matcher::space() const { return state_->space(); }
View Matcher::view() const { return {state_->snapshot()}; }

bool Matcher::contains(const IdView& id) const {
  return state_->read([&](const Store& store, IdType) { return store.find(id) != Store::kNone; });
}

std::string Matcher::predicate(const IdView& id) const {
  return state_->read([&](const Store& store, IdType) {
    const std::uint32_t slot = store.find(id);
    if (slot == Store::kNone) throw UnknownIdError("no subscription has the id " + to_text(id));
    return std::string(store.predicate(slot));
  });
}

std::size_t Matcher::size() const {
  return state_->read([](const Store& store, IdType) { return store.n_live(); });
}

IdType Matcher::id_type() const {
  return state_->read([](const Store&, IdType type) { return type; });
}

std::vector<std::string> Matcher::string_ids() const {
  return state_->read([](const Store& store, IdType) {
    std::vector<std::string> all;
    store.for_each_live([&](std::uint32_t slot) { all.emplace_back(store.id(slot).string); });
    return all;
  });
}

std::vector<std::int64_t> Matcher::integer_ids() const {
  return state_->read([](const Store& store, IdType) {
    std::vector<std::int64_t> all;
    store.for_each_live([&](std::uint32_t slot) { all.push_back(store.id(slot).integer); });
    return all;
  });
}

std::vector<Matcher::Hits> Matcher::top(std::size_t n) const {
  return state_->read([&](const Store& store, IdType) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> counted;
    store.for_each_live([&](std::uint32_t slot) {
      const std::uint64_t hits = store.hits[slot].load(std::memory_order_relaxed);
      if (hits > 0) counted.emplace_back(hits, slot);
    });
    const std::size_t n_top = std::min(n, counted.size());
    std::partial_sort(counted.begin(), counted.begin() + static_cast<std::ptrdiff_t>(n_top),
                      counted.end(), std::greater<>());
    std::vector<Hits> top;
    for (std::size_t at = 0; at < n_top; ++at) {
      const IdView id = store.id(counted[at].second);
      top.push_back({id.type, id.integer, std::string(id.string), counted[at].first});
    }
    return top;
  });
}

MatchResult Matcher::match(const View& view, const EventBatch& events,
                           const MatchOptions& options) const {
  const Snapshot& snapshot = *view.snapshot;
  const MatcherOptions& own = state_->options;
  if (events.catalogue_id != snapshot.names->catalogue_id()) {
    throw ArgumentError("these events were encoded for another matcher; encode them for this one");
  }
  if (events.n_known < snapshot.names->size()) {
    throw ArgumentError(
        "these events were encoded before subscriptions with new attributes arrived; encode them "
        "again");
  }
  if (state_->space() == Space::earth) {
    for (std::size_t event = 0; event < events.size(); ++event) {
      if (events.has_position(event) && !is_place(Space::earth, events.x[event], events.y[event])) {
        throw EventError("event " + std::to_string(event) +
                         ": on earth, a position is a longitude from -180 to 360 and a latitude "
                         "from -90 to 90, not (" +
                         std::to_string(events.x[event]) + ", " + std::to_string(events.y[event]) +
                         ")");
      }
    }
  }
  MatchResult result;
  result.output = options.output;
  result.deliver = options.deliver;
  result.n_events = events.size();
  result.snapshot = view.snapshot;
  result.n_targets =
      options.deliver == Deliver::subscribers ? snapshot.n_subscribers : snapshot.n_slots;
  if (options.output == Output::bitset) {
    result.words_per_event = (result.n_targets + 63) / 64;
    if (result.n_events * result.words_per_event * 8 > kMaxBitsetBytes) {
      throw ArgumentError("bitsets of " + std::to_string(result.n_events) + " events over " +
                          std::to_string(result.n_targets) +
                          " targets would take more than 8 GiB; match fewer events at a time");
    }
    result.bits.resize(result.n_events * result.words_per_event);
  }
  const bool counts_hits = own.counts_hits && options.deliver == Deliver::subscriptions;
  const bool is_small = events.size() * snapshot.n_filters() < kMinParallelWork;
  const std::size_t events_per_task =
      own.n_threads == 1 || is_small
          ? std::max<std::size_t>(events.size(), 1)
          : std::clamp<std::size_t>(events.size() / (4 * own.n_threads), 1, kEventsPerTask);
  const std::size_t n_tasks = (events.size() + events_per_task - 1) / events_per_task;
  std::vector<MatchPart> parts(n_tasks);
  const auto run = [&](std::size_t task) {
    const std::size_t begin = task * events_per_task;
    const std::size_t end = std::min(begin + events_per_task, events.size());
    std::unique_ptr<Workspace> workspace = state_->take_workspace();
    parts[task] = match_range(snapshot, events, options, counts_hits, begin, end,
                              result.bits.data() + begin * result.words_per_event,
                              result.words_per_event, *workspace);
    workspace->keep_only(snapshot);
    state_->give_back(std::move(workspace));
  };
  if (n_tasks == 1) {
    run(0);
  } else {
    parallel_for(n_tasks, own.n_threads, run);
  }

  if (options.output == Output::ids) result.offsets.push_back(0);
  for (MatchPart& part : parts) {
    result.counters += part.counters;
    if (options.output == Output::count) {
      result.counts.insert(result.counts.end(), part.counts.begin(), part.counts.end());
    } else if (options.output == Output::ids) {
      for (const std::int64_t count : part.counts) {
        result.offsets.push_back(result.offsets.back() + count);
      }
      if (result.targets.empty()) {
        result.targets = std::move(part.targets);
      } else {
        result.targets.insert(result.targets.end(), part.targets.begin(), part.targets.end());
      }
    }
  }
  return result;
}

}  // namespace tamis
