#include "tamis/matcher.hpp"

#include <algorithm>
#include <mutex>

#include "common/thread_pool.hpp"
#include "segment.hpp"
#include "store.hpp"
#include "tamis/ast.hpp"
#include "tamis/error.hpp"
#include "tamis/normal_form.hpp"

namespace tamis {
namespace {

constexpr std::size_t kMinDead = 1024;       // below this, dead slots are not worth a rebuild
constexpr std::size_t kSizeRatio = 8;        // segments of less than this apart are merged
constexpr std::size_t kEventsPerTask = 256;  // of a match on several threads, at most
// Filters times events below which waking another thread costs more than it brings.
constexpr std::size_t kMinParallelWork = std::size_t{1} << 20;
constexpr std::size_t kMaxBitsetBytes = std::size_t{8} << 30;

class Bits {
 public:
  bool test(std::size_t at) const {
    return at / 64 < words_.size() && ((words_[at / 64] >> (at % 64)) & 1);
  }
  void set(std::size_t at) {
    if (at / 64 >= words_.size()) words_.resize(at / 64 + 1);
    words_[at / 64] |= std::uint64_t{1} << (at % 64);
  }
  void grow_to(std::size_t n_bits) {
    if (words_.size() < (n_bits + 63) / 64) words_.resize((n_bits + 63) / 64);
  }
  const std::uint64_t* data() const { return words_.data(); }

 private:
  std::vector<std::uint64_t> words_;
};

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

}  // namespace

// What a match sees.
struct Snapshot {
  std::vector<std::shared_ptr<const Segment>> segments;  // the largest first
  std::shared_ptr<const Bits> dead;                      // null: none
  std::shared_ptr<const Store> store;
  std::shared_ptr<const Names> names = std::make_shared<const Names>();
  IdType id_type = IdType::none;
  std::size_t n_slots = 0, n_subscribers = 0, n_filters = 0;
};

const Names& View::names() const { return *snapshot->names; }

std::string to_text(const IdView& id) {
  return id.type == IdType::integer ? std::to_string(id.integer)
                                    : "'" + std::string(id.string) + "'";
}

struct Matcher::State {
  explicit State(Space space)
      : store(std::make_shared<Store>()), pending(space), published(std::make_shared<Snapshot>()) {}

  mutable std::mutex writer;  // of everything down to `published`
  IdType id_type = IdType::none;
  std::shared_ptr<Store> store;
  Catalogue catalogue;
  SegmentFilters pending;
  Bits dead;
  std::size_t n_dead = 0;
  bool is_dirty = false;

  mutable std::mutex publishing;  // of `published` alone; held for a copy of the pointer
  std::shared_ptr<const Snapshot> published;

  std::mutex spare_mutex;
  std::vector<std::unique_ptr<Stamps>> spare_stamps;

  std::shared_ptr<const Snapshot> snapshot() const {
    const std::lock_guard lock(publishing);
    return published;
  }

  void kill(std::uint32_t slot) {
    dead.set(slot);
    ++n_dead;
  }

  // Live filters of `segments`. Slots are translated by `slot_of` (empty: as they are), and
  // subscribers are looked up anew.
  SegmentFilters merged(std::span<const std::shared_ptr<const Segment>> segments, Space space,
                        const Store& target, const std::vector<std::uint32_t>& slot_of) const {
    SegmentFilters all(space);
    for (const auto& segment : segments) {
      const std::vector<std::uint32_t>& slots = segment->slot_of();
      for (std::size_t begin = 0; begin < slots.size();) {
        const bool is_dead = dead.test(slots[begin]);
        std::size_t end = begin;
        while (end < slots.size() && dead.test(slots[end]) == is_dead) ++end;
        if (!is_dead) {
          all.table->append(segment->table(), static_cast<FilterIdx>(begin),
                            static_cast<FilterIdx>(end), {});
          for (std::size_t at = begin; at < end; ++at) {
            const std::uint32_t slot = slot_of.empty() ? slots[at] : slot_of[slots[at]];
            all.add(1, slot, target.subscriber_of[slot]);
          }
        }
        begin = end;
      }
    }
    return all;
  }

  void refresh(const Engine& engine, const MatcherOptions& options) {
    const std::shared_ptr<const Snapshot> old = snapshot();
    auto next = std::make_shared<Snapshot>();
    next->segments = old->segments;
    const auto add = [&](SegmentFilters filters) {
      if (filters.slot_of.empty()) return;
      next->segments.push_back(
          std::make_shared<const Segment>(std::move(filters), engine, options.parameters));
    };
    if (!pending.slot_of.empty()) {
      add(std::exchange(pending, SegmentFilters(options.space)));
    }
    if (n_dead >= kMinDead && n_dead > store->ids.size() / 2) {
      add(without_dead(std::exchange(next->segments, {}), options.space));
    }
    const auto by_size = [](const auto& a, const auto& b) { return a->size() > b->size(); };
    std::sort(next->segments.begin(), next->segments.end(), by_size);
    while (next->segments.size() > 1) {
      const std::size_t last = next->segments.size() - 1;
      const bool is_close =
          next->segments[last - 1]->size() < kSizeRatio * next->segments[last]->size();
      if (!is_close && next->segments.size() <= kMaxSegments) break;
      SegmentFilters both =
          merged({next->segments.data() + last - 1, 2}, options.space, *store, {});
      next->segments.resize(last - 1);
      add(std::move(both));
      std::sort(next->segments.begin(), next->segments.end(), by_size);
    }
    if (n_dead > 0) {
      dead.grow_to(store->ids.size());
      next->dead = std::make_shared<const Bits>(dead);
    }
    next->store = store;
    next->n_slots = store->ids.size();
    next->n_subscribers = store->subscribers.size();
    next->names = catalogue.names();
    next->id_type = id_type;
    for (const auto& segment : next->segments) next->n_filters += segment->size();
    is_dirty = false;
    const std::lock_guard lock(publishing);
    published = std::move(next);
  }

  // A new store with the live subscriptions alone, and all their filters.
  SegmentFilters without_dead(std::span<const std::shared_ptr<const Segment>> segments,
                              Space space) {
    auto compact = std::make_shared<Store>();
    std::vector<std::uint32_t> slot_of(store->ids.size());
    for (std::uint32_t slot = 0; slot < slot_of.size(); ++slot) {
      if (dead.test(slot)) continue;
      slot_of[slot] = compact->add(store->ids.at(slot), std::move(store->predicates[slot]),
                                   store->subscribers.at(store->subscriber_of[slot]));
    }
    SegmentFilters all = merged(segments, space, *compact, slot_of);
    store = std::move(compact);
    dead = Bits();
    n_dead = 0;
    return all;
  }

  std::unique_ptr<Stamps> take_stamps() {
    const std::lock_guard lock(spare_mutex);
    if (spare_stamps.empty()) return std::make_unique<Stamps>();
    std::unique_ptr<Stamps> stamps = std::move(spare_stamps.back());
    spare_stamps.pop_back();
    return stamps;
  }
  void give_back(std::unique_ptr<Stamps> stamps) {
    const std::lock_guard lock(spare_mutex);
    spare_stamps.push_back(std::move(stamps));
  }
};

namespace {

// What one task of a match found in its range of events.
struct Part {
  std::vector<std::uint32_t> targets;
  std::vector<std::int64_t> counts;  // of each event
  Counters counters;
};

// Matches events `begin` to `end` against all segments of a snapshot. Bits go to `bits`, the row of
// event `begin`.
Part match_range(const Snapshot& snapshot, const EventBatch& events, const MatchOptions& options,
                 std::size_t begin, std::size_t end, std::uint64_t* bits,
                 std::size_t words_per_event, Stamps& stamps) {
  const bool to_subscribers = options.deliver == Deliver::subscribers;
  const bool has_many = snapshot.segments.size() > 1;
  // Subscribers of several segments must be made unique, even to be counted.
  const bool must_unite = to_subscribers && has_many;
  Part part;
  std::vector<Collector> collectors;
  collectors.reserve(snapshot.segments.size());
  for (const auto& segment : snapshot.segments) {
    Collector::Setup setup;
    setup.output = options.output == Output::count && must_unite ? Output::ids : options.output;
    setup.slot_of = segment->slot_of().data();
    setup.target_of = to_subscribers ? segment->subscriber_of().data() : setup.slot_of;
    setup.dead = snapshot.dead ? snapshot.dead->data() : nullptr;
    setup.can_repeat = to_subscribers || segment->has_repeats();
    setup.n_targets = to_subscribers ? snapshot.n_subscribers : snapshot.n_slots;
    setup.bits = bits;
    setup.words_per_event = words_per_event;
    Collector& collector = collectors.emplace_back(setup, stamps);
    std::unique_ptr<Scratch> scratch = segment->take_scratch();
    segment->index().match(events, begin, end, *scratch, collector);
    segment->give_back(std::move(scratch));
    part.counters += collector.counters;
  }
  if (options.output == Output::bitset) return part;

  part.counts.assign(end - begin, 0);
  if (options.output == Output::count && !must_unite) {
    for (const Collector& each : collectors) {
      for (std::size_t event = 0; event < end - begin; ++event) {
        part.counts[event] += each.counts()[event];
      }
    }
    return part;
  }
  for (std::size_t event = 0; event < end - begin; ++event) {
    const std::size_t n_before = part.targets.size();
    ++stamps.now;
    for (const Collector& each : collectors) {
      for (std::size_t at = each.begin(event); at < each.end(event); ++at) {
        const std::uint32_t target = each.targets()[at];
        if (must_unite) {
          if (stamps.stamp_of[target] == stamps.now) continue;
          stamps.stamp_of[target] = stamps.now;
        }
        part.targets.push_back(target);
      }
    }
    part.counts[event] = static_cast<std::int64_t>(part.targets.size() - n_before);
    if (options.output == Output::count) part.targets.resize(n_before);
  }
  return part;
}

}  // namespace

Matcher::Matcher(const MatcherOptions& options)
    : options_(options),
      engine_(&find_engine(options.engine == "auto" ? "naive" : options.engine)),
      state_(std::make_unique<State>(options.space)) {
  options_.parameters = complete_parameters(*engine_, options.parameters);
  if (options_.n_threads == 0) throw ArgumentError("threads must be at least 1, not 0");
}

Matcher::~Matcher() = default;

std::vector<RowError> Matcher::subscribe(std::span<const NewSubscription> rows) {
  // Read everything aside first, with names of its own: a bad row leaves no trace.
  std::vector<RowError> errors;
  Catalogue names;
  FilterTable staged(options_.space);
  std::vector<std::uint32_t> n_filters(rows.size());
  Ast ast;
  for (std::size_t row = 0; row < rows.size() && errors.size() < kMaxRowErrors; ++row) {
    const std::size_t n_before = staged.size();
    try {
      parse(rows[row].predicate, ast);
      check_areas(ast, options_.space);
      if (errors.empty()) staged.append(to_normal_form(ast), names);
    } catch (const LanguageError& error) {
      errors.push_back({row, error.what(), error.offset()});
    }
    n_filters[row] = static_cast<std::uint32_t>(staged.size() - n_before);
  }
  if (!errors.empty()) return errors;

  State& state = *state_;
  const std::lock_guard lock(state.writer);
  // The type of ids is settled by the first subscription and holds for all.
  IdType type = state.id_type;
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
  constexpr std::size_t kMaxSlots = std::size_t{1} << 31;
  if (errors.empty() && state.store->ids.size() + rows.size() > kMaxSlots) {
    errors.push_back({0, "a matcher must not hold more than 2^31 subscriptions", std::nullopt});
  }
  if (!errors.empty()) return errors;

  state.id_type = type;
  std::vector<AttributeId> attribute_of(names.size());
  for (AttributeId id = 0; id < attribute_of.size(); ++id) {
    attribute_of[id] = state.catalogue.intern(names.names()->name(id));
  }
  state.pending.table->append(staged, 0, static_cast<FilterIdx>(staged.size()), attribute_of);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const NewSubscription& each = rows[row];
    if (const auto old = state.store->slot_of.find(each.id); old != state.store->slot_of.end()) {
      state.kill(old->second);
    }
    const std::uint32_t slot =
        state.store->add(each.id, std::string(each.predicate), each.subscriber.value_or(each.id));
    state.pending.add(n_filters[row], slot, state.store->subscriber_of[slot]);
  }
  state.is_dirty = state.is_dirty || !rows.empty();
  return {};
}

void Matcher::unsubscribe(std::span<const IdView> ids) {
  State& state = *state_;
  const std::lock_guard lock(state.writer);
  for (const IdView& id : ids) {
    if (!state.store->slot_of.contains(id)) {
      throw UnknownIdError("no subscription has the id " + to_text(id));
    }
  }
  for (const IdView& id : ids) {
    const auto known = state.store->slot_of.find(id);
    if (known == state.store->slot_of.end()) continue;  // named twice
    const std::uint32_t slot = known->second;
    state.store->slot_of.erase(known);
    state.store->predicates[slot] = std::string();
    state.kill(slot);
  }
  state.is_dirty = state.is_dirty || !ids.empty();
}

bool Matcher::contains(const IdView& id) const {
  const std::lock_guard lock(state_->writer);
  return state_->store->slot_of.contains(id);
}

std::string Matcher::predicate(const IdView& id) const {
  const std::lock_guard lock(state_->writer);
  const auto known = state_->store->slot_of.find(id);
  if (known == state_->store->slot_of.end()) {
    throw UnknownIdError("no subscription has the id " + to_text(id));
  }
  return state_->store->predicates[known->second];
}

std::size_t Matcher::size() const {
  const std::lock_guard lock(state_->writer);
  return state_->store->slot_of.size();
}

IdType Matcher::id_type() const {
  const std::lock_guard lock(state_->writer);
  return state_->id_type;
}

std::vector<std::string> Matcher::string_ids() const {
  const std::lock_guard lock(state_->writer);
  std::vector<std::string> all;
  for (std::uint32_t slot = 0; slot < state_->store->ids.size(); ++slot) {
    if (!state_->dead.test(slot)) all.emplace_back(state_->store->ids.at(slot).string);
  }
  return all;
}

std::vector<std::int64_t> Matcher::integer_ids() const {
  const std::lock_guard lock(state_->writer);
  std::vector<std::int64_t> all;
  for (std::uint32_t slot = 0; slot < state_->store->ids.size(); ++slot) {
    if (!state_->dead.test(slot)) all.push_back(state_->store->ids.at(slot).integer);
  }
  return all;
}

View Matcher::view() {
  flush();
  return {state_->snapshot()};
}

void Matcher::flush() {
  const std::lock_guard lock(state_->writer);
  if (state_->is_dirty) state_->refresh(*engine_, options_);
}

MatchResult Matcher::match(const View& view, const EventBatch& events,
                           const MatchOptions& options) {
  const std::shared_ptr<const Snapshot>& snapshot = view.snapshot;
  if (events.n_known < snapshot->names->size()) {
    throw ArgumentError(
        "these events were encoded before subscriptions with new attributes arrived; encode them "
        "again");
  }
  if (options_.space == Space::earth) {
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
  result.snapshot = snapshot;
  result.n_targets =
      options.deliver == Deliver::subscribers ? snapshot->n_subscribers : snapshot->n_slots;
  if (options.output == Output::bitset) {
    result.words_per_event = (result.n_targets + 63) / 64;
    if (result.n_events * result.words_per_event * 8 > kMaxBitsetBytes) {
      throw ArgumentError("bitsets of " + std::to_string(result.n_events) + " events over " +
                          std::to_string(result.n_targets) +
                          " targets would take more than 8 GiB; match fewer events at a time");
    }
    result.bits.resize(result.n_events * result.words_per_event);
  }
  const bool is_small = events.size() * snapshot->n_filters < kMinParallelWork;
  const std::size_t events_per_task =
      options_.n_threads == 1 || is_small
          ? std::max<std::size_t>(events.size(), 1)
          : std::clamp<std::size_t>(events.size() / (4 * options_.n_threads), 1, kEventsPerTask);
  const std::size_t n_tasks = (events.size() + events_per_task - 1) / events_per_task;
  std::vector<Part> parts(n_tasks);
  const auto run = [&](std::size_t task) {
    const std::size_t begin = task * events_per_task;
    const std::size_t end = std::min(begin + events_per_task, events.size());
    std::unique_ptr<Stamps> stamps = state_->take_stamps();
    parts[task] = match_range(*snapshot, events, options, begin, end,
                              result.bits.data() + begin * result.words_per_event,
                              result.words_per_event, *stamps);
    state_->give_back(std::move(stamps));
  };
  parallel_for(n_tasks, options_.n_threads, run);

  if (options.output == Output::ids) result.offsets.push_back(0);
  for (Part& part : parts) {
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

IdView MatchResult::id(std::uint32_t target) const {
  return deliver == Deliver::subscribers ? snapshot->store->subscribers.at(target)
                                         : snapshot->store->ids.at(target);
}

IdType MatchResult::id_type() const { return snapshot->id_type; }

MatcherStats Matcher::stats() const {
  const State& state = *state_;
  const std::lock_guard lock(state.writer);
  MatcherStats stats;
  stats.n_subscriptions = state.store->slot_of.size();
  Bits seen;
  for (std::uint32_t slot = 0; slot < state.store->ids.size(); ++slot) {
    const std::uint32_t subscriber = state.store->subscriber_of[slot];
    if (state.dead.test(slot) || seen.test(subscriber)) continue;
    seen.set(subscriber);
    ++stats.n_subscribers;
  }
  stats.n_attributes = state.catalogue.size();
  stats.n_pending_filters = state.pending.slot_of.size();
  stats.n_dead = state.n_dead;
  stats.n_store_bytes = state.store->n_bytes();
  for (const auto& segment : state.snapshot()->segments) {
    stats.segments.push_back({segment->engine().name, segment->size(),
                              segment->table().n_constraints(), segment->table().n_bytes(),
                              segment->index().n_bytes()});
  }
  return stats;
}

}  // namespace tamis
