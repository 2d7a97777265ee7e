// 64 bytes a step; a masked load takes the rest, and never faults on what the mask leaves out.
// See simd.hpp for what this file may not include.
#include "common/simd.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace tamis {

namespace {

// From this many set bits in a word on, four compressions beat a loop over the bits.
constexpr int kDenseBits = 8;

std::uint64_t first_bits(std::size_t n_bits) {
  return _bzhi_u64(~std::uint64_t{0}, static_cast<unsigned>(n_bits));
}

std::uint64_t string_ends(__m512i bytes) {
  return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('"')) |
         _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\\')) |
         _mm512_cmplt_epu8_mask(bytes, _mm512_set1_epi8(0x20));
}

const char* find_string_end(const char* at, const char* end) {
  for (; end - at >= 64; at += 64) {
    const std::uint64_t mask = string_ends(_mm512_loadu_si512(at));
    if (mask != 0) return at + _tzcnt_u64(mask);
  }
  const std::uint64_t rest = first_bits(static_cast<std::size_t>(end - at));
  const std::uint64_t mask = string_ends(_mm512_maskz_loadu_epi8(rest, at)) & rest;
  return mask != 0 ? at + _tzcnt_u64(mask) : end;
}

bool is_ascii(const char* text, std::size_t n_bytes) {
  __m512i seen = _mm512_setzero_si512();
  std::size_t at = 0;
  for (; n_bytes - at >= 64; at += 64) {
    seen = _mm512_or_si512(seen, _mm512_loadu_si512(text + at));
  }
  if (at < n_bytes) {
    seen = _mm512_or_si512(seen, _mm512_maskz_loadu_epi8(first_bits(n_bytes - at), text + at));
  }
  return _mm512_movepi8_mask(seen) == 0;
}

std::uint64_t popcount(const std::uint64_t* words, std::size_t n_words) {
  // The masked form: GCC 12 warns of its own header in the plain one.
  const __m512i counts = _mm512_maskz_broadcast_i32x4(
      0xFFFF, _mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
  const __m512i low_nibble = _mm512_set1_epi8(0x0F);
  __m512i lanes = _mm512_setzero_si512();
  for (std::size_t at = 0; at < n_words; at += 8) {
    const std::size_t left = n_words - at;
    const auto mask = static_cast<__mmask8>(left >= 8 ? 0xFF : (1u << left) - 1);
    const __m512i bits = _mm512_maskz_loadu_epi64(mask, words + at);
    const __m512i low = _mm512_shuffle_epi8(counts, _mm512_and_si512(bits, low_nibble));
    const __m512i high =
        _mm512_shuffle_epi8(counts, _mm512_and_si512(_mm512_srli_epi16(bits, 4), low_nibble));
    lanes = _mm512_add_epi64(lanes,
                             _mm512_sad_epu8(_mm512_add_epi8(low, high), _mm512_setzero_si512()));
  }
  alignas(64) std::uint64_t sums[8];
  _mm512_store_si512(sums, lanes);
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

std::size_t bits_to_indices(const std::uint64_t* words, std::size_t n_words, std::uint32_t* out) {
  const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  std::uint32_t* next = out;
  for (std::size_t at = 0; at < n_words; ++at) {
    std::uint64_t word = words[at];
    const auto base = static_cast<std::uint32_t>(64 * at);
    if (_mm_popcnt_u64(word) < kDenseBits) {
      for (; word != 0; word = _blsr_u64(word)) {
        *next++ = base + static_cast<std::uint32_t>(_tzcnt_u64(word));
      }
      continue;
    }
    for (unsigned quarter = 0; quarter < 4; ++quarter) {
      const auto mask = static_cast<__mmask16>(word >> (16 * quarter));
      const auto n_bits = static_cast<unsigned>(_mm_popcnt_u32(mask));
      const __m512i indices =
          _mm512_add_epi32(steps, _mm512_set1_epi32(static_cast<int>(base + 16 * quarter)));
      // Compress in the register and store under a mask: a compressing store is slow on some
      // machines, and a whole one would write past the caller's room.
      _mm512_mask_storeu_epi32(next, static_cast<__mmask16>((1u << n_bits) - 1),
                               _mm512_maskz_compress_epi32(mask, indices));
      next += n_bits;
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
    for (std::size_t at = 0; at < n_words; at += 8) {
      __m512i bits =
          _mm512_or_si512(_mm512_or_si512(_mm512_load_si512(a + at), _mm512_load_si512(b + at)),
                          _mm512_or_si512(_mm512_load_si512(c + at), _mm512_load_si512(d + at)));
      if (!is_first) bits = _mm512_or_si512(bits, _mm512_load_si512(out + at));
      _mm512_store_si512(out + at, bits);
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

std::size_t find_subsets(const std::uint32_t* sets, std::size_t n_sets, std::uint32_t missing,
                         std::uint32_t* out) {
  const __m512i absent = _mm512_set1_epi32(static_cast<int>(missing));
  std::uint32_t* next = out;
  std::size_t at = 0;
  for (; n_sets - at >= 64; at += 64) {
    const auto lanes = [&](std::size_t first) -> std::uint64_t {
      return _mm512_testn_epi32_mask(_mm512_loadu_si512(sets + at + first), absent);
    };
    next =
        write_positions(lanes(0) | lanes(16) << 16 | lanes(32) << 32 | lanes(48) << 48, at, next);
  }
  for (; at < n_sets; at += 16) {
    const auto rest = static_cast<__mmask16>(_bzhi_u32(0xFFFF, static_cast<unsigned>(n_sets - at)));
    const __m512i bits = _mm512_maskz_loadu_epi32(rest, sets + at);
    for (unsigned found = _mm512_mask_testn_epi32_mask(rest, bits, absent); found != 0;
         found = _blsr_u32(found)) {
      *next++ = static_cast<std::uint32_t>(at) + _tzcnt_u32(found);
    }
  }
  return static_cast<std::size_t>(next - out);
}

std::size_t find_near(const std::uint32_t* xy, const std::uint32_t* z, const std::uint32_t* ids,
                      std::size_t n, std::uint32_t at_xy, std::uint32_t at_z, std::int32_t limit,
                      std::uint32_t* out) {
  const __m512i here_xy = _mm512_set1_epi32(static_cast<int>(at_xy));
  const __m512i here_z = _mm512_set1_epi32(static_cast<int>(at_z));
  const __m512i most = _mm512_set1_epi32(limit);
  std::uint32_t* next = out;
  for (std::size_t at = 0; at < n; at += 16) {
    const auto rest = static_cast<__mmask16>(
        n - at >= 16 ? 0xFFFFu : _bzhi_u32(0xFFFF, static_cast<unsigned>(n - at)));
    __m512i away = _mm512_sub_epi16(_mm512_maskz_loadu_epi32(rest, xy + at), here_xy);
    __m512i squares = _mm512_madd_epi16(away, away);
    if (z != nullptr) {
      away = _mm512_sub_epi16(_mm512_maskz_loadu_epi32(rest, z + at), here_z);
      squares = _mm512_add_epi32(squares, _mm512_madd_epi16(away, away));
    }
    const __mmask16 found = _mm512_mask_cmple_epi32_mask(rest, squares, most);
    if (found == 0) continue;
    _mm512_storeu_si512(
        next, _mm512_maskz_compress_epi32(found, _mm512_maskz_loadu_epi32(rest, ids + at)));
    next += _mm_popcnt_u32(found);
  }
  return static_cast<std::size_t>(next - out);
}

void find_boxes(const float* groups, std::size_t n_groups, std::size_t n_dimensions,
                const float* below, const float* above, std::uint16_t* out) {
  for (std::size_t group = 0; group < n_groups; ++group) {
    __mmask16 mask = 0xFFFF;
    for (std::size_t dimension = 0; dimension < n_dimensions; ++dimension) {
      const float* bounds = groups + dimension * 32;
      mask = _mm512_mask_cmp_ps_mask(mask, _mm512_loadu_ps(bounds),
                                     _mm512_set1_ps(below[dimension]), _CMP_LE_OQ);
      mask = _mm512_mask_cmp_ps_mask(mask, _mm512_set1_ps(above[dimension]),
                                     _mm512_loadu_ps(bounds + 16), _CMP_LE_OQ);
    }
    out[group] = mask;
    groups += 32 * n_dimensions;
  }
}

bool and_lines(const std::uint64_t* lines, const std::uint16_t* places, std::size_t n_places,
               std::uint8_t words, std::uint64_t* out, std::uint64_t* n_read) {
  const auto line = [&](std::size_t at) {
    return _mm512_load_si512(lines + 8 * std::size_t{places[at]});
  };
  __m512i left = _mm512_maskz_set1_epi64(words, -1);
  std::size_t at = 0;
  bool is_left = true;
  // Eight at a time: a test that is guessed wrong costs more than the lines it saves.
  for (; is_left && at + 8 <= n_places; at += 8) {
    const __m512i first = _mm512_ternarylogic_epi64(line(at), line(at + 1), line(at + 2), 0x80);
    const __m512i second =
        _mm512_ternarylogic_epi64(line(at + 3), line(at + 4), line(at + 5), 0x80);
    const __m512i third = _mm512_and_si512(line(at + 6), line(at + 7));
    left = _mm512_and_si512(left, _mm512_ternarylogic_epi64(first, second, third, 0x80));
    is_left = _mm512_test_epi64_mask(left, left) != 0;
  }
  if (is_left && at < n_places) {
    for (; at < n_places; ++at) left = _mm512_and_si512(left, line(at));
    is_left = _mm512_test_epi64_mask(left, left) != 0;
  }
  *n_read += at;
  _mm512_storeu_si512(out, left);
  return is_left;
}

// `key_of` gives the keys of 16 slots, where the mask has a bit.
template <typename KeyOf>
std::size_t find_records(const std::uint32_t* records, const std::uint32_t* places,
                         std::size_t n_places, std::uint64_t* out, KeyOf key_of) {
  std::size_t n_found = 0;
  for (std::size_t at = 0; at < n_places; ++at) {
    const std::uint32_t* record = records + 4 * std::size_t{places[at]};
    const std::uint32_t n_lanes = record[1] & 0xFFFF;
    const auto* slots = reinterpret_cast<const std::uint16_t*>(record + 2);
    const std::uint32_t* lows = record + 2 + (n_lanes + 1) / 2;
    out[n_found] = std::uint64_t{record[1]} << 32 | record[0];
    bool holds = true;
    std::uint32_t lane = 0;
    do {
      const auto mask = static_cast<__mmask16>(_bzhi_u32(0xFFFF, n_lanes - lane));
      const __m512i slot =
          _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, slots + lane));
      const __m512i beyond =
          _mm512_sub_epi32(key_of(slot, mask), _mm512_maskz_loadu_epi32(mask, lows + lane));
      holds = _mm512_mask_cmple_epu32_mask(
                  mask, beyond, _mm512_maskz_loadu_epi32(mask, lows + n_lanes + lane)) == mask;
      lane += 16;
    } while (holds && lane < n_lanes);
    n_found += holds;
  }
  return n_found;
}

std::size_t find_records(const std::uint32_t* records, const std::uint32_t* places,
                         std::size_t n_places, const std::uint32_t* keys, std::size_t n_keys,
                         std::uint64_t* out) {
  if (n_keys > 32) {
    return find_records(
        records, places, n_places, out, [&](const __m512i& slot, const __mmask16& mask) {
          return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), mask, slot, keys, 4);
        });
  }
  // So few fit two registers: much quicker than from memory.
  const auto load = [](const std::uint32_t* first, std::size_t n) {
    const auto mask = static_cast<__mmask16>(_bzhi_u32(0xFFFF, static_cast<unsigned>(n)));
    return _mm512_maskz_loadu_epi32(mask, first);
  };
  const std::size_t n_low = n_keys < 16 ? n_keys : 16;
  const __m512i low = load(keys, n_low), high = load(keys + n_low, n_keys - n_low);
  return find_records(records, places, n_places, out, [&](const __m512i& slot, const __mmask16&) {
    return _mm512_permutex2var_epi32(low, slot, high);
  });
}

void sweep_line(const std::uint64_t* start, const std::uint32_t* places, const std::uint16_t* bits,
                std::size_t n_bits, const std::uint32_t* keys, const std::uint16_t* order,
                std::size_t n_items, std::uint64_t* rows) {
  __m512i line = _mm512_load_si512(start);
  std::size_t item = 0;
  const auto apply = [&] {
    std::uint64_t* row = rows + 8 * std::size_t{order[item]};
    _mm512_store_si512(row, _mm512_and_si512(_mm512_load_si512(row), line));
  };
  for (std::size_t at = 0; at < n_bits && item < n_items; ++at) {
    for (; item < n_items && keys[item] < places[at]; ++item) apply();
    const auto lane = static_cast<__mmask8>(1u << (bits[at] / 64));
    const auto bit = static_cast<long long>(std::uint64_t{1} << (bits[at] % 64));
    line = _mm512_mask_xor_epi64(line, lane, line, _mm512_set1_epi64(bit));
  }
  for (; item < n_items; ++item) apply();
}

}  // namespace

extern const SimdKernels kSimdAvx512 = {find_string_end, is_ascii,  popcount,     bits_to_indices,
                                        or_words,        mark_bits, find_subsets, find_boxes,
                                        find_near,       and_lines, find_records, sweep_line};

}  // namespace tamis
#endif
