// Runs all tests, or those whose name contains the first argument.
#include <cstdio>
#include <exception>
#include <string_view>

#include "check.hpp"

namespace tamis::testing {

namespace {
int n_failures = 0;  // in the test that runs
}

void report_failure(const char* file, int line, const std::string& what) {
  ++n_failures;
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

}  // namespace tamis::testing

int main(int argc, char** argv) {
  using namespace tamis::testing;
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  int n_passed = 0, n_failed = 0;
  for (const Test& test : tests()) {
    if (std::string_view(test.name).find(wanted) == std::string_view::npos) continue;
    n_failures = 0;
    try {
      test.run();
    } catch (const std::exception& error) {
      report_failure(test.name, 0, std::string("unexpected exception: ") + error.what());
    }
    if (n_failures == 0) {
      ++n_passed;
    } else {
      ++n_failed;
      std::fprintf(stderr, "FAILED %s\n", test.name);
    }
  }
  std::printf("%d passed, %d failed\n", n_passed, n_failed);
  return n_failed == 0 ? 0 : 1;
}
