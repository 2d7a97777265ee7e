#include "engines/tuple_key/key_index.hpp"

#include <algorithm>
#include <bit>

#include "tamis/huge_pages.hpp"

namespace tamis::tuple_key {
namespace {

// A key that is not there is found "present" once in so many probes, at the cost of a candidate.
constexpr std::size_t kBitsPerKey = 16;
constexpr std::size_t kFewerBitsPerKey = 8;       // where the bitmap would leave the L2 cache
constexpr std::size_t kMostSmallKeys = 1000;      // of an event; more are not worth a table
constexpr std::size_t kMostCachedBits = 1 << 23;  // 2 MiB with its counts

std::size_t choose(std::size_t n, std::size_t count) {
  return count == 0   ? 1
         : n < count  ? 0
         : count == 1 ? n
         : count == 2 ? n * (n - 1) / 2
                      : n * (n - 1) / 2 * (n - 2) / 3;
}

}  // namespace

KeyIndex::KeyIndex(const Planner& planner, const KeyPlan& plan, const FilterTerms& filters,
                   std::size_t n_attributes, std::vector<std::uint32_t>& order) {
  header_.n_groups = plan.n_groups;
  std::vector<Attribute> attributes(n_attributes);
  std::vector<std::uint32_t> n_ranks(n_attributes);
  for (AttributeId attribute = 0; attribute < n_attributes; ++attribute) {
    attributes[attribute].hash = presence_hash(attribute);
    attributes[attribute].group =
        static_cast<std::uint16_t>(planner.group_of(attribute, plan.n_groups));
  }
  for (const FilterTerm& term : filters.terms) {
    if (term.value != kNoValue) {
      n_ranks[term.attribute] = std::max(n_ranks[term.attribute], term.value + 1);
    }
  }
  const EventModel model = planner.model_of(plan.n_attributes);
  std::vector<std::uint64_t> hashed;  // hash << 32 | filter
  hashed.reserve(filters.size());
  header_.has_guards = plan.has_guards;
  guards_of_filter_.resize(plan.has_guards ? filters.size() : 0);
  std::vector<float> chances(filters.size());  // that a filter accepts an event that has its key
  std::vector<std::uint64_t> value_bits;
  for (std::uint32_t filter = 0; filter < filters.size(); ++filter) {
    if (filters[filter].empty()) continue;
    const Key key = planner.choose_key(filters[filter], plan, model);
    std::uint32_t hash = 0;
    std::uint8_t n_values = 0;
    for (std::uint32_t at = 0; at < key.n_terms; ++at) {
      const Key::Term& term = key.terms[at];
      Attribute& of = attributes[term.attribute];
      if (term.value == kNoValue) {
        of.has_presence = 1;
        hash ^= of.hash;
        continue;
      }
      if (of.value_end == 0) {
        of.value_at = static_cast<std::uint32_t>(value_bits.size());
        of.value_end = n_ranks[term.attribute];
        value_bits.resize(value_bits.size() + (of.value_end + 63) / 64);
      }
      value_bits[of.value_at + term.value / 64] |= std::uint64_t{1} << (term.value % 64);
      hash ^= value_hash(of.hash, term.value);
      ++n_values;
    }
    for (std::size_t shape = 0; shape < kNumShapes; ++shape) {
      if (kShapes[shape].n_values == n_values &&
          kShapes[shape].n_presences == key.n_terms - n_values) {
        header_.shapes |= std::uint32_t{1} << shape;
      }
    }
    hashed.push_back(std::uint64_t{hash} << 32 | filter);
    chances[filter] = filters.shares[filter];
    for (const FilterTerm& term : filters[filter]) {
      if (std::none_of(key.terms, key.terms + key.n_terms,
                       [&](const Key::Term& of) { return of.attribute == term.attribute; })) {
        chances[filter] *= static_cast<float>(model.presences[term.attribute]);
      }
    }
    for (std::uint32_t at = 0; at < key.n_guards; ++at) {
      const Key::Term& term = key.guards[at];
      const std::uint32_t presence = attributes[term.attribute].hash;
      guards_of_filter_[filter][at] =
          guard_of(term.value == kNoValue ? presence : value_hash(presence, term.value));
    }
  }
  std::sort(hashed.begin(), hashed.end());
  std::size_t n_keys = 0;
  for (auto begin = hashed.begin(); begin != hashed.end(); ++n_keys) {
    const auto end = std::find_if(begin, hashed.end(),
                                  [&](std::uint64_t each) { return each >> 32 != *begin >> 32; });
    // The likeliest first: few subscribers are settled by the first few filters of a key.
    std::stable_sort(begin, end, [&](std::uint64_t a, std::uint64_t b) {
      return chances[static_cast<std::uint32_t>(a)] > chances[static_cast<std::uint32_t>(b)];
    });
    begin = end;
  }
  std::size_t n_bits = std::bit_ceil(std::max<std::size_t>(32, n_keys * kBitsPerKey));
  if (n_bits > kMostCachedBits) {
    n_bits = std::max<std::size_t>(kMostCachedBits, std::bit_ceil(n_keys * kFewerBitsPerKey));
  }
  n_bits = std::min(n_bits, std::size_t{1} << 32);
  header_.shift = 32 - static_cast<std::uint32_t>(std::countr_zero(n_bits));
  std::vector<KeyWord> words;
  words.reserve(n_bits / 32);
  advise_huge_pages(words.data(), words.capacity() * sizeof words[0]);
  words.resize(n_bits / 32);
  std::vector<std::uint32_t> starts;
  starts.reserve(n_keys + 1);
  advise_huge_pages(starts.data(), starts.capacity() * sizeof starts[0]);
  order.clear();
  order.reserve(hashed.size());
  for (std::size_t at = 0; at < hashed.size(); ++at) {
    const std::uint64_t bit = hashed[at] >> 32 >> header_.shift;
    KeyWord& word = words[bit / 32];
    if (!(word.bits >> (bit % 32) & 1)) {
      word.bits |= std::uint32_t{1} << (bit % 32);
      starts.push_back(static_cast<std::uint32_t>(at));
      hash_of_start_.push_back(static_cast<std::uint32_t>(hashed[at] >> 32));
    } else if (hash_of_start_.back() != hashed[at] >> 32) {
      hash_of_start_.back() = 0;
    }
    order.push_back(static_cast<std::uint32_t>(hashed[at]));
  }
  starts.push_back(static_cast<std::uint32_t>(hashed.size()));
  std::uint32_t n_before = 0;
  for (KeyWord& word : words) {
    word.n_before = n_before;
    n_before += static_cast<std::uint32_t>(std::popcount(word.bits));
  }
  value_bits.shrink_to_fit();
  attributes_ = std::move(attributes);
  value_bits_ = std::move(value_bits);
  words_ = std::move(words);
  starts_ = std::move(starts);
  make_small_keys();
}

// Places 0 .. 14 are presences, 15 is no term, 16 .. 30 are values.
void KeyIndex::make_small_keys() {
  if (header_.n_groups != 1) return;
  constexpr std::uint8_t kNone = kMostSmall, kValues = kMostSmall + 1;
  for (std::size_t n_attributes = 0; n_attributes <= kMostSmall; ++n_attributes) {
    std::vector<std::array<std::uint8_t, 3>> keys;
    const std::size_t n_sets = std::size_t{1} << n_attributes;
    for (std::size_t shape = 0; shape < kNumShapes; ++shape) {
      if (!(header_.shapes >> shape & 1)) continue;
      const int n_terms = kShapes[shape].n_values + kShapes[shape].n_presences;
      for (std::size_t set = 0; set < n_sets; ++set) {
        if (std::popcount(set) != n_terms) continue;
        // Each choice of which of its attributes are values.
        for (std::size_t values = set;; values = (values - 1) & set) {
          if (std::popcount(values) == kShapes[shape].n_values) {
            std::array<std::uint8_t, 3> key{kNone, kNone, kNone};
            std::size_t at = 0;
            for (std::uint8_t attribute = 0; attribute < n_attributes; ++attribute) {
              if (!(set >> attribute & 1)) continue;
              key[at++] =
                  static_cast<std::uint8_t>(attribute + (values >> attribute & 1 ? kValues : 0));
            }
            keys.push_back(key);
          }
          if (values == 0) break;
        }
      }
    }
    if (keys.size() > kMostSmallKeys) return;
    SmallKeys& small = small_.emplace_back();
    small.n_keys = keys.size();
    small.keys.resize((keys.size() + 15) / 16);
    for (std::size_t at = 0; at < small.keys.size() * 16; ++at) {
      const std::array<std::uint8_t, 3> key =
          at < keys.size() ? keys[at] : std::array<std::uint8_t, 3>{kNone, kNone, kNone};
      small.keys[at / 16].first[at % 16] = key[0];
      small.keys[at / 16].second[at % 16] = key[1];
      small.keys[at / 16].third[at % 16] = key[2];
    }
  }
}

void KeyIndex::place_records(const std::vector<std::uint32_t>& order,
                             const std::vector<std::uint32_t>& record_at, std::uint32_t end,
                             bool is_in_order) {
  header_.is_in_order = is_in_order;
  const std::span<std::uint32_t> starts = starts_.own();
  if (has_guards()) {
    place_guarded(order, record_at);
  } else if (is_in_order) {
    for (std::uint32_t& start : starts) {
      start = start < order.size() ? record_at[order[start]] : end;
    }
  } else {
    std::vector<std::uint32_t> entries;
    entries.reserve(order.size());
    advise_huge_pages(entries.data(), entries.capacity() * sizeof entries[0]);
    for (const std::uint32_t filter : order) entries.push_back(record_at[filter]);
    entries_ = std::move(entries);
  }
  header_.start_mask =
      static_cast<std::uint32_t>(std::bit_ceil(std::uint64_t{starts.back()} + 1) - 1);
  for (std::size_t at = 0; at < hash_of_start_.size(); ++at) {
    if (hash_of_start_[at] != 0) starts[at] |= tag_of(hash_of_start_[at], header_.start_mask);
  }
  hash_of_start_ = {};
}

// Starts become places in chunks.
void KeyIndex::place_guarded(const std::vector<std::uint32_t>& order,
                             const std::vector<std::uint32_t>& record_at) {
  const std::span<std::uint32_t> starts = starts_.own();
  const auto up = [](std::uint64_t place) {
    return (place + kChunkFilters - 1) / kChunkFilters * kChunkFilters;
  };
  std::vector<std::uint32_t> places(starts.size());
  std::uint64_t end = 0;
  for (std::size_t list = 0; list + 1 < starts.size(); ++list) {
    const std::uint64_t n_filters = starts[list + 1] - starts[list];
    if (end % kChunkFilters + n_filters > up(n_filters)) end = up(end);
    places[list] = static_cast<std::uint32_t>(end);
    end += n_filters;
  }
  places.back() = static_cast<std::uint32_t>(end);
  std::vector<GuardChunk> chunks;
  std::vector<std::uint32_t> entries;
  chunks.reserve(up(end) / kChunkFilters);
  entries.reserve(end);
  advise_huge_pages(chunks.data(), chunks.capacity() * sizeof chunks[0]);
  advise_huge_pages(entries.data(), entries.capacity() * sizeof entries[0]);
  chunks.resize(chunks.capacity());
  entries.resize(end);
  for (std::size_t list = 0; list + 1 < starts.size(); ++list) {
    std::uint32_t place = places[list];
    const auto put = [&](std::uint16_t first, std::uint16_t second) {
      GuardChunk& chunk = chunks[place / kChunkFilters];
      chunk.first[place % kChunkFilters] = first;
      chunk.second[place % kChunkFilters] = second;
      ++place;
    };
    for (std::uint32_t at = starts[list]; at < starts[list + 1]; ++at) {
      entries[place] = record_at[order[at]];
      put(guards_of_filter_[order[at]][0], guards_of_filter_[order[at]][1]);
    }
    const auto n_fillers = static_cast<std::uint16_t>(places[list + 1] - place);
    while (place < places[list + 1]) put(kNeverGuard, n_fillers);
  }
  std::copy(places.begin(), places.end(), starts.begin());
  chunks_ = std::move(chunks);
  entries_ = std::move(entries);
  guards_of_filter_ = {};
}

std::size_t KeyIndex::n_keys(const EventTerms& terms) const {
  std::size_t n_all = 0;
  for (std::uint32_t group = 0; group < header_.n_groups; ++group) {
    const std::size_t n_presences = terms.groups[group].presences.size();
    const std::size_t n_values = terms.groups[group].values.size();
    for (std::size_t shape = 0; shape < kNumShapes; ++shape) {
      if (!(header_.shapes >> shape & 1)) continue;
      n_all += choose(n_values, kShapes[shape].n_values) *
               choose(n_presences, kShapes[shape].n_presences);
    }
  }
  return n_all;
}

KeyIndex::KeyIndex(const SectionReader& sections, const std::string& prefix)
    : attributes_(sections.column<Attribute>(prefix + "attributes")),
      value_bits_(sections.column<std::uint64_t>(prefix + "value_bits")),
      words_(sections.column<KeyWord>(prefix + "words")),
      starts_(sections.column<std::uint32_t>(prefix + "starts")),
      entries_(sections.column<std::uint32_t>(prefix + "entries")),
      chunks_(sections.column<GuardChunk>(prefix + "chunks")) {
  const std::span<const Header> header = sections.span<Header>(prefix + "header");
  if (header.size() == 1) header_ = header[0];
  make_small_keys();
}

void KeyIndex::save(SectionWriter& sections, const std::string& prefix) const {
  sections.write(prefix + "header", &header_, sizeof header_);
  sections.write(prefix + "attributes", attributes_);
  sections.write(prefix + "value_bits", value_bits_);
  sections.write(prefix + "words", words_);
  sections.write(prefix + "starts", starts_);
  sections.write(prefix + "entries", entries_);
  sections.write(prefix + "chunks", chunks_);
}

}  // namespace tamis::tuple_key
