// Memory that is read at random, on large pages where the system has them: with small ones nearly
// every read also misses the cache of addresses.
#pragma once

#include <cstddef>

namespace tamis {

// A hint; does nothing where it means nothing. The bytes need not have been written yet.
void advise_huge_pages(const void* data, std::size_t n_bytes);

}  // namespace tamis
