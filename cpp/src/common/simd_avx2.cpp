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

// Four sources a pass: `out` stays in the first-level cache, and the sources come one stream each.
void or_words(std::uint64_t* out, const std::uint64_t* const* sources, std::size_t n_sources,
              std::size_t n_words) {
  if (n_sources == 0) {
    for (std::size_t at = 0; at < n_words; ++at) out[at] = 0;
  }
  for (std::size_t first = 0; first < n_sources; first += 4) {
    const std::size_t left = n_sources - first;
    const std::uint64_t* a = sources[first];
    const std::uint64_t* b = left > 1 ? sources[first + 1] : a;
    const std::uint64_t* c = left > 2 ? sources[first + 2] : a;
    const std::uint64_t* d = left > 3 ? sources[first + 3] : a;
    const bool is_first = first == 0;
    for (std::size_t at = 0; at < n_words; at += 4) {
      __m256i bits = _mm256_or_si256(
          _mm256_or_si256(_mm256_load_si256(reinterpret_cast<const __m256i*>(a + at)),
                          _mm256_load_si256(reinterpret_cast<const __m256i*>(b + at))),
          _mm256_or_si256(_mm256_load_si256(reinterpret_cast<const __m256i*>(c + at)),
                          _mm256_load_si256(reinterpret_cast<const __m256i*>(d + at))));
      if (!is_first)
        bits = _mm256_or_si256(bits, _mm256_load_si256(reinterpret_cast<__m256i*>(out + at)));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + at), bits);
    }
  }
}

void mark_bits(std::uint64_t* words, const std::uint16_t* ids, std::size_t n_ids) {
  for (std::size_t at = 0; at < n_ids; ++at) {
    words[ids[at] >> 6] |= std::uint64_t{1} << (ids[at] & 63);
  }
}

// Four positions are written whatever the word holds: where few bits are set, a loop over them is
// mostly mispredicted branches (2.5M sets, 1 in 50 found: 380 us instead of 800 with AVX-512).
// They fit, since no more than all sets before `base` were written.
std::uint32_t* write_positions(std::uint64_t word, std::size_t base, std::uint32_t* next) {
  const auto n_bits = _mm_popcnt_u64(word);
  for (int at = 0; at < 4; ++at) {
    next[at] = static_cast<std::uint32_t>(base) + static_cast<std::uint32_t>(_tzcnt_u64(word));
    word = _blsr_u64(word);
  }
  for (std::uint32_t* rest = next + 4; word != 0; word = _blsr_u64(word)) {
    *rest++ = static_cast<std::uint32_t>(base) + static_cast<std::uint32_t>(_tzcnt_u64(word));
  }
  return next + n_bits;
}

// 64 sets a step: eight lanes four times, packed to bytes, and that twice. Packing works within
// halves of 16 bytes, so a permutation puts the groups of four back in order.
std::size_t find_subsets(const std::uint32_t* sets, std::size_t n_sets, std::uint32_t missing,
                         std::uint32_t* out) {
  const __m256i absent = _mm256_set1_epi32(static_cast<int>(missing));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  std::uint32_t* next = out;
  std::size_t at = 0;
  for (; n_sets - at >= 64; at += 64) {
    const auto lanes = [&](std::size_t first) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sets + at + first));
      return _mm256_cmpeq_epi32(_mm256_and_si256(bits, absent), _mm256_setzero_si256());
    };
    const auto half = [&](std::size_t first) -> std::uint64_t {
      const __m256i bytes =
          _mm256_packs_epi16(_mm256_packs_epi32(lanes(first), lanes(first + 8)),
                             _mm256_packs_epi32(lanes(first + 16), lanes(first + 24)));
      return static_cast<unsigned>(_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(bytes, order)));
    };
    next = write_positions(half(0) | half(32) << 32, at, next);
  }
  for (; at < n_sets; ++at) {
    *next = static_cast<std::uint32_t>(at);
    next += (sets[at] & missing) == 0;
  }
  return static_cast<std::size_t>(next - out);
}

std::size_t find_near(const std::uint32_t* xy, const std::uint32_t* z, const std::uint32_t* ids,
                      std::size_t n, std::uint32_t at_xy, std::uint32_t at_z, std::int32_t limit,
                      std::uint32_t* out) {
  std::uint32_t* next = out;
  std::size_t at = 0;
  const __m256i here_xy = _mm256_set1_epi32(static_cast<int>(at_xy));
  const __m256i here_z = _mm256_set1_epi32(static_cast<int>(at_z));
  const __m256i most = _mm256_set1_epi32(limit);
  const auto load = [](const std::uint32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  };
  for (; n - at >= 8; at += 8) {
    __m256i away = _mm256_sub_epi16(load(xy + at), here_xy);
    __m256i squares = _mm256_madd_epi16(away, away);
    if (z != nullptr) {
      away = _mm256_sub_epi16(load(z + at), here_z);
      squares = _mm256_add_epi32(squares, _mm256_madd_epi16(away, away));
    }
    const __m256i is_far = _mm256_cmpgt_epi32(squares, most);
    auto found = static_cast<unsigned>(~_mm256_movemask_ps(_mm256_castsi256_ps(is_far)) & 0xFF);
    for (; found != 0; found = _blsr_u32(found)) *next++ = ids[at + _tzcnt_u32(found)];
  }
  const auto square_of = [](std::uint32_t a, std::uint32_t b) {
    const std::int32_t low = static_cast<std::int16_t>(a) - static_cast<std::int16_t>(b);
    const std::int32_t high =
        static_cast<std::int16_t>(a >> 16) - static_cast<std::int16_t>(b >> 16);
    return low * low + high * high;
  };
  for (; at < n; ++at) {
    std::int32_t square = square_of(xy[at], at_xy);
    if (z != nullptr) square += square_of(z[at], at_z);
    *next = ids[at];
    next += square <= limit;
  }
  return static_cast<std::size_t>(next - out);
}

void find_boxes(const float* groups, std::size_t n_groups, std::size_t n_dimensions,
                const float* below, const float* above, std::uint16_t* out) {
  for (std::size_t group = 0; group < n_groups; ++group) {
    unsigned mask = 0;
    for (std::size_t lane = 0; lane < 16; lane += 8) {
      __m256 holds = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
      for (std::size_t dimension = 0; dimension < n_dimensions; ++dimension) {
        const float* bounds = groups + dimension * 32 + lane;
        holds = _mm256_and_ps(holds, _mm256_cmp_ps(_mm256_loadu_ps(bounds),
                                                   _mm256_set1_ps(below[dimension]), _CMP_LE_OQ));
        holds = _mm256_and_ps(holds, _mm256_cmp_ps(_mm256_set1_ps(above[dimension]),
                                                   _mm256_loadu_ps(bounds + 16), _CMP_LE_OQ));
      }
      mask |= static_cast<unsigned>(_mm256_movemask_ps(holds)) << lane;
    }
    out[group] = static_cast<std::uint16_t>(mask);
    groups += 32 * n_dimensions;
  }
}

__m256i load(const std::uint64_t* words) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
}
void store(std::uint64_t* words, __m256i bits) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), bits);
}

bool and_lines(const std::uint64_t* lines, const std::uint16_t* places, std::size_t n_places,
               std::uint8_t words, std::uint64_t* out, std::uint64_t* n_read) {
  const auto all = [&](unsigned word) { return words >> word & 1 ? -1ll : 0ll; };
  __m256i low = _mm256_setr_epi64x(all(0), all(1), all(2), all(3));
  __m256i high = _mm256_setr_epi64x(all(4), all(5), all(6), all(7));
  std::size_t at = 0;
  bool is_left = true;
  while (at < n_places && is_left) {
    for (const std::size_t stop = at + 2 < n_places ? at + 2 : n_places; at < stop; ++at) {
      const std::uint64_t* line = lines + 8 * std::size_t{places[at]};
      low = _mm256_and_si256(low, load(line));
      high = _mm256_and_si256(high, load(line + 4));
    }
    const __m256i any = _mm256_or_si256(low, high);
    is_left = _mm256_testz_si256(any, any) == 0;
  }
  *n_read += at;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 4), high);
  return is_left;
}

std::size_t find_records(const std::uint32_t* records, const std::uint32_t* places,
                         std::size_t n_places, const std::uint32_t* keys, std::size_t /*n_keys*/,
                         std::uint64_t* out) {
  const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  std::size_t n_found = 0;
  for (std::size_t at = 0; at < n_places; ++at) {
    const std::uint32_t* record = records + 4 * std::size_t{places[at]};
    const std::uint32_t n_lanes = record[1] & 0xFFFF;
    const auto* slots = reinterpret_cast<const std::uint16_t*>(record + 2);
    const std::uint32_t* lows = record + 2 + (n_lanes + 1) / 2;
    bool holds = true;
    for (std::uint32_t lane = 0; holds && lane < n_lanes; lane += 8) {
      // A record is long enough for all 16 bytes of slots.
      const __m256i valid =
          _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n_lanes - lane)), numbers);
      const __m256i slot = _mm256_and_si256(
          valid,
          _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(slots + lane))));
      const __m256i low = _mm256_maskload_epi32(reinterpret_cast<const int*>(lows + lane), valid);
      const __m256i width =
          _mm256_maskload_epi32(reinterpret_cast<const int*>(lows + n_lanes + lane), valid);
      const __m256i key = _mm256_mask_i32gather_epi32(
          _mm256_setzero_si256(), reinterpret_cast<const int*>(keys), slot, valid, 4);
      const __m256i beyond = _mm256_sub_epi32(key, low);
      const __m256i is_inside = _mm256_cmpeq_epi32(_mm256_min_epu32(beyond, width), beyond);
      holds = _mm256_movemask_epi8(_mm256_andnot_si256(is_inside, valid)) == 0;
    }
    if (holds) out[n_found++] = std::uint64_t{record[1]} << 32 | record[0];
  }
  return n_found;
}

void sweep_line(const std::uint64_t* start, const std::uint32_t* places, const std::uint16_t* bits,
                std::size_t n_bits, const std::uint32_t* keys, const std::uint16_t* order,
                std::size_t n_items, std::uint64_t* rows) {
  const __m256i lanes_low = _mm256_setr_epi64x(0, 1, 2, 3);
  const __m256i lanes_high = _mm256_setr_epi64x(4, 5, 6, 7);
  __m256i low = load(start), high = load(start + 4);
  std::size_t item = 0;
  for (std::size_t at = 0; at <= n_bits && item < n_items; ++at) {
    for (; item < n_items && (at == n_bits || keys[item] < places[at]); ++item) {
      std::uint64_t* row = rows + 8 * std::size_t{order[item]};
      store(row, _mm256_and_si256(load(row), low));
      store(row + 4, _mm256_and_si256(load(row + 4), high));
    }
    if (at == n_bits) break;
    const __m256i lane = _mm256_set1_epi64x(bits[at] / 64);
    const __m256i bit =
        _mm256_set1_epi64x(static_cast<long long>(std::uint64_t{1} << bits[at] % 64));
    low = _mm256_xor_si256(low, _mm256_and_si256(bit, _mm256_cmpeq_epi64(lane, lanes_low)));
    high = _mm256_xor_si256(high, _mm256_and_si256(bit, _mm256_cmpeq_epi64(lane, lanes_high)));
  }
}

}  // namespace

extern const SimdKernels kSimdAvx2 = {find_string_end, is_ascii,  popcount,     bits_to_indices,
                                      or_words,        mark_bits, find_subsets, find_boxes,
                                      find_near,       and_lines, find_records, sweep_line};

}  // namespace tamis
#endif
