// The keys of one plan: from the terms of an event to the filters that have a key among them.
//
//     hash of a key   the terms' hashes, XORed
//     words           a bitmap over the first bits of hashes, with the number of bits before
//     starts          [n_bits_set + 1] of each set bit, where its records begin: in the records
//                     themselves if they lie in this order, else in `entries`. What bits are left
//                     are a tag: the last bits of the hash, not 0, or 0 where several share the bit
//     entries         [n_filters] the places of records, where these lie in another order
//     chunks          beside entries, in a plan with guards: two more terms of each filter, 32
//                     filters a chunk. Records whose guards the event lacks are not fetched. A list
//                     that would touch a chunk more than it must begins with the next chunk; what
//                     is left over belongs to the list before: fillers, which no event has
//     value_bits      of each attribute, the ranks that are a V term of some key
//
// Equal hashes of different keys only bring more candidates: records test names and values.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engines/tuple_key/items.hpp"
#include "engines/tuple_key/kernels.hpp"
#include "engines/tuple_key/planner.hpp"
#include "tamis/column.hpp"
#include "tamis/prefetch.hpp"
#include "tamis/sections.hpp"

namespace tamis::tuple_key {

// The terms of an event, by group.
struct EventTerms {
  struct Group {
    std::vector<std::uint32_t> presences, values;  // hashes
    std::vector<std::uint32_t> presence_of;        // of each value, its attribute in presences
  };
  std::array<Group, kMostGroups> groups;

  void clear(std::uint32_t n_groups) {
    for (std::uint32_t group = 0; group < n_groups; ++group) {
      groups[group].presences.clear();
      groups[group].values.clear();
      groups[group].presence_of.clear();
    }
  }
};

class KeyIndex {
 public:
  KeyIndex() = default;
  // `order` becomes the filters with a key, by hash; filters without one are left out.
  KeyIndex(const Planner& planner, const KeyPlan& plan, const FilterTerms& filters,
           std::size_t n_attributes, std::vector<std::uint32_t>& order);
  KeyIndex(const SectionReader& sections, const std::string& prefix);
  void save(SectionWriter& sections, const std::string& prefix) const;

  // After building, once the records are placed: `record_at` [n_filters].
  void place_records(const std::vector<std::uint32_t>& order,
                     const std::vector<std::uint32_t>& record_at, std::uint32_t end,
                     bool is_in_order);

  std::uint32_t n_groups() const { return header_.n_groups; }
  bool has_guards() const { return header_.has_guards != 0; }
  // Calls visit(guard) for both terms of an event's attribute.
  template <typename Visit>
  void for_each_guard(AttributeId attribute, std::uint32_t rank, Visit visit) const {
    const std::uint32_t hash = attributes_[attribute].hash;
    visit(guard_of(hash));
    visit(guard_of(value_hash(hash, rank)));
  }
  void add_terms(AttributeId attribute, std::uint32_t rank, EventTerms& terms) const {
    const Attribute& of = attributes_[attribute];
    EventTerms::Group& group = terms.groups[of.group];
    if (of.has_presence) group.presences.push_back(of.hash);
    if (!is_value(of, rank)) return;
    group.values.push_back(value_hash(of.hash, rank));
    group.presence_of.push_back(of.has_presence
                                    ? static_cast<std::uint32_t>(group.presences.size()) - 1
                                    : ~std::uint32_t{0});
  }
  // An event with few attributes may do without EventTerms: its terms are a table, and its keys
  // places in it that depend on the number of attributes alone. A value that no key has stays in
  // the table; the bitmap will refuse it.
  static constexpr std::size_t kMostSmall = 15;
  bool has_small_keys(std::size_t n_attributes) const { return n_attributes < small_.size(); }
  bool is_small_term(AttributeId attribute) const {
    return attributes_[attribute].has_presence || attributes_[attribute].value_end > 0;
  }
  void add_small_term(AttributeId attribute, std::uint32_t rank, std::size_t at,
                      std::uint32_t* table) const {
    const std::uint32_t hash = attributes_[attribute].hash;
    table[at] = hash;
    table[kMostSmall + 1 + at] = value_hash(hash, rank);
  }
  std::size_t n_small_keys(std::size_t n_attributes) const { return small_[n_attributes].n_keys; }
  const KeyTerms* small_keys(std::size_t n_attributes) const {
    return small_[n_attributes].keys.data();
  }

  // Not less than the keys that for_each_key gives.
  std::size_t n_keys(const EventTerms& terms) const;
  // Calls room(n) for a place for n hashes, as often as needed, and writes them there; stops where
  // that is null.
  template <typename Room>
  void for_each_key(const EventTerms& terms, Room room) const;

  const KeyWord* words() const { return words_.data(); }
  std::size_t n_words() const { return words_.size(); }
  std::uint32_t shift() const { return header_.shift; }
  void prefetch_word(std::uint32_t hash) const {
    prefetch_line(&words_[hash >> header_.shift >> 5]);
  }
  bool is_in_order() const { return header_.is_in_order != 0; }
  void prefetch_start(const FoundKey& found) const { prefetch_line(&starts_[found.key]); }
  // Of a list that is not the records themselves; what is longer the machine foresees.
  void prefetch_list(const Run& run) const {
    for (std::uint32_t at = run.begin; at < run.end && at < run.begin + 64; at += 16) {
      prefetch_line(entries_.data() + at);
    }
  }
  // To the second cache: the first one waits for fewer lines than the lists of an event have.
  void prefetch_guards(const Run& run) const {
    const GuardChunk* chunk = chunks_.data() + run.begin / kChunkFilters;
    const std::uint32_t end = std::min(run.end, run.begin + kMostFetched);
    for (std::uint32_t at = run.begin & ~(kChunkFilters - 1); at < end;
         at += kChunkFilters, ++chunk) {
      prefetch_line_far(chunk->first);
      prefetch_line_far(chunk->second);
    }
  }
  void prefetch_entry(std::uint32_t place) const { prefetch_line(&entries_[place]); }
  std::uint32_t n_fillers(const Run& run) const {
    const GuardChunk& last = chunks_[(run.end - 1) / kChunkFilters];
    const std::uint32_t at = (run.end - 1) % kChunkFilters;
    return last.first[at] == kNeverGuard ? last.second[at] : 0;
  }
  // Empty where the tag says that it is another key's.
  Run run_of(const FoundKey& found) const {
    return tuple_key::run_of(starts_.data(), header_.start_mask, found);
  }
  const std::uint32_t* entries() const { return entries_.data(); }
  const GuardChunk* chunks() const { return chunks_.data(); }
  std::size_t n_bytes() const {
    return attributes_.n_bytes() + value_bits_.n_bytes() + words_.n_bytes() + starts_.n_bytes() +
           entries_.n_bytes() + chunks_.n_bytes();
  }

 private:
  struct Header {
    std::uint32_t shapes = 0, n_groups = 1, shift = 27, is_in_order = 0;
    std::uint32_t start_mask = 0;  // the bits of starts_ that are no tag
    std::uint32_t has_guards = 0;
  };
  struct Attribute {
    std::uint32_t hash = 0;       // of its presence
    std::uint32_t value_at = 0;   // in words of value_bits_
    std::uint32_t value_end = 0;  // above all ranks there; 0: none
    std::uint16_t group = 0;
    std::uint16_t has_presence = 0;
  };

  struct SmallKeys {
    std::size_t n_keys = 0;
    std::vector<KeyTerms> keys;
  };
  bool is_value(const Attribute& of, std::uint32_t rank) const {
    return rank < of.value_end && (value_bits_[of.value_at + rank / 64] >> (rank % 64) & 1);
  }
  void make_small_keys();
  void place_guarded(const std::vector<std::uint32_t>& order,
                     const std::vector<std::uint32_t>& record_at);

  static constexpr std::uint32_t kMostFetched = 256;  // filters of a list

  std::vector<SmallKeys> small_;  // by number of attributes
  Header header_;
  Column<Attribute> attributes_;  // [n_attributes]
  Column<std::uint64_t> value_bits_;
  Column<KeyWord> words_;
  Column<std::uint32_t> starts_;
  // While building:
  std::vector<std::uint32_t> hash_of_start_;                    // 0: several
  std::vector<std::array<std::uint16_t, 2>> guards_of_filter_;  // [n_filters]
  Column<std::uint32_t> entries_;
  Column<GuardChunk> chunks_;
};

// Terms of one attribute never stand in one key.
template <typename Room>
void KeyIndex::for_each_key(const EventTerms& terms, Room room) const {
  const auto has = [&](std::size_t shape) { return (header_.shapes >> shape & 1) != 0; };
  for (std::uint32_t group = 0; group < header_.n_groups; ++group) {
    const std::vector<std::uint32_t>& presences = terms.groups[group].presences;
    const std::vector<std::uint32_t>& values = terms.groups[group].values;
    const std::vector<std::uint32_t>& presence_of = terms.groups[group].presence_of;
    const std::size_t n_presences = presences.size(), n_values = values.size();
    bool goes_on = true;
    // `base` with each of items[begin .. end).
    const auto join = [&](std::uint32_t base, const std::vector<std::uint32_t>& items,
                          std::size_t begin, std::size_t end) {
      if (begin >= end || !goes_on) return;
      std::uint32_t* out = room(end - begin);
      if (out == nullptr) {
        goes_on = false;
        return;
      }
      const std::uint32_t* item = items.data();
      for (std::size_t at = begin; at < end; ++at) *out++ = base ^ item[at];
    };
    const auto join_without = [&](std::uint32_t base, std::size_t begin, std::size_t first,
                                  std::size_t second) {
      if (second < first) std::swap(first, second);
      if (first >= begin && first < n_presences) {
        join(base, presences, begin, first);
        begin = first + 1;
      }
      if (second >= begin && second < n_presences) {
        join(base, presences, begin, second);
        begin = second + 1;
      }
      join(base, presences, begin, n_presences);
    };
    if (has(0)) join(0, presences, 0, n_presences);
    if (has(1)) join(0, values, 0, n_values);
    for (std::size_t one = 0; goes_on && one < n_presences && (has(2) || has(5)); ++one) {
      if (has(2)) join(presences[one], presences, one + 1, n_presences);
      for (std::size_t two = one + 1; goes_on && has(5) && two < n_presences; ++two) {
        join(presences[one] ^ presences[two], presences, two + 1, n_presences);
      }
    }
    if (!goes_on) return;
    for (std::size_t one = 0; goes_on && one < n_values; ++one) {
      const std::size_t own = presence_of[one];
      if (has(3)) join_without(values[one], 0, own, own);
      if (has(4)) join(values[one], values, one + 1, n_values);
      for (std::size_t two = 0; goes_on && has(6) && two < n_presences; ++two) {
        if (two != own) join_without(values[one] ^ presences[two], two + 1, own, own);
      }
      for (std::size_t two = one + 1; goes_on && (has(7) || has(8)) && two < n_values; ++two) {
        const std::uint32_t pair = values[one] ^ values[two];
        if (has(7)) join_without(pair, 0, own, presence_of[two]);
        if (has(8)) join(pair, values, two + 1, n_values);
      }
    }
    if (!goes_on) return;
  }
}

}  // namespace tamis::tuple_key
