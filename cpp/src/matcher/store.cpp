#include "store.hpp"

#include <cstring>

#include "tamis/move_area.hpp"

namespace tamis {
namespace {

constexpr std::size_t kMallocBytes = 16;  // that malloc adds to a block

static_assert(sizeof(SlotRecord) == 32 && sizeof(SubscriberRecord) == 40);

struct MovedSlot {  // as in files
  std::uint64_t slot;
  double x, y;
};

struct Totals {  // as in files
  std::uint64_t n_live, n_numbers, n_live_subscribers;
};

template <typename T>
void write_vector(ImageWriter& image, const std::string& name, const std::vector<T>& items) {
  image.write(name, std::span<const T>(items));
}

}  // namespace

Store::~Store() {
  // Only what was written since the image was opened can be on the heap; the rest is not touched.
  if (n_text_bytes_ == 0) return;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) clear(slots_[slot]);
  for (std::size_t number = 0; number < subscribers_.size(); ++number) clear(subscribers_[number]);
}

void Store::set(TextRecord& record, const IdView& id, std::string_view packed,
                std::uint32_t flags) {
  const std::size_t n_bytes = id.string.size() + packed.size();
  record.text = 0;
  if (n_bytes > 0) {
    char* const text = new char[n_bytes];
    if (!id.string.empty()) std::memcpy(text, id.string.data(), id.string.size());
    if (!packed.empty()) {
      std::memcpy(text + id.string.size(), packed.data(), packed.size());
    }
    record.text = reinterpret_cast<std::uint64_t>(text);
    flags |= TextRecord::kOwned;
    n_text_bytes_ += n_bytes + kMallocBytes;
  }
  record.integer = id.integer;
  record.n_id_bytes = static_cast<std::uint32_t>(id.string.size());
  record.n_predicate_bytes = static_cast<std::uint32_t>(packed.size());
  record.flags = flags | (id.type == IdType::string ? TextRecord::kString : 0u);
}

void Store::clear(TextRecord& record) {
  if (!(record.flags & TextRecord::kOwned)) return;
  delete[] reinterpret_cast<char*>(record.text);
  n_text_bytes_ -= record.n_bytes() + kMallocBytes;
  record.flags = 0;
  record.n_id_bytes = record.n_predicate_bytes = 0;
}

std::uint32_t Store::add(const IdView& id, std::string_view predicate, const IdView& subscriber,
                         bool has_filters, std::uint64_t version) {
  std::uint32_t slot;
  if (!free_slots_.empty()) {
    slot = free_slots_.back();
    free_slots_.pop_back();
  } else {
    slot = static_cast<std::uint32_t>(slots_.size());
    hits.grow();
    born_at.grow();
    died_at.grow().store(kNeverLived, std::memory_order_relaxed);
    slots_.grow();
    centres_->grow_to(slots_.size());
  }
  centres_->forget(slot);
  SlotRecord& record = slots_[slot];
  packed_.clear();
  pack_text(predicate, packed_);
  set(record, id, packed_, has_filters ? TextRecord::kHasFilters : 0u);
  record.subscriber = number_of(subscriber);
  // A page that was only read costs nothing.
  if (hits[slot].load(std::memory_order_relaxed) != 0) {
    hits[slot].store(0, std::memory_order_relaxed);
  }
  born_at[slot].store(version, std::memory_order_relaxed);
  died_at[slot].store(kAlive, std::memory_order_release);
  if (++subscribers_[record.subscriber].n_live == 1) ++n_live_subscribers_;
  slot_of_.insert(slot, IdOfSlot{*this});
  return slot;
}

void Store::kill(std::uint32_t slot, std::uint64_t version) {
  const SlotRecord& record = slots_[slot];
  // Without filters it is in no segment, and no merge will ever drop it.
  if (!(record.flags & TextRecord::kHasFilters)) unfiltered_.push_back(slot);
  slot_of_.erase(id(slot), IdOfSlot{*this});
  if (--subscribers_[record.subscriber].n_live == 0) --n_live_subscribers_;
  n_moved_ -= centres_->has_moved(slot);
  died_at[slot].store(version, std::memory_order_relaxed);
  ++n_dead_;
}

std::string Store::moved_predicate(std::uint32_t slot) const {
  Centre centre;
  if (!centres_->read(slot, centre)) return predicate(slot);
  return move_area(predicate(slot), std::nullopt, centre.x, centre.y);
}

void Store::retire(std::vector<std::uint32_t> slots) {
  slots.insert(slots.end(), unfiltered_.begin(), unfiltered_.end());
  unfiltered_.clear();
  if (slots.empty()) return;
  n_retired_ += slots.size();
  retired_.push_back({epoch_, std::move(slots)});
  epoch_ = std::make_shared<Epoch>();
}

void Store::free_retired() {
  while (!retired_.empty() &&
         retired_.front().epoch->n_snapshots.load(std::memory_order_acquire) == 0) {
    for (const std::uint32_t slot : retired_.front().slots) {
      const std::uint32_t number = slots_[slot].subscriber;
      if (--subscribers_[number].n_slots == 0) {
        number_of_.erase(subscriber_id(number), IdOfSubscriber{*this});
        clear(subscribers_[number]);
        free_numbers_.push_back(number);
      }
      clear(slots_[slot]);
      free_slots_.push_back(slot);
      --n_dead_;
      --n_retired_;
    }
    retired_.pop_front();
  }
}

std::uint32_t Store::number_of(const IdView& id) {
  std::uint32_t number = number_of_.find(id, IdOfSubscriber{*this});
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
  set(subscribers_[number], id, {}, 0);
  subscribers_[number].n_slots = 1;
  subscribers_[number].n_live = 0;
  number_of_.insert(number, IdOfSubscriber{*this});
  return number;
}

std::size_t Store::n_bytes() const {
  return slots_.n_bytes() + subscribers_.n_bytes() + died_at.n_bytes() + born_at.n_bytes() +
         hits.n_bytes() + (n_moved_ > 0 ? centres_->n_bytes() : 0) + slot_of_.n_bytes() +
         number_of_.n_bytes() + n_text_bytes_;
}

void Store::save(std::uint64_t version, std::size_t n_slots, std::size_t n_numbers,
                 const std::vector<bool>& is_used, ImageWriter& image) const {
  // Only slots that the snapshot knows and their subscribers are read: nobody changes those. The
  // counts of a subscriber are the writer's, so they are counted anew.
  std::vector<SlotRecord> slots(n_slots);
  std::vector<SubscriberRecord> subscribers(n_numbers);
  std::vector<std::uint32_t> free_slots, dead_slots, free_numbers;
  std::vector<bool> lives(n_slots);
  std::uint64_t n_text_bytes = 0;
  Totals totals{};
  const auto place = [&](const TextRecord& from, TextRecord& to) {
    to = from;
    to.flags &= ~TextRecord::kOwned;
    to.text = n_text_bytes;
    n_text_bytes += from.n_bytes();
  };
  NumberTable slot_of, number_of;
  const auto take = [&](std::uint32_t slot) {
    place(slots_[slot], slots[slot]);
    const std::uint32_t number = slots_[slot].subscriber;
    ++subscribers[number].n_slots;
    if (lives[slot] && ++subscribers[number].n_live == 1) ++totals.n_live_subscribers;
  };
  for_each_at(version, n_slots, [&](std::uint32_t slot) {
    lives[slot] = true;
    ++totals.n_live;
  });
  slot_of.reserve(totals.n_live, IdOfSlot{*this});
  for (std::uint32_t slot = 0; slot < n_slots; ++slot) {
    if (lives[slot]) {
      slot_of.insert(slot, IdOfSlot{*this});
    } else if (slot < is_used.size() && is_used[slot]) {
      dead_slots.push_back(slot);
    } else {
      free_slots.push_back(slot);
      continue;
    }
    take(slot);
  }
  for (std::uint32_t number = 0; number < n_numbers; ++number) {
    SubscriberRecord& to = subscribers[number];
    if (to.n_slots == 0) {
      free_numbers.push_back(number);
      continue;
    }
    place(subscribers_[number], to);
    number_of.insert(number, IdOfSubscriber{*this});
    ++totals.n_numbers;
  }
  std::vector<MovedSlot> moved;
  Centre centre;
  for (std::uint32_t slot = 0; slot < n_slots; ++slot) {
    if (lives[slot] && centres_->read(slot, centre)) moved.push_back({slot, centre.x, centre.y});
  }
  image.write("totals", &totals, sizeof totals);
  write_vector(image, "moved", moved);
  write_vector(image, "slots", slots);
  write_vector(image, "subscribers", subscribers);
  write_vector(image, "free_slots", free_slots);
  write_vector(image, "dead_slots", dead_slots);
  write_vector(image, "free_numbers", free_numbers);
  image.write("slot_table", slot_of.places());
  image.write("number_table", number_of.places());
  image.begin("texts");
  const auto write_text = [&](const TextRecord& from) {
    const std::string_view text = text_of(from);
    image.append(text.data(), text.size());
  };
  for (std::uint32_t slot = 0; slot < n_slots; ++slot) {
    if (lives[slot] || (slot < is_used.size() && is_used[slot])) write_text(slots_[slot]);
  }
  for (std::uint32_t number = 0; number < n_numbers; ++number) {
    if (subscribers[number].n_slots > 0) write_text(subscribers_[number]);
  }
}

void Store::open(const std::shared_ptr<const Image>& image, Space space) {
  const ImageReader reader(image, "");
  image_ = image;
  texts_ = &image->find("texts");
  const std::span<const Totals> totals = reader.span<Totals>("totals");
  const std::span<const SlotRecord> slots = reader.span<SlotRecord>("slots");
  const std::span<const SubscriberRecord> subscribers =
      reader.span<SubscriberRecord>("subscribers");
  const auto fail = [&](const char* what) {
    image->fail(std::string("is damaged: ") + what + " leads outside of it");
  };
  const auto is_text = [&](const TextRecord& record) {
    return !(record.flags & TextRecord::kOwned) && record.text <= texts_->n_bytes &&
           record.n_bytes() <= texts_->n_bytes - record.text;
  };
  if (totals.size() != 1) fail("a count");
  for (const SlotRecord& record : slots) {
    const bool is_free = record.n_bytes() == 0 && record.flags == 0 && subscribers.empty();
    if (!is_text(record) || (record.subscriber >= subscribers.size() && !is_free)) {
      fail("a subscription");
    }
  }
  for (const SubscriberRecord& record : subscribers) {
    if (!is_text(record)) fail("a subscriber");
  }
  const auto adopt = [&](const char* name, NumberTable& table, std::size_t n_entries,
                         std::size_t n_most) {
    const std::span<const std::uint32_t> places = reader.span<std::uint32_t>(name);
    std::size_t n_taken = 0;
    for (const std::uint32_t place : places) {
      if (place > n_most) fail("a table");
      n_taken += place != 0;
    }
    const bool is_power = (places.size() & (places.size() - 1)) == 0;
    if (!is_power || n_taken != n_entries || (n_taken > 0 && 2 * n_taken > places.size())) {
      fail("a table");
    }
    if (places.empty()) return;
    const MappedFile::Private mapped = image->map_private(image->find(name));
    table.adopt({reinterpret_cast<std::uint32_t*>(mapped.data), places.size()}, n_taken,
                mapped.owner);
  };
  adopt("slot_table", slot_of_, totals[0].n_live, slots.size());
  adopt("number_table", number_of_, totals[0].n_numbers, subscribers.size());
  const auto numbers = [&](const char* name, std::size_t n_most) {
    const std::span<const std::uint32_t> items = reader.span<std::uint32_t>(name);
    for (const std::uint32_t item : items) {
      if (item >= n_most) fail("a list of free places");
    }
    return std::vector<std::uint32_t>(items.begin(), items.end());
  };
  free_slots_ = numbers("free_slots", slots.size());
  free_numbers_ = numbers("free_numbers", subscribers.size());
  const std::vector<std::uint32_t> dead_slots = numbers("dead_slots", slots.size());
  n_live_subscribers_ = totals[0].n_live_subscribers;
  n_dead_ = dead_slots.size();

  if (!slots.empty()) {
    const MappedFile::Private mapped = image->map_private(image->find("slots"));
    slots_.adopt({reinterpret_cast<SlotRecord*>(mapped.data), slots.size()}, mapped.owner);
  }
  if (!subscribers.empty()) {
    const MappedFile::Private mapped = image->map_private(image->find("subscribers"));
    subscribers_.adopt({reinterpret_cast<SubscriberRecord*>(mapped.data), subscribers.size()},
                       mapped.owner);
  }
  died_at.grow_to(slots.size());
  born_at.grow_to(slots.size());
  hits.grow_to(slots.size());
  centres_->grow_to(slots.size());
  for (const MovedSlot& each : reader.span<MovedSlot>("moved")) {
    if (each.slot >= slots.size()) fail("an area that moved");
    move(static_cast<std::uint32_t>(each.slot), {each.x, each.y, to_point(space, each.x, each.y)});
  }
  for (const std::vector<std::uint32_t>* each : {&dead_slots, &std::as_const(free_slots_)}) {
    for (const std::uint32_t slot : *each) {
      died_at[slot].store(kNeverLived, std::memory_order_relaxed);
    }
  }
}

}  // namespace tamis
