// A small harness: TEST(name) { CHECK(...); } registers itself, main.cpp runs all.
//
// A failed check is counted and printed, and the test goes on; an exception ends the test.
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tamis::testing {

struct Test {
  const char* name;
  void (*run)();
};
inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}
struct Registration {
  Registration(const char* name, void (*run)()) { tests().push_back({name, run}); }
};
void report_failure(const char* file, int line, const std::string& what);  // main.cpp

template <class T>
std::string show(const T& value) {
  if constexpr (requires(std::ostringstream& out) { out << value; }) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<long long>(value));
  } else {
    return "(a value)";
  }
}

template <class A, class B>
void check_equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (!(a == b)) report_failure(file, line, std::string(text) + ": " + show(a) + " / " + show(b));
}

}  // namespace tamis::testing

#define TEST(name)                                                                  \
  static void test_##name();                                                        \
  static const ::tamis::testing::Registration register_##name(#name, &test_##name); \
  static void test_##name()

#define CHECK(condition)                                                                \
  do {                                                                                  \
    if (!(condition)) ::tamis::testing::report_failure(__FILE__, __LINE__, #condition); \
  } while (false)

#define CHECK_EQ(a, b) ::tamis::testing::check_equal((a), (b), #a " == " #b, __FILE__, __LINE__)

// `expression` throws `Type`, and its text contains `part`.
#define CHECK_THROWS(expression, Type, part)                                                      \
  do {                                                                                            \
    bool check_thrown = false;                                                                    \
    try {                                                                                         \
      (void)(expression);                                                                         \
    } catch (const Type& check_error) {                                                           \
      check_thrown = true;                                                                        \
      if (std::string_view(check_error.what()).find(part) == std::string_view::npos) {            \
        ::tamis::testing::report_failure(__FILE__, __LINE__,                                      \
                                         std::string("the error says: ") + check_error.what());   \
      }                                                                                           \
    }                                                                                             \
    if (!check_thrown) {                                                                          \
      ::tamis::testing::report_failure(__FILE__, __LINE__, #expression " does not throw " #Type); \
    }                                                                                             \
  } while (false)
