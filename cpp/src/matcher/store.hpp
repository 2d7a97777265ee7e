// What is known of each subscription, by slot, and of each subscriber, by number.
//
//     born_at       slot -> version of its beginning
//     died_at       slot -> version of its end, 0 while it lives
//     slots         slot -> id, predicate, subscriber
//     subscribers   number -> id, how many slots name it
//
// The matcher's writer changes the store; matches read the slots and numbers of their snapshot,
// which are not changed while anybody can see them: a slot is used again only after every snapshot
// that knew it is gone (`Retirement`).
//
// A store that was opened from an image has its records and tables mapped copy on write, and its
// texts in the file: opening reads none of them.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "common/packed_text.hpp"
#include "number_table.hpp"
#include "storage/image.hpp"
#include "tamis/centres.hpp"
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

// An id, and a predicate for a slot, with its texts: on the heap, or in an image. As in files.
struct TextRecord {
  enum Flag : std::uint32_t { kString = 1, kOwned = 2, kHasFilters = 4 };
  std::int64_t integer = 0;  // the id, where ids are integers
  std::uint64_t text = 0;    // kOwned: an address; else a place in the image's texts
  // The predicate stands behind the id, packed (packed_text.hpp).
  std::uint32_t n_id_bytes = 0, n_predicate_bytes = 0;
  std::uint32_t flags = 0;
  std::uint32_t subscriber = 0;  // of a slot: its number

  std::size_t n_bytes() const { return std::size_t{n_id_bytes} + n_predicate_bytes; }
};
using SlotRecord = TextRecord;
struct SubscriberRecord : TextRecord {
  std::uint32_t n_slots = 0;  // that are not free
  std::uint32_t n_live = 0;
};

class Store {
  struct IdOfSlot {
    const Store& store;
    IdView operator()(std::uint32_t slot) const { return store.id(slot); }
  };
  struct IdOfSubscriber {
    const Store& store;
    IdView operator()(std::uint32_t number) const { return store.subscriber_id(number); }
  };

 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  DeathVersions died_at;
  DeathVersions born_at;
  mutable HitCounts hits;

  IdView id(std::uint32_t slot) const { return id_of(slots_[slot]); }
  IdView subscriber_id(std::uint32_t number) const { return id_of(subscribers_[number]); }
  // Where ids are integers.
  std::int64_t integer_id(std::uint32_t slot) const { return slots_[slot].integer; }
  std::int64_t integer_subscriber_id(std::uint32_t number) const {
    return subscribers_[number].integer;
  }
  std::uint32_t subscriber_of(std::uint32_t slot) const { return slots_[slot].subscriber; }
  // As subscribed; and with its area where it is now.
  std::string predicate(std::uint32_t slot) const {
    const SlotRecord& record = slots_[slot];
    return unpack_text(text_of(record).substr(record.n_id_bytes));
  }
  std::string moved_predicate(std::uint32_t slot) const;
  // Of slots whose one area has moved in place, in an index that follows it.
  const std::shared_ptr<Centres>& centres() const { return centres_; }

  // Visits what lived at the version of a snapshot, which the caller holds: its slots stay as they
  // are. Needs no lock: a slot that is used again meanwhile shows a later birth before it shows
  // life.
  template <typename Visit>
  void for_each_at(std::uint64_t version, std::size_t n_slots, Visit visit) const {
    for (std::uint32_t slot = 0; slot < n_slots; ++slot) {
      if (is_dead_at(died_at[slot].load(std::memory_order_acquire), version)) continue;
      if (born_at[slot].load(std::memory_order_relaxed) > version) continue;
      visit(slot);
    }
  }
  // Writes what lived then, and the slots of `is_used` that are dead but still have filters.
  void save(std::uint64_t version, std::size_t n_slots, std::size_t n_numbers,
            const std::vector<bool>& is_used, ImageWriter& image) const;

  // --- the writer's part ---
  // Of an empty store. Checks every section that refers to another, and no text.
  void open(const std::shared_ptr<const Image>& image, Space space);

  std::size_t n_slots() const { return slots_.size(); }  // live, dead and free
  std::size_t n_subscriber_numbers() const { return subscribers_.size(); }
  std::size_t n_live() const { return slot_of_.size(); }
  std::size_t n_live_subscribers() const { return n_live_subscribers_; }
  std::size_t n_dead() const { return n_dead_; }
  // Dead slots whose filters are still in segments.
  std::size_t n_dead_unmerged() const { return n_dead_ - n_retired_; }

  static constexpr std::uint32_t kNone = NumberTable::kNone;
  std::uint32_t find(const IdView& id) const { return slot_of_.find(id, IdOfSlot{*this}); }
  // The slots of many, quicker than one by one; `id_at(at)` gives the id.
  template <typename IdAt>
  void find_many(std::span<std::uint32_t> slots, const IdAt& id_at) const {
    slot_of_.find_many(slots, id_at, IdOfSlot{*this},
                       [&](std::uint32_t slot) { prefetch_line(&slots_[slot]); });
  }
  template <typename Visit>
  void for_each_live(Visit visit) const {
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (died_at[slot].load(std::memory_order_relaxed) == kAlive) visit(slot);
    }
  }

  std::size_t n_moved() const { return n_moved_; }  // live slots that have moved in place
  void move(std::uint32_t slot, const Centre& centre) {
    n_moved_ += !centres_->has_moved(slot);
    centres_->move(slot, centre);
  }

  // A new live slot. The id must not be live.
  std::uint32_t add(const IdView& id, std::string_view predicate, const IdView& subscriber,
                    bool has_filters, std::uint64_t version);
  void kill(std::uint32_t slot, std::uint64_t version);
  // Slots whose filters are in no segment of the newest snapshot any more. They are freed when
  // every snapshot of the epoch that ends now, and of all before it, is gone.
  void retire(std::vector<std::uint32_t> slots);
  EpochHold hold_epoch() const { return EpochHold(epoch_); }
  void free_retired();

  std::size_t n_bytes() const;  // of memory of its own

  // Throws StorageError if a text of the image is damaged: before a change, which reads ids on its
  // way and must not end in the middle. Quick from the second time on.
  void check_texts() const {
    if (are_texts_checked_.load(std::memory_order_acquire)) return;
    if (image_) image_->check(*texts_);
    are_texts_checked_.store(true, std::memory_order_release);
  }

 private:
  struct Retirement {
    std::shared_ptr<const Epoch> epoch;
    std::vector<std::uint32_t> slots;
  };
  static constexpr std::uint64_t kNeverLived = 1;

  std::string_view text_of(const TextRecord& record) const {
    if (record.n_bytes() == 0) return {};
    if (record.flags & TextRecord::kOwned) {
      return {reinterpret_cast<const char*>(record.text), record.n_bytes()};
    }
    image_->check(*texts_, record.text, record.n_bytes());
    return {image_->data(*texts_) + record.text, record.n_bytes()};
  }
  IdView id_of(const TextRecord& record) const {
    if (!(record.flags & TextRecord::kString)) return IdView::of(record.integer);
    return IdView::of(text_of(record).substr(0, record.n_id_bytes));
  }
  void set(TextRecord& record, const IdView& id, std::string_view packed, std::uint32_t flags);
  void clear(TextRecord& record);
  std::uint32_t number_of(const IdView& id);

  GrowOnly<SlotRecord> slots_;
  GrowOnly<SubscriberRecord> subscribers_;
  NumberTable slot_of_;    // of live slots
  NumberTable number_of_;  // of subscribers
  std::vector<std::uint32_t> free_slots_, free_numbers_, unfiltered_;
  std::deque<Retirement> retired_;
  std::shared_ptr<Epoch> epoch_ = std::make_shared<Epoch>();
  std::shared_ptr<Centres> centres_ = std::make_shared<Centres>();
  std::size_t n_moved_ = 0;
  std::size_t n_dead_ = 0;     // dead and not yet free
  std::size_t n_retired_ = 0;  // of those: in no segment, waiting for readers
  std::size_t n_live_subscribers_ = 0;
  std::size_t n_text_bytes_ = 0;  // on the heap
  std::string packed_;            // the writer's, for the predicate that it adds
  std::shared_ptr<const Image> image_;
  const ImageSection* texts_ = nullptr;
  mutable std::atomic<bool> are_texts_checked_{false};
};

}  // namespace tamis
