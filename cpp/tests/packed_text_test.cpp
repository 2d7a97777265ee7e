// Predicates are packed and come back as they were, whatever they hold.
#include "common/packed_text.hpp"

#include <random>
#include <string>

#include "check.hpp"

namespace tamis {
namespace {

std::size_t check_returns(const std::string& text) {
  std::string packed;
  pack_text(text, packed);
  CHECK_EQ(unpack_text(packed), text);
  CHECK(packed.size() <= 3 * text.size());
  return packed.size();
}

TEST(packed_text_comes_back_as_it_was) {
  CHECK_EQ(check_returns(""), std::size_t{0});
  CHECK_EQ(check_returns("a7 BETWEEN 673662 AND 973661"), std::size_t{10});
  CHECK_EQ(check_returns("name = 'x'"), std::size_t{7});
  check_returns("a=1 and b  <  2 or not (c in (1, 22, 333))");
  check_returns("\"città\" LIKE 'über%' AND x = '\x01\x02'");
  check_returns(std::string(1000, '\x01'));
  check_returns(std::string(1000, '\xFF') + "12345" + std::string(255, '\x80'));
  check_returns(std::string("a\0b", 3));
}

TEST(packed_text_of_random_pieces_comes_back) {
  std::mt19937 random(7);
  const std::string pieces[] = {" AND ", " BETWEEN ", "' AND ", " AND", "7",   "42",      "'",
                                " ",     "\x01",      "é",      "NOT ", " = ", " = TRUE", "x"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int n = static_cast<int>(random() % 12); n > 0; --n) {
      text += random() % 8 == 0 ? std::string(1, static_cast<char>(random()))
                                : pieces[random() % std::size(pieces)];
    }
    check_returns(text);
  }
}

TEST(unpacking_any_bytes_is_harmless) {
  std::mt19937 random(8);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int n = static_cast<int>(random() % 20); n > 0; --n) {
      bytes += random() % 4 == 0 ? '\x01' : static_cast<char>(random());
    }
    CHECK(unpack_text(bytes).size() <= 16 * bytes.size());
  }
}

}  // namespace
}  // namespace tamis
