// The inner loops of `tuple-key`, once for each instruction set: testing keys in a bitmap, testing
// guards and records, and adding lines of likely filters.
//
//     kernels_v2.cpp      x86-64-v2; plain C++ on every other machine
//     kernels_avx2.cpp    + AVX2, BMI
//     kernels_avx512.cpp  + AVX-512 F, BW, VL, DQ
//
// As with common/simd.hpp, those files include this header, <immintrin.h> and headers that have
// all in a namespace without a name (few_lanes.hpp, add_lines.hpp), and nothing here is inline: of
// an inline function the linker keeps one copy for everybody.
//
// A record, in units of 8 bytes; Lane is the least of u8, u16 and u32 that slots and ranks fit:
//
//     filter u32   n_lanes u16   flags u16   slots Lane[n]   lows Lane[n]   widths Lane[n] padding
//
// A lane holds if ranks[slot] - low <= width, unsigned; one with kNegated in its slot if not. No
// lane holds where ranks[slot] is kNoRank. A record holds if all of its lanes do.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tamis::tuple_key {

inline constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
inline constexpr std::uint64_t kVerify = 1;  // of a record's flags
inline constexpr std::uint32_t kNegated8 = std::uint32_t{1} << 7;
inline constexpr std::uint32_t kNegated16 = std::uint32_t{1} << 15;
inline constexpr std::uint32_t kNegated32 = std::uint32_t{1} << 31;
// Kernels may read this many bytes past the last record.
inline constexpr std::size_t kRecordPadding = 128;

// 32 keys: are there filters with this key, and how many keys with filters are before.
struct alignas(8) KeyWord {
  std::uint32_t bits;
  std::uint32_t n_before;
};

struct FoundKey {
  std::uint32_t key;  // the number of bits set before its own
  std::uint32_t hash;
};

struct Run {  // of records, in units of 8 bytes; a record that begins before `end` belongs to it
  std::uint32_t begin, end;
};

// Where a verification stands.
struct Verification {
  const std::uint64_t* records;
  const std::uint32_t* ranks;  // [n_slots]
  const Run* runs;
  std::size_t n_runs;
  std::uint64_t* hits;         // the first 8 bytes of the records that hold
  std::size_t n_most_hits;     // more are never written
  std::size_t n_hits;          // out
  std::size_t run;             // in and out: where to go on
  std::uint32_t at;            // in and out: the next record of that run, 0: its first
  std::uint64_t n_candidates;  // in and out: records tested
  std::uint64_t n_lanes;       // in and out: lanes of these
};

// Keys of an event with few attributes: of each, the places of its terms in a table of hashes.
inline constexpr std::size_t kTableTerms = 32;
struct KeyTerms {  // 16 keys
  std::uint8_t first[16], second[16], third[16];
};

// A guard is a term that an event must have beside those of the key, as 16 bits of its hash. Two of
// them for each filter, those of 32 filters in two cache lines, so that one step tests 32:
//
//     first   g g g g … g    64 bytes
//     second  g g g g … g    64 bytes
inline constexpr std::uint16_t kNoGuard = 0;     // every event has it
inline constexpr std::uint16_t kNeverGuard = 1;  // no event has it: there is no filter
inline constexpr std::uint32_t kChunkFilters = 32;
struct alignas(64) GuardChunk {
  std::uint16_t first[kChunkFilters], second[kChunkFilters];
};

// The terms of an event: bitmaps over guards, and over their last 11 bits, which fit in registers.
struct alignas(64) EventGuards {
  static constexpr std::size_t kWords = (1 << 16) / 32;
  static constexpr std::size_t kFoldedWords = (1 << 11) / 16;
  std::uint16_t folded[kFoldedWords];
  std::uint32_t words[kWords];
};

// A bit for each of so many likely filters, see likely.hpp.
inline constexpr std::size_t kLineFilters = 1024;
struct alignas(64) LikelyLine {
  std::uint64_t words[kLineFilters / 64];
};

struct Kernels {
  // Writes the hashes of n_keys keys, and up to 15 more behind them.
  void (*join)(const std::uint32_t* table, const KeyTerms* keys, std::size_t n_keys,
               std::uint32_t* out);
  // The hashes whose bit is set, in order. The bit of a hash is hash >> shift. `out` has room for
  // n_hashes + 1.
  std::size_t (*probe)(const std::uint32_t* hashes, std::size_t n_hashes, const KeyWord* words,
                       std::uint32_t shift, FoundKey* out);
  // Of the filters begin .. end, those whose guards the event has, in order. `out` has room for
  // end - begin.
  std::size_t (*guard)(const GuardChunk* chunks, std::uint32_t begin, std::uint32_t end,
                       const EventGuards& event, std::uint32_t* out);
  // Adds the lines of one stage that `idxs` names to the numbers of three bits in `needed`, those
  // of each filter, and sets the bits of those that come to 8.
  void (*add_lines)(const LikelyLine* lines, const std::uint32_t* idxs, std::size_t n_idxs,
                    const LikelyLine* needed, LikelyLine& out);
  // Tests records until all runs are done or hits are full.
  void (*verify8)(Verification& verification);
  void (*verify16)(Verification& verification);
  void (*verify32)(Verification& verification);
};

extern const Kernels kKernelsV2;
#if defined(__x86_64__)
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;
#endif

}  // namespace tamis::tuple_key
