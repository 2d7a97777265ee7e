#include "packed_text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace tamis {
namespace {

constexpr unsigned char kAsItIs = 0x01, kDigits = 0x80, kPhrases = kDigits + 100;
constexpr std::size_t kLongestRun = 255;

// As in files: their order is their code.
constexpr std::array<std::string_view, 28> kTexts = {
    " BETWEEN ",    " AND NOT ", " AND ", " OR ",   " IN (",   " LIKE '",  " NOT LIKE '",
    " IS NOT NULL", " IS NULL",  "NOT ",  "EXISTS", "NEAR(",   " = '",     " = ",
    " != '",        " != ",      " <= ",  " >= ",   " <> ",    " < ",      " > ",
    "TIMESTAMP '",  "', '",      "', ",   ", ",     " = TRUE", " = FALSE", "' AND "};
static_assert(kPhrases + kTexts.size() == 256);

// The phrases that begin with a character, longest first.
struct Phrases {
  struct Few {
    std::array<std::uint8_t, kTexts.size()> phrases{};
    std::uint8_t n = 0;
  };
  std::array<Few, 128> by_first{};

  Phrases() {
    for (std::size_t phrase = 0; phrase < kTexts.size(); ++phrase) {
      Few& few = by_first[static_cast<unsigned char>(kTexts[phrase][0])];
      few.phrases[few.n++] = static_cast<std::uint8_t>(phrase);
    }
    for (Few& few : by_first) {
      std::stable_sort(
          few.phrases.begin(), few.phrases.begin() + few.n,
          [](std::uint8_t a, std::uint8_t b) { return kTexts[a].size() > kTexts[b].size(); });
    }
  }
};
const Phrases kByFirst;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_plain(char c) { return static_cast<unsigned char>(c) < 0x80 && c != kAsItIs; }

}  // namespace

void pack_text(std::string_view text, std::string& packed) {
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (is_digit(c) && at + 1 < text.size() && is_digit(text[at + 1])) {
      packed += static_cast<char>(kDigits + 10 * (c - '0') + (text[at + 1] - '0'));
      at += 2;
      continue;
    }
    if (!is_plain(c)) {
      std::size_t n = 1;
      while (n < kLongestRun && at + n < text.size() && !is_plain(text[at + n])) ++n;
      packed += static_cast<char>(kAsItIs);
      packed += static_cast<char>(n);
      packed += text.substr(at, n);
      at += n;
      continue;
    }
    const Phrases::Few& few = kByFirst.by_first[static_cast<unsigned char>(c)];
    std::size_t n_taken = 0;
    for (std::uint8_t each = 0; each < few.n && n_taken == 0; ++each) {
      if (!text.substr(at).starts_with(kTexts[few.phrases[each]])) continue;
      packed += static_cast<char>(kPhrases + few.phrases[each]);
      n_taken = kTexts[few.phrases[each]].size();
    }
    if (n_taken == 0) packed += c;
    at += std::max<std::size_t>(n_taken, 1);
  }
}

std::string unpack_text(std::string_view packed) {
  std::string text;
  text.reserve(3 * packed.size());
  for (std::size_t at = 0; at < packed.size(); ++at) {
    const auto code = static_cast<unsigned char>(packed[at]);
    if (code >= kPhrases) {
      text += kTexts[code - kPhrases];
    } else if (code >= kDigits) {
      text += static_cast<char>('0' + (code - kDigits) / 10);
      text += static_cast<char>('0' + (code - kDigits) % 10);
    } else if (code == kAsItIs) {
      const std::size_t n = at + 1 < packed.size() ? static_cast<unsigned char>(packed[at + 1]) : 0;
      text += packed.substr(std::min(at + 2, packed.size()), n);
      at += 1 + n;
    } else {
      text += packed[at];
    }
  }
  return text;
}

}  // namespace tamis
