// The buckets of a grid whose places move: the built ones, and what has changed since.
//
//     table     hash -> bucket; grows by a new table
//     buckets   key, and an array of its own once something came or went
//     array     xy [capacity], z [capacity], places [capacity], stale_at [capacity]
//     where     place -> its bucket and its entry there           the writer's
//
// A move appends an entry to the bucket of the new cell and marks the old entry stale. Entries are
// never written over. A full array, or one that is mostly stale, is replaced by a new one without
// the stale entries. So a move costs O(1) on average, and stale entries are no more than live ones,
// but for what readers still need.
//
// Readers find a place through any of its entries, stale ones too, and test the place's centre of
// that moment. A stale entry therefore stays until every reader is gone that may have begun before
// the move: one that had looked at the new bucket too early finds the place in the old one.
// Replaced arrays and tables are kept as long. ReaderGate says when that is.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "common/reader_gate.hpp"
#include "engines/spatial_grid/places.hpp"
#include "tamis/grow_only.hpp"

namespace tamis::spatial_grid {

class MovingGrid {
 public:
  // `built` must outlive it.
  MovingGrid(const Buckets& built, std::size_t n_places, bool is_flat);
  ~MovingGrid();

  // --- readers, while they hold a pass ---
  ReaderGate::Pass enter() const { return gate_.enter(); }
  void prefetch(std::uint64_t hash) const {
    const Table* const table = table_.load(std::memory_order_acquire);
    prefetch_line(table->slots.get() + (hash >> table->shift));
  }
  BucketEntries find(std::uint64_t hash, const BucketKey& key) const;

  // --- the writer's part ---
  // The entry's place stands there from now on.
  void move(const Entry& to);
  // Fetches what move() will read of a place; and then, for some moves at once, all the rest.
  void prefetch(PlaceIdx place) const { prefetch_line(&where_[place]); }
  static constexpr std::size_t kMostPrefetched = 16;
  void prefetch(std::span<const Entry> moves) const;
  void forget_readers() { gate_.forget_readers(); }
  // Are there many more buckets than a new grid would have?
  bool is_worn() const { return n_buckets_ > 4096 + 2 * n_built_ + where_.size(); }
  std::size_t n_bytes() const;

 private:
  struct Array {
    std::uint32_t capacity = 0;
    std::atomic<std::uint32_t> size{0};
    // Allocated with it.
    std::uint32_t* words() { return reinterpret_cast<std::uint32_t*>(this + 1); }
  };
  struct FreeArray {
    void operator()(Array* array) const { ::operator delete(array); }
  };
  using OwnArray = std::unique_ptr<Array, FreeArray>;
  struct Bucket {
    BucketKey key;
    std::uint32_t n_stale;      // the writer's
    std::uint32_t least_stale;  // before which it is not worth a new array
    std::atomic<Array*> array;  // null: as built
  };
  struct Table {
    explicit Table(std::size_t n_slots);
    int shift;
    std::size_t mask;
    std::unique_ptr<std::atomic<std::uint32_t>[]> slots;  // bucket + 1
  };
  struct Where {
    std::uint32_t bucket = 0, entry = 0;
  };
  template <typename T>
  struct Retired {
    std::uint64_t epoch = 0;
    T item;
  };

  std::uint32_t* column(Array& array, std::size_t at) const {
    return array.words() + at * array.capacity;
  }
  std::size_t places_column() const { return is_flat_ ? 1 : 2; }
  std::size_t n_columns() const { return is_flat_ ? 3 : 4; }
  std::uint32_t* stale_column(Array& array) const { return column(array, n_columns() - 1); }
  BucketEntries built_entries(std::uint32_t bucket) const;
  OwnArray make_array(std::size_t capacity);
  Array& own_array(std::uint32_t bucket);
  Array& renew(std::uint32_t bucket);
  std::uint32_t find_or_add(const BucketKey& key);
  void insert(Table& table, std::uint64_t hash, std::uint32_t bucket);
  void reclaim();

  const Buckets& built_;
  const bool is_flat_;
  const std::size_t n_built_;
  ReaderGate gate_;
  GrowOnly<Bucket> buckets_;
  std::size_t n_buckets_ = 0;
  std::atomic<Table*> table_{nullptr};
  std::unique_ptr<Table> own_table_;
  std::vector<Where> where_;  // [n_places]
  std::deque<Retired<OwnArray>> retired_arrays_;
  std::deque<Retired<std::unique_ptr<Table>>> retired_tables_;
  std::size_t n_array_words_ = 0;  // retired ones too
  std::uint32_t n_moves_ = 0;
};

}  // namespace tamis::spatial_grid
