// Runs all tests, or those whose name contains an argument; but none whose name contains an
// argument after a minus: `tamis_tests hem -counters`. `simd=v2` or `simd=avx2` caps the
// instruction set that they begin with.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "common/simd.hpp"

namespace tamis::testing {

namespace {

int n_failures = 0;            // in the test that runs
const char* running = "none";  // its name
struct sigaction before_us[NSIG];

// Names the test in which the process crashes, and leaves the rest to who had the signal before.
void name_test(int signal) {
  for (const char* const part : {"crashed in ", running, "\n"}) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  sigaction(signal, &before_us[signal], nullptr);
}

void name_test_of_crash() {
  struct sigaction action{};
  action.sa_handler = name_test;
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    sigaction(signal, &action, &before_us[signal]);
  }
}

}  // namespace

void report_failure(const char* file, int line, const std::string& what) {
  ++n_failures;
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

}  // namespace tamis::testing

int main(int argc, char** argv) {
  using namespace tamis::testing;
  std::vector<std::string_view> words(argv + 1, argv + argc);
  for (const tamis::SimdLevel level : {tamis::SimdLevel::v2, tamis::SimdLevel::avx2}) {
    const std::string capped = std::string("simd=") + tamis::simd_level_name(level);
    if (std::erase(words, capped) > 0) tamis::set_simd_level(level);
  }
  const auto is_wanted = [&](std::string_view name) {
    bool is_named = false, are_names_given = false;
    for (const std::string_view word : words) {
      const bool is_unwanted = word.starts_with('-');
      if (name.find(word.substr(is_unwanted ? 1 : 0)) != std::string_view::npos) {
        if (is_unwanted) return false;
        is_named = true;
      }
      are_names_given = are_names_given || !is_unwanted;
    }
    return is_named || !are_names_given;
  };
  name_test_of_crash();
  int n_passed = 0, n_failed = 0;
  for (const Test& test : tests()) {
    if (!is_wanted(test.name)) continue;
    n_failures = 0;
    running = test.name;
    const std::clock_t begin = std::clock();
    try {
      test.run();
    } catch (const std::exception& error) {
      report_failure(test.name, 0, std::string("unexpected exception: ") + error.what());
    }
    // CI's time is limited: which tests take it?
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (seconds > 5) std::printf("%.0f s CPU: %s\n", seconds, test.name);
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
