// Changes of a matcher: read aside, checked, logged, then taken, all or none.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <unordered_map>

#include "common/thread_pool.hpp"
#include "state.hpp"
#include "tamis/ast.hpp"
#include "tamis/move_area.hpp"
#include "tamis/normal_form.hpp"

namespace tamis {
namespace {

// Each delta is larger than the one before by this factor, up to kMaxDeltaFilters.
constexpr std::size_t kDeltaGrowth = 4;
constexpr std::size_t kRowsPerTask = 2048;  // of a batch of subscriptions read on several threads
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

}  // namespace

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
    const std::size_t n_most = std::min(next_delta_filters_, kMaxDeltaFilters);
    delta_ = std::make_shared<Delta>(space_, n_most);
    next_delta_filters_ = n_most * kDeltaGrowth;
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
  if (target != &own) delta_->index_new();
  if (own.size() > 0) {
    segments_.push_back(Segment::unindexed(std::move(own), naive_));
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

const Group* Matcher::State::find_movable(std::uint32_t slot) const {
  for (const auto& segment : segments_) {
    for (const Group& group : segment->groups()) {
      if (group.movable() == nullptr) continue;
      group.check();
      if (group.can_move(slot)) return &group;
    }
  }
  return nullptr;
}

// Some at a time: what they need is fetched before the first is moved, so that misses overlap.
void Matcher::State::move_in_place(std::span<const Move> rows, std::span<const InPlace> in_place) {
  constexpr std::size_t kSome = 16;
  std::array<SlotMove, kSome> some;
  for (std::size_t first = 0, end = 0; first < in_place.size(); first = end) {
    const Group& group = *in_place[first].group;
    for (; end < in_place.size() && end < first + kSome && in_place[end].group == &group; ++end) {
      const auto [_, slot, row] = in_place[end];
      store_->centres()->prefetch(slot);
      some[end - first] = {slot, to_point(space_, rows[row].x, rows[row].y)};
    }
    group.movable()->prefetch({some.data(), end - first});
    for (std::size_t at = first; at < end; ++at) {
      const SlotMove& to = some[at - first];
      group.follow(to.slot, to.point);
      store_->move(to.slot, {rows[in_place[at].row].x, rows[in_place[at].row].y, to.point});
      for (Merger* const merger : {&merger_, &small_merger_}) {
        if (merger->is_busy) merger->note_move(to.slot, store_->n_slots());
      }
    }
  }
}

// Where no index follows, or the predicate has several areas, a move is a new predicate under the
// same id and subscriber. `texts` keeps what the rows of `moved` point to.
std::vector<RowError> Matcher::State::move_by_text(std::span<const Move> rows,
                                                   std::vector<NewSubscription>& moved,
                                                   std::deque<std::string>& texts) const {
  std::vector<RowError> errors;
  std::unordered_map<std::uint32_t, std::size_t> latest;  // slot -> its row of `moved`
  for (std::size_t row = 0; row < rows.size() && errors.size() < kMaxRowErrors; ++row) {
    const std::uint32_t slot = store_->find(rows[row].id);
    const auto before = latest.find(slot);
    try {
      const std::string old = before == latest.end() ? store_->moved_predicate(slot)
                                                     : std::string(moved[before->second].predicate);
      texts.push_back(move_area(old, rows[row].area, rows[row].x, rows[row].y));
    } catch (const Error& error) {
      errors.push_back({row, error.what(), std::nullopt});
      continue;
    }
    if (before != latest.end()) {
      moved[before->second].predicate = texts.back();
      continue;
    }
    latest[slot] = moved.size();
    NewSubscription& to = moved.emplace_back();
    to.predicate = texts.back();
    // The ids are views into slots that die on the way: a copy outlives them.
    to.id = store_->id(slot);
    to.id.string = texts.emplace_back(to.id.string);
    to.subscriber = store_->subscriber_id(store_->subscriber_of(slot));
    to.subscriber->string = texts.emplace_back(to.subscriber->string);
  }
  return errors;
}

std::vector<RowError> Matcher::State::move(std::span<const Move> rows) {
  std::vector<RowError> errors;
  const std::lock_guard lock(writer_);
  std::vector<InPlace> in_place;
  in_place.reserve(rows.size());
  std::vector<std::uint32_t> slots(rows.size());
  store_->find_many(slots, [&](std::size_t row) { return rows[row].id; });
  std::vector<Move> others;
  std::vector<std::size_t> row_of_other;
  for (std::size_t row = 0; row < rows.size() && errors.size() < kMaxRowErrors; ++row) {
    const Move& move = rows[row];
    const std::uint32_t slot = slots[row];
    const auto fail = [&, at = row](const std::string& why) {
      errors.push_back({at, why, std::nullopt});
    };
    if (slot == Store::kNone) {
      fail("no subscription has the id " + to_text(move.id));
    } else if (!std::isfinite(move.x) || !std::isfinite(move.y)) {
      fail("a centre must be two finite numbers");
    } else if (!is_place(space_, move.x, move.y)) {
      fail("on earth, a centre is a longitude from -180 to 360 and a latitude from -90 to 90");
    } else if (const Group* const group =
                   move.area.value_or(0) == 0 ? find_movable(slot) : nullptr) {
      in_place.push_back({group, slot, static_cast<std::uint32_t>(row)});
    } else {
      others.push_back(move);
      row_of_other.push_back(row);
    }
  }
  std::deque<std::string> texts;
  std::vector<NewSubscription> moved;
  std::vector<Staged> staged;
  if (!others.empty()) {
    for (RowError& error : move_by_text(others, moved, texts)) {
      error.row = row_of_other[error.row];
      errors.push_back(std::move(error));
    }
    staged.push_back(read_rows(moved, 0, moved.size(), space_));
    for (RowError& error : staged[0].errors) errors.push_back(std::move(error));
    std::sort(errors.begin(), errors.end(),
              [](const RowError& a, const RowError& b) { return a.row < b.row; });
    if (errors.size() > kMaxRowErrors) errors.resize(kMaxRowErrors);
  }
  if (!errors.empty() || rows.empty()) return errors;
  log(is_durable() ? encode_moves(rows) : std::string());
  move_in_place(rows, in_place);
  if (!moved.empty()) {
    take(moved, staged);
  } else if (has_merge_to_do() || wants_checkpoint()) {
    wake_merger();
  }
  return {};
}

void Matcher::State::seal_delta() {
  if (delta_ != nullptr && delta_->filters().size() > 0) {
    // Matches may still read the delta, and it stays as it is: nothing is appended any more.
    segments_.push_back(
        Segment::unindexed(delta_->filters().borrow(delta_), naive_, delta_->index()));
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
  published_.write(std::move(next));
  if (has_merge_to_do() || wants_checkpoint()) wake_merger();
}

}  // namespace tamis
