#include "common/ranks.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tamis/error.hpp"
#include "tamis/prefetch.hpp"

namespace tamis {
namespace {

constexpr std::uint32_t kHasBefore = 1;
constexpr std::uint32_t kHasOdd = 2;  // of numbers
constexpr std::uint32_t kIsKey = 2;   // of strings: its key says all of it, see is_key
constexpr std::uint32_t kCountShift = 2;
constexpr std::size_t kMaxCuts = std::size_t{1} << 30;  // of an attribute: what a word can count
// Five steps of halving within three or four cache lines; a further level costs two misses.
constexpr std::uint32_t kMaxLeafPoints = 24;
// Each level at least divides the range of keys by the number of its buckets. Values that need more
// than this are exponents of exponents; the halving that is left is still correct.
constexpr int kMaxDepth = 4;
// An integer of `direct` costs 5/16 of a byte, a point of the tree about 20.
constexpr double kDirectSpread = 64;
constexpr double kMaxDirect = 0x1p52;  // up to here integers have neighbours and no residue

std::uint64_t key_of(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value + 0.0);  // -0.0 is 0.0
  const std::uint64_t sign = std::uint64_t{1} << 63;
  return bits & sign ? ~bits : bits | sign;
}

double value_of(std::uint64_t key) {
  const std::uint64_t sign = std::uint64_t{1} << 63;
  return std::bit_cast<double>(key & sign ? key ^ sign : ~key);
}

template <typename Word>
Word load_big_endian(const char* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  if constexpr (std::endian::native == std::endian::big) return word;
  if constexpr (sizeof word == 8) return __builtin_bswap64(word);
  return static_cast<Word>(__builtin_bswap32(static_cast<std::uint32_t>(word)));
}

// The first eight bytes, zeros behind the end.
std::uint64_t key_of(std::string_view text) {
  const char* const data = text.data();
  const std::size_t n_bytes = text.size();
  if (n_bytes >= 8) return load_big_endian<std::uint64_t>(data);
  const auto n_missing_bits = static_cast<unsigned>(8 * (8 - n_bytes));
  if (n_bytes >= 4) {
    return std::uint64_t{load_big_endian<std::uint32_t>(data)} << 32 |
           std::uint64_t{load_big_endian<std::uint32_t>(data + n_bytes - 4)} << n_missing_bits;
  }
  if (n_bytes == 0) return 0;
  const auto byte = [&](std::size_t at) {
    return std::uint64_t{static_cast<unsigned char>(data[at])};
  };
  const std::size_t middle = n_bytes / 2;
  return byte(0) << 56 | byte(middle) << (56 - 8 * middle) | byte(n_bytes - 1) << n_missing_bits;
}

// Does the key alone say which text this is? Of all texts with that key only one does not end with
// a zero and has no more than eight bytes.
bool is_key(std::string_view text) {
  return text.size() <= sizeof(std::uint64_t) && (text.empty() || text.back() != 0);
}

std::uint64_t first_bytes(std::uint64_t key, std::size_t n_bytes) {
  return n_bytes == 0 ? 0 : key >> (64 - 8 * n_bytes);
}

std::uint32_t place_of(std::uint64_t key, std::uint32_t n_places) {
  const std::uint64_t hash = (key * 0x9E3779B97F4A7C15ull) >> 32;
  return static_cast<std::uint32_t>(hash * n_places >> 32);
}

bool is_odd(std::int32_t fine) { return fine != 0 && fine != 1; }

std::uint32_t size_of(const auto& items) { return static_cast<std::uint32_t>(items.size()); }

void check_count(std::size_t n_cuts) {
  if (n_cuts > kMaxCuts) {
    throw ArgumentError("a segment must not hold more than 2^30 boundaries of one attribute");
  }
}

}  // namespace

// The nodes of a level are chosen from two divisions of the same keys: by their bits, which suits
// values of all magnitudes and strings, and by value, which suits numbers that are spread evenly.
std::uint32_t Ranks::Search::build(std::uint32_t begin, std::uint32_t end, bool is_number,
                                   int depth) {
  const std::uint32_t n_points = end - begin;
  Node node;
  node.low = keys[begin];
  const std::uint64_t range = keys[end - 1] - node.low;
  while (range >> node.shift >= n_points) ++node.shift;
  node.last_bucket = static_cast<std::uint32_t>(range >> node.shift);

  const auto bucket_of = [&](const Node& of, std::uint32_t point) {
    if (of.scale > 0) {
      const double bucket = (value_of(keys[point]) - of.linear_low) * of.scale;
      return std::min(static_cast<std::uint32_t>(bucket), of.last_bucket);
    }
    return static_cast<std::uint32_t>((keys[point] - of.low) >> of.shift);
  };
  // Comparisons with all points of one's bucket, summed over the points.
  const auto cost_of = [&](const Node& of) {
    double cost = 0;
    for (std::uint32_t first = begin; first < end;) {
      const std::uint32_t bucket = bucket_of(of, first);
      std::uint32_t next = first + 1;
      while (next < end && bucket_of(of, next) == bucket) ++next;
      cost += static_cast<double>(next - first) * (next - first);
      first = next;
    }
    return cost;
  };
  if (is_number && n_points > 1) {
    Node linear = node;
    linear.linear_low = value_of(keys[begin]);
    linear.last_bucket = n_points - 1;
    linear.scale = n_points / (value_of(keys[end - 1]) - linear.linear_low);
    if (linear.scale > 0 && std::isfinite(linear.scale) && cost_of(linear) < cost_of(node)) {
      node = linear;
    }
  }

  node.first_slot = size_of(slots);
  slots.append(node.last_bucket + std::size_t{1}, Slot{});
  const std::uint32_t idx = size_of(nodes);
  nodes.push_back(node);
  std::uint32_t point = begin;
  for (std::uint32_t bucket = 0; bucket <= node.last_bucket; ++bucket) {
    const std::uint32_t first = point;
    while (point < end && bucket_of(node, point) == bucket) ++point;
    std::uint32_t content = point - first;
    if (content > kMaxLeafPoints && depth < kMaxDepth && keys[first] != keys[point - 1] &&
        content < n_points) {
      content = kIsChild | build(first, point, is_number, depth + 1);
    }
    slots.own()[node.first_slot + bucket] = {first, content};
  }
  return idx;
}

std::uint32_t Ranks::Search::find(std::uint32_t idx, std::uint64_t key, double value) const {
  for (;;) {
    const Node& node = nodes[idx];
    std::uint64_t bucket = 0;
    if (node.scale > 0) {
      const double place = (value - node.linear_low) * node.scale;
      bucket = place >= node.last_bucket ? node.last_bucket
               : place > 0               ? static_cast<std::uint32_t>(place)
                                         : 0;
    } else if (key > node.low) {
      bucket = std::min<std::uint64_t>((key - node.low) >> node.shift, node.last_bucket);
    }
    const Slot slot = slots[node.first_slot + bucket];
    if (slot.n_points & kIsChild) {
      idx = slot.n_points & ~kIsChild;
      continue;
    }
    prefetch_line(words.data() + slot.first_point);  // the miss after the next, in parallel
    const std::uint64_t* first = keys.data() + slot.first_point;
    std::uint32_t count = slot.n_points;
    while (count > 1) {
      const std::uint32_t half = count / 2;
      first += first[half - 1] < key ? half : 0;
      count -= half;
    }
    first += count == 1 && *first < key;
    return static_cast<std::uint32_t>(first - keys.data());
  }
}

void Ranks::Search::shrink() {
  keys.shrink();
  words.shrink();
  slots.shrink();
  nodes.shrink();
}

std::size_t Ranks::Search::n_bytes() const {
  return keys.n_bytes() + words.n_bytes() + slots.n_bytes() + nodes.n_bytes();
}

std::uint32_t Ranks::number_rank(const Attribute& of, double value, std::int32_t fine) const {
  if (of.n_direct > 0) return cuts_of(of).rank(value, fine > 0);
  if (of.number_node == kNone) return 0;
  const std::uint64_t key = key_of(value);
  const std::uint32_t point = numbers_.find(of.number_node, key, value);
  const std::uint32_t word = numbers_.words[point];
  const std::uint32_t n_before = word >> kCountShift;
  if (numbers_.keys[point] != key || point == of.number_end) return n_before;
  if (word & kHasOdd) {
    const auto is_before = [](const OddCut& a, const OddCut& b) {
      return a.point < b.point || (a.point == b.point && a.fine < b.fine);
    };
    const auto first =
        std::lower_bound(odd_cuts_.begin(), odd_cuts_.end(), OddCut{point, -(1 << 16)}, is_before);
    const auto last = std::upper_bound(first, odd_cuts_.end(), OddCut{point, fine}, is_before);
    return n_before + static_cast<std::uint32_t>(last - first);
  }
  if (fine > 0) return numbers_.words[point + 1] >> kCountShift;
  return n_before + (fine == 0 ? word & kHasBefore : 0);
}

std::uint32_t Ranks::string_rank(const Attribute& of, std::string_view text, bool is_after) const {
  if (of.string_node == kNone) return 0;
  const std::size_t n_prefix = of.prefix_length;
  std::uint64_t key = key_of(text);
  std::string_view rest = text;
  // A text of a few bytes is read once, for its prefix and for its key.
  if (n_prefix < sizeof key && text.size() <= sizeof key && text.size() >= n_prefix &&
      first_bytes(key ^ of.prefix_key, n_prefix) == 0) {
    rest = text.substr(n_prefix);
    key <<= 8 * n_prefix;
  } else if (n_prefix > 0) {
    const std::string_view prefix{bytes_.data() + of.prefix_at, n_prefix};
    if (const int order = text.substr(0, n_prefix).compare(prefix); order != 0) {
      return order < 0 ? 0 : of.n_string_cuts;
    }
    rest = text.substr(n_prefix);
    key = key_of(rest);
  }
  const std::uint32_t point = exact_point(of, key);
  if (point == kNone) return strings_.words[strings_.find(of.string_node, key, 0)] >> kCountShift;
  const std::uint32_t word = strings_.words[point];
  if (!is_after && (word & kIsKey) && is_key(rest))
    return (word >> kCountShift) + (word & kHasBefore);
  return rank_among_equal_keys(of, point, rest, is_after);
}

std::uint32_t Ranks::exact_point(const Attribute& of, std::uint64_t key) const {
  const std::uint32_t* const places = exact_.data() + of.exact_at;
  for (std::uint32_t at = place_of(key, of.n_exact);;) {
    const std::uint32_t point = places[at];
    if (point == kNone || strings_.keys[point] == key) return point;
    if (++at == of.n_exact) at = 0;
  }
}

// Points of one key are neighbours, from `point` on: the text decides among them. Nearly always
// there is only one.
std::uint32_t Ranks::rank_among_equal_keys(const Attribute& of, std::uint32_t point,
                                           std::string_view rest, bool is_after) const {
  const std::uint64_t key = strings_.keys[point];
  const auto order_at = [&](std::uint32_t at) {
    return at == of.string_end || strings_.keys[at] != key ? 1 : text_of(at).compare(rest);
  };
  int order = order_at(point);
  if (order < 0) {
    std::uint32_t count = of.string_end - ++point;
    while (count > 0) {
      const std::uint32_t half = count / 2;
      if (order_at(point + half) < 0) {
        point += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    order = order_at(point);
  }
  const std::uint32_t word = strings_.words[point];
  const std::uint32_t n_before = word >> kCountShift;
  if (order != 0) return n_before;
  return is_after ? strings_.words[point + 1] >> kCountShift : n_before + (word & kHasBefore);
}

// Of whole numbers that lie close, without sorting. False: they are not, or do not.
bool Ranks::add_direct(Attribute& of, const std::vector<Cut>& cuts) {
  double low = cuts.front().nearest, high = low;
  for (const Cut& cut : cuts) {
    const double value = cut.nearest;
    if (!(std::fabs(value) < kMaxDirect) || value != std::floor(value) || is_odd(cut.fine)) {
      return false;
    }
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const auto is_close = [&](std::size_t n_points) {
    return high - low < std::min(kDirectSpread * static_cast<double>(n_points), 0x1p31);
  };
  if (!is_close(cuts.size())) return false;
  const std::size_t n_integers = static_cast<std::size_t>(high - low) + 1;
  std::vector<Integers> all(n_integers / 64 + 1);
  for (const Cut& cut : cuts) {
    const auto at = static_cast<std::size_t>(cut.nearest - low);
    all[at / 64].add(at % 64, cut.fine != 0);
  }
  std::size_t n_cuts = 0, n_points = 0;
  for (Integers& of_64 : all) {
    of_64.n_cuts = static_cast<std::uint32_t>(n_cuts);
    const std::uint64_t before = Integers::bits(of_64.cuts_before);
    const std::uint64_t after = Integers::bits(of_64.cuts_after);
    n_cuts += static_cast<std::size_t>(std::popcount(before) + std::popcount(after));
    n_points += static_cast<std::size_t>(std::popcount(before | after));
  }
  if (!is_close(n_points)) return false;
  check_count(n_cuts);
  of.direct_at = direct_.size();
  of.direct_low = low;
  of.n_direct = static_cast<std::uint32_t>(n_integers);
  of.n_number_cuts = static_cast<std::uint32_t>(n_cuts);
  direct_.append(all);
  return true;
}

void Ranks::add_numbers(Attribute& of, std::vector<Cut>& cuts) {
  if (cuts.empty() || add_direct(of, cuts)) return;
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  check_count(cuts.size());
  of.n_number_cuts = size_of(cuts);
  const std::uint32_t begin = size_of(numbers_.keys);
  for (std::size_t first = 0; first < cuts.size();) {
    std::uint32_t word = static_cast<std::uint32_t>(first) << kCountShift;
    std::size_t next = first;
    for (; next < cuts.size() && cuts[next].nearest == cuts[first].nearest; ++next) {
      if (cuts[next].fine == 0) word |= kHasBefore;
      if (is_odd(cuts[next].fine)) word |= kHasOdd;
    }
    if (word & kHasOdd) {
      for (std::size_t cut = first; cut < next; ++cut) {
        odd_cuts_.push_back({size_of(numbers_.keys), cuts[cut].fine});
      }
    }
    numbers_.keys.push_back(key_of(cuts[first].nearest));
    numbers_.words.push_back(word);
    first = next;
  }
  of.number_end = size_of(numbers_.keys);
  of.number_node = numbers_.build(begin, of.number_end, true, 0);
  numbers_.keys.push_back(~std::uint64_t{0});
  numbers_.words.push_back(of.n_number_cuts << kCountShift);
}

void Ranks::add_strings(Attribute& of, std::vector<StringCutView>& cuts) {
  std::sort(cuts.begin(), cuts.end(), [](const StringCutView& a, const StringCutView& b) {
    const int order = a.text.compare(b.text);
    return order < 0 || (order == 0 && !a.is_after && b.is_after);
  });
  cuts.erase(std::unique(cuts.begin(), cuts.end(),
                         [](const StringCutView& a, const StringCutView& b) {
                           return a.is_after == b.is_after && a.text == b.text;
                         }),
             cuts.end());
  check_count(cuts.size());
  of.n_string_cuts = size_of(cuts);
  if (cuts.empty()) return;
  // In order, the first and the last text have the prefix that all have.
  const std::string_view first_text = cuts.front().text, last_text = cuts.back().text;
  const std::size_t shorter = std::min(first_text.size(), last_text.size());
  while (of.prefix_length < shorter &&
         first_text[of.prefix_length] == last_text[of.prefix_length]) {
    ++of.prefix_length;
  }
  of.prefix_at = bytes_.size();
  of.prefix_key = key_of(first_text.substr(0, of.prefix_length));
  bytes_.append({first_text.data(), of.prefix_length});
  const std::uint32_t begin = size_of(strings_.keys);
  for (std::size_t first = 0; first < cuts.size();) {
    std::size_t next = first;
    while (next < cuts.size() && cuts[next].text == cuts[first].text) ++next;
    const std::string_view rest = cuts[first].text.substr(of.prefix_length);
    strings_.keys.push_back(key_of(rest));
    strings_.words.push_back(static_cast<std::uint32_t>(first) << kCountShift |
                             (is_key(rest) ? kIsKey : 0) | (cuts[first].is_after ? 0 : kHasBefore));
    texts_.push_back(bytes_.size());
    bytes_.append({rest.data(), rest.size()});
    first = next;
  }
  of.string_end = size_of(strings_.keys);
  of.string_node = strings_.build(begin, of.string_end, false, 0);
  add_exact(of, begin);
  strings_.keys.push_back(~std::uint64_t{0});
  strings_.words.push_back(of.n_string_cuts << kCountShift);
  texts_.push_back(bytes_.size());
}

void Ranks::add_exact(Attribute& of, std::uint32_t begin) {
  const auto is_first = [&](std::uint32_t point) {
    return point == begin || strings_.keys[point] != strings_.keys[point - 1];
  };
  std::uint32_t n_keys = 0;
  for (std::uint32_t point = begin; point < of.string_end; ++point) n_keys += is_first(point);
  of.exact_at = exact_.size();
  of.n_exact = 2 * n_keys;  // of at most 2^30 points
  exact_.append(of.n_exact, kNone);
  std::uint32_t* const places = exact_.own().data() + of.exact_at;
  for (std::uint32_t point = begin; point < of.string_end; ++point) {
    if (!is_first(point)) continue;
    std::uint32_t at = place_of(strings_.keys[point], of.n_exact);
    while (places[at] != kNone) at = at + 1 == of.n_exact ? 0 : at + 1;
    places[at] = point;
  }
}

Ranks::Ranks(const FilterTable& table) : table_(&table) {
  attributes_.append(table.n_attributes(), Attribute{});
  // Constraints by attribute, so that the cuts of only one are held at a time.
  const auto n_constraints = static_cast<std::uint32_t>(table.n_constraints());
  std::vector<std::uint32_t> begins(table.n_attributes() + 1);
  for (std::uint32_t idx = 0; idx < n_constraints; ++idx) {
    ++begins[table.constraint(idx).attribute + 1];
  }
  for (std::size_t at = 1; at < begins.size(); ++at) begins[at] += begins[at - 1];
  std::vector<std::uint32_t> constraints(n_constraints);
  std::vector<std::uint32_t> ends(begins.begin(), begins.end() - 1);
  for (std::uint32_t idx = 0; idx < n_constraints; ++idx) {
    constraints[ends[table.constraint(idx).attribute]++] = idx;
  }

  std::vector<Cut> numbers;
  std::vector<StringCutView> strings;
  const auto collect_number = [&](const NumberRange& range) {
    if (!(range.low_cut() == kLowest)) numbers.push_back(range.low_cut());
    if (!(range.high_cut() == kHighest)) numbers.push_back(range.high_cut());
  };
  const auto collect_string = [&](const FilterTable::StringRange& range) {
    if (range.low_length > 0 || range.low_is_after) {
      strings.push_back({table.text(range.low_at, range.low_length), range.low_is_after});
    }
    if (!range.high_is_unbounded) {
      strings.push_back({table.text(range.high_at, range.high_length), range.high_is_after});
    }
  };
  for (std::size_t attribute = 0; attribute < attributes_.size(); ++attribute) {
    numbers.clear();
    strings.clear();
    for (std::uint32_t at = begins[attribute]; at < begins[attribute + 1]; ++at) {
      const Constraint& constraint = table.constraint(constraints[at]);
      if (constraint.is_interval()) {
        collect_number(table.number(constraint.set));
        continue;
      }
      const GeneralSet& set = table.general(constraint);
      for (std::uint32_t each = 0; each < set.numbers.count; ++each) {
        collect_number(table.number(set.numbers.first + each));
      }
      for (std::uint32_t each = 0; each < set.strings.count; ++each) {
        collect_string(table.string(set.strings.first + each));
      }
    }
    add_numbers(attributes_.own()[attribute], numbers);
    add_strings(attributes_.own()[attribute], strings);
  }
  numbers_.shrink();
  strings_.shrink();
  odd_cuts_.shrink();
  direct_.shrink();
  exact_.shrink();
  texts_.shrink();
  bytes_.shrink();
}

Ranks::Ranks(const FilterTable& table, const SectionReader& sections) : table_(&table) {
  for_each_column([&]<typename T>(const std::string& name,
                                  Column<T>& items) { items = sections.column<T>(name); },
                  *this);
  if (attributes_.size() != table.n_attributes()) {
    throw Error("the ranks of an index must be those of its table, not of another");
  }
}

void Ranks::save(SectionWriter& sections) const {
  for_each_column([&](const std::string& name, const auto& items) { sections.write(name, items); },
                  *this);
}

void Ranks::intervals(const Constraint& constraint, std::vector<RankInterval>& out) const {
  out.clear();
  const Attribute& of = attributes_[constraint.attribute];
  const auto add = [&](std::uint32_t low, std::uint32_t high) {
    if (low >= high) return;
    if (!out.empty() && out.back().high == low) {
      out.back().high = high;
    } else {
      out.push_back({low, high});
    }
  };
  // A cut is itself among those at or before it: its rank is the first behind it.
  const auto add_number = [&](const NumberRange& range) {
    const Cut low = range.low_cut(), high = range.high_cut();
    add(low == kLowest ? 0 : number_rank(of, low.nearest, low.fine),
        high == kHighest ? of.n_number_cuts + 1 : number_rank(of, high.nearest, high.fine));
  };
  if (constraint.is_interval()) {
    add_number(table_->number(constraint.set));
    return;
  }
  const GeneralSet& set = table_->general(constraint);
  for (std::uint32_t each = 0; each < set.numbers.count; ++each) {
    add_number(table_->number(set.numbers.first + each));
  }
  const std::uint32_t first_string = of.n_number_cuts + 1;
  for (std::uint32_t each = 0; each < set.strings.count; ++each) {
    const FilterTable::StringRange& range = table_->string(set.strings.first + each);
    const std::string_view low = table_->text(range.low_at, range.low_length);
    const std::string_view high = table_->text(range.high_at, range.high_length);
    const bool has_low = !low.empty() || range.low_is_after;
    add(first_string + (has_low ? string_rank(of, low, range.low_is_after) : 0),
        first_string + (range.high_is_unbounded ? of.n_string_cuts + 1
                                                : string_rank(of, high, range.high_is_after)));
  }
  const std::uint32_t first_other = first_string + of.n_string_cuts + 1;
  const std::uint8_t flags[] = {GeneralSet::kFalse, GeneralSet::kTrue, GeneralSet::kNan,
                                GeneralSet::kAbsent};
  for (std::uint32_t each = 0; each < std::size(flags); ++each) {
    if (set.flags & flags[each]) add(first_other + each, first_other + each + 1);
  }
}

std::size_t Ranks::n_bytes() const {
  return attributes_.n_bytes() + numbers_.n_bytes() + strings_.n_bytes() + odd_cuts_.n_bytes() +
         direct_.n_bytes() + exact_.n_bytes() + texts_.n_bytes() + bytes_.n_bytes();
}

}  // namespace tamis
