// What the binding files share. Each binds one concept; module.cpp calls them.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "tamis/error.hpp"

namespace nb = nanobind;

namespace tamis {

void bind_errors(nb::module_& module);
void bind_language(nb::module_& module);
void bind_engines(nb::module_& module);
void bind_events(nb::module_& module);
void bind_gpu(nb::module_& module);
void bind_matcher(nb::module_& module);
void bind_storage(nb::module_& module);

// The UTF-8 of a str; throws what Python raised (lone surrogates) as the given error.
template <typename Error>
std::string_view utf8_of(PyObject* text, const char* what) {
  Py_ssize_t length = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &length);
  if (data == nullptr) {
    PyErr_Clear();
    throw Error(std::string(what) + " must be text that UTF-8 can hold, without lone surrogates");
  }
  return {data, static_cast<std::size_t>(length)};
}

// Sets tamis.errors.LanguageError with the place counted in characters, and throws.
[[noreturn]] void raise_language_error(const std::string& reason, std::string_view text,
                                       std::size_t offset);
nb::object make_language_error(const std::string& reason, std::string_view text,
                               std::size_t offset);

}  // namespace tamis
