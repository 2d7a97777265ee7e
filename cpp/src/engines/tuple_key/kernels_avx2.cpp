// 8 lanes a step; what is read past a record is masked out. See kernels.hpp.
#include "engines/tuple_key/add_lines.hpp"
#include "engines/tuple_key/few_lanes.hpp"
#include "engines/tuple_key/kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace tamis::tuple_key {
namespace {

void join(const std::uint32_t* table, const KeyTerms* keys, std::size_t n_keys,
          std::uint32_t* out) {
  for (std::size_t first = 0; first < n_keys; first += 16, ++keys, out += 16) {
    for (std::size_t at = 0; at < 16; ++at) {
      out[at] = table[keys->first[at]] ^ table[keys->second[at]] ^ table[keys->third[at]];
    }
  }
}

std::size_t probe(const std::uint32_t* hashes, std::size_t n_hashes, const KeyWord* words,
                  std::uint32_t shift, FoundKey* out) {
  std::size_t n_found = 0;
  for (std::size_t at = 0; at < n_hashes; ++at) {
    const std::uint32_t hash = hashes[at] >> shift;
    const KeyWord word = words[hash >> 5];
    const auto n_before =
        static_cast<std::uint32_t>(_mm_popcnt_u32(_bzhi_u32(word.bits, hash & 31)));
    out[n_found] = {word.n_before + n_before, hashes[at]};
    n_found += word.bits >> (hash & 31) & 1;
  }
  return n_found;
}

std::size_t guard(const GuardChunk* chunks, std::uint32_t begin, std::uint32_t end,
                  const EventGuards& event, std::uint32_t* out) {
  const __m256i low_bits = _mm256_set1_epi32(31);
  // Which of 8 guards the event has.
  const auto have = [&](const std::uint16_t* guards) {
    const __m256i term =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(guards)));
    const __m256i word = _mm256_i32gather_epi32(reinterpret_cast<const int*>(event.words),
                                                _mm256_srli_epi32(term, 5), 4);
    const __m256i bit = _mm256_and_si256(term, low_bits);
    const __m256i sign = _mm256_sllv_epi32(word, _mm256_sub_epi32(low_bits, bit));
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(sign)));
  };
  std::size_t n_found = 0;
  for (std::uint32_t step = begin & ~7u; step < end; step += 8) {
    const GuardChunk& chunk = chunks[step / kChunkFilters];
    std::uint32_t found = have(chunk.first + step % kChunkFilters);
    if (step < begin) found &= ~0u << (begin - step);
    if (end - step < 8) found = _bzhi_u32(found, end - step);
    if (found != 0) found &= have(chunk.second + step % kChunkFilters);
    for (; found != 0; found &= found - 1) out[n_found++] = step + _tzcnt_u32(found);
  }
  return n_found;
}

inline bool hold_8(__m256i slot, __m256i low, __m256i width, std::uint32_t n_lanes,
                   const std::uint32_t* ranks) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i valid = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n_lanes)), lane);
  const __m256i idx = _mm256_and_si256(slot, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i rank =
      _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), reinterpret_cast<const int*>(ranks),
                                  _mm256_and_si256(idx, valid), valid, 4);
  const __m256i distance = _mm256_sub_epi32(rank, low);
  const __m256i inside = _mm256_cmpeq_epi32(_mm256_min_epu32(distance, width), distance);
  const __m256i negated = _mm256_srai_epi32(slot, 31);
  const __m256i unknown = _mm256_cmpeq_epi32(rank, _mm256_set1_epi32(-1));
  const __m256i good = _mm256_andnot_si256(unknown, _mm256_xor_si256(inside, negated));
  return _mm256_testc_si256(good, valid) != 0;
}

inline bool holds(const std::uint8_t* lanes, std::uint32_t n_lanes, const std::uint32_t* ranks) {
  const auto load = [](const std::uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  };
  for (std::uint32_t first = 0; first < n_lanes; first += 8) {
    const std::uint8_t* slots = lanes + first;
    const __m256i slot = load(slots);
    const __m256i high = _mm256_set1_epi32(0x80);
    const __m256i wide = _mm256_or_si256(_mm256_andnot_si256(high, slot),
                                         _mm256_slli_epi32(_mm256_and_si256(slot, high), 24));
    if (!hold_8(wide, load(slots + n_lanes), load(slots + 2 * n_lanes), n_lanes - first, ranks)) {
      return false;
    }
  }
  return true;
}

inline bool holds(const std::uint16_t* lanes, std::uint32_t n_lanes, const std::uint32_t* ranks) {
  const auto load = [](const std::uint16_t* from) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  };
  for (std::uint32_t first = 0; first < n_lanes; first += 8) {
    const std::uint16_t* slots = lanes + first;
    const __m256i slot = load(slots);
    const __m256i high = _mm256_set1_epi32(0x8000);
    const __m256i wide = _mm256_or_si256(_mm256_andnot_si256(high, slot),
                                         _mm256_slli_epi32(_mm256_and_si256(slot, high), 16));
    if (!hold_8(wide, load(slots + n_lanes), load(slots + 2 * n_lanes), n_lanes - first, ranks)) {
      return false;
    }
  }
  return true;
}

inline bool holds(const std::uint32_t* lanes, std::uint32_t n_lanes, const std::uint32_t* ranks) {
  const auto load = [](const std::uint32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  };
  for (std::uint32_t first = 0; first < n_lanes; first += 8) {
    const std::uint32_t* slots = lanes + first;
    if (!hold_8(load(slots), load(slots + n_lanes), load(slots + 2 * n_lanes), n_lanes - first,
                ranks)) {
      return false;
    }
  }
  return true;
}

template <typename Lane>
void verify(Verification& state) {
  std::size_t n_hits = 0;
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
      ++state.n_candidates;
      state.n_lanes += n_lanes;
      at += 1 + static_cast<std::uint32_t>((n_lanes * 3 * sizeof(Lane) + 7) / 8);
    }
    if (at < run.end) break;
  }
  state.run = run_idx;
  state.at = at;
  state.n_hits = n_hits;
}

}  // namespace

const Kernels kKernelsAvx2 = {join,
                              probe,
                              guard,
                              add_lines,
                              verify<std::uint8_t>,
                              verify<std::uint16_t>,
                              verify<std::uint32_t>};

}  // namespace tamis::tuple_key
#endif
