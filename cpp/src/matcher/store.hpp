// What is known of each subscription, by slot, and of each subscriber, by number.
//
//     born_at       slot -> version of its beginning
//     died_at       slot -> version of its end, kAlive while it lives
//     slots         slot -> id, predicate, subscriber
//     subscribers   number -> id, how many slots name it
//
// The matcher's writer changes the store; matches read the slots and numbers of their snapshot,
// which are not changed while anybody can see them: a slot is used again only after every snapshot
// that knew it is gone (`Retirement`).
#pragma once

#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "number_table.hpp"
#include "stored_bytes.hpp"
#include "tamis/collector.hpp"
#include "tamis/grow_only.hpp"
#include "tamis/id.hpp"

namespace tamis {

// Counts the snapshots of a stretch of time. Not a weak_ptr: that tells that the last of them is
// gone, but not that what it read was read before.
struct Epoch {
  std::atomic<std::size_t> n_snapshots{0};
};

// A snapshot's part in its epoch.
class EpochHold {
 public:
  EpochHold() = default;
  explicit EpochHold(std::shared_ptr<Epoch> epoch) : epoch_(std::move(epoch)) {
    epoch_->n_snapshots.fetch_add(1, std::memory_order_relaxed);
  }
  EpochHold(const EpochHold&) = delete;
  EpochHold& operator=(EpochHold&& other) noexcept {
    std::swap(epoch_, other.epoch_);
    return *this;
  }
  ~EpochHold() {
    if (epoch_) epoch_->n_snapshots.fetch_sub(1, std::memory_order_release);
  }

 private:
  std::shared_ptr<Epoch> epoch_;
};

class Store {
  struct Slot {
    StoredId id;
    StoredBytes predicate;
    std::uint32_t subscriber = 0;
    bool has_filters = true;
  };
  struct Subscriber {
    StoredId id;
    std::uint32_t n_slots = 0;  // that are not free
    std::uint32_t n_live = 0;
  };
  struct IdOfSlot {
    const GrowOnly<Slot>& slots;
    IdView operator()(std::uint32_t slot) const { return slots[slot].id.view(); }
  };
  struct IdOfSubscriber {
    const GrowOnly<Subscriber>& subscribers;
    IdView operator()(std::uint32_t number) const { return subscribers[number].id.view(); }
  };

 public:
  DeathVersions died_at;
  DeathVersions born_at;
  mutable HitCounts hits;

  IdView id(std::uint32_t slot) const { return slots_[slot].id.view(); }
  IdView subscriber_id(std::uint32_t number) const { return subscribers_[number].id.view(); }

  // Visits what lived at the version of a snapshot, which the caller holds: its slots stay as they
  // are. Needs no lock: a slot that is used again meanwhile shows a later birth before it shows
  // life.
  template <typename Visit>
  void for_each_at(std::uint64_t version, std::size_t n_slots, Visit visit) const {
    for (std::uint32_t slot = 0; slot < n_slots; ++slot) {
      if (died_at[slot].load(std::memory_order_acquire) <= version) continue;
      if (born_at[slot].load(std::memory_order_relaxed) > version) continue;
      visit(slot);
    }
  }
  std::uint32_t subscriber_of(std::uint32_t slot) const { return slots_[slot].subscriber; }
  std::string_view predicate(std::uint32_t slot) const { return slots_[slot].predicate.view(); }

  // --- the writer's part ---
  std::size_t n_slots() const { return slots_.size(); }  // live, dead and free
  std::size_t n_subscriber_numbers() const { return subscribers_.size(); }
  std::size_t n_live() const { return slot_of_.size(); }
  std::size_t n_live_subscribers() const { return n_live_subscribers_; }
  std::size_t n_dead() const { return n_dead_; }
  // Dead slots whose filters are still in segments.
  std::size_t n_dead_unmerged() const { return n_dead_ - n_retired_; }

  static constexpr std::uint32_t kNone = NumberTable::kNone;
  std::uint32_t find(const IdView& id) const { return slot_of_.find(id, IdOfSlot{slots_}); }
  template <typename Visit>
  void for_each_live(Visit visit) const {
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (died_at[slot].load(std::memory_order_relaxed) == kAlive) visit(slot);
    }
  }

  // A new live slot. The id must not be live.
  std::uint32_t add(const IdView& id, std::string_view predicate, const IdView& subscriber,
                    bool has_filters, std::uint64_t version) {
    std::uint32_t slot;
    if (!free_slots_.empty()) {
      slot = free_slots_.back();
      free_slots_.pop_back();
    } else {
      slot = static_cast<std::uint32_t>(slots_.size());
      slots_.grow();
      hits.grow();
      died_at.grow().store(0, std::memory_order_relaxed);
      born_at.grow();
    }
    Slot& item = slots_[slot];
    item.id = StoredId(id);
    item.predicate = StoredBytes(predicate);
    item.has_filters = has_filters;
    item.subscriber = number_of(subscriber);
    hits[slot].store(0, std::memory_order_relaxed);
    born_at[slot].store(version, std::memory_order_relaxed);
    died_at[slot].store(kAlive, std::memory_order_release);
    if (++subscribers_[item.subscriber].n_live == 1) ++n_live_subscribers_;
    slot_of_.insert(slot, IdOfSlot{slots_});
    return slot;
  }

  void kill(std::uint32_t slot, std::uint64_t version) {
    Slot& item = slots_[slot];
    // Without filters it is in no segment, and no merge will ever drop it.
    if (!item.has_filters) unfiltered_.push_back(slot);
    slot_of_.erase(item.id.view(), IdOfSlot{slots_});
    if (--subscribers_[item.subscriber].n_live == 0) --n_live_subscribers_;
    died_at[slot].store(version, std::memory_order_relaxed);
    ++n_dead_;
  }

  // Slots whose filters are in no segment of the newest snapshot any more. They are freed when
  // every snapshot of the epoch that ends now, and of all before it, is gone.
  void retire(std::vector<std::uint32_t> slots) {
    slots.insert(slots.end(), unfiltered_.begin(), unfiltered_.end());
    unfiltered_.clear();
    if (slots.empty()) return;
    n_retired_ += slots.size();
    retired_.push_back({epoch_, std::move(slots)});
    epoch_ = std::make_shared<Epoch>();
  }
  EpochHold hold_epoch() const { return EpochHold(epoch_); }
  void free_retired() {
    while (!retired_.empty() &&
           retired_.front().epoch->n_snapshots.load(std::memory_order_acquire) == 0) {
      for (const std::uint32_t slot : retired_.front().slots) {
        Subscriber& subscriber = subscribers_[slots_[slot].subscriber];
        if (--subscriber.n_slots == 0) {
          number_of_.erase(subscriber.id.view(), IdOfSubscriber{subscribers_});
          free_numbers_.push_back(slots_[slot].subscriber);
        }
        slots_[slot].id = StoredId();
        slots_[slot].predicate = StoredBytes();
        free_slots_.push_back(slot);
        --n_dead_;
        --n_retired_;
      }
      retired_.pop_front();
    }
  }

  std::size_t n_bytes() const {
    std::size_t total = slots_.n_bytes() + subscribers_.n_bytes() + died_at.n_bytes() +
                        born_at.n_bytes() + hits.n_bytes() + slot_of_.n_bytes() +
                        number_of_.n_bytes();
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      total += slots_[slot].predicate.n_heap_bytes() + slots_[slot].id.n_heap_bytes();
    }
    for (std::size_t number = 0; number < subscribers_.size(); ++number) {
      total += subscribers_[number].id.n_heap_bytes();
    }
    return total;
  }

 private:
  struct Retirement {
    std::shared_ptr<const Epoch> epoch;
    std::vector<std::uint32_t> slots;
  };

  std::uint32_t number_of(const IdView& id) {
    std::uint32_t number = number_of_.find(id, IdOfSubscriber{subscribers_});
    if (number != kNone) {
      ++subscribers_[number].n_slots;
      return number;
    }
    if (!free_numbers_.empty()) {
      number = free_numbers_.back();
      free_numbers_.pop_back();
    } else {
      number = static_cast<std::uint32_t>(subscribers_.size());
      subscribers_.grow();
    }
    subscribers_[number].id = StoredId(id);
    subscribers_[number].n_slots = 1;
    subscribers_[number].n_live = 0;
    number_of_.insert(number, IdOfSubscriber{subscribers_});
    return number;
  }

  GrowOnly<Slot> slots_;
  GrowOnly<Subscriber> subscribers_;
  NumberTable slot_of_;    // of live slots
  NumberTable number_of_;  // of subscribers
  std::vector<std::uint32_t> free_slots_, free_numbers_, unfiltered_;
  std::deque<Retirement> retired_;
  std::shared_ptr<Epoch> epoch_ = std::make_shared<Epoch>();
  std::size_t n_dead_ = 0;     // dead and not yet free
  std::size_t n_retired_ = 0;  // of those: in no segment, waiting for readers
  std::size_t n_live_subscribers_ = 0;
};

}  // namespace tamis
