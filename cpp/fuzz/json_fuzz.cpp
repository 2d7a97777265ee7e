// Any bytes as JSON lines. Beyond "no crash":
//
// - a line is good or bad by its form, whatever is known: with the names of the text known, the
//   same lines are good as with none, but for those that are bad for what they say;
// - all SIMD levels say the same;
// - what comes out is well-formed (attributes once in an event, strings UTF-8, nothing absent).
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/simd.hpp"
#include "common/utf8.hpp"
#include "tamis/encode.hpp"

namespace {

using namespace tamis;

void require(bool condition) {
  if (!condition) std::abort();
}

// The words of the text in quotes, alone and joined by a dot to the word before.
std::shared_ptr<const Names> names_in(std::string_view text) {
  constexpr std::size_t kMaxNames = 200;
  Catalogue catalogue;
  for (const char* name : {"a", "b", "a.b", "a.b.a", ""}) catalogue.intern(name);
  std::string previous;
  for (std::size_t at = text.find('"');
       at != std::string_view::npos && catalogue.size() < kMaxNames;) {
    const std::size_t end = text.find('"', at + 1);
    if (end == std::string_view::npos) break;
    const std::string word(text.substr(at + 1, end - at - 1));
    // Every other pair of quotes encloses what is between strings: no harm.
    if (word.size() % 3 != 0) catalogue.intern(word);
    if (word.size() % 2 != 0) catalogue.intern(previous + "." + word);
    previous = word;
    at = end;
  }
  return catalogue.names();
}

bool is_about_meaning(const std::string& reason) {
  for (const char* part : {": attribute ", ": position ", ": an integer must be within",
                           ": a number must be within"}) {
    if (reason.find(part) != std::string::npos) return true;
  }
  return false;
}

void check(const JsonResult& result, std::size_t n_names, bool has_position) {
  const EventBatch& events = result.events;
  require(events.size() == result.lines.size());
  require(events.offsets[0] == 0 && events.offsets.back() == events.values.size());
  require(events.attributes.size() == events.values.size());
  require(events.x.size() == (has_position ? events.size() : 0) &&
          events.y.size() == events.x.size());
  std::vector<std::size_t> last_event(n_names);
  for (std::size_t event = 0; event < events.size(); ++event) {
    for (std::size_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
      require(events.attributes[at] < n_names);
      require(last_event[events.attributes[at]] != event + 1);
      last_event[events.attributes[at]] = event + 1;
      const EventValue& value = events.values[at];
      require(value.kind != Kind::absent && value.kind != Kind::nan);
      require(value.kind != Kind::string || is_valid_utf8(value.string()));
      require(value.kind != Kind::number ||
              (value.nearest - value.nearest == 0 && std::abs(value.residue) <= 1024));
    }
  }
}

bool is_same(const JsonResult& a, const JsonResult& b) {
  if (a.lines != b.lines || a.n_errors != b.n_errors || a.events.offsets != b.events.offsets ||
      a.events.attributes != b.events.attributes) {
    return false;
  }
  for (std::size_t error = 0; error < a.errors.size(); ++error) {
    if (a.errors[error].reason != b.errors[error].reason) return false;
  }
  for (std::size_t at = 0; at < a.events.values.size(); ++at) {
    const EventValue &left = a.events.values[at], &right = b.events.values[at];
    if (left.kind != right.kind) return false;
    if (left.kind == Kind::string   ? left.string() != right.string()
        : left.kind == Kind::number ? !(left.number() == right.number())
                                    : left.boolean != right.boolean) {
      return false;
    }
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool has_position = (data[0] & 1) != 0;
  // A copy of the exact size: the sanitizer sees a byte too many.
  const std::vector<char> exact(data + 1, data + size);
  const std::string_view text(exact.data(), exact.size());
  const auto known = names_in(text);
  const auto none = Catalogue().names();

  JsonOptions options{.position = {}, .skip_bad_lines = true};
  const JsonResult bare = decode_json_lines(text, *none, options);
  check(bare, 0, false);
  if (has_position) options.position = {{"a.x", "b"}};
  set_simd_level(best_simd_level());
  const JsonResult full = decode_json_lines(text, *known, options);
  check(full, known->size(), has_position);
  for (const SimdLevel level : {SimdLevel::v2, SimdLevel::avx2}) {
    if (!has_simd_level(level)) continue;
    set_simd_level(level);
    require(is_same(full, decode_json_lines(text, *known, options)));
  }

  // A good line stays good where less is known, and is bad where more is known for a reason.
  require(
      std::includes(bare.lines.begin(), bare.lines.end(), full.lines.begin(), full.lines.end()));
  for (const LineError& error : full.errors) {
    const bool is_good_by_form =
        std::binary_search(bare.lines.begin(), bare.lines.end(), error.line);
    require(!is_good_by_form || is_about_meaning(error.reason));
  }
  require(bare.n_errors + bare.lines.size() == full.n_errors + full.lines.size());
  return 0;
}
