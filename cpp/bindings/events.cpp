// Events from Python objects: dicts, and Arrow streams through their capsules.
#include "events.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cuda/device.hpp"
#include "encode/arrow_abi.h"

namespace tamis {
namespace {

std::string in_quotes(std::string_view name) { return "'" + std::string(name) + "'"; }

// A value of an uncommon type as a plain one: datetimes, NumPy scalars, subclasses.
nb::object coerce(std::string_view name, nb::handle value) {
  return nb::module_::import_("tamis.events")
      .attr("coerce")(nb::str(name.data(), name.size()), value);
}

EventValue to_value(std::string_view name, nb::handle object, EventBatch& batch, bool is_coerced) {
  PyObject* value = object.ptr();
  if (value == Py_True) return EventValue::of(true);
  if (value == Py_False) return EventValue::of(false);
  if (PyFloat_CheckExact(value)) return EventValue::of(PyFloat_AS_DOUBLE(value));
  if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) return EventValue::of(static_cast<std::int64_t>(number));
    if (overflow > 0) {
      const unsigned long long large = PyLong_AsUnsignedLongLong(value);
      if (!PyErr_Occurred()) return EventValue::of(static_cast<std::uint64_t>(large));
      PyErr_Clear();
    }
    throw EventError("attribute " + in_quotes(name) +
                     " must be an integer of 64 bits (-2^63 to 2^64 - 1), not a larger one");
  }
  if (PyUnicode_CheckExact(value)) {
    const std::string_view text =
        utf8_of<EventError>(value, ("attribute " + in_quotes(name)).c_str());
    if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw EventError("attribute " + in_quotes(name) + " must be shorter than 4 GiB");
    }
    return EventValue::of(batch.arena.copy(text));
  }
  if (value == Py_None) return {};
  if (is_coerced) throw EventError("attribute " + in_quotes(name) + " has no usable value");
  return to_value(name, coerce(name, object), batch, true);
}

// Does reading such a value call Python code?
bool is_plain(PyObject* value) {
  return PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyUnicode_CheckExact(value) ||
         PyBool_Check(value) || value == Py_None;
}

// Engines count on attributes that come once in an event.
void check_once(const EventBatch& batch, std::size_t begin, const Names& names) {
  std::vector<AttributeId> ids(batch.attributes.begin() + static_cast<std::ptrdiff_t>(begin),
                               batch.attributes.end());
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice == ids.end()) return;
  throw EventError("attribute " + in_quotes(names.name(*twice)) +
                   " must come once in an event, not twice");
}

double to_coordinate(nb::handle value, const char* what) {
  if (value.is_none()) return std::numeric_limits<double>::quiet_NaN();
  if (PyFloat_CheckExact(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr());
  if (!PyBool_Check(value.ptr()) && !PyUnicode_Check(value.ptr())) {
    const double number = PyFloat_AsDouble(value.ptr());
    if (!PyErr_Occurred()) return number;
    PyErr_Clear();
  }
  throw EventError(std::string("a position's ") + what + " must be a number, not " +
                   nb::cast<std::string>(nb::repr(value)));
}

}  // namespace

void encode_dict(nb::handle event, const Names& names, EventBatch& batch) {
  if (!PyDict_Check(event.ptr())) {
    const nb::object copy = nb::steal(PyDict_New());
    if (PyUnicode_Check(event.ptr()) || PyDict_Update(copy.ptr(), event.ptr()) != 0) {
      PyErr_Clear();
      throw ArgumentTypeError("an event must be a dict of attributes, not " +
                              std::string(Py_TYPE(event.ptr())->tp_name));
    }
    return encode_dict(copy, names, batch);
  }
  PyObject* dict = event.ptr();
  Py_ssize_t at = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  const std::size_t begin = batch.attributes.size();
  // Keys of a dict are different; as texts, too, unless a subclass of str says otherwise or Python
  // code changes the dict meanwhile.
  bool may_repeat = false;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (!PyUnicode_Check(key)) {
      throw EventError("the name of an attribute must be a str, not " +
                       nb::cast<std::string>(nb::repr(nb::handle(key))));
    }
    const std::string_view name = utf8_of<EventError>(key, "the name of an attribute");
    const AttributeId attribute = names.find(name);
    if (attribute == kNoAttribute) continue;
    may_repeat |= !PyUnicode_CheckExact(key) || !is_plain(value);
    // An uncommon value calls Python code, which may change the dict: hold what is used.
    const nb::object kept_key = nb::borrow(key);
    const nb::object kept_value = nb::borrow(value);
    const EventValue encoded = to_value(name, kept_value, batch, false);
    if (encoded.kind != Kind::absent) batch.add(attribute, encoded);
  }
  if (may_repeat) check_once(batch, begin, names);
}

std::optional<std::pair<double, double>> to_position(nb::handle at) {
  if (at.is_none()) return std::nullopt;
  if (PySequence_Check(at.ptr()) && !PyUnicode_Check(at.ptr()) && PySequence_Size(at.ptr()) == 2) {
    return std::pair{to_coordinate(nb::object(at[0]), "x"), to_coordinate(nb::object(at[1]), "y")};
  }
  PyErr_Clear();
  throw ArgumentTypeError("at must be a pair (x, y) of numbers, not " +
                          nb::cast<std::string>(nb::repr(at)));
}

PositionNames to_position_names(nb::handle position) {
  if (position.is_none()) return std::nullopt;
  if (PySequence_Check(position.ptr()) && !PyUnicode_Check(position.ptr()) &&
      PySequence_Size(position.ptr()) == 2) {
    const nb::object x = position[0];
    const nb::object y = position[1];
    if (PyUnicode_Check(x.ptr()) && PyUnicode_Check(y.ptr())) {
      return std::pair{std::string(utf8_of<ArgumentError>(x.ptr(), "position")),
                       std::string(utf8_of<ArgumentError>(y.ptr(), "position"))};
    }
  }
  PyErr_Clear();
  throw ArgumentTypeError("position must be the names of two attributes, like ('x', 'y'), not " +
                          nb::cast<std::string>(nb::repr(position)));
}

std::shared_ptr<EventBatch> encode_dicts(nb::handle events, const Names& names,
                                         const PositionNames& position) {
  auto batch = std::make_shared<EventBatch>();
  batch->encode_for(names);
  nb::object x_name, y_name;
  if (position) {
    x_name = nb::str(position->first.data(), position->first.size());
    y_name = nb::str(position->second.data(), position->second.size());
  }
  for (nb::handle event : events) {
    try {
      encode_dict(event, names, *batch);
      if (position) {
        const auto coordinate = [&](const nb::object& name, const char* what) {
          PyObject* value = PyDict_GetItem(event.ptr(), name.ptr());
          return value == nullptr ? std::numeric_limits<double>::quiet_NaN()
                                  : to_coordinate(value, what);
        };
        const double x = coordinate(x_name, "x");
        batch->add_position(x, coordinate(y_name, "y"));
      }
    } catch (const EventError& error) {
      throw EventError("event " + std::to_string(batch->size()) + ": " + error.what());
    } catch (const ArgumentTypeError& error) {
      throw ArgumentTypeError("event " + std::to_string(batch->size()) + ": " + error.what());
    } catch (nb::python_error& error) {  // of tamis.events.coerce
      if (!error.matches(nb::module_::import_("tamis.errors").attr("EventError"))) throw;
      throw EventError("event " + std::to_string(batch->size()) + ": " +
                       nb::cast<std::string>(nb::str(error.value())));
    }
    batch->end_event();
  }
  return batch;
}

namespace {

// Calls take(array) for each record batch; who takes one releases it.
template <typename Take>
void read_stream(ArrowArrayStream& stream, ArrowSchema& schema, Take take) {
  const auto check = [&](int status) {
    if (status == 0) return;
    const char* reason = stream.get_last_error(&stream);
    throw EventError(std::string("the Arrow stream failed: ") +
                     (reason != nullptr ? reason : "no reason given"));
  };
  check(stream.get_schema(&stream, &schema));
  for (;;) {
    ArrowArray array{};
    check(stream.get_next(&stream, &array));
    if (array.release == nullptr) return;
    take(array);
  }
}

ArrowArrayStream& stream_of(nb::handle capsule) {
  auto* stream =
      static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream"));
  if (stream == nullptr) throw nb::python_error();
  return *stream;
}

void release(ArrowSchema* held) {
  if (held->release != nullptr) held->release(held);
}

}  // namespace

std::shared_ptr<EventBatch> encode_stream(nb::handle capsule, const Names& names,
                                          const PositionNames& position) {
  ArrowArrayStream& stream = stream_of(capsule);
  auto batch = std::make_shared<EventBatch>();
  batch->encode_for(names);

  const nb::gil_scoped_release released;
  ArrowSchema schema{};
  const std::unique_ptr<ArrowSchema, void (*)(ArrowSchema*)> schema_guard(&schema, release);
  read_stream(stream, schema,
              [&](ArrowArray& array) { encode_arrow(&array, &schema, names, position, *batch); });
  return batch;
}

EventStream::EventStream(nb::handle capsule) : EventStream() {
  ArrowArrayStream& stream = stream_of(capsule);
  const nb::gil_scoped_release released;
  read_stream(stream, schema_, [&](ArrowArray& array) {
    arrays_.push_back(array);
    n_rows_ += static_cast<std::size_t>(std::max<std::int64_t>(array.length, 0));
  });
}

EventStream::~EventStream() {
  for (ArrowArray& array : arrays_) array.release(&array);
  release(&schema_);
}

void EventStream::encode(const Names& names, const PositionNames& position,
                         EventBatch& batch) const {
  batch.encode_for(names);
  for (const ArrowArray& array : arrays_) {
    encode_arrow_rows(array, &schema_, 0, static_cast<std::size_t>(array.length), names, position,
                      batch);
  }
}

void EventStream::encode(std::size_t begin, std::size_t end, const Names& names,
                         const PositionNames& position, EventBatch& batch) const {
  batch.encode_for(names);
  std::size_t first = 0;  // of the array
  for (const ArrowArray& array : arrays_) {
    const auto n_rows = static_cast<std::size_t>(std::max<std::int64_t>(array.length, 0));
    const std::size_t from = std::max(begin, first), to = std::min(end, first + n_rows);
    if (from == begin && to == end && from < to) {
      keep_arrow_rows(array, &schema_, from - first, to - first, names, position, is_pinned, batch);
    } else if (from < to) {
      encode_arrow_rows(array, &schema_, from - first, to - first, names, position, batch);
    }
    first += n_rows;
  }
}

void bind_events(nb::module_& module) {
  nb::class_<EventBatch>(module, "EventBatch",
                         "Events in the core's own form, for one matcher's attributes.")
      .def("__len__", &EventBatch::size)
      .def_prop_ro("n_values", [](const EventBatch& batch) { return batch.values.size(); })
      .def("__repr__", [](const EventBatch& batch) {
        return nb::str(("<EventBatch of " + std::to_string(batch.size()) + " events>").c_str());
      });
}

}  // namespace tamis
