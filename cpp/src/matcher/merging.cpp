// Merging in the background: what is not indexed, and segments of similar size, become one.
#include <malloc.h>

#include <algorithm>
#include <utility>

#include "planner.hpp"
#include "state.hpp"

namespace tamis {
namespace {

// An indexed segment is merged with what is new if it is at most so many times larger: every
// segment costs an event once more.
constexpr std::size_t kSizeRatio = 16;
// Filters from which copies are avoided, and memory is given back at once.
constexpr std::size_t kLargeMerge = 100'000;

}  // namespace

void Matcher::State::wake_merger() {
  if (is_closing_) return;
  if (!merger_.thread.joinable()) merger_.thread = std::thread([this] { run_merger(); });
  if (!small_merger_.thread.joinable() && has_small_merge_to_do()) {
    small_merger_.thread = std::thread([this] { run_small_merger(); });
  }
  wake_merger_.notify_all();
}

// Everything that is not indexed or worn by moves, and indexed segments from the smallest up, while
// they are not much larger than what is taken already or there would be too many.
std::vector<std::shared_ptr<const Segment>> Matcher::State::choose_merge() const {
  const auto free = free_segments();
  if (has_many_dead() && !small_merger_.is_busy) return free;
  for (const auto& segment : free) {
    if (is_stale(segment)) return {segment};
  }
  std::vector<std::shared_ptr<const Segment>> chosen, indexed;
  std::size_t n_chosen = 0;
  for (const auto& segment : free) {
    if (segment->is_indexed() && !is_worn(segment)) {
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
  if (n_flushing_ > 0) {
    // As many of the smallest as that the largest of them is not much larger than the others.
    const std::size_t n_taken = chosen.size() - (free.size() - indexed.size());
    std::size_t n_joined = n_taken, n_before = n_chosen;
    for (std::size_t at = n_taken; at < indexed.size(); ++at) {
      if (indexed[at]->size() <= kSizeRatio * n_before) n_joined = at + 1;
      n_before += indexed[at]->size();
    }
    for (std::size_t at = n_taken; at < n_joined; ++at) chosen.push_back(indexed[at]);
  }
  return chosen;
}

// The same of those that make a small merge; nothing if no new filters are among them.
std::vector<std::shared_ptr<const Segment>> Matcher::State::choose_small_merge() const {
  auto free = free_segments();
  std::sort(free.begin(), free.end(), [](const auto& a, const auto& b) {
    return std::pair(a->is_indexed(), a->size()) < std::pair(b->is_indexed(), b->size());
  });
  std::vector<std::shared_ptr<const Segment>> chosen;
  std::size_t n_chosen = 0;
  for (const auto& segment : free) {
    if (segment->is_indexed() && segment->size() > kSizeRatio * n_chosen) break;
    if (n_chosen + segment->size() > kLargeMerge) continue;
    chosen.push_back(segment);
    n_chosen += segment->size();
  }
  return chosen;
}

Matcher::State::Merged Matcher::State::merge(std::span<const std::shared_ptr<const Segment>> inputs,
                                             std::uint64_t version,
                                             const SampledEvents& events) const {
  Merged merged;
  if (inputs.size() == 1 && inputs[0]->groups().size() == 1 && inputs[0]->size() >= kLargeMerge) {
    // Nothing to join: if nothing died, the index is built over the filters where they are, which
    // may be in a file.
    const Group& only = inputs[0]->groups()[0];
    only.check();
    const bool has_dead = std::any_of(
        only.filters().slot_of.begin(), only.filters().slot_of.end(), [&](std::uint32_t slot) {
          return is_dead_at(store_->died_at[slot].load(std::memory_order_relaxed), version);
        });
    if (!has_dead && !only.filters().has_moved()) {
      merged.n_inputs = only.size();
      SegmentFilters same = only.filters().borrow(only.shared_filters());
      same.centres = store_->centres();
      build(merged, std::move(same), events);
      return merged;
    }
  }
  SegmentFilters all(space_);
  all.centres = store_->centres();
  for (const auto& segment : inputs) {
    merged.n_inputs += segment->size();
    for (const Group& group : segment->groups()) {
      group.check();
      all.reserve_more(group.filters());
    }
  }
  for (const auto& segment : inputs) {
    for (const Group& group : segment->groups()) {
      const SegmentFilters& filters = group.filters();
      const auto is_dead = [&](std::size_t filter) {
        const std::uint32_t slot = filters.slot_of[filter];
        return is_dead_at(store_->died_at[slot].load(std::memory_order_relaxed), version);
      };
      for (std::size_t begin = 0, end = 0; begin < filters.size(); begin = end) {
        if (is_dead(begin)) {
          end = filters.end_of_slot(begin);
          merged.dropped.push_back(filters.slot_of[begin]);
        } else {
          while (end < filters.size() && !is_dead(end)) ++end;
          all.append(filters, begin, end);
        }
      }
    }
  }
  // What is dropped is freed under the writer's lock, where nothing may throw any more.
  if (!merged.dropped.empty()) store_->check_texts();
  all.take_moves();
  if (all.size() > 0) build(merged, std::move(all), events);
  return merged;
}

void Matcher::State::build(Merged& merged, SegmentFilters filters,
                           const SampledEvents& events) const {
  if (choice_) {
    merged.segment = Segment::build(std::move(filters), *choice_, naive_);
    return;
  }
  PlannedSegment planned = build_planned(std::move(filters), events);
  merged.segment = std::move(planned.segment);
  merged.plan = std::move(planned.plan);
}

template <typename Follow>
void Matcher::State::for_each_moved(Merger& merger, std::unique_lock<std::mutex>& lock,
                                    Follow follow) {
  constexpr std::size_t kFewMoves = 1000;
  constexpr int kMostRounds = 8;
  for (int round = 0;; ++round) {
    const std::vector<std::uint32_t> slots = std::exchange(merger.moved, {});
    for (const std::uint32_t slot : slots) merger.is_moved[slot] = false;
    const bool is_last = slots.size() <= kFewMoves || round == kMostRounds;
    if (!is_last) lock.unlock();
    for (const std::uint32_t slot : slots) follow(slot);
    if (is_last) return;
    lock.lock();
  }
}

// Brings the areas of a segment that is about to be published to where they are now. Gives back the
// slots that cannot move in it.
std::vector<std::uint32_t> Matcher::State::follow_moves(Merger& merger, const Segment& merged,
                                                        std::unique_lock<std::mutex>& lock) {
  std::vector<std::uint32_t> others;
  for_each_moved(merger, lock, [&](std::uint32_t slot) {
    Centre centre;
    bool is_here = false;
    for (const Group& group : merged.groups()) {
      if (!group.can_move(slot)) continue;
      is_here = true;
      if (store_->centres()->read(slot, centre)) group.follow(slot, centre.point);
    }
    if (!is_here) others.push_back(slot);
  });
  return others;
}

Translator::Settled Matcher::State::settle(const Group& group, const Twin& beside, bool is_new) {
  Translator::Settled settled{std::unique_lock(writer_)};
  if (!is_new) {  // it has followed since it was there, or there is none
    settled.is_whole = beside.index() == nullptr || group.twin()->follows();
    return settled;
  }
  std::vector<std::uint32_t> others;
  for_each_moved(merger_, settled.lock, [&](std::uint32_t slot) {
    Centre centre;
    if (!beside.can_move(slot)) {
      others.push_back(slot);
    } else if (store_->centres()->read(slot, centre)) {
      beside.follow(slot, centre.point);
    }
  });
  // Those of other groups are none of its business.
  settled.is_whole =
      !beside.has_failed() && std::none_of(others.begin(), others.end(), [&](std::uint32_t slot) {
        return group.movable()->can_move(slot);
      });
  return settled;
}

// Slots that moved while a merge put them where areas cannot move: as new subscriptions.
void Matcher::State::resubscribe(std::span<const std::uint32_t> slots) {
  std::deque<std::string> texts;
  std::vector<NewSubscription> rows;
  for (const std::uint32_t slot : slots) {
    if (store_->died_at[slot].load(std::memory_order_relaxed) != kAlive) continue;
    if (find_movable(slot) != nullptr) continue;
    NewSubscription& row = rows.emplace_back();
    row.predicate = texts.emplace_back(store_->moved_predicate(slot));
    row.id = store_->id(slot);
    row.id.string = texts.emplace_back(row.id.string);
    row.subscriber = store_->subscriber_id(store_->subscriber_of(slot));
    row.subscriber->string = texts.emplace_back(row.subscriber->string);
  }
  if (rows.empty()) return;
  Staged staged = read_rows(rows, 0, rows.size(), space_);
  append(rows, staged);
}

std::size_t Matcher::State::run_merge(Merger& merger,
                                      std::vector<std::shared_ptr<const Segment>> inputs,
                                      std::unique_lock<std::mutex>& lock) {
  merger.is_busy = true;
  merger.inputs = std::move(inputs);
  std::size_t n_filters = 0;
  for (const auto& input : merger.inputs) n_filters += input->size();
  merger.is_long = n_filters > kLargeMerge;
  const std::uint64_t version = version_;
  const std::shared_ptr<const Names> names = catalogue_.names();
  wake_merger();  // there may be a small merge to do beside a large one
  lock.unlock();
  Merged merged;
  std::exception_ptr error;
  try {
    SampledEvents events;
    if (sample) events = sample->read(names->catalogue_id(), names->size());
    merged = merge(merger.inputs, version, events);
  } catch (...) {
    error = std::current_exception();  // the inputs are still there; flush() tells
  }
  lock.lock();
  if (error) {
    merge_error_ = error;
    return 0;
  }
  std::vector<std::uint32_t> homeless;
  if (merged.segment) homeless = follow_moves(merger, *merged.segment, lock);
  std::erase_if(segments_, [&](const auto& segment) { return merger.has(segment); });
  std::erase_if(stale_, [&](const auto& segment) { return merger.has(segment); });
  for (const auto& input : merger.inputs) plans_.erase(input->serial());
  merger.inputs.clear();
  if (merged.plan) {
    if (merged.plan->events.is_guess) put_off_look();
    plans_[merged.segment->serial()] = std::move(merged.plan);
  }
  if (merged.segment) segments_.insert(segments_.begin(), std::move(merged.segment));
  resubscribe(homeless);
  ++n_merges_;
  store_->retire(std::move(merged.dropped));
  publish();
  store_->free_retired();
  return merged.n_inputs;
}

void Matcher::State::run_merger() {
  std::unique_lock lock(writer_);
  for (;;) {
    wake_merger_.wait(lock, [this] {
      if (is_closing_ || must_wait_for_small_merge()) return is_closing_;
      return (has_merge_to_do() && !merge_error_) || wants_checkpoint() || is_look_asked_;
    });
    if (is_closing_) return;
    if (is_look_asked_) {
      run_look(lock);
      continue;
    }
    // What is merged is written with its index: a merge comes first.
    if (!has_merge_to_do() || merge_error_) {
      run_checkpoint(lock);
      continue;
    }
    if (has_many_dead() || is_delta_large()) seal_delta();
    const std::size_t n_filters = run_merge(merger_, choose_merge(), lock);
    if (n_filters > kLargeMerge) {
      lock.unlock();
      malloc_trim(0);  // or the pages of what was merged would stay with the process
      lock.lock();
    }
    if (wants_twins()) {  // what was merged is published: nobody waits for this
      merger_.is_long = true;
      translate(lock);
    }
    merger_.end();
    merger_is_idle_.notify_all();
    // Under changes that never end there is always something to merge.
    if (wants_checkpoint()) run_checkpoint(lock);
  }
}

void Matcher::State::run_small_merger() {
  std::unique_lock lock(writer_);
  for (;;) {
    wake_merger_.wait(lock,
                      [this] { return is_closing_ || (has_small_merge_to_do() && !merge_error_); });
    if (is_closing_) return;
    run_merge(small_merger_, choose_small_merge(), lock);
    small_merger_.end();
    merger_is_idle_.notify_all();
    wake_merger_.notify_all();  // the other may have waited for this one
  }
}

void Matcher::State::flush() {
  std::unique_lock lock(writer_);
  wait_until_merged(lock);
  if (!merge_error_) return;
  wake_merger();  // it rests after an error, and others may wait for it, too
  std::rethrow_exception(std::exchange(merge_error_, nullptr));
}

void Matcher::State::wait_until_merged(std::unique_lock<std::mutex>& lock) {
  merge_error_ = nullptr;
  seal_delta();
  publish();
  ++n_flushing_;
  const auto is_idle = [this] {
    return merge_error_ || (!has_merge_to_do() && !is_merging() && !is_look_asked_);
  };
  wake_merger();
  merger_is_idle_.wait(lock, is_idle);
  --n_flushing_;
  if (!merge_error_ && (has_new_events() || wants_twins())) {
    is_look_asked_ = true;
    wake_merger();
    merger_is_idle_.wait(lock, is_idle);
  }
}

}  // namespace tamis
