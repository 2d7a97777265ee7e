// Places by bucket: (level, cell, term) -> the places there.
//
//     table     hash -> bucket, open addressing, linear probing      [a power of two, half full]
//     records   key, where its entries begin, how many
//     entries   of each bucket: positions xy [n], on earth z [n], then places [n]
//
// A position is the centre on the lattice of its cell (cells.hpp), two coordinates in a word. In
// the level of places without a cell it is a Bloom filter of names instead.
#pragma once

#include <cstdint>
#include <span>

#include "engines/spatial_grid/cells.hpp"
#include "tamis/column.hpp"
#include "tamis/prefetch.hpp"
#include "tamis/sections.hpp"

namespace tamis::spatial_grid {

using PlaceIdx = std::uint32_t;

inline constexpr std::uint32_t kAnyTerm = 0;

struct BucketKey {
  Cell cell;
  std::uint32_t level = 0;
  std::uint32_t term = kAnyTerm;
  friend bool operator==(const BucketKey&, const BucketKey&) = default;
};

inline std::uint64_t hash_key(std::uint64_t hash_of_cell, std::uint32_t term) {
  return (hash_of_cell ^ term) * kTermMultiplier;
}
inline std::uint64_t hash_key(const BucketKey& key) {
  return hash_key(hash_cell(key.level, key.cell), key.term);
}

// The entries of a bucket: places[i] stands at xy[i] and z[i].
struct BucketEntries {
  const std::uint32_t* xy = nullptr;
  const std::uint32_t* z = nullptr;  // null: all 0
  const std::uint32_t* places = nullptr;
  std::uint32_t size = 0;
};

// What stands in a bucket.
struct Entry {
  BucketKey key;
  std::uint32_t xy = 0, z = 0;
  PlaceIdx place = 0;
};

class Buckets {
 public:
  Buckets() = default;
  Buckets(std::span<const Entry> entries, bool is_flat);
  Buckets(const SectionReader& sections, bool is_flat);
  void save(SectionWriter& sections) const;

  std::size_t size() const { return records_.size(); }
  void prefetch(std::uint64_t hash) const { prefetch_line(table_.data() + (hash >> shift_)); }
  BucketEntries find(std::uint64_t hash, const BucketKey& key) const {
    const std::size_t mask = table_.size() - 1;
    for (std::size_t at = hash >> shift_;; at = (at + 1) & mask) {
      if (table_[at] == 0) return {};
      const Record& record = records_[table_[at] - 1];
      if (record.key == key) return entries_of(record);
    }
  }
  BucketEntries entries_at(std::uint32_t bucket) const { return entries_of(records_[bucket]); }
  // Calls visit(key, entries) for each bucket, in order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Record& record : records_) visit(record.key, entries_of(record));
  }
  std::size_t n_bytes() const { return table_.n_bytes() + records_.n_bytes() + entries_.n_bytes(); }

 private:
  struct Record {
    BucketKey key;
    std::uint32_t size = 0;
    std::uint64_t first = 0;  // in entries_
  };
  BucketEntries entries_of(const Record& record) const {
    const std::uint32_t* xy = entries_.data() + record.first;
    const std::uint32_t* z = is_flat_ ? nullptr : xy + record.size;
    return {xy, z, xy + record.size * (is_flat_ ? 1 : 2), record.size};
  }
  void set_shift();

  bool is_flat_ = true;
  int shift_ = 0;
  Column<std::uint32_t> table_;
  Column<Record> records_;
  Column<std::uint32_t> entries_;
};

}  // namespace tamis::spatial_grid
