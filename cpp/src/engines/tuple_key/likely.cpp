#include "engines/tuple_key/likely.hpp"

#include <bit>

#include "engines/tuple_key/items.hpp"
#include "tamis/error.hpp"

namespace tamis::tuple_key {
namespace {

// Ends of tiers. All of them are a few hundred KiB with their records, which stay in the L2 cache.
constexpr std::size_t kTiers[] = {1024, 4096, 8192};
constexpr std::size_t kShare = 16;  // at most one of so many filters
constexpr std::size_t kMostBuckets = 1024;

}  // namespace

LikelyFilters::LikelyFilters(const Planner& planner, const FilterTerms& filters,
                             std::size_t n_attributes) {
  const std::size_t n_most = std::min(std::end(kTiers)[-1], filters.size() / kShare);
  const EventModel model = planner.model_of(planner.plans().back().n_attributes);
  std::vector<float> chances(filters.size());
  for (std::uint32_t filter = 0; filter < filters.size(); ++filter) {
    if (filters[filter].empty()) continue;  // tested for each event, or impossible
    chances[filter] = filters.shares[filter];
    for (const FilterTerm& term : filters[filter]) {
      chances[filter] *= static_cast<float>(model.presences[term.attribute]);
    }
    filters_.push_back(filter);
  }
  const std::size_t n_all = std::min(n_most, filters_.size());
  const auto at = [&](std::size_t place) {
    return filters_.begin() + static_cast<std::ptrdiff_t>(place);
  };
  std::partial_sort(at(0), at(n_all), filters_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return chances[a] != chances[b] ? chances[a] > chances[b] : a < b;
  });
  filters_.resize(n_all);
  filters_.shrink_to_fit();

  n_buckets_ = std::bit_ceil(std::clamp<std::size_t>(n_attributes, 1, kMostBuckets));
  const auto is_rarer = [&](const FilterTerm& a, const FilterTerm& b) {
    return model.presences[a.attribute] < model.presences[b.attribute];
  };
  const auto bucket_of = [&](std::uint32_t filter) {
    const std::span<const FilterTerm> terms = filters[filter];
    return std::min_element(terms.begin(), terms.end(), is_rarer)->attribute % n_buckets_;
  };
  std::vector<std::uint32_t> starts{0};
  std::size_t begin = 0;
  for (const std::size_t tier : kTiers) {
    const std::size_t end = std::min(tier, n_all);
    std::stable_sort(at(begin), at(end),
                     [&](std::uint32_t a, std::uint32_t b) { return bucket_of(a) < bucket_of(b); });
    for (std::size_t bucket = 0; bucket < n_buckets_; ++bucket) {
      while (begin < end && bucket_of(filters_[begin]) == bucket) ++begin;
      starts.push_back(static_cast<std::uint32_t>(begin));
    }
  }
  std::vector<GuardChunk> chunks((n_all + kChunkFilters - 1) / kChunkFilters);
  std::vector<FilterTerm> terms;
  for (std::size_t place = 0; place < n_all; ++place) {
    const std::uint32_t filter = filters_[place];
    terms.assign(filters[filter].begin(), filters[filter].end());
    const std::size_t n_sorted = std::min<std::size_t>(3, terms.size());
    std::partial_sort(terms.begin(), terms.begin() + static_cast<std::ptrdiff_t>(n_sorted),
                      terms.end(), is_rarer);
    const auto guard = [&](std::size_t each) {
      return each < n_sorted ? guard_of(presence_hash(terms[each].attribute)) : kNoGuard;
    };
    GuardChunk& chunk = chunks[place / kChunkFilters];  // the first name has led here
    chunk.first[place % kChunkFilters] = guard(1);
    chunk.second[place % kChunkFilters] = guard(2);
  }
  starts_ = std::move(starts);
  chunks_ = std::move(chunks);
}

void LikelyFilters::place_records(std::vector<std::uint32_t> places) {
  places_ = std::move(places);
  filters_ = {};
}

LikelyFilters::LikelyFilters(const SectionReader& sections)
    : starts_(sections.column<std::uint32_t>("tuple_key/likely_starts")),
      chunks_(sections.column<GuardChunk>("tuple_key/likely_chunks")),
      places_(sections.column<std::uint32_t>("tuple_key/likely_places")) {
  if (starts_.size() <= std::size(kTiers) || chunks_.size() * kChunkFilters < places_.size()) {
    throw Error("the likely filters of engine tuple-key must be those of its index");
  }
  n_buckets_ = (starts_.size() - 1) / std::size(kTiers);
}

void LikelyFilters::save(SectionWriter& sections) const {
  sections.write("tuple_key/likely_starts", starts_);
  sections.write("tuple_key/likely_chunks", chunks_);
  sections.write("tuple_key/likely_places", places_);
}

}  // namespace tamis::tuple_key
