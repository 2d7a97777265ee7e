#include "engines/spatial_grid/moving.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <utility>

namespace tamis::spatial_grid {
namespace {

constexpr std::uint32_t kMovesPerLook = 32;  // between two looks whether readers are gone
constexpr std::uint32_t kFewStale = 16;      // not worth a new array
constexpr std::size_t kMostReclaimed = 256;  // at once: a move must not wait for all of them

}  // namespace

MovingGrid::Table::Table(std::size_t n_slots)
    : shift(64 - std::countr_zero(n_slots)),
      mask(n_slots - 1),
      slots(std::make_unique<std::atomic<std::uint32_t>[]>(n_slots)) {}

MovingGrid::MovingGrid(const Buckets& built, std::size_t n_places, bool is_flat)
    : built_(built), is_flat_(is_flat), n_built_(built.size()), where_(n_places) {
  own_table_ = std::make_unique<Table>(std::bit_ceil(std::max<std::size_t>(4 * n_built_, 64)));
  buckets_.grow_to(n_built_);
  built.for_each([&](const BucketKey& key, const BucketEntries& entries) {
    const auto bucket = static_cast<std::uint32_t>(n_buckets_++);
    buckets_[bucket].key = key;
    insert(*own_table_, hash_key(key), bucket);
    for (std::uint32_t at = 0; at < entries.size; ++at) where_[entries.places[at]] = {bucket, at};
  });
  table_.store(own_table_.get(), std::memory_order_release);
}

MovingGrid::~MovingGrid() {
  for (std::size_t bucket = 0; bucket < n_buckets_; ++bucket) {
    FreeArray()(buckets_[bucket].array.load(std::memory_order_relaxed));
  }
}

BucketEntries MovingGrid::built_entries(std::uint32_t bucket) const {
  return bucket < n_built_ ? built_.entries_at(bucket) : BucketEntries();
}

BucketEntries MovingGrid::find(std::uint64_t hash, const BucketKey& key) const {
  const Table& table = *table_.load(std::memory_order_acquire);
  for (std::size_t at = hash >> table.shift;; at = (at + 1) & table.mask) {
    const std::uint32_t found = table.slots[at].load(std::memory_order_acquire);
    if (found == 0) return {};
    const Bucket& bucket = buckets_[found - 1];
    if (!(bucket.key == key)) continue;
    Array* const array = bucket.array.load(std::memory_order_acquire);
    if (array == nullptr) return built_entries(found - 1);
    const std::uint32_t size = array->size.load(std::memory_order_acquire);
    return {column(*array, 0), is_flat_ ? nullptr : column(*array, 1),
            column(*array, places_column()), size};
  }
}

void MovingGrid::insert(Table& table, std::uint64_t hash, std::uint32_t bucket) {
  std::size_t at = hash >> table.shift;
  while (table.slots[at].load(std::memory_order_relaxed) != 0) at = (at + 1) & table.mask;
  table.slots[at].store(bucket + 1, std::memory_order_release);
}

std::uint32_t MovingGrid::find_or_add(const BucketKey& key) {
  const std::uint64_t hash = hash_key(key);
  Table* table = own_table_.get();
  for (std::size_t at = hash >> table->shift;; at = (at + 1) & table->mask) {
    const std::uint32_t found = table->slots[at].load(std::memory_order_relaxed);
    if (found == 0) break;
    if (buckets_[found - 1].key == key) return found - 1;
  }
  const auto bucket = static_cast<std::uint32_t>(n_buckets_);
  buckets_.grow_to(n_buckets_ + 1);
  buckets_[bucket].key = key;
  if (2 * (n_buckets_ + 1) > table->mask + 1) {
    auto larger = std::make_unique<Table>(2 * (table->mask + 1));
    for (std::uint32_t old = 0; old < n_buckets_; ++old) {
      insert(*larger, hash_key(buckets_[old].key), old);
    }
    retired_tables_.push_back({gate_.epoch(), nullptr});  // what may throw comes first
    table_.store(larger.get(), std::memory_order_release);
    retired_tables_.back().item = std::exchange(own_table_, std::move(larger));
    table = own_table_.get();
  }
  ++n_buckets_;
  insert(*table, hash, bucket);
  return bucket;
}

MovingGrid::OwnArray MovingGrid::make_array(std::size_t capacity) {
  void* const bytes =
      ::operator new(sizeof(Array) + n_columns() * capacity * sizeof(std::uint32_t));
  OwnArray array(new (bytes) Array{static_cast<std::uint32_t>(capacity)});
  n_array_words_ += n_columns() * capacity;
  return array;
}

// The bucket's array, made of what was built where it has none.
MovingGrid::Array& MovingGrid::own_array(std::uint32_t bucket) {
  if (Array* const array = buckets_[bucket].array.load(std::memory_order_relaxed)) return *array;
  const BucketEntries built = built_entries(bucket);
  OwnArray array = make_array(built.size + built.size / 2 + 4);
  std::copy_n(built.xy, built.size, column(*array, 0));
  if (!is_flat_) std::copy_n(built.z, built.size, column(*array, 1));
  std::copy_n(built.places, built.size, column(*array, places_column()));
  std::fill_n(stale_column(*array), built.size, 0);
  array->size.store(built.size, std::memory_order_relaxed);
  Array& own = *array;
  buckets_[bucket].array.store(array.release(), std::memory_order_release);
  return own;
}

// A new array for the bucket, without the stale entries that no reader needs.
MovingGrid::Array& MovingGrid::renew(std::uint32_t bucket_idx) {
  gate_.try_advance();
  Bucket& bucket = buckets_[bucket_idx];
  Array* const old = bucket.array.load(std::memory_order_relaxed);
  const std::uint32_t n_old = old->size.load(std::memory_order_relaxed);
  const std::uint32_t* const stale_at = stale_column(*old);
  const auto is_needed = [&](std::uint32_t at) {
    // Epochs are kept in 32 bits, which wrap around.
    const std::uint32_t since = stale_at[at] - static_cast<std::uint32_t>(gate_.n_over());
    return stale_at[at] == 0 || static_cast<std::int32_t>(since) >= 0;
  };
  std::uint32_t n_needed = 0;
  for (std::uint32_t at = 0; at < n_old; ++at) n_needed += is_needed(at);
  OwnArray next = make_array(n_needed + n_needed / 2 + 8);
  retired_arrays_.push_back({gate_.epoch(), nullptr});  // nothing throws from here on
  const std::uint32_t* const places = column(*old, places_column());
  std::uint32_t n_next = 0;
  bucket.n_stale = 0;
  for (std::uint32_t at = 0; at < n_old; ++at) {
    if (!is_needed(at)) continue;
    for (std::size_t each = 0; each < n_columns(); ++each) {
      column(*next, each)[n_next] = column(*old, each)[at];
    }
    if (stale_at[at] == 0) {
      where_[places[at]].entry = n_next;
    } else {
      ++bucket.n_stale;
    }
    ++n_next;
  }
  bucket.least_stale = 2 * bucket.n_stale;
  next->size.store(n_next, std::memory_order_relaxed);
  Array& own = *next;
  bucket.array.store(next.release(), std::memory_order_release);
  retired_arrays_.back().item.reset(old);
  return own;
}

void MovingGrid::move(const Entry& to) {
  const std::uint32_t to_bucket = find_or_add(to.key);
  Array* array = &own_array(to_bucket);
  if (array->size.load(std::memory_order_relaxed) == array->capacity) array = &renew(to_bucket);
  const std::uint32_t at = array->size.load(std::memory_order_relaxed);
  column(*array, 0)[at] = to.xy;
  if (!is_flat_) column(*array, 1)[at] = to.z;
  column(*array, places_column())[at] = to.place;
  stale_column(*array)[at] = 0;
  array->size.store(at + 1, std::memory_order_release);

  const Where old = std::exchange(where_[to.place], {to_bucket, at});
  Bucket& left = buckets_[old.bucket];
  Array& left_array = own_array(old.bucket);
  // 0 is a live entry; a later epoch only keeps it longer.
  stale_column(left_array)[old.entry] =
      std::max<std::uint32_t>(1, static_cast<std::uint32_t>(gate_.epoch()));
  ++left.n_stale;
  const std::uint32_t n_live = left_array.size.load(std::memory_order_relaxed) - left.n_stale;
  if (left.n_stale > std::max({kFewStale, n_live, left.least_stale})) renew(old.bucket);
  if (++n_moves_ % kMovesPerLook == 0) reclaim();
}

// Step by step: each reads what the one before has fetched.
void MovingGrid::prefetch(std::span<const Entry> moves) const {
  std::array<std::size_t, kMostPrefetched> home;
  std::array<const Bucket*, 2 * kMostPrefetched> buckets;
  std::array<Array*, 2 * kMostPrefetched> arrays;
  const std::size_t n = std::min(moves.size(), kMostPrefetched);
  const Table& table = *own_table_;
  const auto fetch = [](const Bucket* bucket) {
    prefetch_line(bucket);
    prefetch_line(&bucket->array);
  };
  for (std::size_t at = 0; at < n; ++at) {
    home[at] = hash_key(moves[at].key) >> table.shift;
    prefetch_line(&table.slots[home[at]]);
    buckets[n + at] = &buckets_[where_[moves[at].place].bucket];
    fetch(buckets[n + at]);
  }
  for (std::size_t at = 0; at < n; ++at) {
    const std::uint32_t found = table.slots[home[at]].load(std::memory_order_relaxed);
    buckets[at] = &buckets_[found == 0 ? 0 : found - 1];
    fetch(buckets[at]);
  }
  for (std::size_t at = 0; at < 2 * n; ++at) {
    arrays[at] = buckets[at]->array.load(std::memory_order_relaxed);
    prefetch_line(arrays[at]);
  }
  for (std::size_t at = 0; at < n; ++at) {
    if (Array* const to = arrays[at]) {
      const std::uint32_t end = to->size.load(std::memory_order_relaxed);
      for (std::size_t each = 0; each < n_columns(); ++each) {
        prefetch_line(column(*to, each) + end);
      }
    }
    if (Array* const left = arrays[n + at]) {
      prefetch_line(stale_column(*left) + where_[moves[at].place].entry);
    }
  }
}

void MovingGrid::reclaim() {
  gate_.try_advance();
  for (std::size_t n = 0; n < kMostReclaimed && !retired_arrays_.empty(); ++n) {
    if (retired_arrays_.front().epoch >= gate_.n_over()) break;
    n_array_words_ -= n_columns() * retired_arrays_.front().item->capacity;
    retired_arrays_.pop_front();
  }
  while (!retired_tables_.empty() && retired_tables_.front().epoch < gate_.n_over()) {
    retired_tables_.pop_front();
  }
}

std::size_t MovingGrid::n_bytes() const {
  return sizeof(*this) + buckets_.n_bytes() + where_.capacity() * sizeof where_[0] +
         (own_table_->mask + 1) * sizeof(std::uint32_t) + n_array_words_ * sizeof(std::uint32_t);
}

}  // namespace tamis::spatial_grid
