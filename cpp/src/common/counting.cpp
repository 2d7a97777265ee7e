#include "common/counting.hpp"

#include <numeric>

namespace tamis {

CountedFilters::CountedFilters(const FilterTable& table,
                               std::span<const std::uint32_t> partition_of,
                               std::uint32_t n_partitions)
    : numbers_(table.size(), kUncounted),
      filter_begins_(n_partitions + 1),
      limit_begins_(n_partitions) {
  std::vector<std::uint8_t> sizes(table.size());
  std::vector<std::uint8_t> largest_sizes(n_partitions);
  std::vector<Filter> flat(table.size());
  for (FilterIdx idx = 0; idx < table.size(); ++idx) {
    const FilterTable::Filter& filter = table.filter(idx);
    bool has_pattern = false;
    for_each_counted(table, idx, [&](const Constraint& constraint) {
      ++sizes[idx];
      has_pattern |= Ranks::needs_verify(table, constraint);
    });
    if (sizes[idx] == 0) {
      always_.push_back(idx);
      continue;
    }
    const bool has_rest = has_pattern || sizes[idx] < filter.constraints.count ||
                          filter.areas.count > 0 || filter.residuals.count > 0;
    flat[idx] = {.idx = idx, .has_rest = has_rest};
    std::uint8_t& largest = largest_sizes[partition_of[idx]];
    largest = std::max(largest, sizes[idx]);
    ++filter_begins_[partition_of[idx] + 1];
  }
  always_.shrink_to_fit();
  std::uint32_t n_limits = 0;
  for (std::uint32_t partition = 0; partition < n_partitions; ++partition) {
    largest_partition_ = std::max(largest_partition_, filter_begins_[partition + 1]);
    filter_begins_[partition + 1] += filter_begins_[partition];
    limit_begins_[partition] = n_limits;
    n_limits += largest_sizes[partition] + 1u;
  }

  // A counting sort by (partition, size): limits hold, in turn, how many have a size, where the
  // next of that size goes, and where those of that size end.
  limits_.resize(n_limits);
  for (FilterIdx idx = 0; idx < table.size(); ++idx) {
    if (sizes[idx] > 0) ++limits_[limit_begins_[partition_of[idx]] + sizes[idx]];
  }
  for (std::uint32_t partition = 0; partition < n_partitions; ++partition) {
    std::uint32_t* const limits = limits_.data() + limit_begins_[partition];
    std::uint32_t next = 0;
    for (std::uint32_t size = 0; size <= largest_sizes[partition]; ++size) {
      next += std::exchange(limits[size], next);
    }
  }
  filters_.resize(filter_begins_.back());
  for (FilterIdx idx = 0; idx < table.size(); ++idx) {
    if (sizes[idx] == 0) continue;
    const std::uint32_t partition = partition_of[idx];
    numbers_[idx] = limits_[limit_begins_[partition] + sizes[idx]]++;
    filters_[filter_begins_[partition] + numbers_[idx]] = flat[idx];
  }
}

std::size_t CountedFilters::n_bytes() const {
  const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  return bytes(numbers_) + bytes(filter_begins_) + bytes(filters_) + bytes(limit_begins_) +
         bytes(limits_) + bytes(always_);
}

}  // namespace tamis
