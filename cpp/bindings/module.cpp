// The native module tamis._core. The public face is Python's, in src/tamis.
#include "bindings.hpp"

NB_MODULE(_core, module) {
  // A matcher that lives until the interpreter ends is no leak, and users should not read of one.
  nanobind::set_leak_warnings(false);
  module.doc() = "The C++ core of Tamis. Use the package tamis.";
  tamis::bind_errors(module);
  tamis::bind_language(module);
  tamis::bind_engines(module);
  tamis::bind_events(module);
  tamis::bind_gpu(module);
  tamis::bind_matcher(module);
  tamis::bind_storage(module);
}
