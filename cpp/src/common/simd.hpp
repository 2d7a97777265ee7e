// Kernels that exist once for each instruction set, chosen at run time.
//
//     simd_v2.cpp      x86-64-v2; plain C++ on every other machine
//     simd_avx2.cpp    + AVX2, BMI, LZCNT
//     simd_avx512.cpp  + AVX-512 F, BW, VL, DQ
//
// Each of these files is compiled with flags of its own. It therefore includes this header and
// <immintrin.h> alone, and this header has no inline function: of an inline function or a template
// the linker keeps one copy for everybody, and that could be the AVX-512 one.
//
// All levels give the same answers; `simd()` is one atomic load and a call, so take the reference
// out of the loop.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tamis {

enum class SimdLevel : std::uint8_t { v2, avx2, avx512 };

struct SimdKernels {
  // The first byte that ends or interrupts a JSON string ('"', '\\' or below 0x20), or `end`.
  const char* (*find_string_end)(const char* begin, const char* end);
  bool (*is_ascii)(const char* text, std::size_t n_bytes);
  std::uint64_t (*popcount)(const std::uint64_t* words, std::size_t n_words);
  // Writes the positions of all set bits in order and gives back how many; `out` has room for
  // as many, and not one more is written.
  std::size_t (*bits_to_indices)(const std::uint64_t* words, std::size_t n_words,
                                 std::uint32_t* out);
  // out = sources[0] | sources[1] | …; zeros without sources. All have `n_words`, a multiple of 8,
  // and begin at multiples of 64 bytes; `out` is none of the sources.
  void (*or_words)(std::uint64_t* out, const std::uint64_t* const* sources, std::size_t n_sources,
                   std::size_t n_words);
  // Sets the bits `ids` of `words`.
  void (*mark_bits)(std::uint64_t* words, const std::uint16_t* ids, std::size_t n_ids);
  // Writes the positions of all sets that have no bit of `missing`, in order, and gives back how
  // many; `out` has room for n_sets.
  std::size_t (*find_subsets)(const std::uint32_t* sets, std::size_t n_sets, std::uint32_t missing,
                              std::uint32_t* out);
  // Which boxes hold a point? Boxes stand in groups of 16: for each of n_dimensions 16 lower bounds
  // and then 16 upper bounds. Bit i of out[g] is set if box i of group g has low <= below and
  // above <= high in each dimension.
  void (*find_boxes)(const float* groups, std::size_t n_groups, std::size_t n_dimensions,
                     const float* below, const float* above, std::uint16_t* out);
  // Points on a lattice: xy[i] is two int16, x in the lower half, and so is z[i] (null: all 0),
  // whose upper half is 0. No difference may leave int16. Writes ids[i] of all points with dx^2 +
  // dy^2 + dz^2 <= limit, in order, and gives back how many; `out` has room for n + 16.
  std::size_t (*find_near)(const std::uint32_t* xy, const std::uint32_t* z,
                           const std::uint32_t* ids, std::size_t n, std::uint32_t at_xy,
                           std::uint32_t at_z, std::int32_t limit, std::uint32_t* out);

  // Lines are 8 words at a multiple of 64 bytes.
  // ANDs the lines at `places`, of them the words whose bit of `words` is set. Is anything left?
  // Else it stopped early, and `out` holds zeros. Adds to `n_read` how many lines it read.
  bool (*and_lines)(const std::uint64_t* lines, const std::uint16_t* places, std::size_t n_places,
                    std::uint8_t words, std::uint64_t* out, std::uint64_t* n_read);
  // Records begin at `places`, in units of 4 words:
  //     head: id u32, n u16, flags u16 | slots u16[n], padding to a word | lows u32[n] | widths
  //     u32[n]
  // and hold if keys[slot] - low <= width, unsigned, for each of the n; slots are below n_keys.
  // Writes the heads of those that hold, in order, and gives back how many; `out` has room for
  // n_places.
  std::size_t (*find_records)(const std::uint32_t* records, const std::uint32_t* places,
                              std::size_t n_places, const std::uint32_t* keys, std::size_t n_keys,
                              std::uint64_t* out);
  // For each item at `order[at]`, whose key is `keys[at]` (in order): ANDs to its line of `rows`
  // the line that `start` becomes when the bits `bits[t]` with `places[t]` <= its key are flipped.
  // `places` are in order.
  void (*sweep_line)(const std::uint64_t* start, const std::uint32_t* places,
                     const std::uint16_t* bits, std::size_t n_bits, const std::uint32_t* keys,
                     const std::uint16_t* order, std::size_t n_items, std::uint64_t* rows);
};

extern const SimdKernels kSimdV2;
#if defined(__x86_64__)
extern const SimdKernels kSimdAvx2;
extern const SimdKernels kSimdAvx512;
#endif

// What this machine can do at most; the first level is always there.
SimdLevel best_simd_level();
bool has_simd_level(SimdLevel level);
// "v2", "avx2" or "avx512".
const char* simd_level_name(SimdLevel level);

// The level in use, for the whole process: at first the best.
SimdLevel simd_level();
// Throws ArgumentError where the machine lacks it. For tests and measurements.
void set_simd_level(SimdLevel level);
const SimdKernels& simd();

}  // namespace tamis
