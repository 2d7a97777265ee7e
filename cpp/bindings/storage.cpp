// Faults on purpose, for the crash tests.
#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "storage/file.hpp"

namespace tamis {
namespace {

FaultPlan::Action to_action(const std::string& name) {
  using Action = FaultPlan::Action;
  if (name == "kill") return Action::kill;
  if (name == "kill_midway") return Action::kill_midway;
  if (name == "no_space") return Action::no_space;
  if (name == "io_error") return Action::io_error;
  throw ArgumentError("a fault must be kill, kill_midway, no_space or io_error, not " + name);
}

}  // namespace

void bind_storage(nb::module_& module) {
  module.def(
      "_set_fault",
      [](std::uint64_t nth, const std::string& action, std::uint64_t n_times) {
        set_fault(nth, to_action(action), n_times);
      },
      nb::arg("nth"), nb::arg("action"), nb::arg("n_times") = 1,
      "Makes the nth operation on files from now on fail: for tests of what survives.");
  module.def("_clear_fault", &clear_fault);
  module.def("_n_operations", &n_operations, "How many operations on files there were.");
}

}  // namespace tamis
