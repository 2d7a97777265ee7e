// Events in pinned columns: matched without being decoded, with the answers of those that are.
#include "tamis/event_columns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "against_naive.hpp"
#include "arrow_arrays.hpp"
#include "cuda/buffers.hpp"
#include "cuda/device.hpp"
#include "tamis/encode.hpp"
#include "tamis/error.hpp"
#include "tamis/matcher.hpp"

namespace tamis {
namespace {

using namespace against_naive;
using namespace testing;

constexpr std::size_t kNames = 8;
constexpr const char* kEngines[] = {"tuple-key-cuda", "block-bitmap-cuda", "spatial-grid-cuda"};
const PositionNames kPosition = std::pair<std::string, std::string>{"x", "y"};

using Pinned = std::vector<cuda::PinnedArray<char>>;

// Buffers of the array and of what is in it, but for dictionaries, to pinned memory.
void pin(Built& built, Pinned& pinned) {
  for (std::size_t at = 0; at < built.buffers.size(); ++at) {
    if (built.buffers[at] == nullptr || built.sizes[at] == 0) continue;
    pinned.emplace_back(built.sizes[at]);
    std::memcpy(pinned.back().data(), built.buffers[at], built.sizes[at]);
    built.buffers[at] = pinned.back().data();
  }
  for (const BuiltPtr& child : built.children) pin(*child, pinned);
}

std::string name_of(std::size_t at) { return "a" + std::to_string(at); }

double random_number(Random& random) {
  const std::size_t kind = below(random, 60);
  if (kind == 0) return std::numeric_limits<double>::quiet_NaN();
  if (kind == 1) return std::numeric_limits<double>::infinity();
  if (kind == 2) return -0.0;
  if (kind == 3) return 1e300;
  if (kind < 10) return static_cast<double>(below(random, 40)) / 4;
  return static_cast<double>(below(random, 12));
}

template <typename T>
BuiltPtr random_column(Random& random, std::size_t at, const char* format, std::size_t n_rows,
                       bool has_nulls) {
  std::vector<T> values(n_rows);
  std::vector<bool> validity(has_nulls ? n_rows : 0);
  for (std::size_t row = 0; row < n_rows; ++row) {
    double number = random_number(random);
    if constexpr (std::is_integral_v<T>) {
      number = std::isfinite(number) && number < 100 ? number : 3;
    }
    values[row] = static_cast<T>(number);
    if constexpr (sizeof(T) == 8 && std::is_integral_v<T>) {
      if (below(random, 20) == 0) values[row] = (T{1} << 53) + static_cast<T>(below(random, 3));
    }
    if (has_nulls) validity[row] = below(random, 4) != 0;
  }
  return fixed<T>(name_of(at).c_str(), format, values, validity);
}

// Columns of every type of number, with nulls and without.
BuiltPtr random_columns(Random& random, std::size_t n_rows) {
  return record_batch(n_rows, random_column<double>(random, 0, "g", n_rows, true),
                      random_column<float>(random, 1, "f", n_rows, false),
                      random_column<std::int64_t>(random, 2, "l", n_rows, false),
                      random_column<std::uint64_t>(random, 3, "L", n_rows, true),
                      random_column<std::int32_t>(random, 4, "i", n_rows, true),
                      random_column<std::uint16_t>(random, 5, "S", n_rows, false),
                      random_column<std::int8_t>(random, 6, "c", n_rows, true),
                      random_column<double>(random, 99, "g", n_rows, false),
                      random_column<double>(random, 7, "g", n_rows, false));
}

// A map of some of the names, and names that nobody mentions.
BuiltPtr random_map(Random& random, std::size_t n_rows, std::size_t n_most = kNames + 2) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < kNames + 3; ++at) names.push_back(name_of(at));
  for (std::size_t at = 0; at < 12; ++at) names.push_back("unknown" + std::to_string(at));
  std::vector<std::int32_t> offsets{0}, keys;
  std::vector<double> values;
  std::vector<bool> validity;
  for (std::size_t row = 0; row < n_rows; ++row) {
    std::vector<std::int32_t> all(names.size());
    for (std::size_t at = 0; at < all.size(); ++at) all[at] = static_cast<std::int32_t>(at);
    std::shuffle(all.begin(), all.end(), random);
    const std::size_t n_entries = below(random, 30) == 0 ? all.size() : below(random, n_most + 1);
    for (std::size_t at = 0; at < n_entries; ++at) {
      keys.push_back(all[at]);
      values.push_back(random_number(random));
      validity.push_back(below(random, 10) != 0);
    }
    offsets.push_back(static_cast<std::int32_t>(keys.size()));
  }
  return map("attributes", offsets, dictionary("key", "i", keys, strings("", names)),
             fixed<double>("value", "g", values, validity));
}

BuiltPtr coordinates(Random& random, const char* name, std::size_t n_rows) {
  std::vector<double> values(n_rows);
  std::vector<bool> validity(n_rows);
  for (std::size_t row = 0; row < n_rows; ++row) {
    values[row] = below(random, 20) == 0 ? std::numeric_limits<double>::quiet_NaN()
                                         : static_cast<double>(below(random, 100)) / 10;
    validity[row] = below(random, 20) != 0;
  }
  return fixed<double>(name, "g", values, validity);
}

void subscribe(Matcher& matcher, const std::vector<std::string>& predicates, std::int64_t first) {
  std::vector<NewSubscription> rows;
  for (std::size_t at = 0; at < predicates.size(); ++at) {
    const std::int64_t id = first + static_cast<std::int64_t>(at);
    rows.push_back({IdView::of(id), predicates[at], IdView::of(id % 20)});
  }
  CHECK(matcher.subscribe(rows).empty());
}

// Whole numbers, so that a device takes the attributes; and any predicate, which it may not.
std::vector<std::string> random_predicates(Random& random, std::size_t n, bool has_areas) {
  std::vector<std::string> all(n);
  for (std::string& each : all) {
    if (has_areas) {
      each = "NEAR(" + std::to_string(below(random, 10)) + ", " +
             std::to_string(below(random, 10)) + ", 1.5) AND ";
    }
    each += name_of(below(random, kNames)) + " >= " + std::to_string(below(random, 10));
    if (below(random, 2) == 0) {
      each += " AND " + name_of(below(random, kNames)) + " < " + std::to_string(below(random, 12));
    }
  }
  return all;
}

struct Compared {
  std::size_t n_kept = 0, n_decoded = 0;  // parts whose columns were kept, and of these decoded
};

// Parts of `n_of_part` rows by both ways, in all forms of output.
Compared check_same(const Matcher& matcher, const Matcher& naive, Built& built,
                    const PositionNames& position, std::size_t n_of_part) {
  built.connect();
  Compared compared;
  const auto n_rows = static_cast<std::size_t>(built.array.length);
  for (const Output output : {Output::ids, Output::bitset, Output::count}) {
    for (const Deliver deliver : {Deliver::subscriptions, Deliver::subscribers}) {
      const MatchOptions options{output, deliver};
      for (std::size_t begin = 0; begin < n_rows; begin += n_of_part) {
        const std::size_t end = std::min(begin + n_of_part, n_rows);
        const View view = matcher.view();
        std::shared_ptr<const EventColumns> columns;
        const MatchResult found = matcher.match_parts(
            view, end - begin,
            [&](std::size_t first, std::size_t last, EventBatch& batch) {
              keep_arrow_rows(built.array, &built.schema, begin + first, begin + last, view.names(),
                              position, is_pinned, batch);
              CHECK_EQ(batch.size(), last - first);
              columns = batch.columns;
            },
            options);
        if (columns) ++compared.n_kept;
        if (columns && columns->is_decoded()) ++compared.n_decoded;
        const View naive_view = naive.view();
        EventBatch rows;
        encode_arrow_rows(built.array, &built.schema, begin, end, naive_view.names(), position,
                          rows);
        const MatchResult expected = naive.match(naive_view, rows, options);
        CHECK_EQ(found.n_events, expected.n_events);
        CHECK(found.counts == expected.counts);
        CHECK(found.offsets == expected.offsets);
        CHECK(found.bits == expected.bits);
        const auto ids = [](const MatchResult& result) {
          std::vector<std::vector<std::int64_t>> all(result.n_events);
          for (std::size_t event = 0; event + 1 < result.offsets.size(); ++event) {
            for (auto at = result.offsets[event]; at < result.offsets[event + 1]; ++at) {
              all[event].push_back(result.id(result.targets[static_cast<std::size_t>(at)]).integer);
            }
            std::sort(all[event].begin(), all[event].end());
          }
          return all;
        };
        CHECK(ids(found) == ids(expected));
      }
    }
  }
  return compared;
}

MatcherOptions options_of(const char* engine, std::optional<std::size_t> device_from = {}) {
  MatcherOptions options;
  options.engine = engine;
  options.device_from = device_from;
  return options;
}

TEST(event_columns_have_the_answers_of_rows) {
  Random random(1);
  for (const char* engine : kEngines) {
    for (const bool has_areas : {false, true}) {
      for (int kind = 0; kind < 3; ++kind) {
        constexpr std::size_t kRows = 300;
        Pinned pinned;
        BuiltPtr table = kind == 0 ? random_columns(random, kRows) : record_batch(kRows);
        if (kind == 1) table->children.push_back(random_map(random, kRows));
        if (kind == 2) {  // both, of other names
          table->children.push_back(random_column<double>(random, 50, "g", kRows, true));
          table->children.push_back(random_map(random, kRows, 4));
        }
        table->children.push_back(coordinates(random, "x", kRows));
        table->children.push_back(coordinates(random, "y", kRows));
        pin(*table, pinned);
        Matcher matcher(options_of(engine)), naive(options_of("naive"));
        std::vector<std::string> predicates = random_predicates(random, 300, has_areas);
        predicates.push_back("a50 > 3");
        for (Matcher* const each : {&matcher, &naive}) {
          subscribe(*each, predicates, 0);
          each->flush();
        }
        const Compared whole = check_same(matcher, naive, *table, kPosition, kRows);
        CHECK_EQ(whole.n_kept, 6u);
        // And what the device leaves to the host, whatever it is; from rows in the middle.
        std::vector<std::string> any(200);
        for (std::string& each : any) each = random_predicate(random, kNames);
        for (Matcher* const each : {&matcher, &naive}) subscribe(*each, any, 1000);
        check_same(matcher, naive, *table, kPosition, 77);  // some of them in the delta
        for (Matcher* const each : {&matcher, &naive}) each->flush();
        check_same(matcher, naive, *table, {}, 130);
      }
    }
  }
}

TEST(event_columns_are_not_decoded_where_a_device_takes_all) {
  Random random(2);
  constexpr std::size_t kRows = 200;
  std::vector<std::int32_t> offsets{0}, keys;
  std::vector<double> values, dense(kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::int32_t key = 0; key < 3; ++key) {
      keys.push_back((key + static_cast<std::int32_t>(row)) % 8);
      values.push_back(static_cast<double>(below(random, 12)));
    }
    dense[row] = static_cast<double>(below(random, 12));
    offsets.push_back(static_cast<std::int32_t>(keys.size()));
  }
  std::vector<std::string> names;
  for (std::size_t at = 0; at < kNames; ++at) names.push_back(name_of(at));
  Pinned pinned;
  BuiltPtr maps =
      record_batch(kRows, map("m", offsets, dictionary("key", "i", keys, strings("", names)),
                              fixed<double>("value", "g", values)));
  BuiltPtr columns =
      record_batch(kRows, fixed<double>("a1", "g", dense), fixed<double>("a2", "g", dense));
  for (BuiltPtr* const table : {&maps, &columns}) {
    pin(**table, pinned);
    for (const char* engine : kEngines) {
      Matcher matcher(options_of(engine)), naive(options_of("naive"));
      for (Matcher* const each : {&matcher, &naive}) {
        Random same(3);
        subscribe(*each, random_predicates(same, 300, false), 0);
        each->flush();
      }
      const Compared compared = check_same(matcher, naive, **table, {}, kRows);
      CHECK_EQ(compared.n_kept, 6u);
      CHECK_EQ(compared.n_decoded, 0u);
      // In the delta they are matched on the host.
      for (Matcher* const each : {&matcher, &naive}) subscribe(*each, {"a1 > 2"}, 5000);
      CHECK_EQ(check_same(matcher, naive, **table, {}, kRows).n_decoded, 6u);
    }
    // Engines of the papers, those of the CPU, and "auto", whose device and host have a share each.
    for (const MatcherOptions& options : {options_of("hem-cuda"), options_of("tuple-key"),
                                          options_of("auto", 1), options_of("auto", 0)}) {
      Matcher matcher(options), naive(options_of("naive"));
      for (Matcher* const each : {&matcher, &naive}) {
        Random same(3);
        subscribe(*each, random_predicates(same, 3000, false), 0);
        each->flush();
      }
      CHECK_EQ(check_same(matcher, naive, **table, {}, kRows).n_kept, 6u);
    }
  }
}

TEST(event_columns_that_are_wrong_are_refused_as_rows_are) {
  const std::vector<std::string> names{"a0", "a1"};
  const auto table = [&](const std::vector<std::int32_t>& offsets,
                         const std::vector<std::int32_t>& keys) {
    return record_batch(offsets.size() - 1,
                        map("m", offsets, dictionary("key", "i", keys, strings("", names)),
                            fixed<double>("value", "g", std::vector<double>(keys.size(), 1))));
  };
  struct Case {
    BuiltPtr table;
    const char* reason;
  };
  std::vector<Case> cases;
  cases.push_back({table({0, 1, 3}, {0, 1, 1}), "must come once in an event, not twice"});
  cases.push_back({table({0, 1, 2}, {0, 2}), "a dictionary index must be below 2"});
  cases.push_back({table({0, 1, 2}, {0, -1}), "a dictionary index must be below 2"});
  cases.push_back({table({0, 2, 1}, {0, 1}), "must never fall"});
  cases.push_back({table({0, 2, 9}, {0, 1}), "lie within its entries"});
  BuiltPtr both = table({0, 1, 2}, {0, 1});
  both->children.push_back(fixed<double>("a1", "g", {1, 2}));
  cases.push_back({std::move(both), "must come once in an event, not twice"});
  for (const Case& each : cases) {
    Pinned pinned;
    pin(*each.table, pinned);
    each.table->connect();
    for (const char* engine : kEngines) {
      Matcher matcher(options_of(engine));
      subscribe(matcher, {"a0 = 1", "a1 = 1 AND a0 < 3"}, 0);
      matcher.flush();
      const View view = matcher.view();
      bool is_kept = false;
      CHECK_THROWS(matcher.match_parts(view, 2,
                                       [&](std::size_t begin, std::size_t end, EventBatch& batch) {
                                         keep_arrow_rows(each.table->array, &each.table->schema,
                                                         begin, end, view.names(), {}, is_pinned,
                                                         batch);
                                         is_kept = batch.columns != nullptr;
                                       },
                                       {}),
                   EventError, each.reason);
      CHECK(is_kept);
    }
  }
}

TEST(event_columns_are_kept_only_if_a_device_can_read_them) {
  Catalogue catalogue;
  catalogue.intern("a0");
  const auto names = catalogue.names();
  const auto is_kept = [&](Built& built) {
    built.connect();
    EventBatch batch;
    keep_arrow_rows(built.array, &built.schema, 0, 2, *names, {}, is_pinned, batch);
    CHECK_EQ(batch.size(), 2u);
    CHECK_EQ(batch.rows().size(), 2u);
    return batch.columns != nullptr;
  };
  const auto pinned_is_kept = [&](BuiltPtr built) {
    Pinned pinned;
    pin(*built, pinned);
    return is_kept(*built);
  };
  CHECK(pinned_is_kept(record_batch(2, fixed<double>("a0", "g", {1, 2}))));
  CHECK(!is_kept(*record_batch(2, fixed<double>("a0", "g", {1, 2}))));
  CHECK(!pinned_is_kept(record_batch(2, fixed<double>("other", "g", {1, 2}))));
  CHECK(!pinned_is_kept(record_batch(2, strings("a0", {"x", "y"}))));
  CHECK(!pinned_is_kept(record_batch(2, booleans("a0", {true, false}))));
  CHECK(!pinned_is_kept(record_batch(2, fixed<std::int64_t>("a0", "tsu:", {1, 2}))));
  CHECK(!pinned_is_kept(record_batch(
      2, map("m", {0, 1, 2}, strings("key", {"a0", "a0"}), fixed<double>("value", "g", {1, 2})))));
  int unpinned = 0;
  CHECK(!is_pinned(&unpinned));
}

}  // namespace
}  // namespace tamis
