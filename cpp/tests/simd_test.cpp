// Every level that the machine has, against plain loops. Inputs lie at the end of allocations of
// their exact size and at all small misalignments, so that a sanitizer sees a byte too many.
#include "common/simd.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "common/utf8.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

constexpr SimdLevel kLevels[] = {SimdLevel::v2, SimdLevel::avx2, SimdLevel::avx512};

template <class Body>
void for_each_level(const Body& body) {
  const SimdLevel before = simd_level();
  for (const SimdLevel level : kLevels) {
    if (!has_simd_level(level)) continue;
    set_simd_level(level);
    CHECK_EQ(simd_level(), level);
    body(simd());
  }
  set_simd_level(before);
}

// A copy that ends where its allocation ends, `shift` bytes in.
struct Exact {
  Exact(const std::string& text, std::size_t shift)
      : memory(std::make_unique<char[]>(text.size() + shift)), begin(memory.get() + shift) {
    std::memcpy(begin, text.data(), text.size());
  }
  std::unique_ptr<char[]> memory;
  char* begin;
};

TEST(simd_levels_are_named_and_the_best_is_used_at_first) {
  CHECK_EQ(simd_level(), best_simd_level());
  CHECK_EQ(std::string(simd_level_name(SimdLevel::v2)), "v2");
  CHECK_EQ(std::string(simd_level_name(SimdLevel::avx2)), "avx2");
  CHECK_EQ(std::string(simd_level_name(SimdLevel::avx512)), "avx512");
  for (const SimdLevel level : kLevels) {
    if (!has_simd_level(level)) CHECK_THROWS(set_simd_level(level), ArgumentError, "must be one");
  }
}

TEST(simd_find_string_end_stops_at_the_first_special_byte) {
  for_each_level([](const SimdKernels& kernels) {
    for (std::size_t size = 0; size <= 150; ++size) {
      for (std::size_t shift = 0; shift < 4; ++shift) {
        std::string text(size, 'x');
        for (std::size_t place = 0; place < size; ++place) {
          text[place] = static_cast<char>("\x7F\x80\xFF!#[] "[place % 8]);
        }
        {
          const Exact copy(text, shift);
          CHECK(kernels.find_string_end(copy.begin, copy.begin + size) == copy.begin + size);
        }
        for (std::size_t place = 0; place < size; place += 1 + place / 20) {
          const char special = "\"\\\x1F\0\n"[(place + size) % 5];
          std::string hit = text;
          hit[place] = special;
          if (place + 3 < size) hit[place + 3] = '"';
          const Exact copy(hit, shift);
          CHECK(kernels.find_string_end(copy.begin, copy.begin + size) == copy.begin + place);
        }
      }
    }
  });
}

TEST(simd_find_string_end_knows_every_byte) {
  for_each_level([](const SimdKernels& kernels) {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string text(70, static_cast<char>(byte));
      const bool is_special = byte == '"' || byte == '\\' || byte < 0x20;
      const char* found = kernels.find_string_end(text.data(), text.data() + text.size());
      CHECK(found == text.data() + (is_special ? 0 : text.size()));
    }
  });
}

TEST(simd_is_ascii_sees_a_high_byte_anywhere) {
  for_each_level([](const SimdKernels& kernels) {
    CHECK(kernels.is_ascii(nullptr, 0));
    for (std::size_t size = 0; size <= 140; ++size) {
      for (std::size_t shift = 0; shift < 3; ++shift) {
        std::string text(size, '\x7F');
        CHECK(kernels.is_ascii(Exact(text, shift).begin, size));
        for (std::size_t place = 0; place < size; ++place) {
          text[place] = '\x80';
          CHECK(!kernels.is_ascii(Exact(text, shift).begin, size));
          text[place] = '\x7F';
        }
      }
    }
  });
}

TEST(simd_popcount_and_indices_agree_with_a_loop) {
  std::mt19937_64 random(7);
  for (std::size_t n_words = 0; n_words <= 70; ++n_words) {
    for (int density = 0; density < 5; ++density) {
      const auto words = std::make_unique<std::uint64_t[]>(n_words);
      for (std::size_t at = 0; at < n_words; ++at) {
        const std::uint64_t a = random(), b = random(), c = random();
        words[at] = density == 0   ? 0
                    : density == 1 ? a & b & c
                    : density == 2 ? a
                    : density == 3 ? a | b | c
                                   : ~std::uint64_t{0};
      }
      std::vector<std::uint32_t> expected;
      for (std::uint32_t bit = 0; bit < 64 * n_words; ++bit) {
        if (words[bit / 64] >> (bit % 64) & 1) expected.push_back(bit);
      }
      for_each_level([&](const SimdKernels& kernels) {
        CHECK_EQ(kernels.popcount(words.get(), n_words), expected.size());
        const auto out = std::make_unique<std::uint32_t[]>(expected.size());
        CHECK_EQ(kernels.bits_to_indices(words.get(), n_words, out.get()), expected.size());
        CHECK(std::equal(expected.begin(), expected.end(), out.get()));
      });
    }
  }
}

TEST(simd_find_subsets_agrees_with_a_loop) {
  std::mt19937_64 random(9);
  for (std::size_t n_sets = 0; n_sets <= 200; ++n_sets) {
    for (const unsigned density : {0u, 1u, 4u, 10u, 32u}) {
      const auto sets = std::make_unique<std::uint32_t[]>(n_sets);
      for (std::size_t at = 0; at < n_sets; ++at) {
        for (unsigned bit = 0; bit < density; ++bit) sets[at] |= 1u << (random() % 32);
        if (random() % 3 == 0) sets[at] &= 0x80000001u;
      }
      for (const std::uint32_t missing : {0u, ~0u, 0x7FFFFFFEu, 0x80000000u, 0x00F0u}) {
        std::vector<std::uint32_t> expected;
        for (std::uint32_t at = 0; at < n_sets; ++at) {
          if ((sets[at] & missing) == 0) expected.push_back(at);
        }
        for_each_level([&](const SimdKernels& kernels) {
          const auto out = std::make_unique<std::uint32_t[]>(n_sets);
          CHECK_EQ(kernels.find_subsets(sets.get(), n_sets, missing, out.get()), expected.size());
          CHECK(std::equal(expected.begin(), expected.end(), out.get()));
        });
      }
    }
  }
}

TEST(simd_find_near_agrees_with_a_loop) {
  std::mt19937_64 random(21);
  const auto half = [&](int most) {
    return static_cast<std::uint32_t>(static_cast<std::uint16_t>(random() % (most + 1)));
  };
  for (std::size_t n = 0; n <= 70; ++n) {
    for (const int most : {4, 8191}) {
      const auto xy = std::make_unique<std::uint32_t[]>(n);
      const auto z = std::make_unique<std::uint32_t[]>(n);
      const auto ids = std::make_unique<std::uint32_t[]>(n);
      for (std::size_t at = 0; at < n; ++at) {
        xy[at] = half(most) | half(most) << 16;
        z[at] = half(most);
        ids[at] = static_cast<std::uint32_t>(random());
      }
      // A place outside of the lattice, to the left and below.
      const auto x = static_cast<std::int16_t>(random() % 9) - 4;
      const auto y = static_cast<std::int16_t>(random() % 16384) - 16384;
      const std::int32_t limit = most == 4 ? 16384 * 16384 - 9000 : 17000 * 17000;
      const std::uint32_t at_xy = static_cast<std::uint16_t>(x) |
                                  static_cast<std::uint32_t>(static_cast<std::uint16_t>(y)) << 16;
      for (const bool is_flat : {true, false}) {
        std::vector<std::uint32_t> expected;
        for (std::size_t at = 0; at < n; ++at) {
          const std::int64_t dx = static_cast<std::int16_t>(xy[at]) - x;
          const std::int64_t dy = static_cast<std::int16_t>(xy[at] >> 16) - y;
          const std::int64_t dz = is_flat ? 0 : static_cast<std::int16_t>(z[at]) - 1;
          if (dx * dx + dy * dy + dz * dz <= limit) expected.push_back(ids[at]);
        }
        for_each_level([&](const SimdKernels& kernels) {
          const auto out = std::make_unique<std::uint32_t[]>(n + 16);
          CHECK_EQ(kernels.find_near(xy.get(), is_flat ? nullptr : z.get(), ids.get(), n, at_xy, 1,
                                     limit, out.get()),
                   expected.size());
          CHECK(std::equal(expected.begin(), expected.end(), out.get()));
        });
      }
    }
  }
}

TEST(simd_find_boxes_agrees_with_a_loop) {
  std::mt19937_64 random(13);
  // Few values, so that points lie on bounds.
  const auto draw = [&] { return static_cast<float>(random() % 7) - 3; };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (std::size_t n_dimensions = 1; n_dimensions <= 3; ++n_dimensions) {
    for (std::size_t n_groups = 0; n_groups <= 9; ++n_groups) {
      const std::size_t n_floats = n_groups * n_dimensions * 32;
      const auto groups = std::make_unique<float[]>(n_floats);
      for (std::size_t at = 0; at < n_floats; ++at) {
        groups[at] = draw() + (at % 32 < 16 ? -1.0f : 1.0f);
        if (random() % 20 == 0) groups[at] = at % 32 < 16 ? kInfinity : -kInfinity;
      }
      float below[3], above[3];
      std::vector<std::uint16_t> expected(n_groups);
      for (std::size_t dimension = 0; dimension < 3; ++dimension) {
        below[dimension] = draw();
        above[dimension] = below[dimension] + static_cast<float>(random() % 2);
      }
      for (std::size_t box = 0; box < 16 * n_groups; ++box) {
        bool holds = true;
        for (std::size_t dimension = 0; dimension < n_dimensions; ++dimension) {
          const float* low = groups.get() + (box / 16 * n_dimensions + dimension) * 32 + box % 16;
          holds = holds && low[0] <= below[dimension] && above[dimension] <= low[16];
        }
        expected[box / 16] |= static_cast<std::uint16_t>(holds << box % 16);
      }
      for_each_level([&](const SimdKernels& kernels) {
        std::vector<std::uint16_t> out(n_groups);
        kernels.find_boxes(groups.get(), n_groups, n_dimensions, below, above, out.data());
        CHECK(out == expected);
      });
    }
  }
}

TEST(utf8_is_valid_as_unicode_has_it) {
  for (const char* good : {"", "a", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
                           "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF",
                           "0123456789abcdef\xC3\xA9 0123456789"}) {
    CHECK(is_valid_utf8(good));
  }
  for (const char* bad : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2 ", "\xE0\x80\x80",
                          "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF", "\xE2\x82", "\xE2\x82 ",
                          "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                          "\xF5\x80\x80\x80", "\xF0\x90\x80", "\xFE", "\xFF"}) {
    CHECK(!is_valid_utf8(bad));
    CHECK_EQ(valid_utf8_prefix(("0123456789" + std::string(bad)).data(), 10 + std::strlen(bad)),
             10u);
  }
}

TEST(simd_or_words_and_mark_bits_do_as_plain_loops_do) {
  struct alignas(64) Line {
    std::uint64_t words[8];
  };
  for_each_level([](const SimdKernels& kernels) {
    std::mt19937_64 random(9);
    for (const std::size_t n_lines : {1, 2, 5, 128}) {
      for (std::size_t n_sources = 0; n_sources <= 9; ++n_sources) {
        std::vector<std::vector<Line>> sources(n_sources, std::vector<Line>(n_lines));
        std::vector<const std::uint64_t*> pointers;
        std::vector<std::uint64_t> expected(8 * n_lines);
        for (std::vector<Line>& source : sources) {
          pointers.push_back(source[0].words);
          for (std::size_t at = 0; at < 8 * n_lines; ++at) {
            expected[at] |= source[at / 8].words[at % 8] = random() & random() & random();
          }
        }
        std::vector<Line> out(n_lines, Line{{~std::uint64_t{0}}});
        kernels.or_words(out[0].words, pointers.data(), n_sources, 8 * n_lines);
        std::vector<std::uint16_t> ids(n_sources);
        for (std::uint16_t& id : ids) id = static_cast<std::uint16_t>(random() % (512 * n_lines));
        kernels.mark_bits(out[0].words, ids.data(), ids.size());
        for (const std::uint16_t id : ids) expected[id / 64] |= std::uint64_t{1} << (id % 64);
        CHECK(std::memcmp(out.data(), expected.data(), 64 * n_lines) == 0);
      }
    }
  });
}

struct alignas(64) Line {
  std::uint64_t words[8];
};

TEST(simd_and_lines_stops_where_nothing_is_left) {
  std::mt19937_64 random(3);
  for_each_level([&](const SimdKernels& kernels) {
    for (std::size_t n_places = 1; n_places <= 20; ++n_places) {
      for (int turn = 0; turn < 20; ++turn) {
        std::vector<Line> lines(40);
        std::vector<std::uint16_t> places(n_places);
        for (auto& place : places) place = static_cast<std::uint16_t>(random() % lines.size());
        for (Line& line : lines) {
          for (auto& word : line.words) word = turn % 2 == 0 ? random() | random() : random() & 1;
        }
        const auto words = static_cast<std::uint8_t>(random() | random());
        Line expected = lines[places[0]];
        bool is_left = false;
        for (std::size_t word = 0; word < 8; ++word) {
          if ((words >> word & 1) == 0) expected.words[word] = 0;
          for (const std::uint16_t place : places) expected.words[word] &= lines[place].words[word];
          is_left |= expected.words[word] != 0;
        }
        std::uint64_t found[8], n_read = 7;
        CHECK_EQ(kernels.and_lines(lines[0].words, places.data(), n_places, words, found, &n_read),
                 is_left);
        CHECK(std::equal(found, found + 8, expected.words));
        CHECK(n_read > 7 && n_read <= 7 + n_places);
        if (is_left) CHECK_EQ(n_read, 7 + n_places);
      }
    }
  });
}

TEST(simd_find_records_holds_where_every_lane_does) {
  std::mt19937_64 random(9);
  const auto check = [&](const SimdKernels& kernels, std::size_t n_keys) {
    std::vector<std::uint32_t> keys(n_keys);
    for (auto& key : keys) key = static_cast<std::uint32_t>(random() % 100);
    keys.back() = ~std::uint32_t{0};
    std::vector<std::uint32_t> words, places;
    std::vector<std::uint64_t> expected;
    for (std::uint32_t id = 0; id < 600; ++id) {
      const std::size_t n_lanes = id % 40;
      const std::size_t begin = words.size();
      words.resize(begin + (2 + (n_lanes + 1) / 2 + 2 * n_lanes + 3) / 4 * 4, 0xFFFFFFFF);
      std::uint32_t* record = words.data() + begin;
      record[0] = id;
      record[1] = static_cast<std::uint32_t>(n_lanes | (id % 3) << 16);
      std::uint32_t* lows = record + 2 + (n_lanes + 1) / 2;
      bool holds = true;
      const std::size_t wrong = random() % 80;  // the lane that fails, if there is one
      for (std::size_t lane = 0; lane < n_lanes; ++lane) {
        const auto slot = static_cast<std::uint16_t>(random() % keys.size());
        std::memcpy(reinterpret_cast<char*>(record + 2) + 2 * lane, &slot, 2);
        lows[lane] = keys[slot] - static_cast<std::uint32_t>(random() % 3);
        lows[n_lanes + lane] = lane == wrong ? keys[slot] - lows[lane] - 1 : 2;
        holds &= keys[slot] - lows[lane] <= lows[n_lanes + lane];
      }
      places.push_back(static_cast<std::uint32_t>(begin / 4));
      if (holds) expected.push_back(std::uint64_t{record[1]} << 32 | id);
    }
    CHECK(expected.size() > 100 && expected.size() < 590);
    std::vector<std::uint64_t> found(places.size());
    found.resize(kernels.find_records(words.data(), places.data(), places.size(), keys.data(),
                                      n_keys, found.data()));
    CHECK(found == expected);
  };
  for_each_level([&](const SimdKernels& kernels) {
    for (const std::size_t n_keys : {1, 7, 16, 17, 32, 33, 40}) check(kernels, n_keys);
  });
}

TEST(simd_sweep_line_flips_bits_between_items) {
  std::mt19937_64 random(4);
  for_each_level([&](const SimdKernels& kernels) {
    for (const std::size_t n_bits : {0, 1, 5, 200}) {
      for (const std::size_t n_items : {1, 2, 9, 70}) {
        std::vector<std::uint32_t> places(n_bits), keys(n_items);
        std::vector<std::uint16_t> bits(n_bits), order(n_items);
        for (auto& place : places) place = static_cast<std::uint32_t>(random() % 50);
        for (auto& key : keys) key = static_cast<std::uint32_t>(random() % 52);
        for (auto& bit : bits) bit = static_cast<std::uint16_t>(random() % 512);
        std::sort(places.begin(), places.end());
        std::sort(keys.begin(), keys.end());
        std::iota(order.begin(), order.end(), std::uint16_t{0});
        std::shuffle(order.begin(), order.end(), random);
        Line start;
        for (auto& word : start.words) word = random();
        std::vector<Line> rows(n_items), expected;
        for (Line& row : rows) {
          for (auto& word : row.words) word = random();
        }
        expected = rows;
        for (std::size_t item = 0; item < n_items; ++item) {
          Line line = start;
          for (std::size_t at = 0; at < n_bits && places[at] <= keys[item]; ++at) {
            line.words[bits[at] / 64] ^= std::uint64_t{1} << (bits[at] % 64);
          }
          for (std::size_t word = 0; word < 8; ++word) {
            expected[order[item]].words[word] &= line.words[word];
          }
        }
        kernels.sweep_line(start.words, places.data(), bits.data(), n_bits, keys.data(),
                           order.data(), n_items, rows[0].words);
        CHECK(std::memcmp(rows.data(), expected.data(), n_items * sizeof(Line)) == 0);
      }
    }
  });
}

}  // namespace
}  // namespace tamis
