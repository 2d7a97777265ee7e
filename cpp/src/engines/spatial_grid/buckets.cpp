#include "engines/spatial_grid/buckets.hpp"

#include <algorithm>
#include <bit>
#include <tuple>
#include <vector>

#include "tamis/error.hpp"
#include "tamis/huge_pages.hpp"

namespace tamis::spatial_grid {

Buckets::Buckets(std::span<const Entry> entries, bool is_flat) : is_flat_(is_flat) {
  struct Place {
    std::uint64_t hash;
    std::uint32_t entry;
  };
  std::vector<Place> order(entries.size());
  for (std::uint32_t at = 0; at < order.size(); ++at) {
    order[at] = {hash_key(entries[at].key), at};
  }
  // By hash, so that the buckets of a table's neighbourhood are neighbours too; keys of one hash
  // must stay together.
  const auto rank = [&](const Place& place) {
    const BucketKey& key = entries[place.entry].key;
    return std::tuple(place.hash, key.level, key.cell.x, key.cell.y, key.cell.z, key.term,
                      place.entry);
  };
  std::sort(order.begin(), order.end(), [&](const Place& a, const Place& b) {
    if (a.hash != b.hash) return a.hash < b.hash;
    return rank(a) < rank(b);
  });
  std::vector<Record> records;
  std::vector<std::uint32_t> words;
  words.reserve(entries.size() * (is_flat ? 2 : 3));
  advise_huge_pages(words.data(), words.capacity() * sizeof words[0]);
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const BucketKey& key = entries[order[begin].entry].key;
    while (end < order.size() && entries[order[end].entry].key == key) ++end;
    records.push_back({key, static_cast<std::uint32_t>(end - begin), words.size()});
    for (std::size_t at = begin; at < end; ++at) words.push_back(entries[order[at].entry].xy);
    for (std::size_t at = begin; !is_flat && at < end; ++at) {
      words.push_back(entries[order[at].entry].z);
    }
    for (std::size_t at = begin; at < end; ++at) words.push_back(entries[order[at].entry].place);
  }
  std::vector<std::uint32_t> table(std::bit_ceil(std::max<std::size_t>(2 * records.size(), 2)));
  table_ = std::move(table);
  set_shift();
  const std::size_t mask = table_.size() - 1;
  for (std::uint32_t record = 0; record < records.size(); ++record) {
    std::size_t at = hash_key(records[record].key) >> shift_;
    while (table_[at] != 0) at = (at + 1) & mask;
    table_.own()[at] = record + 1;
  }
  records_ = std::move(records);
  entries_ = std::move(words);
}

Buckets::Buckets(const SectionReader& sections, bool is_flat)
    : is_flat_(is_flat),
      table_(sections.column<std::uint32_t>("spatial_grid/table")),
      records_(sections.column<Record>("spatial_grid/buckets")),
      entries_(sections.column<std::uint32_t>("spatial_grid/entries")) {
  if (!std::has_single_bit(table_.size()) || table_.size() < 2 * records_.size() ||
      table_.size() < 2) {
    throw Error("the index of engine spatial-grid must have a table for its buckets, not another");
  }
  set_shift();
}

void Buckets::set_shift() { shift_ = 64 - std::countr_zero(table_.size()); }

void Buckets::save(SectionWriter& sections) const {
  sections.write("spatial_grid/table", table_);
  sections.write("spatial_grid/buckets", records_);
  sections.write("spatial_grid/entries", entries_);
}

}  // namespace tamis::spatial_grid
