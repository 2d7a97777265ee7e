// 16 keys or lanes a step; masked loads end where a record does. See kernels.hpp.
//
// Masked forms throughout: GCC 12 warns of its own header in the plain ones. But no compressing
// stores: Zen 4 takes hundreds of cycles for one, and a few for compressing in a register.
#include "engines/tuple_key/add_lines.hpp"
#include "engines/tuple_key/few_lanes.hpp"
#include "engines/tuple_key/kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace tamis::tuple_key {
namespace {

// So few are looked up sooner one by one than gathered.
constexpr std::size_t kFewHashes = 8;

void join(const std::uint32_t* table, const KeyTerms* keys, std::size_t n_keys,
          std::uint32_t* out) {
  const __m512i low = _mm512_loadu_si512(table);
  const __m512i high = _mm512_loadu_si512(table + 16);
  const auto terms = [&](const std::uint8_t* places) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(places));
    return _mm512_permutex2var_epi32(low, _mm512_maskz_cvtepu8_epi32(0xFFFF, bytes), high);
  };
  for (std::size_t first = 0; first < n_keys; first += 16, ++keys, out += 16) {
    const __m512i hashes = _mm512_xor_si512(
        _mm512_xor_si512(terms(keys->first), terms(keys->second)), terms(keys->third));
    _mm512_storeu_si512(out, hashes);
  }
}

// The number of keys before that of a hash whose bit is set.
inline std::uint32_t n_keys_before(KeyWord word, std::uint32_t bit_idx) {
  return word.n_before +
         static_cast<std::uint32_t>(_mm_popcnt_u32(_bzhi_u32(word.bits, bit_idx & 31)));
}

std::size_t probe(const std::uint32_t* hashes, std::size_t n_hashes, const KeyWord* words,
                  std::uint32_t shift, FoundKey* out) {
  const __m512i ones = _mm512_set1_epi32(1);
  const __m512i low_bits = _mm512_set1_epi32(31);
  std::size_t n_found = 0, at = 0;
  for (; at + kFewHashes < n_hashes; at += 16) {
    const std::size_t left = n_hashes - at;
    const auto valid = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1u << left) - 1);
    const __m512i whole = _mm512_maskz_loadu_epi32(valid, hashes + at);
    const __m512i hash = _mm512_maskz_srli_epi32(valid, whole, shift);
    const __m512i word = _mm512_maskz_srli_epi32(valid, hash, 5);
    const __m512i bits =
        _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), valid, word, words, sizeof(KeyWord));
    const __m512i bit = _mm512_maskz_sllv_epi32(valid, ones, _mm512_and_si512(hash, low_bits));
    const __mmask16 found = _mm512_mask_test_epi32_mask(valid, bits, bit);
    if (found == 0) continue;
    alignas(64) std::uint32_t found_hashes[16];
    _mm512_store_si512(found_hashes, _mm512_maskz_compress_epi32(found, whole));
    const int n_here = _mm_popcnt_u32(found);
    for (int each = 0; each < n_here; ++each) {
      const std::uint32_t bit_idx = found_hashes[each] >> shift;
      out[n_found++] = {n_keys_before(words[bit_idx >> 5], bit_idx), found_hashes[each]};
    }
  }
  // Without branches: nobody can foresee which of them are found.
  for (; at < n_hashes; ++at) {
    const std::uint32_t bit_idx = hashes[at] >> shift;
    const KeyWord word = words[bit_idx >> 5];
    out[n_found] = {n_keys_before(word, bit_idx), hashes[at]};
    n_found += word.bits >> (bit_idx & 31) & 1;
  }
  return n_found;
}

// Zen 4 takes some 40 cycles to gather 16 words, and a few to look up 32 in registers. What the
// last 11 bits let through, 16 in 6,500 where the event has 50 values, is tested one by one.
std::size_t guard(const GuardChunk* chunks, std::uint32_t begin, std::uint32_t end,
                  const EventGuards& event, std::uint32_t* out) {
  constexpr __mmask32 kAll = ~__mmask32{0};
  const __m512i ones = _mm512_set1_epi16(1);
  const __m512i low_bits = _mm512_set1_epi16(15);
  const __m512i words[] = {_mm512_loadu_si512(event.folded), _mm512_loadu_si512(event.folded + 32),
                           _mm512_loadu_si512(event.folded + 64),
                           _mm512_loadu_si512(event.folded + 96)};
  const auto may_have = [&](const std::uint16_t* guards) {
    const __m512i guard = _mm512_loadu_si512(guards);
    const __m512i place = _mm512_maskz_srli_epi16(kAll, guard, 4);
    const __mmask32 is_high = _mm512_movepi16_mask(_mm512_maskz_slli_epi16(kAll, guard, 5));
    const __m512i word =
        _mm512_mask_blend_epi16(is_high, _mm512_permutex2var_epi16(words[0], place, words[1]),
                                _mm512_permutex2var_epi16(words[2], place, words[3]));
    return _mm512_test_epi16_mask(
        word, _mm512_maskz_sllv_epi16(kAll, ones, _mm512_and_si512(guard, low_bits)));
  };
  const auto has = [&](std::uint32_t term) { return event.words[term >> 5] >> (term & 31) & 1; };
  std::size_t n_found = 0;
  for (std::uint32_t step = begin & ~(kChunkFilters - 1); step < end; step += kChunkFilters) {
    const GuardChunk& chunk = chunks[step / kChunkFilters];
    std::uint32_t found = may_have(chunk.first) & may_have(chunk.second);
    if (step < begin) found &= ~0u << (begin - step);
    if (end - step < kChunkFilters) found = _bzhi_u32(found, end - step);
    for (; found != 0; found &= found - 1) {
      const std::uint32_t at = _tzcnt_u32(found);
      out[n_found] = step + at;
      n_found += has(chunk.first[at]) & has(chunk.second[at]);
    }
  }
  return n_found;
}

inline bool hold_8(const std::uint32_t* ranks, __mmask8 mask, __mmask8 negated, __m256i idx,
                   __m256i low, __m256i width) {
  const __m256i rank = _mm256_mmask_i32gather_epi32(_mm256_setzero_si256(), mask, idx, ranks, 4);
  const __mmask8 inside = _mm256_cmple_epu32_mask(_mm256_sub_epi32(rank, low), width);
  const __mmask8 known = _mm256_cmpneq_epi32_mask(rank, _mm256_set1_epi32(-1));
  return static_cast<std::uint8_t>((inside ^ negated) & known & mask) == mask;
}

inline bool hold_16(const std::uint32_t* ranks, __mmask16 mask, __mmask16 negated, __m512i idx,
                    __m512i low, __m512i width) {
  const __m512i rank = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), mask, idx, ranks, 4);
  const __mmask16 inside = _mm512_cmple_epu32_mask(_mm512_sub_epi32(rank, low), width);
  const __mmask16 known = _mm512_cmpneq_epi32_mask(rank, _mm512_set1_epi32(-1));
  return static_cast<std::uint16_t>((inside ^ negated) & known & mask) == mask;
}

inline bool holds(const std::uint8_t* lanes, std::uint32_t n_lanes, const std::uint32_t* ranks) {
  const __m128i slot_bits = _mm_set1_epi8(0x7F);
  if (n_lanes <= 8) {
    const auto mask = static_cast<__mmask8>(_bzhi_u32(0xFF, n_lanes));
    const __m128i slot = _mm_maskz_loadu_epi8(mask, lanes);
    return hold_8(ranks, mask, static_cast<__mmask8>(_mm_movepi8_mask(slot)),
                  _mm256_cvtepu8_epi32(_mm_and_si128(slot, slot_bits)),
                  _mm256_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, lanes + n_lanes)),
                  _mm256_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, lanes + 2 * n_lanes)));
  }
  for (std::uint32_t first = 0; first < n_lanes; first += 16) {
    const std::uint8_t* slots = lanes + first;
    const auto mask = static_cast<__mmask16>(_bzhi_u32(0xFFFF, n_lanes - first));
    const __m128i slot = _mm_maskz_loadu_epi8(mask, slots);
    const auto load = [&](const std::uint8_t* from) {
      return _mm512_maskz_cvtepu8_epi32(mask, _mm_maskz_loadu_epi8(mask, from));
    };
    if (!hold_16(ranks, mask, _mm_movepi8_mask(slot),
                 _mm512_maskz_cvtepu8_epi32(mask, _mm_and_si128(slot, slot_bits)),
                 load(slots + n_lanes), load(slots + 2 * n_lanes))) {
      return false;
    }
  }
  return true;
}

inline bool holds(const std::uint16_t* lanes, std::uint32_t n_lanes, const std::uint32_t* ranks) {
  if (n_lanes <= 8) {
    const auto mask = static_cast<__mmask8>(_bzhi_u32(0xFF, n_lanes));
    const __m128i slot = _mm_maskz_loadu_epi16(mask, lanes);
    return hold_8(ranks, mask, _mm_movepi16_mask(slot),
                  _mm256_cvtepu16_epi32(_mm_and_si128(slot, _mm_set1_epi16(0x7FFF))),
                  _mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(mask, lanes + n_lanes)),
                  _mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(mask, lanes + 2 * n_lanes)));
  }
  const __m256i slot_bits = _mm256_set1_epi16(0x7FFF);
  for (std::uint32_t first = 0; first < n_lanes; first += 16) {
    const std::uint16_t* slots = lanes + first;
    const auto mask = static_cast<__mmask16>(_bzhi_u32(0xFFFF, n_lanes - first));
    const __m256i slot = _mm256_maskz_loadu_epi16(mask, slots);
    const __m512i low =
        _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, slots + n_lanes));
    const __m512i width =
        _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, slots + 2 * n_lanes));
    if (!hold_16(ranks, mask, _mm256_movepi16_mask(slot),
                 _mm512_maskz_cvtepu16_epi32(mask, _mm256_and_si256(slot, slot_bits)), low,
                 width)) {
      return false;
    }
  }
  return true;
}

inline bool holds(const std::uint32_t* lanes, std::uint32_t n_lanes, const std::uint32_t* ranks) {
  const __m512i slot_bits = _mm512_set1_epi32(0x7FFFFFFF);
  for (std::uint32_t first = 0; first < n_lanes; first += 16) {
    const std::uint32_t* slots = lanes + first;
    const auto mask = static_cast<__mmask16>(_bzhi_u32(0xFFFF, n_lanes - first));
    const __m512i slot = _mm512_maskz_loadu_epi32(mask, slots);
    if (!hold_16(ranks, mask, _mm512_movepi32_mask(slot), _mm512_and_si512(slot, slot_bits),
                 _mm512_maskz_loadu_epi32(mask, slots + n_lanes),
                 _mm512_maskz_loadu_epi32(mask, slots + 2 * n_lanes))) {
      return false;
    }
  }
  return true;
}

template <typename Lane>
void verify(Verification& state) {
  std::size_t n_hits = 0;
  std::uint64_t n_candidates = 0, n_all_lanes = 0;
  std::size_t run_idx = state.run;
  std::uint32_t at = state.at;
  for (; run_idx < state.n_runs; ++run_idx, at = 0) {
    const Run run = state.runs[run_idx];
    if (at == 0) at = run.begin;
    while (at < run.end && n_hits < state.n_most_hits) {
      const std::uint64_t head = state.records[at];
      const auto n_lanes = static_cast<std::uint32_t>(head >> 32) & 0xFFFF;
      state.hits[n_hits] = head;
      const auto* lanes = reinterpret_cast<const Lane*>(state.records + at + 1);
      n_hits += n_lanes == 1 || n_lanes == 2 ? hold_one_or_two(lanes, n_lanes, state.ranks)
                                             : holds(lanes, n_lanes, state.ranks);
      ++n_candidates;
      n_all_lanes += n_lanes;
      at += 1 + static_cast<std::uint32_t>((n_lanes * 3 * sizeof(Lane) + 7) / 8);
    }
    if (at < run.end) break;
  }
  state.run = run_idx;
  state.at = at;
  state.n_hits = n_hits;
  state.n_candidates += n_candidates;
  state.n_lanes += n_all_lanes;
}

}  // namespace

const Kernels kKernelsAvx512 = {join,
                                probe,
                                guard,
                                add_lines,
                                verify<std::uint8_t>,
                                verify<std::uint16_t>,
                                verify<std::uint32_t>};

}  // namespace tamis::tuple_key
#endif
