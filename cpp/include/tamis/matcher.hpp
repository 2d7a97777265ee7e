// The live set of subscriptions.
//
//     store       slot -> id, predicate, subscriber, version of its death
//     segments    immutable: filters, the slot of each, the index of an engine over them
//     delta       the newest filters, appended in place
//     snapshot    segments + the length of the delta + a version: what one match sees
//
// A change appends to the delta (a large batch becomes a segment of its own, not yet indexed), sets
// versions of death, and publishes a new snapshot: O(1), whatever lives. Matches take the newest
// snapshot and never wait. A thread in the background merges what is not indexed, and segments of
// similar size, into segments of the matcher's engine, and drops the dead; it holds the writer's
// lock only to swap them in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tamis/collector.hpp"
#include "tamis/engine.hpp"
#include "tamis/event_batch.hpp"
#include "tamis/id.hpp"
#include "tamis/reused_vector.hpp"

namespace tamis {

enum class SyncPolicy : std::uint8_t;  // storage/journal.hpp

// Where a durable matcher keeps its changes.
struct StorageOptions {
  std::string directory;
  bool create = false;
  SyncPolicy policy{};
  bool is_read_only = false;  // no lock, no change: any number of processes, also beside a writer
  bool verifies = false;      // reads every byte of the image at once, not on first use
};

struct MatcherOptions {
  std::string engine = "auto";
  std::optional<Space> space;             // none: plane, or what the directory says
  std::optional<StorageOptions> storage;  // none: in memory alone
  std::size_t n_threads = 1;
  bool counts_hits = false;  // keep how often each subscription matched
  Parameters parameters;
  // Of engine="auto": calls with so many events go to a GPU, where there is one. 0: none do; none:
  // it is measured, where calls are large enough to be worth it. For tests.
  std::optional<std::size_t> device_from;
};

struct NewSubscription {
  IdView id;
  std::string_view predicate;
  std::optional<IdView> subscriber;  // none: the id itself
};

// A new centre for an area of a subscription.
struct Move {
  IdView id;
  double x = 0, y = 0;
  std::optional<std::uint32_t> area;  // which, counted from 0; none: it has one
};

// A row that could not be taken.
struct RowError {
  std::size_t row = 0;
  std::string reason;
  std::optional<std::size_t> offset;  // in bytes of the predicate, for errors of the language
};

struct MatchOptions {
  Output output = Output::ids;
  Deliver deliver = Deliver::subscriptions;
};

struct CallKind;
struct Snapshot;

// One state of a matcher, for encoding events and matching them. It stays valid while held.
struct View {
  std::shared_ptr<const Snapshot> snapshot;
  const Names& names() const;  // the attributes that an encoder must know
};

// Targets of each event, as numbers that `id` translates. Keeps what it needs alive.
struct MatchResult {
  Output output = Output::ids;
  Deliver deliver = Deliver::subscriptions;
  std::size_t n_events = 0;
  ReusedVector<std::int64_t> offsets;   // [n_events + 1]  Output::ids
  ReusedVector<std::uint32_t> targets;  // [offsets.back()]
  ReusedVector<std::uint64_t> bits;     // [n_events * words_per_event]  Output::bitset
  std::size_t words_per_event = 0;
  std::size_t n_targets = 0;          // bits in use of each event
  ReusedVector<std::int64_t> counts;  // [n_events]  Output::count
  Counters counters;
  std::size_t n_threads = 1;  // of the matcher, for what comes after
  std::shared_ptr<const Snapshot> snapshot;

  IdView id(std::uint32_t target) const;  // of one that is known
  // Of some targets, where ids are integers, to out[0], out[1], ...
  void integer_ids(std::span<const std::uint32_t> some, std::int64_t* out) const;
  // [n_targets] The numbers that belong to a live subscription or subscriber.
  std::vector<bool> known_targets() const;
  IdType id_type() const;
};

struct SegmentStats {
  std::string engine;
  bool is_indexed = false;  // false: waits for the merge, and is matched naively
  std::size_t n_filters = 0, n_fallback_filters = 0, n_constraints = 0, n_table_bytes = 0,
              n_index_bytes = 0;
};

struct MatcherStats {
  std::size_t n_subscriptions = 0, n_subscribers = 0, n_attributes = 0, n_delta_filters = 0,
              n_dead = 0, n_moved = 0, n_store_bytes = 0, n_delta_bytes = 0, n_merges = 0,
              n_logs = 0, n_log_bytes = 0, n_image_bytes = 0;
  std::string checkpoint_error;  // why the last checkpoint failed; empty: it did not
  std::uint64_t version = 0;
  bool is_merging = false;
  std::vector<SegmentStats> segments;
};

// Why a segment is indexed as it is. Of an engine that was asked for there are no estimates.
struct EngineEstimate {
  std::string engine;
  Parameters parameters;
  double ns = 0;                                     // an event
  bool is_measured = false;                          // by an index over all the filters
  double n_bytes = 0;                                // of the index
  std::vector<std::pair<std::string, double>> work;  // of an event, by counter
};

// What a call of n events takes: ns + event_ns * n.
struct CallCost {
  double ns = 0, event_ns = 0;
};

// Of engine="auto": the second index of a group, on a GPU.
struct DeviceReasons {
  std::string engine;
  std::string why_not;           // empty: it is used
  std::size_t least_events = 0;  // of a call that goes there; 0: none does
  bool is_measured = false;
  CallCost here, there;  // on all threads of the matcher
  std::size_t n_index_bytes = 0;
};

struct GroupReasons {
  std::string filters;  // which of the segment's
  std::string engine;
  Parameters parameters;
  std::size_t n_filters = 0, n_index_bytes = 0;
  std::size_t n_trial_filters = 0;        // that the estimates were made with
  std::vector<EngineEstimate> estimates;  // the cheapest first
  std::optional<DeviceReasons> device;    // none: nothing was tried, for calls were small
};

struct SegmentReasons {
  std::size_t n_filters = 0;
  bool is_indexed = false, is_planned = false;
  // Of a planned segment, unless it was opened from a file. What its events were like:
  std::size_t n_events = 0;
  bool is_guess = false;      // no events were seen: they were made up from the filters
  double n_attributes = 0;    // of an event
  double positions = 0;       // share of events
  double to_subscribers = 0;  // share of the time that went to events delivered so
  double n_matches = 0;       // of an event
  double planning_s = 0;
  double best_ns = 0;         // of the plan that the estimates favour
  double best_single_ns = 0;  // of the best plan with one engine
  std::vector<GroupReasons> groups;
};

class Matcher {
 public:
  static constexpr std::size_t kMaxSegments = 4;  // that merging aims at

  explicit Matcher(const MatcherOptions& options);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  // All rows or none: errors of up to `kMaxRowErrors` rows, and then nothing has changed. A later
  // row replaces an earlier one, and any subscription, of the same id.
  static constexpr std::size_t kMaxRowErrors = 10;
  std::vector<RowError> subscribe(std::span<const NewSubscription> rows);
  // All or none; throws UnknownIdError for the first unknown id.
  void unsubscribe(std::span<const IdView> ids);

  // All or none, like subscribe.
  std::vector<RowError> move(std::span<const Move> rows);

  bool contains(const IdView& id) const;
  std::string predicate(const IdView& id) const;  // throws UnknownIdError
  std::size_t size() const;
  IdType id_type() const;
  std::vector<std::string> string_ids() const;
  std::vector<std::int64_t> integer_ids() const;

  // The state with all changes that returned before this call.
  View view() const;
  // Throws ArgumentError if the events were encoded for an older view with fewer attributes.
  MatchResult match(View view, const EventBatch& events, const MatchOptions& options) const;
  // The same for events that are not encoded yet: each task encodes those of its rows, so that no
  // thread waits for another's. Encodes into an empty batch; an error may be thrown after hits of
  // other tasks were counted.
  using EncodeEvents = std::function<void(std::size_t begin, std::size_t end, EventBatch& batch)>;
  MatchResult match_parts(View view, std::size_t n_events, const EncodeEvents& encode,
                          const MatchOptions& options) const;
  // Waits until every change is indexed and merged. Throws what a merge threw.
  void flush();
  // Merges, and writes what lives now to a new directory that Matcher can open.
  void save(const std::string& directory);
  // Rewrites the directory so that it holds what lives, and nothing else. Throws if it failed.
  void checkpoint();
  // Syncs and lets go of the directory. No change is possible any more.
  void close();
  Space space() const;
  MatcherStats stats() const;
  // One for each segment, the newest last.
  std::vector<SegmentReasons> plan() const;
  // The subscriptions that matched most, with how often; needs counts_hits.
  struct Hits {
    IdType type = IdType::none;
    std::int64_t integer = 0;
    std::string string;
    std::uint64_t n_hits = 0;
  };
  std::vector<Hits> top(std::size_t n) const;
  const MatcherOptions& options() const;

 private:
  class State;

  template <typename WithEvents>
  MatchResult match_tasks(View view, CallKind call, std::size_t n_most, const MatchOptions& options,
                          const WithEvents& with_events) const;

  std::unique_ptr<State> state_;
};

}  // namespace tamis
