// Arrays that are read at random, on large pages where the system has them: with small ones nearly
// every read also misses the cache of addresses.
#pragma once

#include "tamis/column.hpp"

namespace tamis {

// A hint; does nothing where it means nothing. The bytes need not have been written yet.
void advise_huge_pages(const void* data, std::size_t n_bytes);

// A copy in an allocation of its exact size.
template <typename T>
Column<T> on_huge_pages(const Column<T>& items) {
  std::vector<T> copy;
  copy.reserve(items.size());
  advise_huge_pages(copy.data(), items.size() * sizeof(T));
  copy.assign(items.begin(), items.end());
  return copy;
}

}  // namespace tamis
