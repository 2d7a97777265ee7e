// The public face of a matcher, and matching.
#include "tamis/matcher.hpp"

#include <algorithm>
#include <numeric>

#include "common/thread_pool.hpp"
#include "state.hpp"
#include "tamis/event_columns.hpp"
#include "tasks.hpp"

namespace tamis {
namespace {

constexpr std::size_t kMaxBitsetBytes = std::size_t{8} << 30;

// Events that a task encodes at most: what it writes, some 70 bytes an event, is then still in the
// core's own cache when it is matched. Less does not fill a GPU: of 4M events of pcm-default on an
// H200, 8192, 16384, 32768 and 65536 took 11.0, 10.1, 10.2 and 11.1 ns each.
constexpr std::size_t kMostEncoded = 16384;

// Events and targets below which waking another thread to join parts costs more than it brings.
constexpr std::size_t kMinParallelJoin = std::size_t{1} << 16;

// Of each part that comes in columns, for the planner's sample.
constexpr std::size_t kSampledRows = 2 * kFewEvents;

// Tells the translator, if there is one, how long a call took.
class TimedCall {
 public:
  TimedCall(Translator* translator, CallKind call, Side side)
      : translator_(translator), call_(call), side_(side), watch_(translator != nullptr) {}
  TimedCall(const TimedCall&) = delete;
  ~TimedCall() {
    if (translator_ != nullptr) translator_->see_call(call_, side_, watch_.ns());
  }

 private:
  Translator* translator_;
  CallKind call_;
  Side side_;
  WallWatch watch_;
};

// The largest tasks that an engine takes which has a part in a call.
std::size_t most_task_events(const Snapshot& snapshot, Side side) {
  std::size_t n_most = Engine{}.n_task_events;
  for (const auto& segment : snapshot.segments) {
    for (const Group& group : segment->groups()) {
      const Twin* const twin = group.twin();
      const bool is_there = side == Side::device && twin != nullptr && twin->is_usable();
      n_most = std::max(n_most, (is_there ? twin->engine() : group.engine()).n_task_events);
    }
  }
  return n_most;
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

// Each lies somewhere else in memory: nothing but the loads may stand between one and the next, so
// that many are waited for at a time.
void MatchResult::integer_ids(std::span<const std::uint32_t> some, std::int64_t* out) const {
  const Store& store = *snapshot->store;
  if (deliver == Deliver::subscribers) {
    for (const std::uint32_t target : some) *out++ = store.integer_subscriber_id(target);
  } else {
    for (const std::uint32_t target : some) *out++ = store.integer_id(target);
  }
}

std::vector<bool> MatchResult::known_targets() const {
  std::vector<bool> is_known(n_targets);
  const Store& store = *snapshot->store;
  store.for_each_at(snapshot->version, snapshot->n_slots, [&](std::uint32_t slot) {
    is_known[deliver == Deliver::subscribers ? store.subscriber_of(slot) : slot] = true;
  });
  return is_known;
}

IdType MatchResult::id_type() const { return snapshot->id_type; }

MatcherStats Matcher::State::stats() const {
  const std::lock_guard lock(writer_);
  MatcherStats stats;
  stats.n_subscriptions = store_->n_live();
  stats.n_subscribers = store_->n_live_subscribers();
  stats.n_attributes = catalogue_.size();
  stats.n_delta_filters = delta_ == nullptr ? 0 : delta_->filters().size();
  stats.n_delta_bytes = delta_ == nullptr ? 0 : delta_->table().n_bytes();
  stats.n_dead = store_->n_dead();
  stats.n_moved = store_->n_moved();
  stats.n_store_bytes = store_->n_bytes();
  stats.n_merges = n_merges_;
  stats.version = version_;
  stats.is_merging = is_merging();
  const JournalSizes sizes = journal_ ? journal_->sizes() : sizes_when_read_;
  stats.n_logs = sizes.n_logs;
  stats.n_log_bytes = sizes.n_log_bytes;
  stats.n_image_bytes = sizes.n_image_bytes;
  stats.checkpoint_error = checkpoint_error_;
  for (const auto& segment : segments_) {
    SegmentStats& each = stats.segments.emplace_back();
    each.engine = segment->choice().engine->name;
    each.is_indexed = segment->is_indexed();
    each.n_filters = segment->size();
    for (const Group& group : segment->groups()) {
      each.n_constraints += group.table().n_constraints();
      each.n_table_bytes += group.n_table_bytes();
      each.n_index_bytes += group.index().n_bytes();
      if (group.twin() != nullptr) each.n_index_bytes += group.twin()->n_bytes();
      if (!segment->is_planned() && !(group.choice() == segment->choice()))
        each.n_fallback_filters += group.size();
    }
  }
  return stats;
}

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
std::vector<SegmentReasons> Matcher::plan() const { return state_->plan(); }
void Matcher::save(const std::string& directory) { state_->save(directory); }
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
    return store.moved_predicate(slot);
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

namespace {

void check_events(const EventBatch& events, const Snapshot& snapshot, Space space) {
  if (events.catalogue_id != snapshot.names->catalogue_id()) {
    throw ArgumentError("these events were encoded for another matcher; encode them for this one");
  }
  if (events.n_known < snapshot.names->size()) {
    throw ArgumentError(
        "these events were encoded before subscriptions with new attributes arrived; encode them "
        "again");
  }
  if (space == Space::earth && !(events.columns && events.columns->position.empty())) {
    const EventBatch& rows = events.rows();
    for (std::size_t event = 0; event < rows.size(); ++event) {
      if (rows.has_position(event) && !is_place(Space::earth, rows.x[event], rows.y[event])) {
        throw EventError("event " + std::to_string(event) +
                         ": on earth, a position is a longitude from -180 to 360 and a latitude "
                         "from -90 to 90, not (" +
                         std::to_string(rows.x[event]) + ", " + std::to_string(rows.y[event]) +
                         ")");
      }
    }
  }
}

}  // namespace

// In tasks of at most `n_most` events. `with_events` calls what it is given with those of a task,
// in a batch of its own or of all. A template, since a single event would feel the allocation of a
// std::function.
template <typename WithEvents>
MatchResult Matcher::match_tasks(View view, CallKind call, std::size_t n_most,
                                 const MatchOptions& options, const WithEvents& with_events) const {
  const std::size_t n_events = call.n_events;
  EventWork& work = state_->work_of[call.encodes];
  const Snapshot& snapshot = *view.snapshot;
  const MatcherOptions& own = state_->options;
  MatchResult result;
  result.output = options.output;
  result.deliver = options.deliver;
  result.n_events = n_events;
  result.n_threads = own.n_threads;
  result.snapshot = std::move(view.snapshot);
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
  } else if (options.output == Output::count) {
    result.counts.resize(result.n_events);
  } else {
    result.offsets.resize(result.n_events + 1);
  }
  std::int64_t* const counts =
      options.output == Output::ids ? result.offsets.data() + 1 : result.counts.data();
  const bool counts_hits = own.counts_hits && options.deliver == Deliver::subscriptions;
  Translator* const translator = state_->translator.get();
  const Side side =
      translator == nullptr ? Side::host : translator->choose_side(snapshot.segments, call);
  const bool is_timed = n_events >= CallTimes::kLeastEvents;
  const TimedCall timed(is_timed ? translator : nullptr, call, side);
  const bool counts_work = is_timed && own.n_threads > 1 && side == Side::host;
  const Tasks tasks = choose_tasks(own.n_threads == 1 ? 0 : most_task_events(snapshot, side),
                                   n_events, snapshot.n_filters(), own.n_threads, work);
  const std::size_t events_per_task = std::min(n_most, tasks.n_events);
  const std::size_t n_tasks = (n_events + events_per_task - 1) / events_per_task;
  const auto run = [&](std::size_t task) {
    const WallWatch watch(counts_work);
    const std::size_t begin = task * events_per_task;
    const std::size_t end = std::min(begin + events_per_task, n_events);
    const MatchRows rows{counts == nullptr ? nullptr : counts + begin,
                         result.bits.data() + begin * result.words_per_event,
                         result.words_per_event};
    std::fill_n(rows.bits, (end - begin) * rows.words_per_event, 0);
    MatchPart part;
    std::unique_ptr<Workspace> workspace = state_->workspaces.take();
    const auto use = [&](const EventBatch& events, std::size_t first, std::size_t last) {
      EventSample* const sample = state_->sample.get();
      const std::size_t n_matched = last - first;
      const std::size_t n_rows = events.columns ? std::min(kSampledRows, n_matched) : n_matched;
      const bool is_sampled =
          sample != nullptr && sample->wants(n_rows, workspace->n_until_sampled);
      const WallWatch sampled(is_sampled);
      part =
          match_range(snapshot, events, options, counts_hits, first, last, side, rows, *workspace);
      workspace->keep_only(snapshot);
      if (is_sampled) {
        const EventSample::Match match{
            {n_matched < kFewEvents, options.output, options.deliver},
            sampled.ns() / static_cast<double>(n_matched),
            static_cast<double>(n_matched) / static_cast<double>(n_rows)};
        // Of columns that nobody had to decode, a few rows are.
        if (events.columns) {
          const EventBatch few = events.columns->first_rows(n_rows);
          sample->take(few, 0, few.size(), match, workspace->n_until_sampled);
        } else {
          sample->take(events, first, last, match, workspace->n_until_sampled);
        }
      }
      if (sample != nullptr) state_->after_sampling(is_timed);
    };
    with_events(begin, end, workspace->events, use);
    state_->workspaces.give(std::move(workspace));
    if (options.output == Output::ids) {  // ends, for now of the task's targets
      std::partial_sum(rows.counts, rows.counts + (end - begin), rows.counts);
    }
    if (counts_work) part.work_ns = watch.ns();
    return part;
  };
  if (options.output == Output::ids) result.offsets[0] = 0;
  if (n_tasks == 1) {
    MatchPart part = run(0);
    result.counters = part.counters;
    result.targets = std::move(part.targets);
    if (counts_work) work.see(n_events, part.work_ns);
    return result;
  }
  std::vector<MatchPart> parts(n_tasks);
  parallel_for(n_tasks, tasks.n_threads, [&](std::size_t task) { parts[task] = run(task); });
  std::vector<std::size_t> firsts;  // [n_tasks] of the targets of all
  std::size_t n_found = 0;
  double work_ns = 0;
  for (const MatchPart& part : parts) {
    result.counters += part.counters;
    work_ns += part.work_ns;
    firsts.push_back(n_found);
    n_found += part.targets.size();
  }
  if (counts_work) work.see(n_events, work_ns);
  if (options.output != Output::ids) return result;
  result.targets.resize(n_found);
  const std::size_t n_joining = n_events + n_found < kMinParallelJoin ? 1 : own.n_threads;
  parallel_for(n_tasks, n_joining, [&](std::size_t task) {
    const MatchPart part = std::move(parts[task]);  // which lets go of thousands side by side
    std::copy(part.targets.begin(), part.targets.end(), result.targets.data() + firsts[task]);
    const std::size_t end = std::min((task + 1) * events_per_task, n_events);
    for (std::size_t event = task * events_per_task; event < end; ++event) {
      counts[event] += static_cast<std::int64_t>(firsts[task]);
    }
  });
  return result;
}

MatchResult Matcher::match(View view, const EventBatch& events, const MatchOptions& options) const {
  check_events(events, *view.snapshot, state_->space());
  return match_tasks(std::move(view), {events.size(), false},
                     std::max<std::size_t>(events.size(), 1), options,
                     [&](std::size_t begin, std::size_t end, EventBatch&, const auto& use) {
                       use(events, begin, end);
                     });
}

MatchResult Matcher::match_parts(View view, std::size_t n_events, const EncodeEvents& encode,
                                 const MatchOptions& options) const {
  // New memory is slow at first touch: a workspace keeps that of common batches.
  constexpr std::size_t kMostKept = std::size_t{1} << 20;  // values, of 20 bytes
  const std::shared_ptr<const Snapshot> snapshot = view.snapshot;
  return match_tasks(
      std::move(view), {n_events, true}, kMostEncoded, options,
      [&](std::size_t begin, std::size_t end, EventBatch& events, const auto& use) {
        encode(begin, end, events);
        check_events(events, *snapshot, state_->space());
        use(events, 0, events.size());
        events.clear();
        if (events.values.capacity() > kMostKept || events.offsets.capacity() > kMostKept) {
          events = EventBatch();
        }
      });
}

}  // namespace tamis
