// The live set of subscriptions.
//
//     store       slot -> id, predicate, subscriber; slots are never used twice
//     segments    immutable: filter table + index of one engine + slot of each filter
//     pending     filters of changes since the last match, not yet indexed
//     dead        slots that were unsubscribed or replaced
//
// A change goes to `pending` and `dead`. The next match turns pending filters into a segment,
// merges segments of similar size so that there are at most kMaxSegments, and publishes all of it
// as one snapshot; matches run on the snapshot that they began with. When most slots are dead the
// store is rebuilt without them.
#pragma once

#include <cstdint>
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

namespace tamis {

struct MatcherOptions {
  std::string engine = "auto";
  Space space = Space::plane;
  std::size_t n_threads = 1;
  Parameters parameters;
};

struct NewSubscription {
  IdView id;
  std::string_view predicate;
  std::optional<IdView> subscriber;  // none: the id itself
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

class Store;
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
  std::vector<std::int64_t> offsets;   // [n_events + 1]  Output::ids
  std::vector<std::uint32_t> targets;  // [offsets.back()]
  std::vector<std::uint64_t> bits;     // [n_events * words_per_event]  Output::bitset
  std::size_t words_per_event = 0;
  std::size_t n_targets = 0;         // bits in use of each event
  std::vector<std::int64_t> counts;  // [n_events]  Output::count
  Counters counters;
  std::shared_ptr<const Snapshot> snapshot;

  IdView id(std::uint32_t target) const;
  IdType id_type() const;
};

struct SegmentStats {
  std::string engine;
  std::size_t n_filters = 0, n_constraints = 0, n_table_bytes = 0, n_index_bytes = 0;
};

struct MatcherStats {
  std::size_t n_subscriptions = 0, n_subscribers = 0, n_attributes = 0, n_pending_filters = 0,
              n_dead = 0, n_store_bytes = 0;
  std::vector<SegmentStats> segments;
};

class Matcher {
 public:
  static constexpr std::size_t kMaxSegments = 4;

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

  bool contains(const IdView& id) const;
  std::string predicate(const IdView& id) const;  // throws UnknownIdError
  std::size_t size() const;
  IdType id_type() const;
  std::vector<std::string> string_ids() const;
  std::vector<std::int64_t> integer_ids() const;

  // The state with all changes that returned before this call.
  View view();
  // Throws ArgumentError if the events were encoded for an older view with fewer attributes.
  MatchResult match(const View& view, const EventBatch& events, const MatchOptions& options);
  void flush();  // builds what is pending
  MatcherStats stats() const;
  const MatcherOptions& options() const { return options_; }

 private:
  struct State;
  MatcherOptions options_;
  const Engine* engine_;
  std::unique_ptr<State> state_;
};

}  // namespace tamis
