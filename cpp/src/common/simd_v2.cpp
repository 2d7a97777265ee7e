// The base level: 16 bytes a step with SSE2 on x86-64, 8 bytes a step in plain C++ elsewhere.
#include "common/simd.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tamis {

namespace {

bool ends_string(char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; }

std::uint64_t load_word(const char* at) {
  std::uint64_t word;
  __builtin_memcpy(&word, at, sizeof word);
  return word;
}

const char* find_string_end(const char* at, const char* end) {
#if defined(__x86_64__)
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i last_control = _mm_set1_epi8(0x1F);
  for (; end - at >= 16; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    // Unsigned bytes <= 0x1F: those that the minimum leaves as they are.
    const __m128i hits =
        _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)),
                     _mm_cmpeq_epi8(_mm_min_epu8(bytes, last_control), bytes));
    const int mask = _mm_movemask_epi8(hits);
    if (mask != 0) return at + __builtin_ctz(static_cast<unsigned>(mask));
  }
#else
  constexpr std::uint64_t kOnes = 0x0101010101010101ull;
  constexpr std::uint64_t kHighs = 0x8080808080808080ull;
  for (; end - at >= 8; at += 8) {
    const std::uint64_t word = load_word(at);
    const std::uint64_t quote = word ^ (kOnes * '"');
    const std::uint64_t backslash = word ^ (kOnes * '\\');
    // A borrow runs upwards only: whether there is a hit is exact, which byte is seen below.
    if ((((quote - kOnes) & ~quote) | ((backslash - kOnes) & ~backslash) |
         ((word - kOnes * 0x20) & ~word)) &
        kHighs) {
      break;
    }
  }
#endif
  while (at != end && !ends_string(*at)) ++at;
  return at;
}

bool is_ascii(const char* text, std::size_t n_bytes) {
  std::size_t at = 0;
#if defined(__x86_64__)
  __m128i seen = _mm_setzero_si128();
  for (; n_bytes - at >= 16; at += 16) {
    seen = _mm_or_si128(seen, _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + at)));
  }
  if (_mm_movemask_epi8(seen) != 0) return false;
#endif
  std::uint64_t word = 0;
  for (; n_bytes - at >= 8; at += 8) word |= load_word(text + at);
  for (; at < n_bytes; ++at) word |= static_cast<unsigned char>(text[at]);
  return (word & 0x8080808080808080ull) == 0;
}

std::uint64_t popcount(const std::uint64_t* words, std::size_t n_words) {
  std::uint64_t total = 0;
  for (std::size_t at = 0; at < n_words; ++at) {
    total += static_cast<std::uint64_t>(__builtin_popcountll(words[at]));
  }
  return total;
}

std::size_t bits_to_indices(const std::uint64_t* words, std::size_t n_words, std::uint32_t* out) {
  std::uint32_t* next = out;
  for (std::size_t at = 0; at < n_words; ++at) {
    const auto base = static_cast<std::uint32_t>(64 * at);
    for (std::uint64_t word = words[at]; word != 0; word &= word - 1) {
      *next++ = base + static_cast<std::uint32_t>(__builtin_ctzll(word));
    }
  }
  return static_cast<std::size_t>(next - out);
}

void or_words(std::uint64_t* out, const std::uint64_t* const* sources, std::size_t n_sources,
              std::size_t n_words) {
  for (std::size_t at = 0; at < n_words; ++at) out[at] = 0;
  for (std::size_t source = 0; source < n_sources; ++source) {
    const std::uint64_t* words = sources[source];
    for (std::size_t at = 0; at < n_words; ++at) out[at] |= words[at];
  }
}

void mark_bits(std::uint64_t* words, const std::uint16_t* ids, std::size_t n_ids) {
  for (std::size_t at = 0; at < n_ids; ++at) {
    words[ids[at] >> 6] |= std::uint64_t{1} << (ids[at] & 63);
  }
}

#if defined(__x86_64__)
// Of 0 it may be anything: what is then written is written over.
unsigned lowest_bit(std::uint64_t word) {
  return static_cast<unsigned>(__builtin_ctzll(word | std::uint64_t{1} << 63));
}

// Four positions are written whatever the word holds: where few bits are set, a loop over them is
// mostly mispredicted branches (2.5M sets, 1 in 50 found: 380 us instead of 800 with AVX-512).
// They fit, since no more than all sets before `base` were written.
std::uint32_t* write_positions(std::uint64_t word, std::size_t base, std::uint32_t* next) {
  const auto n_bits = __builtin_popcountll(word);
  for (int at = 0; at < 4; ++at) {
    next[at] = static_cast<std::uint32_t>(base) + static_cast<std::uint32_t>(lowest_bit(word));
    word &= word - 1;
  }
  for (std::uint32_t* rest = next + 4; word != 0; word &= word - 1) {
    *rest++ = static_cast<std::uint32_t>(base) + static_cast<std::uint32_t>(lowest_bit(word));
  }
  return next + n_bits;
}
#endif

std::size_t find_subsets(const std::uint32_t* sets, std::size_t n_sets, std::uint32_t missing,
                         std::uint32_t* out) {
  std::uint32_t* next = out;
  std::size_t at = 0;
#if defined(__x86_64__)
  const __m128i absent = _mm_set1_epi32(static_cast<int>(missing));
  for (; n_sets - at >= 64; at += 64) {
    const auto lanes = [&](std::size_t first) {
      const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sets + at + first));
      return _mm_cmpeq_epi32(_mm_and_si128(bits, absent), _mm_setzero_si128());
    };
    const auto quarter = [&](std::size_t first) -> std::uint64_t {
      return static_cast<unsigned>(
          _mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(lanes(first), lanes(first + 4)),
                                            _mm_packs_epi32(lanes(first + 8), lanes(first + 12)))));
    };
    next = write_positions(quarter(0) | quarter(16) << 16 | quarter(32) << 32 | quarter(48) << 48,
                           at, next);
  }
#endif
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
#if defined(__x86_64__)
  const __m128i here_xy = _mm_set1_epi32(static_cast<int>(at_xy));
  const __m128i here_z = _mm_set1_epi32(static_cast<int>(at_z));
  const __m128i most = _mm_set1_epi32(limit);
  const auto load = [](const std::uint32_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  for (; n - at >= 4; at += 4) {
    __m128i away = _mm_sub_epi16(load(xy + at), here_xy);
    __m128i squares = _mm_madd_epi16(away, away);
    if (z != nullptr) {
      away = _mm_sub_epi16(load(z + at), here_z);
      squares = _mm_add_epi32(squares, _mm_madd_epi16(away, away));
    }
    const __m128i is_far = _mm_cmpgt_epi32(squares, most);
    auto found = static_cast<unsigned>(~_mm_movemask_ps(_mm_castsi128_ps(is_far)) & 0xF);
    for (; found != 0; found &= found - 1) *next++ = ids[at + lowest_bit(found)];
  }
#endif
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
#if defined(__x86_64__)
    for (std::size_t lane = 0; lane < 16; lane += 4) {
      __m128 holds = _mm_castsi128_ps(_mm_set1_epi32(-1));
      for (std::size_t dimension = 0; dimension < n_dimensions; ++dimension) {
        const float* bounds = groups + dimension * 32 + lane;
        holds =
            _mm_and_ps(holds, _mm_cmple_ps(_mm_loadu_ps(bounds), _mm_set1_ps(below[dimension])));
        holds = _mm_and_ps(holds,
                           _mm_cmple_ps(_mm_set1_ps(above[dimension]), _mm_loadu_ps(bounds + 16)));
      }
      mask |= static_cast<unsigned>(_mm_movemask_ps(holds)) << lane;
    }
#else
    for (std::size_t lane = 0; lane < 16; ++lane) {
      bool holds = true;
      for (std::size_t dimension = 0; dimension < n_dimensions; ++dimension) {
        const float* bounds = groups + dimension * 32 + lane;
        holds = holds && bounds[0] <= below[dimension] && above[dimension] <= bounds[16];
      }
      mask |= static_cast<unsigned>(holds) << lane;
    }
#endif
    out[group] = static_cast<std::uint16_t>(mask);
    groups += 32 * n_dimensions;
  }
}

bool and_lines(const std::uint64_t* lines, const std::uint16_t* places, std::size_t n_places,
               std::uint8_t words, std::uint64_t* out, std::uint64_t* n_read) {
  for (std::size_t word = 0; word < 8; ++word)
    out[word] = words >> word & 1 ? ~std::uint64_t{0} : 0;
  for (std::size_t at = 0; at < n_places; ++at) {
    const std::uint64_t* line = lines + 8 * std::size_t{places[at]};
    std::uint64_t left = 0;
    for (std::size_t word = 0; word < 8; ++word) left |= out[word] &= line[word];
    if (left == 0) {
      *n_read += at + 1;
      return false;
    }
  }
  *n_read += n_places;
  return true;
}

std::size_t find_records(const std::uint32_t* records, const std::uint32_t* places,
                         std::size_t n_places, const std::uint32_t* keys, std::size_t /*n_keys*/,
                         std::uint64_t* out) {
  std::size_t n_found = 0;
  for (std::size_t at = 0; at < n_places; ++at) {
    const std::uint32_t* record = records + 4 * std::size_t{places[at]};
    const std::uint32_t n_lanes = record[1] & 0xFFFF;
    const auto* slots = reinterpret_cast<const std::uint16_t*>(record + 2);
    const std::uint32_t* lows = record + 2 + (n_lanes + 1) / 2;
    const std::uint32_t* widths = lows + n_lanes;
    bool holds = true;
    for (std::uint32_t lane = 0; holds && lane < n_lanes; ++lane) {
      holds = keys[slots[lane]] - lows[lane] <= widths[lane];
    }
    if (holds) out[n_found++] = std::uint64_t{record[1]} << 32 | record[0];
  }
  return n_found;
}

void sweep_line(const std::uint64_t* start, const std::uint32_t* places, const std::uint16_t* bits,
                std::size_t n_bits, const std::uint32_t* keys, const std::uint16_t* order,
                std::size_t n_items, std::uint64_t* rows) {
  std::uint64_t line[8];
  for (std::size_t word = 0; word < 8; ++word) line[word] = start[word];
  std::size_t item = 0;
  for (std::size_t at = 0; at <= n_bits && item < n_items; ++at) {
    for (; item < n_items && (at == n_bits || keys[item] < places[at]); ++item) {
      std::uint64_t* row = rows + 8 * std::size_t{order[item]};
      for (std::size_t word = 0; word < 8; ++word) row[word] &= line[word];
    }
    if (at < n_bits) line[bits[at] / 64] ^= std::uint64_t{1} << (bits[at] % 64);
  }
}

}  // namespace

extern const SimdKernels kSimdV2 = {find_string_end, is_ascii,  popcount,     bits_to_indices,
                                    or_words,        mark_bits, find_subsets, find_boxes,
                                    find_near,       and_lines, find_records, sweep_line};

}  // namespace tamis
