// Record batches built by hand (arrow_arrays.hpp); `release` counts.
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrow_arrays.hpp"
#include "check.hpp"
#include "tamis/encode.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

using namespace testing;

std::shared_ptr<const Names> names_of(std::initializer_list<const char*> names) {
  Catalogue catalogue;
  for (const char* name : names) catalogue.intern(name);
  return catalogue.names();
}

std::string show(const EventBatch& events, const Names& names) {
  std::string text;
  for (std::size_t event = 0; event < events.size(); ++event) {
    if (event > 0) text += " | ";
    for (std::size_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
      if (at > events.offsets[event]) text += ' ';
      const EventValue& value = events.values[at];
      text += std::string(names.name(events.attributes[at])) + "=";
      char number[64];
      switch (value.kind) {
        case Kind::number:
          std::snprintf(number, sizeof number, "%.17g", value.nearest);
          text += number;
          if (value.residue != 0)
            text += (value.residue > 0 ? "+" : "") + std::to_string(value.residue);
          break;
        case Kind::string:
          text += "'" + std::string(value.string()) + "'";
          break;
        case Kind::boolean:
          text += value.boolean ? "true" : "false";
          break;
        case Kind::nan:
          text += "nan";
          break;
        case Kind::absent:
          text += "absent";
          break;
      }
    }
  }
  return text;
}

EventBatch encode(Built& built, const Names& names, const PositionNames& position = {}) {
  built.connect();
  EventBatch batch;
  encode_arrow(&built.array, &built.schema, names, position, batch);
  CHECK(built.array.release == nullptr);  // taken over
  CHECK_EQ(batch.n_known, names.size());
  return batch;
}

std::string encoded(const BuiltPtr& built, const Names& names, const PositionNames& position = {}) {
  return show(encode(*built, names, position), names);
}

TEST(arrow_columns_are_attributes) {
  const auto names = names_of({"s", "n", "b", "unseen"});
  CHECK_EQ(encoded(record_batch(
                       3, strings("s", {"x", "", "é"}), fixed<std::int64_t>("n", "l", {1, -2, 3}),
                       booleans("b", {true, false, true}), fixed<double>("other", "g", {1, 2, 3})),
                   *names),
           "s='x' n=1 b=true | s='' n=-2 b=false | s='é' n=3 b=true");
}

TEST(arrow_no_columns_and_no_rows) {
  const auto names = names_of({"s"});
  CHECK_EQ(encode(*record_batch(3), *names).size(), 3u);
  CHECK_EQ(encode(*record_batch(0), *names).size(), 0u);
  BuiltPtr empty = record_batch(0, strings("s", {}));
  empty->children[0]->buffers = {nullptr, nullptr, nullptr};
  CHECK_EQ(encode(*empty, *names).size(), 0u);
}

TEST(arrow_nulls_are_absent) {
  const auto names = names_of({"s", "n", "b", "z"});
  CHECK_EQ(encoded(record_batch(3, strings("s", {"x", "\xFF", "y"}, {true, false, true}),
                                fixed<std::int32_t>("n", "i", {1, 2, 3}, {false, false, true}),
                                booleans("b", {true, true, true}, {true, false, false})),
                   *names),
           "s='x' b=true |  | s='y' n=3");
  BuiltPtr nulls = std::make_unique<Built>();
  nulls->format = "n";
  nulls->name = "z";
  nulls->array.length = 2;
  nulls->array.null_count = 2;
  CHECK_EQ(encoded(record_batch(2, std::move(nulls), fixed<float>("n", "f", {1.5f, 2})), *names),
           "n=1.5 | n=2");
}

TEST(arrow_integers_and_floats_of_all_widths) {
  const auto names = names_of({"a", "b"});
  const auto two = [&](BuiltPtr column) {
    return encoded(record_batch(2, std::move(column)), *names);
  };
  CHECK_EQ(two(fixed<std::int8_t>("a", "c", {-128, 127})), "a=-128 | a=127");
  CHECK_EQ(two(fixed<std::uint8_t>("a", "C", {0, 255})), "a=0 | a=255");
  CHECK_EQ(two(fixed<std::int16_t>("a", "s", {-32768, 1})), "a=-32768 | a=1");
  CHECK_EQ(two(fixed<std::uint16_t>("a", "S", {65535, 1})), "a=65535 | a=1");
  CHECK_EQ(two(fixed<std::int32_t>("a", "i", {-2147483647, 1})), "a=-2147483647 | a=1");
  CHECK_EQ(two(fixed<std::uint32_t>("a", "I", {4294967295u, 1})), "a=4294967295 | a=1");
  CHECK_EQ(two(fixed<std::int64_t>("a", "l", {9007199254740993, -9007199254740993})),
           "a=9007199254740992+1 | a=-9007199254740992-1");
  CHECK_EQ(two(fixed<std::uint64_t>("a", "L", {18446744073709551615u, 1})),
           "a=1.8446744073709552e+19-1 | a=1");
  CHECK_EQ(two(fixed<float>("a", "f", {0.5f, std::numeric_limits<float>::quiet_NaN()})),
           "a=0.5 | a=nan");
  CHECK_EQ(two(fixed<double>("a", "g", {-0.0, std::numeric_limits<double>::infinity()})),
           "a=0 | a=inf");
  CHECK_EQ(two(fixed<std::uint16_t>("a", "e", {0x3C00, 0xC500})), "a=1 | a=-5");
  CHECK_EQ(two(fixed<std::uint16_t>("a", "e", {0x0001, 0x7BFF})),
           "a=5.9604644775390625e-08 | a=65504");
  CHECK_EQ(two(fixed<std::uint16_t>("a", "e", {0x7C00, 0x7E00})), "a=inf | a=nan");
  CHECK_EQ(two(fixed<std::uint16_t>("a", "e", {0x8000, 0x0400})), "a=0 | a=6.103515625e-05");
}

TEST(arrow_times_are_microseconds) {
  const auto names = names_of({"t"});
  const auto two = [&](const char* format, std::vector<std::int64_t> values) {
    return encoded(record_batch(2, fixed("t", format, values)), *names);
  };
  CHECK_EQ(two("tss:", {1, -1}), "t=1000000 | t=-1000000");
  CHECK_EQ(two("tsm:UTC", {1, -1}), "t=1000 | t=-1000");
  CHECK_EQ(two("tsu:Europe/Lisbon", {1, -1}), "t=1 | t=-1");
  CHECK_EQ(two("tsn:", {1999, -1}), "t=1 | t=-1");
  CHECK_EQ(two("tsn:", {-1000, -1001}), "t=-1 | t=-2");
  CHECK_EQ(two("tdm", {86'400'000, 0}), "t=86400000000 | t=0");
  CHECK_EQ(encoded(record_batch(2, fixed<std::int32_t>("t", "tdD", {1, -1})), *names),
           "t=86400000000 | t=-86400000000");
  CHECK_THROWS(two("tss:", {0, std::int64_t{1} << 60}), EventError,
               "column 't', row 1: a time must");
  CHECK_THROWS(two("tsm:", {std::numeric_limits<std::int64_t>::min(), 0}), EventError, "row 0");
  CHECK_EQ(encoded(record_batch(2, fixed<std::int64_t>("t", "tss:", {1, std::int64_t{1} << 60},
                                                       {true, false})),
                   *names),
           "t=1000000 | ");
}

TEST(arrow_strings_of_all_layouts) {
  const auto names = names_of({"s"});
  const std::vector<std::string> values{"short", "a string of more than twelve bytes", "",
                                        "twelve bytes"};
  const std::string expected =
      "s='short' | s='a string of more than twelve bytes' | s='' | s='twelve bytes'";
  CHECK_EQ(encoded(record_batch(4, strings("s", values)), *names), expected);
  CHECK_EQ(encoded(record_batch(4, strings<std::int64_t>("s", values)), *names), expected);
  CHECK_EQ(encoded(record_batch(4, views("s", values)), *names), expected);
  CHECK_EQ(
      encoded(record_batch(4, dictionary<std::int8_t>("s", "c", {0, 1, 2, 3}, strings("", values))),
              *names),
      expected);
  CHECK_EQ(
      encoded(record_batch(4, dictionary<std::uint64_t>("s", "L", {0, 1, 2, 3}, views("", values))),
              *names),
      expected);
}

TEST(arrow_dictionaries_of_any_type) {
  const auto names = names_of({"d"});
  CHECK_EQ(encoded(record_batch(4, dictionary<std::int32_t>(
                                       "d", "i", {1, 0, 7, 1},
                                       fixed<double>("", "g", {0.5, 2, 3}, {true, true, false}),
                                       {true, true, false, true})),
                   *names),
           "d=2 | d=0.5 |  | d=2");
  CHECK_EQ(encoded(record_batch(2, dictionary<std::uint16_t>(
                                       "d", "S", {2, 0},
                                       fixed<double>("", "g", {0.5, 2, 3}, {true, true, false}))),
                   *names),
           " | d=0.5");
  CHECK_THROWS(
      encoded(record_batch(1, dictionary<std::int8_t>("d", "c", {-1}, strings("", {"x"}))), *names),
      EventError, "column 'd', row 0: a dictionary index must be below 1, not -1");
  CHECK_THROWS(
      encoded(record_batch(1, dictionary<std::int64_t>("d", "l", {0}, strings("", {}))), *names),
      EventError, "must be below 0");
  // A long dictionary of a short column is looked up one by one.
  std::vector<std::string> many(5000, "x");
  many[4321] = "found";
  many[1] = "\xFF";
  CHECK_EQ(encoded(record_batch(1, dictionary<std::int16_t>("d", "s", {4321}, strings("", many))),
                   *names),
           "d='found'");
  CHECK_THROWS(
      encoded(record_batch(2, dictionary<std::int16_t>("d", "s", {0, 1}, strings("", many))),
              *names),
      EventError, "column 'd', row 1: a string must be valid UTF-8");
}

TEST(arrow_slices_respect_every_offset) {
  const auto names = names_of({"s", "n", "b", "d", "m"});
  BuiltPtr batch = record_batch(
      2, strings("s", {"0", "1", "2", "3", "4", "5"}, {true, true, true, true, false, true}),
      fixed<std::int16_t>("n", "s", {0, 1, 2, 3, 4, 5}),
      booleans("b", {true, true, true, false, true, false}),
      dictionary<std::int8_t>("d", "c", {0, 0, 1, 2, 0, 2}, strings("", {"?", "d0", "d1", "d2"})));
  batch->array.offset = 2;                                      // rows 2, 3 of each child
  for (auto& child : batch->children) child->array.offset = 1;  // which begin at 1 themselves
  for (auto& child : batch->children) child->array.length = 5;
  batch->children[3]->dictionary->array.offset = 1;
  batch->children[3]->dictionary->array.length = 3;
  CHECK_EQ(encoded(batch, *names), "s='3' n=3 b=false d='d2' | n=4 b=true d='d0'");
}

TEST(arrow_null_rows_are_events_without_attributes) {
  const auto names = names_of({"s", "n"});
  BuiltPtr batch =
      record_batch(4, strings("s", {"a", "\xFF", "c", "d"}), fixed<double>("x", "g", {1, 2, 3, 4}),
                   fixed<double>("y", "g", {1, 2, 3, 4}));
  batch->buffers.clear();
  batch->add_buffer(to_bits({true, false, true, false}));
  batch->array.null_count = -1;
  const EventBatch events = encode(*batch, *names, {{"x", "y"}});
  CHECK_EQ(show(events, *names), "s='a' |  | s='c' | ");
  CHECK_EQ(events.x.size(), 4u);
  CHECK(events.has_position(2) && events.x[2] == 3);
  CHECK(!events.has_position(1) && !events.has_position(3));
}

TEST(arrow_maps_carry_attributes) {
  const auto names = names_of({"a", "b", "long attribute name", "n"});
  CHECK_EQ(encoded(record_batch(4,
                                map("m", {0, 2, 2, 3, 5},
                                    strings("key", {"a", "other", "b", "long attribute name", "a"}),
                                    fixed<double>("value", "g", {1, 2, 3, 4, 5},
                                                  {true, true, true, true, false})),
                                fixed<std::int8_t>("n", "c", {7, 8, 9, 10})),
                   *names),
           "n=7 a=1 | n=8 | n=9 b=3 | n=10 long attribute name=4");
  CHECK_EQ(
      encoded(record_batch(2, map("m", {0, 1, 2},
                                  dictionary<std::int8_t>("key", "c", {1, 0},
                                                          strings<std::int64_t>("", {"a", "b"})),
                                  strings("value", {"x", "y"}))),
              *names),
      "b='x' | a='y'");
}

TEST(arrow_null_maps_are_empty_whatever_they_hold) {
  const auto names = names_of({"a", "b"});
  CHECK_EQ(
      encoded(record_batch(3, map("m", {0, 1, 3, 4}, strings("key", {"a", "a", "\xFF", "b"}),
                                  strings("value", {"1", "\xFF", "2", "3"}), {true, false, true})),
              *names),
      "a='1' |  | b='3'");
}

TEST(arrow_sliced_maps_respect_every_offset) {
  const auto names = names_of({"a", "b", "c"});
  BuiltPtr column =
      map("m", {9, 0, 1, 2, 3}, strings("key", {"?", "?", "a", "b", "c"}),
          fixed<std::int32_t>("value", "i", {0, 0, 0, 1, 2, 3}), {false, true, true, true});
  column->array.offset = 1;
  column->array.length = 3;
  Built& entries = *column->children[0];
  entries.array.offset = 1;
  entries.array.length = 3;
  entries.children[0]->array.offset = 1;
  entries.children[0]->array.length = 4;
  entries.children[1]->array.offset = 2;
  entries.children[1]->array.length = 4;
  CHECK_EQ(encoded(record_batch(3, std::move(column)), *names), "a=1 | b=2 | c=3");
}

TEST(arrow_duplicates_are_errors) {
  const auto names = names_of({"a"});
  CHECK_THROWS(
      encoded(record_batch(1, fixed<double>("a", "g", {1}), fixed<double>("a", "g", {1})), *names),
      EventError, "attribute 'a' must be one column");
  CHECK_EQ(
      encoded(record_batch(1, fixed<double>("z", "g", {1}), fixed<double>("z", "g", {1})), *names),
      "");
  CHECK_THROWS(encoded(record_batch(2, map("m", {0, 1, 3}, strings("key", {"a", "a", "a"}),
                                           fixed<double>("value", "g", {1, 2, 3}))),
                       *names),
               EventError, "column 'm', row 1: attribute 'a' must come once");
  CHECK_THROWS(encoded(record_batch(1, fixed<double>("a", "g", {1}),
                                    map("m", {0, 1}, strings("key", {"a"}),
                                        fixed<double>("value", "g", {1}))),
                       *names),
               EventError, "attribute 'a' must come once");
  CHECK_EQ(encoded(record_batch(
                       1, fixed<double>("a", "g", {1}, {false}),
                       map("m", {0, 1}, strings("key", {"a"}), fixed<double>("value", "g", {2}))),
                   *names),
           "a=2");
  CHECK_EQ(encoded(record_batch(1, map("m", {0, 2}, strings("key", {"z", "z"}),
                                       fixed<double>("value", "g", {1, 2}))),
                   *names),
           "");
}

TEST(arrow_wide_maps_are_checked_for_duplicates_too) {
  Catalogue catalogue;
  std::vector<std::string> keys;
  for (int id = 0; id < 2000; ++id) keys.push_back("n" + std::to_string(id));
  for (const std::string& key : keys) catalogue.intern(key);
  const auto names = catalogue.names();
  const auto batch = [&](const std::vector<std::string>& of) {
    return record_batch(1, map("m", {0, static_cast<std::int32_t>(of.size())}, strings("key", of),
                               fixed("value", "g", std::vector<double>(of.size(), 1.0))));
  };
  CHECK_EQ(encode(*batch(keys), *names).values.size(), 2000u);
  keys.push_back("n3");
  CHECK_THROWS(encoded(batch(keys), *names), EventError, "attribute 'n3' must come once");
}

TEST(arrow_maps_of_few_attributes_whose_ids_end_alike) {
  Catalogue catalogue;
  for (int id = 0; id < 200; ++id) catalogue.intern("n" + std::to_string(id));
  const auto names = catalogue.names();
  const auto batch = [&](const std::vector<std::string>& of) {
    return record_batch(2,
                        map("m", {0, 1, static_cast<std::int32_t>(of.size())}, strings("key", of),
                            fixed("value", "g", std::vector<double>(of.size(), 1.0))));
  };
  // 1, 65 and 129 are the same modulo 64.
  CHECK_EQ(encoded(batch({"n1", "n1", "n65", "n129"}), *names), "n1=1 | n1=1 n65=1 n129=1");
  CHECK_THROWS(encoded(batch({"n1", "n1", "n65", "n1"}), *names), EventError,
               "column 'm', row 1: attribute 'n1' must come once");
}

TEST(arrow_keys_are_looked_up_again_when_there_are_more_names) {
  Catalogue catalogue;
  catalogue.intern("a");
  const auto batch = [] {
    return record_batch(
        1, map("m", {0, 2}, strings("key", {"a", "b"}), fixed<double>("value", "g", {1, 2})));
  };
  CHECK_EQ(encoded(batch(), *catalogue.names()), "a=1");
  catalogue.intern("b");
  CHECK_EQ(encoded(batch(), *catalogue.names()), "a=1 b=2");
  CHECK_EQ(encoded(batch(), *names_of({"b", "c"})), "b=2");
}

TEST(arrow_types_that_events_cannot_hold_are_refused_by_name) {
  const auto names = names_of({});
  for (const char* format : {"d:10,2", "d:38,5,256", "z",   "Z",   "vz",      "w:4",   "+l", "+L",
                             "+w:3",   "+vl",        "+vL", "+s",  "+us:0,1", "+ud:0", "+r", "tts",
                             "ttn",    "tDs",        "tiM", "tin", "tsx:",    "q",     ""}) {
    CHECK_THROWS(encoded(record_batch(1, of_type("price", format, 1)), *names), EventError,
                 "column 'price' has type ");
  }
  CHECK_THROWS(
      encoded(record_batch(1, of_type("price", "d:10,2", 1)), *names), EventError,
      "column 'price' has type decimal(10,2), which events cannot hold; cast it to float64");
  CHECK_THROWS(encoded(record_batch(1, map("m", {0, 0}, fixed<std::int64_t>("key", "l", {}),
                                           fixed<double>("value", "g", {}))),
                       *names),
               EventError, "must be a map with string keys, not with keys of type int64");
  CHECK_THROWS(
      encoded(record_batch(1, map("m", {0, 0}, strings("key", {}), of_type("value", "+l", 0))),
              *names),
      EventError, "column 'm' (its values) has type list");
  CHECK_THROWS(encoded(fixed<double>("", "g", {1}), *names), EventError, "must be a record batch");
}

TEST(arrow_positions_come_from_their_columns) {
  const auto names = names_of({"x"});
  BuiltPtr batch =
      record_batch(3, fixed<std::int32_t>("x", "i", {1, 2, 3}, {true, false, true}),
                   fixed<float>("y", "f", {0.5f, 1, std::numeric_limits<float>::quiet_NaN()}));
  const EventBatch events = encode(*batch, *names, {{"x", "y"}});
  CHECK_EQ(show(events, *names), "x=1 |  | x=3");
  CHECK(events.has_position(0) && events.x[0] == 1 && events.y[0] == 0.5);
  CHECK(!events.has_position(1) && !events.has_position(2));
  CHECK_EQ(events.y.size(), 3u);
  CHECK_THROWS(encoded(record_batch(1, fixed<double>("a", "g", {1}), fixed<double>("b", "g", {1})),
                       *names, {{"a", "y"}}),
               EventError, "position 'y' must be a column, one of 'a', 'b'");
  CHECK_THROWS(encoded(record_batch(1, fixed<double>("a", "g", {1}), strings("b", {"1"})), *names,
                       {{"a", "b"}}),
               EventError, "position column 'b' must be of an integer or float type, not string");
}

TEST(arrow_positions_and_maps_together) {
  const auto names = names_of({"a"});
  const std::size_t n_rows = 3000;  // more than one block
  std::vector<std::int32_t> offsets{0};
  std::vector<std::string> keys;
  for (std::size_t row = 0; row < n_rows; ++row) {
    for (std::size_t entry = 0; entry < row % 5; ++entry) keys.push_back(entry == 1 ? "a" : "z");
    offsets.push_back(static_cast<std::int32_t>(keys.size()));
  }
  std::vector<double> xs(n_rows, 2.5);
  BuiltPtr batch = record_batch(n_rows,
                                map("m", offsets, strings("key", keys),
                                    fixed("value", "g", std::vector<double>(keys.size(), 1.0))),
                                fixed("x", "g", xs), fixed("y", "g", xs));
  const EventBatch events = encode(*batch, *names, {{"x", "y"}});
  CHECK_EQ(events.size(), n_rows);
  for (std::size_t row = 0; row < n_rows; ++row) {
    CHECK_EQ(events.offsets[row + 1] - events.offsets[row], row % 5 >= 2 ? 1u : 0u);
    CHECK(events.has_position(row));
  }
}

TEST(arrow_wide_and_long_batches_keep_rows_together) {
  for (const bool has_nulls : {false, true}) {
    Catalogue catalogue;
    BuiltPtr batch = record_batch(2500);
    constexpr std::size_t kColumns = 700;
    for (std::size_t column = 0; column < kColumns; ++column) {
      const std::string name = "c" + std::to_string(column);
      catalogue.intern(name);
      std::vector<std::int32_t> values;
      std::vector<bool> validity;
      for (std::size_t row = 0; row < 2500; ++row) {
        values.push_back(static_cast<std::int32_t>(row * kColumns + column));
        validity.push_back((row + column) % 3 != 0);
      }
      batch->children.push_back(
          fixed(name.c_str(), "i", values, has_nulls ? validity : std::vector<bool>{}));
    }
    const auto names = catalogue.names();
    const EventBatch events = encode(*batch, *names);
    CHECK_EQ(events.size(), 2500u);
    std::size_t at = 0;
    bool is_right = true;
    for (std::size_t row = 0; row < 2500; ++row) {
      for (std::size_t column = 0; column < kColumns; ++column) {
        if (has_nulls && (row + column) % 3 == 0) continue;
        is_right &= events.attributes[at] == column &&
                    events.values[at].nearest == static_cast<double>(row * kColumns + column);
        ++at;
      }
      is_right &= events.offsets[row + 1] == at;
    }
    CHECK(is_right);
    CHECK_EQ(events.values.size(), at);
  }
}

TEST(arrow_batches_append) {
  const auto names = names_of({"s"});
  EventBatch batch;
  BuiltPtr first = record_batch(1, strings("s", {"one"})),
           second = record_batch(2, strings("s", {"two", "three"}));
  for (Built* built : {first.get(), second.get()}) {
    built->connect();
    encode_arrow(&built->array, &built->schema, *names, {}, batch);
  }
  CHECK_EQ(show(batch, *names), "s='one' | s='two' | s='three'");
  CHECK_EQ(batch.owners.size(), 2u);
  BuiltPtr third = record_batch(1, fixed<double>("x", "g", {1}));
  third->connect();
  CHECK_THROWS(encode_arrow(&third->array, &third->schema, *names, {{"x", "x"}}, batch),
               ArgumentError, "all or none");
}

TEST(arrow_arrays_are_released_when_the_batch_goes_or_at_once) {
  const auto names = names_of({"s", "n"});
  static int n_released;
  const auto run = [&](BuiltPtr built, bool is_kept) {
    built->connect();
    built->array.release = [](ArrowArray* own) {
      ++n_released;
      own->release = nullptr;
    };
    n_released = 0;
    {
      EventBatch batch;
      try {
        encode_arrow(&built->array, &built->schema, *names, {}, batch);
      } catch (const EventError&) {
      }
      CHECK(built->array.release == nullptr);
      CHECK_EQ(n_released, is_kept ? 0 : 1);
    }
    CHECK_EQ(n_released, 1);
  };
  run(record_batch(1, strings("s", {"x"})), true);
  run(record_batch(1, fixed<double>("n", "g", {1})), false);  // nothing borrowed
  run(record_batch(1, strings("s", {"\xFF"})), false);
  run(record_batch(1, of_type("s", "+l", 1)), false);
  ArrowArray released{};
  EventBatch batch;
  CHECK_THROWS(encode_arrow(&released, nullptr, *names, {}, batch), EventError, "released");
}

TEST(arrow_strings_must_be_utf8) {
  const auto names = names_of({"s", "k"});
  CHECK_THROWS(encoded(record_batch(2, strings("s", {"é", "\xC3"})), *names), EventError,
               "column 's', row 1: a string must be valid UTF-8");
  // Valid as a whole, but not each string.
  CHECK_THROWS(encoded(record_batch(2, strings("s", {"\xC3", "\xA9"})), *names), EventError,
               "row 0");
  CHECK_THROWS(encoded(record_batch(1, views("s", {"\xC3"})), *names), EventError, "UTF-8");
  CHECK_THROWS(encoded(record_batch(2, map("m", {0, 1, 2}, strings("key", {"k", "\xFF"}),
                                           strings("value", {"x", "y"}))),
                       *names),
               EventError, "column 'm', row 1");
  CHECK_THROWS(encoded(record_batch(2, dictionary<std::int8_t>("s", "c", {0, 0},
                                                               strings("", {"x", "\xFF"}))),
                       *names),
               EventError, "column 's', dictionary value 1");
}

TEST(arrow_malformed_arrays_are_errors) {
  const auto names = names_of({"s", "n", "d", "m", "v"});
  const auto broken = [&](const char* part, auto damage) {
    BuiltPtr batch = record_batch(2, strings("s", {"ab", "cd"}), fixed<double>("n", "g", {1, 2}),
                                  dictionary<std::int8_t>("d", "c", {0, 0}, strings("", {"x"})),
                                  map("m", {0, 1, 2}, strings("key", {"s", "n"}),
                                      fixed<double>("value", "g", {1, 2}), {true, false}),
                                  views("v", {"a string of more than twelve bytes", "x"}));
    batch->connect();
    damage(*batch);
    EventBatch out;
    CHECK_THROWS(encode_arrow(&batch->array, &batch->schema, *names, {}, out), EventError, part);
  };
  broken("length", [](Built& b) { b.array.length = -1; });
  broken("offset", [](Built& b) { b.array.offset = -1; });
  broken("length", [](Built& b) { b.array.length = std::numeric_limits<std::int64_t>::max(); });
  broken("length", [](Built& b) { b.array.offset = std::numeric_limits<std::int64_t>::max(); });
  broken("children", [](Built& b) { b.array.n_children = 4; });
  broken("children", [](Built& b) { b.array.children = nullptr; });
  broken("buffers", [](Built& b) { b.array.n_buffers = 0; });
  broken("missing", [](Built& b) { b.array.children[0] = nullptr; });
  broken("missing", [](Built& b) { b.schema.children[0] = nullptr; });
  broken("missing", [](Built& b) { b.schema.children[0]->format = nullptr; });
  broken("'s'", [](Built& b) { b.array.children[0]->length = 1; });
  broken("'s'", [](Built& b) { b.array.children[0]->n_buffers = 2; });
  broken("'s'", [](Built& b) { b.array.children[0]->buffers[1] = nullptr; });
  broken("'s'", [](Built& b) { b.array.children[0]->buffers[2] = nullptr; });
  broken("'s'", [](Built& b) { b.array.children[0]->null_count = 1; });
  broken("'n'", [](Built& b) { b.array.children[1]->buffers = nullptr; });
  broken("'n'", [](Built& b) { b.array.children[1]->buffers[1] = nullptr; });
  broken("'n'", [](Built& b) { b.array.children[1]->offset = -8; });
  broken("'d'", [](Built& b) { b.array.children[2]->dictionary = nullptr; });
  broken("'d'", [](Built& b) { b.array.children[2]->dictionary->length = -1; });
  broken("'d'", [](Built& b) { b.schema.children[2]->format = "g"; });
  broken("'d'", [](Built& b) { b.schema.children[2]->dictionary = nullptr; });
  broken("'m'", [](Built& b) { b.schema.children[3]->n_children = 0; });
  broken("'m'", [](Built& b) { b.array.children[3]->children[0] = nullptr; });
  broken("'m'", [](Built& b) { b.array.children[3]->children[0]->length = 0; });
  broken("'m'", [](Built& b) { b.array.children[3]->children[0]->children[1]->length = 1; });
  broken("'v'", [](Built& b) { b.array.children[4]->n_buffers = 2; });
  broken("'v'", [](Built& b) { b.array.children[4]->buffers[3] = nullptr; });
  broken("'v', row 0", [](Built& b) { b.array.children[4]->buffers[2] = nullptr; });
  const auto offsets_of = [](Built& b, std::size_t child) {
    return reinterpret_cast<std::int32_t*>(b.children[child]->owned[child == 3 ? 1 : 0].data());
  };
  broken("'s'", [&](Built& b) { offsets_of(b, 0)[1] = 5; });
  broken("'s'", [&](Built& b) { offsets_of(b, 0)[0] = -1; });
  broken("'m'", [&](Built& b) { offsets_of(b, 3)[2] = 3; });
  broken("'m'", [&](Built& b) { offsets_of(b, 3)[0] = -1; });
  broken("'m'", [&](Built& b) { offsets_of(b, 3)[1] = 9; });
  broken("'v', row 0", [&](Built& b) { offsets_of(b, 4)[0] = -1; });
  broken("'v', row 0", [&](Built& b) { offsets_of(b, 4)[0] = 100; });
  broken("'v', row 0", [&](Built& b) { offsets_of(b, 4)[2] = 1; });
  broken("'v', row 0", [&](Built& b) { offsets_of(b, 4)[3] = -1; });
}

}  // namespace
}  // namespace tamis
