// Ranks against the exact tests of the filter table, on odd values and on values that defeat
// buckets.
#include "common/ranks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "tamis/ast.hpp"
#include "tamis/normal_form.hpp"

namespace tamis {
namespace {

using Random = std::mt19937_64;

FilterTable table_of(const std::vector<std::string>& predicates, std::size_t n_names) {
  FilterTable table(Space::plane);
  Catalogue names;
  for (std::size_t name = 0; name < n_names; ++name) names.intern("a" + std::to_string(name));
  Ast ast;
  for (const std::string& predicate : predicates) {
    parse(predicate, ast);
    table.append(to_normal_form(ast), names);
  }
  return table;
}

std::string text_of(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

// rank(value) lies in an interval if and only if the constraint accepts the value. Gives back how
// many pairs of constraint and value were accepted.
std::size_t check_all(const FilterTable& table, const std::vector<EventValue>& values) {
  const Ranks ranks(table);
  std::vector<RankInterval> intervals;
  std::size_t n_accepted = 0;
  for (std::uint32_t idx = 0; idx < table.n_constraints(); ++idx) {
    const Constraint& constraint = table.constraint(idx);
    const std::uint32_t n_ranks = ranks.n_ranks(constraint.attribute);
    ranks.intervals(constraint, intervals);
    for (std::size_t at = 0; at < intervals.size(); ++at) {
      CHECK(intervals[at].low < intervals[at].high);
      CHECK(intervals[at].high <= n_ranks);
      CHECK(at == 0 || intervals[at - 1].high < intervals[at].low);
    }
    for (const EventValue& value : values) {
      const std::uint32_t rank = ranks.rank(constraint.attribute, value);
      CHECK(rank < n_ranks);
      const bool is_inside = std::any_of(
          intervals.begin(), intervals.end(),
          [&](const RankInterval& each) { return each.low <= rank && rank < each.high; });
      const bool is_accepted = table.accepts(constraint, value);
      n_accepted += is_accepted;
      if (Ranks::needs_verify(table, constraint)) {
        CHECK(is_inside || !is_accepted);
      } else {
        CHECK_EQ(is_inside, is_accepted);
      }
    }
  }
  return n_accepted;
}

const std::string kLiterals[] = {"0",
                                 "1",
                                 "2.5",
                                 "-1",
                                 "0.1",
                                 "1e300",
                                 "-1e300",
                                 "5e-324",
                                 "9007199254740991",
                                 "9007199254740992",
                                 "9007199254740993",
                                 "9007199254740994",
                                 "9223372036854775807",
                                 "-9223372036854775808",
                                 "-9223372036854775807",
                                 "9223372036854775806"};
const std::string kTexts[] = {"",         "a",         "ab",        "abc",        "abcdefg",
                              "abcdefgh", "abcdefghi", "abcdefghj", "\xC3\xA9",   "b",
                              "zz",       "a\\",       "abcdefgha", "abcdefg\x01"};

std::vector<EventValue> odd_values() {
  std::vector<EventValue> values = {EventValue(), EventValue::of(std::nan("")),
                                    EventValue::of(true), EventValue::of(false)};
  for (const double value :
       {0.0, -0.0, 0.1, 2.5, 1e300, -1e300, 5e-324, -5e-324, 0.5, 0x1p53, 0x1p63, 0x1p64, -0x1p63,
        std::numeric_limits<double>::max(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    values.push_back(EventValue::of(value));
    values.push_back(EventValue::of(std::nextafter(value, 1e308)));
    values.push_back(EventValue::of(std::nextafter(value, -1e308)));
  }
  for (const std::int64_t base :
       {std::int64_t{0}, std::int64_t{9007199254740992}, std::int64_t{-9007199254740992}}) {
    for (std::int64_t by = -3; by <= 3; ++by) values.push_back(EventValue::of(base + by));
  }
  for (std::int64_t by = 0; by <= 3; ++by) {
    values.push_back(EventValue::of(std::numeric_limits<std::int64_t>::max() - by));
    values.push_back(EventValue::of(std::numeric_limits<std::int64_t>::min() + by));
  }
  for (std::uint64_t by = 0; by <= 3; ++by) {
    values.push_back(EventValue::of((std::uint64_t{1} << 63) + by));
    values.push_back(EventValue::of(~std::uint64_t{0} - by));
  }
  for (const std::string& text : kTexts) values.push_back(EventValue::of(std::string_view(text)));
  static const std::string kOthers[] = {std::string(1, '\0'),
                                        std::string("a\0", 2),
                                        "abcdefgh\x01",
                                        "\xF0\x9F\x98\x80",
                                        "A",
                                        "abb",
                                        "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"};
  for (const std::string& text : kOthers) values.push_back(EventValue::of(std::string_view(text)));
  return values;
}

TEST(ranks_agree_with_the_table_on_odd_values_and_all_operators) {
  std::vector<std::string> predicates = {"a0 IS NULL",
                                         "EXISTS a0",
                                         "a0 = TRUE",
                                         "a0 != TRUE",
                                         "a0 IN (FALSE, TRUE)",
                                         "a0 = 1 OR a0 = '1'",
                                         "a0 LIKE 'a%'",
                                         "a0 NOT LIKE '%b_'",
                                         "a0 LIKE 'ab%c'",
                                         "a0 IS NULL OR a0 > 1",
                                         "a0 > 0 OR a0 >= '' OR a0 = FALSE"};
  for (const char* op : {"=", "!=", "<", "<=", ">", ">="}) {
    for (const std::string& literal : kLiterals) {
      predicates.push_back("a0 " + std::string(op) + " " + literal);
    }
    for (const std::string& text : kTexts) {
      predicates.push_back("a0 " + std::string(op) + " '" + text + "'");
    }
  }
  for (const std::string& low : kLiterals) {
    for (const std::string& high : kLiterals) {
      predicates.push_back("a0 BETWEEN " + low + " AND " + high);
      predicates.push_back("a0 NOT BETWEEN " + low + " AND " + high);
    }
  }
  CHECK(check_all(table_of(predicates, 1), odd_values()) > 1000);
  // Each constraint in a table of its own, where few boundaries or none are known.
  for (const std::string& predicate : predicates) check_all(table_of({predicate}, 1), odd_values());
}

TEST(ranks_serve_every_value_of_small_integer_domains) {
  Random random(3);
  std::vector<std::string> predicates;
  for (int each = 0; each < 200; ++each) {
    const int low = static_cast<int>(random() % 100) - 50;
    const char* op[] = {" = ", " != ", " < ", " <= ", " > ", " >= "};
    predicates.push_back("a0" + std::string(op[random() % 6]) + std::to_string(low));
    predicates.push_back("a1 BETWEEN " + std::to_string(low) + " AND " +
                         std::to_string(low + static_cast<int>(random() % 20)));
  }
  std::vector<EventValue> values = odd_values();
  for (int each = -105; each <= 105; ++each) {
    values.push_back(EventValue::of(static_cast<std::int64_t>(each)));
    values.push_back(EventValue::of(each + 0.5));
    values.push_back(EventValue::of(std::nextafter(static_cast<double>(each), -1e9)));
  }
  const FilterTable table = table_of(predicates, 2);
  CHECK(check_all(table, values) > 1000);
  CHECK(Ranks(table).n_bytes() < 4096);  // a word for each integer, not a tree
}

// Values spread evenly, over all magnitudes, in one heap beside a far one, and with other
// boundaries so close that no bucket divides them.
TEST(ranks_are_exact_however_values_are_spread) {
  Random random(5);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto heap = [&](double) { return random() % 50 == 0 ? 1e300 : 1 + 1e-9 * uniform(random); };
  const auto even = [&](double) { return 1e6 * uniform(random); };
  const auto magnitudes = [&](double) {
    return std::copysign(std::pow(10, 300 * uniform(random)), uniform(random));
  };
  const auto neighbours = [&](double at) { return std::nextafter(at, 2); };
  const auto doubling = [&](double at) { return at * 2; };
  const auto towers = [&](double at) { return at < 1e-10 ? at * 1.0001 : at * at; };
  const std::vector<std::pair<double, std::function<double(double)>>> spreads = {
      {0, heap}, {0, even}, {0, magnitudes}, {1, neighbours}, {1e-150, doubling}, {1e-10, towers}};
  for (const auto& [start, next] : spreads) {
    std::vector<double> bounds{start};
    for (int each = 0; each < 1500; ++each) {
      const double value = next(bounds.back());
      if (std::isfinite(value) && value != 0) bounds.push_back(value);
    }
    std::vector<std::string> predicates;
    for (const double bound : bounds) {
      predicates.push_back("a0 " + std::string(random() % 2 ? "<" : ">=") + " " + text_of(bound));
    }
    std::vector<EventValue> values = odd_values();
    for (std::size_t each = 0; each < bounds.size(); each += 7) {
      for (const double value : {bounds[each], std::nextafter(bounds[each], 1e308),
                                 std::nextafter(bounds[each], -1e308), bounds[each] * 0.99}) {
        values.push_back(EventValue::of(value));
      }
    }
    CHECK(check_all(table_of(predicates, 1), values) > 1000);
  }
}

TEST(ranks_are_exact_for_strings_with_much_in_common) {
  Random random(7);
  for (const std::string prefix :
       {"", "u", "customer/0000/", "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9x"}) {
    std::vector<std::string> texts;
    for (int each = 0; each < 400; ++each) {
      std::string text = prefix;
      for (std::size_t more = random() % 14; more > 0; --more) {
        text += static_cast<char>('a' + random() % 2);
      }
      texts.push_back(text);
    }
    std::vector<std::string> predicates;
    for (std::size_t each = 0; each < texts.size(); each += 2) {
      const char* op[] = {" = ", " != ", " < ", " <= ", " > ", " >= "};
      predicates.push_back("a0" + std::string(op[random() % 6]) + "'" + texts[each] + "'");
    }
    std::vector<EventValue> values = odd_values();
    for (const std::string& text : texts) values.push_back(EventValue::of(std::string_view(text)));
    CHECK(check_all(table_of(predicates, 1), values) > 1000);
  }
}

// A text is compared by its first eight bytes where these say which it is: not where zeros stand at
// its end, nor where the prefix of all points takes them.
TEST(ranks_are_exact_for_texts_about_eight_bytes_long_and_zeros_at_their_end) {
  const std::string zero(1, '\0'), letters = "abcdefghijklmnopqrst";
  for (std::size_t n_prefix = 0; n_prefix <= 10; ++n_prefix) {
    const std::string prefix = letters.substr(0, n_prefix);
    std::vector<std::string> texts = {prefix, prefix + "z"};
    for (std::size_t more = 1; more <= 10; ++more) {
      const std::string text = prefix + letters.substr(10, more);
      for (const std::string& end : {std::string(), zero, zero + zero, zero + "k"}) {
        texts.push_back(text + end);
      }
    }
    std::vector<std::string> others = {zero, prefix + zero, prefix + "\xFF", "abb", "b"};
    for (std::size_t size = 0; size < n_prefix; ++size) {
      others.push_back(letters.substr(0, size));
      others.push_back(letters.substr(0, size) + zero);
    }
    for (std::size_t step = 1; step <= 3; ++step) {  // 2, 3: texts that are not points too
      std::vector<std::string> predicates;
      for (std::size_t each = 0; each < texts.size(); each += step) {
        const char* op[] = {" = ", " < ", " <= "};
        predicates.push_back("a0" + std::string(op[each / step % 3]) + "'" + texts[each] + "'");
      }
      std::vector<EventValue> values;
      for (const std::string& text : texts)
        values.push_back(EventValue::of(std::string_view(text)));
      for (const std::string& text : others) {
        values.push_back(EventValue::of(std::string_view(text)));
      }
      CHECK(check_all(table_of(predicates, 1), values) > 100);
    }
  }
}

TEST(ranks_of_an_attribute_without_constraints_tell_types_and_absence_apart) {
  const FilterTable table = table_of({"a1 = 1"}, 2);
  const Ranks ranks(table);
  CHECK_EQ(ranks.n_ranks(0), 6u);
  CHECK_EQ(ranks.rank(0, EventValue()), 5u);
  CHECK_EQ(ranks.rank(0, EventValue::of(std::int64_t{7})), 0u);
  CHECK_EQ(ranks.n_ranks(1), 8u);
  CHECK_EQ(Ranks(FilterTable(Space::plane)).n_bytes(), 0u);
}

TEST(rank_intervals_that_touch_are_one) {
  const FilterTable table = table_of({"EXISTS a0", "a0 != 5", "a0 IN (1, 2, 3)", "a0 < 4"}, 1);
  const Ranks ranks(table);
  std::vector<RankInterval> intervals;
  ranks.intervals(table.constraint(0), intervals);
  CHECK(intervals == std::vector<RankInterval>({{0, ranks.n_ranks(0) - 1}}));
  ranks.intervals(table.constraint(1), intervals);
  CHECK_EQ(intervals.size(), 2u);
  ranks.intervals(table.constraint(2), intervals);
  CHECK_EQ(intervals.size(), 3u);
}

}  // namespace
}  // namespace tamis
