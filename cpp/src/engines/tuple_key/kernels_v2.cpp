// Plain C++: a lane at a time, until one fails. See kernels.hpp.
#include "engines/tuple_key/add_lines.hpp"
#include "engines/tuple_key/kernels.hpp"

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
    const std::uint32_t bit = std::uint32_t{1} << (hash & 31);
    const auto n_before = static_cast<std::uint32_t>(__builtin_popcount(word.bits & (bit - 1)));
    out[n_found] = {word.n_before + n_before, hashes[at]};
    n_found += (word.bits & bit) != 0;
  }
  return n_found;
}

std::size_t guard(const GuardChunk* chunks, std::uint32_t begin, std::uint32_t end,
                  const EventGuards& event, std::uint32_t* out) {
  const auto has = [&](std::uint32_t term) { return event.words[term >> 5] >> (term & 31) & 1; };
  std::size_t n_found = 0;
  for (std::uint32_t at = begin; at < end; ++at) {
    const GuardChunk& chunk = chunks[at / kChunkFilters];
    out[n_found] = at;
    n_found += has(chunk.first[at % kChunkFilters]) & has(chunk.second[at % kChunkFilters]);
  }
  return n_found;
}

template <typename Lane, std::uint32_t kNegated>
void verify(Verification& state) {
  std::size_t n_hits = 0;
  for (; state.run < state.n_runs; ++state.run, state.at = 0) {
    const Run run = state.runs[state.run];
    std::uint32_t at = state.at == 0 ? run.begin : state.at;
    while (at < run.end) {
      if (n_hits == state.n_most_hits) {
        state.at = at;
        state.n_hits = n_hits;
        return;
      }
      const std::uint64_t head = state.records[at];
      const auto n_lanes = static_cast<std::uint32_t>(head >> 32) & 0xFFFF;
      const Lane* slots = reinterpret_cast<const Lane*>(state.records + at + 1);
      const Lane* lows = slots + n_lanes;
      const Lane* widths = lows + n_lanes;
      bool holds = true;
      for (std::uint32_t lane = 0; holds && lane < n_lanes; ++lane) {
        const std::uint32_t rank = state.ranks[slots[lane] & (kNegated - 1)];
        const bool is_inside = rank - lows[lane] <= widths[lane];
        holds = rank != kNoRank && is_inside != ((slots[lane] & kNegated) != 0);
      }
      state.hits[n_hits] = head;
      n_hits += holds;
      ++state.n_candidates;
      state.n_lanes += n_lanes;
      at += 1 + static_cast<std::uint32_t>((n_lanes * 3 * sizeof(Lane) + 7) / 8);
    }
  }
  state.n_hits = n_hits;
}

}  // namespace

const Kernels kKernelsV2 = {join,
                            probe,
                            guard,
                            add_lines,
                            verify<std::uint8_t, kNegated8>,
                            verify<std::uint16_t, kNegated16>,
                            verify<std::uint32_t, kNegated32>};

}  // namespace tamis::tuple_key
