#include "figures.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace tamis::bench {
namespace {

std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// Names and reasons of ours: nothing in them but quotes needs care.
std::string json_string(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') all += '\\';
    all += c == '\n' ? ' ' : c;
  }
  return all + '"';
}

template <typename Pairs>
std::string object(const Pairs& pairs) {
  std::string all;
  for (const auto& [name, value] : pairs) {
    all += (all.empty() ? "" : ", ") + json_string(name) + ": " + number(value);
  }
  return "{" + all + "}";
}

}  // namespace

Figure::Figure(std::string_view figure, std::string_view engine, std::string_view workload) {
  add("figure", figure).add("engine", engine).add("workload", workload);
}

Figure::~Figure() {
  std::printf("{%s}\n", line_.c_str());
  std::fflush(stdout);
}

Figure& Figure::add_plain(std::string_view name, std::string_view json) {
  if (!line_.empty()) line_ += ", ";
  line_ += json_string(name) + ": ";
  line_ += json;
  return *this;
}
Figure& Figure::add(std::string_view name, double value) { return add_plain(name, number(value)); }
Figure& Figure::add(std::string_view name, std::string_view text) {
  return add_plain(name, json_string(text));
}
Figure& Figure::add(std::string_view name, const Steps& steps) {
  return add_plain(name, object(steps));
}
Figure& Figure::add(std::string_view name, const Parameters& parameters) {
  return add_plain(name, object(parameters));
}

void fail(std::string_view engine, std::string_view workload, std::string_view reason) {
  {
    Figure("failure", engine, workload).add("reason", reason);
  }
  std::exit(1);
}

}  // namespace tamis::bench
