#include "tamis/catalogue.hpp"

#include <string>

#include "check.hpp"

namespace tamis {
namespace {

TEST(catalogue_gives_dense_ids_in_order_of_arrival) {
  Catalogue catalogue;
  CHECK_EQ(catalogue.intern("temp"), 0u);
  CHECK_EQ(catalogue.intern("area"), 1u);
  CHECK_EQ(catalogue.intern("temp"), 0u);
  CHECK_EQ(catalogue.intern(""), 2u);
  CHECK_EQ(catalogue.size(), 3u);
  const auto names = catalogue.names();
  CHECK_EQ(names->name(1), "area");
  CHECK_EQ(names->find("area"), 1u);
  CHECK_EQ(names->find("are"), kNoAttribute);
  CHECK_EQ(names->find(""), 2u);
}

TEST(catalogue_without_names_finds_nothing) {
  const Catalogue catalogue;
  CHECK_EQ(catalogue.names()->find("x"), kNoAttribute);
  CHECK(!catalogue.names()->has_prefix("x"));
}

TEST(catalogue_finds_many_names_of_all_lengths) {
  Catalogue catalogue;
  constexpr unsigned kNames = 20'000;
  const auto name_of = [](unsigned id) {
    return std::string(id % 23, static_cast<char>('a' + id % 7)) + std::to_string(id);
  };
  for (unsigned id = 0; id < kNames; ++id) CHECK_EQ(catalogue.intern(name_of(id)), id);
  const auto names = catalogue.names();
  for (unsigned id = 0; id < kNames; ++id) {
    CHECK_EQ(names->find(name_of(id)), id);
    CHECK_EQ(names->find(name_of(id) + "?"), kNoAttribute);
  }
}

TEST(catalogue_versions_do_not_change) {
  Catalogue catalogue;
  catalogue.intern("a.b");
  const auto before = catalogue.names();
  CHECK_EQ(catalogue.intern("c.d"), 1u);
  CHECK_EQ(before->size(), 1u);
  CHECK_EQ(before->find("c.d"), kNoAttribute);
  CHECK(!before->has_prefix("c"));
  const auto after = catalogue.names();
  CHECK_EQ(after->find("a.b"), 0u);
  CHECK_EQ(after->find("c.d"), 1u);
  CHECK(after->has_prefix("a"));
  CHECK(after->has_prefix("c"));
  CHECK_EQ(catalogue.intern("c.d"), 1u);
  CHECK(catalogue.names() == after);  // nothing new, nothing copied
}

TEST(catalogue_prefixes_end_before_a_dot) {
  Catalogue catalogue;
  catalogue.intern("a.b.c");
  catalogue.intern("x..y");
  catalogue.intern(".z");
  const auto names = catalogue.names();
  for (const char* prefix : {"a", "a.b", "x", "x.", ""}) CHECK(names->has_prefix(prefix));
  for (const char* other : {"a.b.c", "a.", "b", "x..", "z", ".z"}) CHECK(!names->has_prefix(other));
}

}  // namespace
}  // namespace tamis
