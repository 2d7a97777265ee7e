// CRC-32C (Castagnoli, RFC 3720 section 12.1), the checksum of every file a matcher keeps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tamis {

// The checksum of `n_bytes` at `data`. `seed` is the checksum of what stands before them, so
// crc32c(b, crc32c(a)) is the checksum of a and b together.
std::uint32_t crc32c(const void* data, std::size_t n_bytes, std::uint32_t seed = 0);

// The same without the instruction: what machines without it run, and the tests' reference.
std::uint32_t crc32c_by_table(const void* data, std::size_t n_bytes, std::uint32_t seed = 0);

}  // namespace tamis
