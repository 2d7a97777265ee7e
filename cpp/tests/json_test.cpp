#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "check.hpp"
#include "common/simd.hpp"
#include "tamis/encode.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

std::shared_ptr<const Names> names_of(std::initializer_list<const char*> names) {
  Catalogue catalogue;
  for (const char* name : names) catalogue.intern(name);
  return catalogue.names();
}

// The batch as text: name=value for each value, events parted by " | ".
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
        default:
          text += "?";
      }
    }
  }
  return text;
}

std::string decoded(const std::string& text, const Names& names, const JsonOptions& options = {}) {
  // An exact copy, so that a sanitizer sees a byte too many.
  const std::vector<char> exact(text.begin(), text.end());
  const JsonResult result = decode_json_lines({exact.data(), exact.size()}, names, options);
  CHECK_EQ(result.lines.size(), result.events.size());
  CHECK_EQ(result.events.n_known, names.size());
  return show(result.events, names);
}

// The reason why the line is bad, with all of `names` known and with none: empty if it is good.
std::string reason(const std::string& line, const Names& names, const JsonOptions& options = {}) {
  try {
    decoded(line, names, options);
    return "";
  } catch (const EventError& error) {
    return error.what();
  }
}

TEST(json_gives_the_values_of_known_attributes) {
  const auto names = names_of({"area", "temp", "on"});
  CHECK_EQ(decoded("{\"area\":\"a1\",\"temp\":35,\"on\":true,\"other\":[1,{\"area\":2}]}\n"
                   " { \"temp\" : -1.5 , \"on\" : false } \r\n"
                   "{}\n",
                   *names),
           "area='a1' temp=35 on=true | temp=-1.5 on=false | ");
}

TEST(json_lines_may_end_in_any_way) {
  const auto names = names_of({"a"});
  CHECK_EQ(decoded("", *names), "");
  CHECK_EQ(decoded("\n\r\n  \n", *names), "");
  CHECK_EQ(decoded("\xEF\xBB\xBF{\"a\":1}\r\n{\"a\":2}", *names), "a=1 | a=2");
  CHECK_EQ(decoded("{\"a\":1}", *names), "a=1");
  const JsonResult result = decode_json_lines("\n{\"a\":1}\n\n\n{}\n", *names, {});
  CHECK(result.lines == (std::vector<std::size_t>{2, 5}));
}

TEST(json_numbers_are_exact) {
  const auto names = names_of({"a"});
  const auto one = [&](const std::string& number) {
    return decoded("{\"a\":" + number + "}", *names);
  };
  CHECK_EQ(one("0"), "a=0");
  CHECK_EQ(one("-0"), "a=0");
  CHECK_EQ(one("-0.0"), "a=0");
  CHECK_EQ(one("-0e5"), "a=0");
  CHECK_EQ(one("9007199254740993"), "a=9007199254740992+1");
  CHECK_EQ(one("9223372036854775807"), "a=9.2233720368547758e+18-1");
  CHECK_EQ(one("-9223372036854775808"), "a=-9.2233720368547758e+18");
  CHECK_EQ(one("9223372036854775808"), "a=9.2233720368547758e+18");
  CHECK_EQ(one("18446744073709551615"), "a=1.8446744073709552e+19-1");
  CHECK_EQ(one("0.1"), "a=0.10000000000000001");
  CHECK_EQ(one("1E+2"), "a=100");
  CHECK_EQ(one("123456789.123456789"), "a=123456789.12345679");
  CHECK_EQ(one("1e22"), "a=1e+22");
  CHECK_EQ(one("1e23"), "a=9.9999999999999992e+22");
  CHECK_EQ(one("1.7976931348623157e308"), "a=1.7976931348623157e+308");
  CHECK_EQ(one("5e-324"), "a=4.9406564584124654e-324");
  CHECK_EQ(one("1e-400"), "a=0");
  CHECK_EQ(one("-1e-99999999999999999999999"), "a=0");
  CHECK_EQ(one("0e99999999999999999999999"), "a=0");
  CHECK_EQ(one("0." + std::string(400, '0') + "1e401"), "a=1");
  CHECK_EQ(one("0." + std::string(400, '0') + "1"), "a=0");
  CHECK_EQ(one("9007199254740993.0"), "a=9007199254740992");
  for (const char* beyond : {"18446744073709551616", "-9223372036854775809", "99999999999999999999",
                             "20000000000000000000", "100000000000000000000"}) {
    CHECK(reason(std::string("{\"a\":") + beyond + "}", *names).find("within 64 bits") !=
          std::string::npos);
    CHECK_EQ(reason(std::string("{\"b\":") + beyond + "}", *names), "");  // nobody asks
  }
  for (const char* beyond : {"1e309", "-1e400", "1.8e308", "1e99999999999999999999"}) {
    CHECK(reason(std::string("{\"a\":") + beyond + "}", *names).find("64-bit float") !=
          std::string::npos);
  }
}

TEST(json_decimals_are_the_nearest_double) {
  const auto names = names_of({"a"});
  for (unsigned step = 0; step < 20'000; ++step) {
    const std::string digits = std::to_string(step * 2654435761u) + std::to_string(step % 97);
    const std::string number = digits.substr(0, 1 + step % 9) + "." + digits + "e" +
                               std::to_string(static_cast<int>(step % 41) - 20);
    const JsonResult result = decode_json_lines("{\"a\":" + number + "}", *names, {});
    CHECK_EQ(result.events.values[0].nearest, std::strtod(number.c_str(), nullptr));
  }
}

TEST(json_strings_are_unescaped) {
  const auto names = names_of({"a", "k\u00e9y", ""});
  CHECK_EQ(decoded(R"({"a":"\"\\\/\b\f\n\r\t"})", *names), "a='\"\\/\b\f\n\r\t'");
  CHECK_EQ(decoded(R"({"a":"\u00e9\u20AC\ud83d\uDE00x"})", *names), "a='é€😀x'");
  CHECK_EQ(decoded(R"({"a":"é€😀"})", *names), "a='é€😀'");
  CHECK_EQ(decoded("{\"a\":\"\\u0000\"}", *names), std::string("a='\0'", 5));
  CHECK_EQ(decoded(R"({"k\u00e9y":1,"\u0061":2,"":""})", *names), "kéy=1 a=2 =''");
  const std::string text(70'000, 'y');  // longer than a block of the arena
  CHECK_EQ(decoded("{\"a\":\"" + text + "\\n\"}", *names), "a='" + text + "\n'");
}

TEST(json_strings_of_every_length_at_every_level) {
  const auto names = names_of({"a", "b"});
  const SimdLevel before = simd_level();
  for (const SimdLevel level : {SimdLevel::v2, SimdLevel::avx2, SimdLevel::avx512}) {
    if (!has_simd_level(level)) continue;
    set_simd_level(level);
    for (std::size_t size = 0; size < 150; ++size) {
      const std::string text(size, 'z');
      CHECK_EQ(decoded("{\"a\":\"" + text + "\"}", *names), "a='" + text + "'");
      CHECK_EQ(decoded("{\"a\":\"" + text + "\\t\",\"b\":1}", *names), "a='" + text + "\t' b=1");
      CHECK(!reason("{\"a\":\"" + text, *names).empty());
      CHECK(!reason("{\"a\":\"" + text + "\\", *names).empty());
      CHECK(!reason("{\"c\":\"" + text + "\x01\"}", *names).empty());
    }
  }
  set_simd_level(before);
}

TEST(json_nested_objects_give_dotted_names) {
  const auto names = names_of({"a.b.c", "a.d", "x.", ".y"});
  CHECK_EQ(decoded(R"({"a":{"b":{"c":1,"z":{"c":9}},"d":2},"b":{"c":3}})", *names),
           "a.b.c=1 a.d=2");
  CHECK_EQ(decoded(R"({"a.b":{"c":1},"a":{"d":2}})", *names), "a.b.c=1 a.d=2");
  CHECK_EQ(decoded(R"({"a":{"b.c":1},"a.d":2})", *names), "a.b.c=1 a.d=2");
  CHECK_EQ(decoded(R"({"\u0061":{"\u0062":{"c":1}}})", *names), "a.b.c=1");
  CHECK_EQ(decoded(R"({"x":{"":5},"":{"y":6}})", *names), "x.=5 .y=6");
  CHECK_EQ(decoded(R"({"a":[{"d":1}],"a":7,"a":{"d":3}})", *names), "a.d=3");
  CHECK_EQ(decoded(R"({"a":null,"a.b":"text"})", *names), "");
}

TEST(json_null_is_absent) {
  const auto names = names_of({"a", "b"});
  CHECK_EQ(decoded(R"({"a":null,"b":1})", *names), "b=1");
}

TEST(json_duplicates_of_known_attributes_are_bad) {
  const auto names = names_of({"a", "b.c"});
  CHECK_EQ(reason(R"({"a":1,"z":1,"a":1})", *names),
           "line 1, column 14: attribute a must come once in an event, not twice");
  CHECK(reason(R"({"a":null,"a":1})", *names).find("attribute a must come once") !=
        std::string::npos);
  CHECK(reason(R"({"b":{"c":1},"b.c":1})", *names).find("attribute b.c") != std::string::npos);
  CHECK(reason(R"({"b":{"c":1},"b":{"c":1}})", *names).find("attribute b.c") != std::string::npos);
  CHECK_EQ(reason(R"({"z":1,"z":1})", *names), "");
}

TEST(json_wide_events_are_checked_for_duplicates_too) {
  Catalogue catalogue;
  std::string line = "{";
  for (int id = 0; id < 3000; ++id) {
    const std::string name = "n" + std::to_string(id);
    catalogue.intern(name);
    line += "\"" + name + "\":" + std::to_string(id) + ",";
  }
  const auto names = catalogue.names();
  const JsonResult result =
      decode_json_lines(line + "\"z\":0}\n" + line + "\"z\":0}\n", *names, {});
  CHECK_EQ(result.events.values.size(), 6000u);
  for (const char* again : {"n0", "n15", "n16", "n17", "n2999"}) {
    CHECK(reason(line + "\"" + again + "\":0}", *names).find(std::string("attribute ") + again) !=
          std::string::npos);
  }
}

TEST(json_containers_are_no_values) {
  const auto names = names_of({"a", "a.b"});
  CHECK_EQ(reason(R"({"a":[1]})", *names),
           "line 1, column 6: attribute a must be a number, string, boolean or null, not an array");
  CHECK_EQ(
      reason(R"({"a":{"b":1}})", *names),
      "line 1, column 6: attribute a must be a number, string, boolean or null, not an object");
}

TEST(json_bad_form_is_bad_whether_known_or_not) {
  const auto all = names_of({"a", "b", "a.b"});
  const auto none = names_of({});
  const auto inner = names_of({"a.b"});
  for (const char* line : {
           "[]",
           "1",
           "\"a\"",
           "null",
           "{",
           "}",
           "{\"a\"}",
           "{\"a\":}",
           "{\"a\":1,}",
           "{,}",
           "{a:1}",
           "{'a':1}",
           "{\"a\":1}}",
           "{\"a\":1} x",
           "{\"a\" 1}",
           "{\"a\":1 \"b\":2}",
           "{\"a\":01}",
           "{\"a\":-}",
           "{\"a\":+1}",
           "{\"a\":1.}",
           "{\"a\":.5}",
           "{\"a\":1e}",
           "{\"a\":1e+}",
           "{\"a\":0x1}",
           "{\"a\":NaN}",
           "{\"a\":Infinity}",
           "{\"a\":-Infinity}",
           "{\"a\":tru}",
           "{\"a\":True}",
           "{\"a\":nul}",
           "{\"a\":falsey}",
           "{\"a\":\"x}",
           "{\"a\":\"\\x\"}",
           "{\"a\":\"\\u12g4\"}",
           "{\"a\":\"\\u12\"}",
           "{\"a\":\"\\ud800\"}",
           "{\"a\":\"\\udc00\"}",
           "{\"a\":\"\\ud800\\u0041\"}",
           "{\"a\":\"\\ud800x\"}",
           "{\"a\":\"\t\"}",
           "{\"a\":\"\xFF\"}",
           "{\"\xC3\":1}",
           "{\"a\":\"\xED\xA0\x80\"}",
           "{\"a\\q\":1}",
           "{\"a\":[1,]}",
           "{\"a\":[1 2]}",
           "{\"a\":[}",
           "{\"a\":{\"b\":1,}}",
           "{\"a\":{\"b\" 1}}",
           "{\"a\":{b:1}}",
           "{\"a\":[1}",
           "{\"a\":{\"b\":tru}}",
           "{\"a\":1}{\"a\":1}",
           "{\"a\":1\f}",
           "{\"a\":\"\\",
           "{\"a\":t",
       }) {
    CHECK(!reason(line, *all).empty());
    CHECK(!reason(line, *none).empty());
    CHECK(!reason(line, *inner).empty());
  }
}

TEST(json_errors_say_where_and_what) {
  const auto names = names_of({"a"});
  CHECK_EQ(reason("{}\n\n{\"a\"}\n", *names),
           "line 3, column 5: expected ':' after a key, not '}'");
  CHECK_EQ(reason("{\"é\":€}", *names), "line 1, column 6: expected a value, not '€'");
  CHECK_EQ(reason("{\"é\":\"\xFF\"}", *names),
           "line 1, column 7: the text must be UTF-8, not byte 0xff");
  CHECK_EQ(reason("{\"a\":1", *names),
           "line 1, column 7: expected ',' or '}' after a value, not the end of the line");
  CHECK_EQ(reason("[1]", *names),
           "line 1, column 1: an event must be an object in braces, not '['");
}

TEST(json_depth_is_limited) {
  const auto names = names_of({"a"});
  const auto nested = [](std::size_t depth) {
    return "{\"b\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  CHECK_EQ(reason(nested(128), *names), "");
  CHECK(reason(nested(129), *names).find("128 levels") != std::string::npos);
  std::string deep;
  for (int level = 0; level < 100'000; ++level) deep += "{\"b\":";
  CHECK(reason(deep, *names).find("128 levels") != std::string::npos);
  Catalogue catalogue;
  std::string name = "b";
  for (int level = 1; level < 200; ++level) name += ".b";
  catalogue.intern(name);
  CHECK(reason(deep, *catalogue.names()).find("128 levels") != std::string::npos);
}

TEST(json_bad_lines_can_be_skipped) {
  const auto names = names_of({"a"});
  const JsonResult result =
      decode_json_lines("{\"a\":1}\n{\"a\":2\n\n{\"a\":3}\n{\"a\":\"x\",\"a\":4}\n{\"a\":5}",
                        *names, {.position = {}, .skip_bad_lines = true});
  CHECK_EQ(show(result.events, *names), "a=1 | a=3 | a=5");
  CHECK(result.lines == (std::vector<std::size_t>{1, 4, 6}));
  CHECK_EQ(result.n_errors, 2u);
  CHECK_EQ(result.errors[0].line, 2u);
  CHECK_EQ(result.errors[1].line, 5u);
  CHECK(result.errors[1].reason.starts_with("line 5, column "));
  std::string many;
  for (std::size_t line = 0; line < kMaxLineErrors + 10; ++line) many += "x\n";
  const JsonResult bad = decode_json_lines(many, *names, {.position = {}, .skip_bad_lines = true});
  CHECK_EQ(bad.n_errors, kMaxLineErrors + 10);
  CHECK_EQ(bad.errors.size(), kMaxLineErrors);
}

TEST(json_positions_come_from_their_keys) {
  const auto names = names_of({"a", "loc.y"});
  const JsonOptions options{.position = {{"loc.x", "loc.y"}}, .skip_bad_lines = false};
  const JsonResult result = decode_json_lines(
      "{\"a\":1,\"loc\":{\"x\":1.5,\"y\":2}}\n{\"loc.x\":3,\"loc.y\":4}\n{\"loc\":{\"x\":1}}\n"
      "{\"loc\":{\"x\":null,\"y\":1}}\n{\"a\":2}\n",
      *names, options);
  const EventBatch& events = result.events;
  CHECK_EQ(show(events, *names), "a=1 loc.y=2 | loc.y=4 |  | loc.y=1 | a=2");
  CHECK_EQ(events.x.size(), 5u);
  CHECK_EQ(events.x[0], 1.5);
  CHECK_EQ(events.y[0], 2.0);
  CHECK_EQ(events.x[1], 3.0);
  CHECK_EQ(events.y[1], 4.0);
  for (std::size_t event = 2; event < 5; ++event) CHECK(!events.has_position(event));
  CHECK_EQ(reason(R"({"loc":{"x":"1"}})", *names, options),
           "line 1, column 13: position loc.x must be a number, not a string");
  CHECK(!reason(R"({"loc.x":[1]})", *names, options).empty());
  CHECK(!reason(R"({"loc.x":true})", *names, options).empty());
  CHECK(reason(R"({"loc.x":1,"loc":{"x":1}})", *names, options).find("must come once") !=
        std::string::npos);
  const JsonResult without = decode_json_lines("{\"loc\":{\"x\":1,\"y\":2}}", *names, {});
  CHECK(!without.events.has_positions());
  const JsonResult skipped =
      decode_json_lines("{\"loc.x\":1,\"loc.y\":2\n{\"loc.x\":3,\"loc.y\":4}", *names,
                        {.position = options.position, .skip_bad_lines = true});
  CHECK_EQ(skipped.events.x.size(), 1u);
  CHECK_EQ(skipped.events.x[0], 3.0);
}

TEST(json_keys_in_changing_order_are_found) {
  const auto names = names_of({"a", "b", "ab"});
  CHECK_EQ(
      decoded(
          "{\"a\":1,\"b\":2}\n{\"b\":1,\"a\":2}\n{\"ab\":1,\"b\":2}\n{\"a\\u0062\":3}\n{\"a\":4}",
          *names),
      "a=1 b=2 | b=1 a=2 | ab=1 b=2 | ab=3 | a=4");
}

}  // namespace
}  // namespace tamis
