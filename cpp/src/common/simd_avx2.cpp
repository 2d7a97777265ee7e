// 32 bytes a step. See simd.hpp for what this file may not include.
#include "common/simd.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace tamis {

namespace {

bool ends_string(char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; }

const char* find_string_end(const char* at, const char* end) {
  const __m256i quote = _mm256_set1_epi8('"');
  const __m256i backslash = _mm256_set1_epi8('\\');
  const __m256i last_control = _mm256_set1_epi8(0x1F);
  for (; end - at >= 32; at += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i hits = _mm256_or_si256(
        _mm256_or_si256(_mm256_cmpeq_epi8(bytes, quote), _mm256_cmpeq_epi8(bytes, backslash)),
        _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, last_control), bytes));
    const auto mask = static_cast<unsigned>(_mm256_movemask_epi8(hits));
    if (mask != 0) return at + _tzcnt_u32(mask);
  }
  while (at != end && !ends_string(*at)) ++at;
  return at;
}

bool is_ascii(const char* text, std::size_t n_bytes) {
  std::size_t at = 0;
  __m256i seen = _mm256_setzero_si256();
  for (; n_bytes - at >= 32; at += 32) {
    seen = _mm256_or_si256(seen, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text + at)));
  }
  if (_mm256_movemask_epi8(seen) != 0) return false;
  std::uint64_t rest = 0;
  for (; n_bytes - at >= 8; at += 8) {
    std::uint64_t word;
    __builtin_memcpy(&word, text + at, sizeof word);
    rest |= word;
  }
  for (; at < n_bytes; ++at) rest |= static_cast<unsigned char>(text[at]);
  return (rest & 0x8080808080808080ull) == 0;
}

// Counts of nibbles from a table of 16, summed by byte and then by lane.
std::uint64_t popcount(const std::uint64_t* words, std::size_t n_words) {
  const __m256i counts = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1,
                                          2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
  const __m256i low_nibble = _mm256_set1_epi8(0x0F);
  __m256i lanes = _mm256_setzero_si256();
  std::size_t at = 0;
  for (; n_words - at >= 4; at += 4) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + at));
    const __m256i low = _mm256_shuffle_epi8(counts, _mm256_and_si256(bits, low_nibble));
    const __m256i high =
        _mm256_shuffle_epi8(counts, _mm256_and_si256(_mm256_srli_epi16(bits, 4), low_nibble));
    lanes = _mm256_add_epi64(lanes,
                             _mm256_sad_epu8(_mm256_add_epi8(low, high), _mm256_setzero_si256()));
  }
  alignas(32) std::uint64_t sums[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums), lanes);
  std::uint64_t total = sums[0] + sums[1] + sums[2] + sums[3];
  for (; at < n_words; ++at) total += static_cast<std::uint64_t>(_mm_popcnt_u64(words[at]));
  return total;
}

std::size_t bits_to_indices(const std::uint64_t* words, std::size_t n_words, std::uint32_t* out) {
  std::uint32_t* next = out;
  for (std::size_t at = 0; at < n_words; ++at) {
    const auto base = static_cast<std::uint32_t>(64 * at);
    for (std::uint64_t word = words[at]; word != 0; word = _blsr_u64(word)) {
      *next++ = base + static_cast<std::uint32_t>(_tzcnt_u64(word));
    }
  }
  return static_cast<std::size_t>(next - out);
}

// 32 sets a step: four times eight lanes, packed to bytes. Packing works within halves of 16
// bytes, so a permutation puts the groups of four back in order.
std::size_t find_subsets(const std::uint32_t* sets, std::size_t n_sets, std::uint32_t missing,
                         std::uint32_t* out) {
  const __m256i absent = _mm256_set1_epi32(static_cast<int>(missing));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  std::uint32_t* next = out;
  std::size_t at = 0;
  for (; n_sets - at >= 32; at += 32) {
    const auto lanes = [&](std::size_t first) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sets + at + first));
      return _mm256_cmpeq_epi32(_mm256_and_si256(bits, absent), _mm256_setzero_si256());
    };
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(lanes(0), lanes(8)),
                                             _mm256_packs_epi32(lanes(16), lanes(24)));
    auto mask =
        static_cast<unsigned>(_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(bytes, order)));
    for (; mask != 0; mask = _blsr_u32(mask)) {
      *next++ = static_cast<std::uint32_t>(at) + static_cast<std::uint32_t>(_tzcnt_u32(mask));
    }
  }
  for (; at < n_sets; ++at) {
    *next = static_cast<std::uint32_t>(at);
    next += (sets[at] & missing) == 0;
  }
  return static_cast<std::size_t>(next - out);
}

}  // namespace

extern const SimdKernels kSimdAvx2 = {find_string_end, is_ascii, popcount, bits_to_indices,
                                      find_subsets};

}  // namespace tamis
#endif
