// The core's errors as the classes of tamis.errors.
#include <new>

#include "bindings.hpp"
#include "storage/file.hpp"

namespace tamis {
namespace {

void set_error(const char* name, const char* message) {
  const nb::object type = nb::module_::import_("tamis.errors").attr(name);
  PyErr_SetString(type.ptr(), message);
}

}  // namespace

nb::object make_language_error(const std::string& reason, std::string_view text,
                               std::size_t offset) {
  std::size_t n_characters = 0;
  for (const char c : text.substr(0, offset)) {
    n_characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }
  return nb::module_::import_("tamis.errors")
      .attr("LanguageError")(nb::str(reason.data(), reason.size()),
                             nb::str(text.data(), text.size()), n_characters);
}

void raise_language_error(const std::string& reason, std::string_view text, std::size_t offset) {
  const nb::object error = make_language_error(reason, text, offset);
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const EventError& error) {
      set_error("EventError", error.what());
    } catch (const ArgumentError& error) {
      set_error("ArgumentError", error.what());
    } catch (const ArgumentTypeError& error) {
      set_error("ArgumentTypeError", error.what());
    } catch (const UnknownIdError& error) {
      set_error("UnknownIdError", error.what());
    } catch (const StorageError& error) {
      set_error("StorageError", error.what());
    } catch (const UnavailableError& error) {
      set_error("UnavailableError", error.what());
    }
  });
}

}  // namespace tamis
