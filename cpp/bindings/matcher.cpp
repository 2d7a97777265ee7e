// The matcher. tamis.matcher.Matcher derives from _core.Matcher and adds the forms of input.
#include "tamis/matcher.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "common/simd.hpp"
#include "common/thread_pool.hpp"
#include "encode/arrow_abi.h"
#include "events.hpp"
#include "storage/journal.hpp"
#include "tamis/filter_summary.hpp"

namespace tamis {
namespace {

template <typename T>
using Array = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// A NumPy array that owns the vector's memory.
template <typename T, typename Memory>
Array<T> to_numpy(std::vector<T, Memory> items) {
  using Items = std::vector<T, Memory>;
  auto* owned = new Items(std::move(items));
  const nb::capsule owner(owned, [](void* held) noexcept { delete static_cast<Items*>(held); });
  return Array<T>(owned->data(), {owned->size()}, owner);
}

IdView to_id(nb::handle object, const char* what) {
  PyObject* value = object.ptr();
  if (PyUnicode_Check(value)) return IdView::of(utf8_of<ArgumentError>(value, what));
  if (PyLong_Check(value) && !PyBool_Check(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) return IdView::of(static_cast<std::int64_t>(number));
    throw ArgumentError(std::string(what) + " must be an integer of 64 bits, not a larger one");
  }
  if (PyIndex_Check(value) && !PyBool_Check(value)) {  // NumPy's integers
    const nb::object number = nb::steal(PyNumber_Index(value));
    if (number.is_valid()) return to_id(number, what);
    PyErr_Clear();
  }
  throw ArgumentTypeError(std::string(what) + " must be an int or a str, not " +
                          nb::cast<std::string>(nb::repr(object)));
}

nb::object to_python(const IdView& id) {
  if (id.type == IdType::integer) return nb::int_(id.integer);
  return nb::str(id.string.data(), id.string.size());
}

std::string_view to_word(nb::handle object, const char* what) {
  if (PyUnicode_Check(object.ptr())) return utf8_of<ArgumentError>(object.ptr(), what);
  throw ArgumentTypeError(std::string(what) + " must be a str, not " +
                          nb::cast<std::string>(nb::repr(object)));
}

Output to_output(nb::handle object) {
  const std::string_view name = to_word(object, "output");
  if (name == "ids") return Output::ids;
  if (name == "bitset") return Output::bitset;
  if (name == "count") return Output::count;
  throw ArgumentError("output must be 'ids', 'bitset' or 'count', not '" + std::string(name) + "'");
}

Deliver to_deliver(nb::handle object) {
  const std::string_view name = to_word(object, "deliver");
  if (name == "subscriptions") return Deliver::subscriptions;
  if (name == "subscribers") return Deliver::subscribers;
  throw ArgumentError("deliver must be 'subscriptions' or 'subscribers', not '" +
                      std::string(name) + "'");
}

SyncPolicy to_sync_policy(const std::string& name) {
  if (name == "each") return SyncPolicy::each;
  if (name == "grouped") return SyncPolicy::grouped;
  if (name == "none") return SyncPolicy::none;
  throw ArgumentError("sync must be 'each', 'grouped' or 'none', not '" + name + "'");
}

nb::object row_error(const RowError& error, std::string_view text) {
  if (error.offset) return make_language_error(error.reason, text, *error.offset);
  return nb::module_::import_("tamis.errors").attr("ArgumentTypeError")(error.reason.c_str());
}

void subscribe_one(Matcher& matcher, nb::handle id, const nb::str& predicate,
                   nb::handle subscriber) {
  NewSubscription row;
  row.id = to_id(id, "id");
  row.predicate = utf8_of<ArgumentError>(predicate.ptr(), "a predicate");
  if (!subscriber.is_none()) row.subscriber = to_id(subscriber, "subscriber");
  std::vector<RowError> errors;
  {
    const nb::gil_scoped_release released;
    errors = matcher.subscribe({&row, 1});
  }
  if (errors.empty()) return;
  const nb::object error = row_error(errors[0], row.predicate);
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

// All batches of an Arrow stream, kept while they are read.
class ArrowBatches {
 public:
  explicit ArrowBatches(const nb::capsule& capsule) : ArrowBatches() {
    auto* stream =
        static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream"));
    if (stream == nullptr) throw nb::python_error();
    const nb::gil_scoped_release released;
    const auto check = [&](int code) {
      if (code == 0) return;
      const char* reason = stream->get_last_error(stream);
      throw ArgumentError(std::string("the Arrow stream failed: ") +
                          (reason == nullptr ? "no reason given" : reason));
    };
    check(stream->get_schema(stream, &schema_));
    for (;;) {
      ArrowArray array{};
      check(stream->get_next(stream, &array));
      if (array.release == nullptr) return;
      arrays_.push_back(array);
      n_rows_ += static_cast<std::size_t>(array.length);
    }
  }
  ArrowBatches(const ArrowBatches&) = delete;
  ArrowBatches& operator=(const ArrowBatches&) = delete;
  ~ArrowBatches() {
    for (ArrowArray& array : arrays_) array.release(&array);
    if (schema_.release != nullptr) schema_.release(&schema_);
  }
  std::size_t n_rows() const { return n_rows_; }
  // Calls visit(batch, schema, its first row) for each.
  template <typename Visit>
  void for_each(Visit visit) const {
    std::size_t first = 0;
    for (const ArrowArray& array : arrays_) {
      visit(array, schema_, first);
      first += static_cast<std::size_t>(array.length);
    }
  }

 private:
  ArrowBatches() = default;  // from here on the destructor releases what was taken

  ArrowSchema schema_{};
  std::vector<ArrowArray> arrays_;
  std::size_t n_rows_ = 0;
};

// A column of ids (int64 or large strings), texts or numbers of a batch, as Python hands it over:
// without nulls.
class ArrowColumn {
 public:
  ArrowColumn(const ArrowArray& batch, const ArrowSchema& schema, int column)
      : array_(*batch.children[column]),
        offset_(static_cast<std::size_t>(array_.offset + batch.offset)),
        is_integer_(schema.children[column]->format[0] == 'l') {}
  IdView id(std::size_t row) const {
    return is_integer_ ? IdView::of(number<std::int64_t>(row)) : IdView::of(text(row));
  }
  std::string_view text(std::size_t row) const {
    const auto* ends = static_cast<const std::int64_t*>(array_.buffers[1]) + offset_ + row;
    return {static_cast<const char*>(array_.buffers[2]) + ends[0],
            static_cast<std::size_t>(ends[1] - ends[0])};
  }
  template <typename T>
  T number(std::size_t row) const {
    return static_cast<const T*>(array_.buffers[1])[offset_ + row];
  }

 private:
  const ArrowArray& array_;
  std::size_t offset_;
  bool is_integer_;
};

// (row, error) of the first bad rows; empty: everything was taken.
nb::list subscribe_arrow(Matcher& matcher, const nb::capsule& stream) {
  const ArrowBatches batches(stream);
  std::vector<NewSubscription> rows(batches.n_rows());
  std::vector<RowError> errors;
  {
    const nb::gil_scoped_release released;
    batches.for_each([&](const ArrowArray& batch, const ArrowSchema& schema, std::size_t first) {
      const ArrowColumn ids(batch, schema, 0);
      const ArrowColumn predicates(batch, schema, 1);
      std::optional<ArrowColumn> subscribers;
      if (batch.n_children > 2) subscribers.emplace(batch, schema, 2);
      for (std::size_t row = 0; row < static_cast<std::size_t>(batch.length); ++row) {
        NewSubscription& to = rows[first + row];
        to.id = ids.id(row);
        to.predicate = predicates.text(row);
        if (subscribers) to.subscriber = subscribers->id(row);
      }
    });
    errors = matcher.subscribe(rows);
  }
  nb::list all;
  for (const RowError& error : errors) {
    all.append(nb::make_tuple(error.row, row_error(error, rows[error.row].predicate)));
  }
  return all;
}

// Columns id, x, y and, if wanted, area (uint32).
nb::list move_arrow(Matcher& matcher, const nb::capsule& stream) {
  const ArrowBatches batches(stream);
  std::vector<RowError> errors;
  {
    const nb::gil_scoped_release released;
    std::vector<Move> rows(batches.n_rows());
    batches.for_each([&](const ArrowArray& batch, const ArrowSchema& schema, std::size_t first) {
      const ArrowColumn ids(batch, schema, 0), x(batch, schema, 1), y(batch, schema, 2);
      std::optional<ArrowColumn> areas;
      if (batch.n_children > 3) areas.emplace(batch, schema, 3);
      for (std::size_t row = 0; row < static_cast<std::size_t>(batch.length); ++row) {
        rows[first + row] = {ids.id(row), x.number<double>(row), y.number<double>(row),
                             std::nullopt};
        if (areas) rows[first + row].area = areas->number<std::uint32_t>(row);
      }
    });
    errors = matcher.move(rows);
  }
  nb::list all;
  for (const RowError& error : errors) all.append(nb::make_tuple(error.row, row_error(error, {})));
  return all;
}

View view_of(const Matcher& matcher) { return matcher.view(); }

nb::list match_one(const Matcher& matcher, nb::handle event, nb::handle at, nb::handle deliver) {
  EventBatch batch;
  View view = view_of(matcher);
  batch.encode_for(view.names());
  if (PyDict_Check(event.ptr())) {
    const auto n_values = static_cast<std::size_t>(PyDict_Size(event.ptr()));
    batch.attributes.reserve(n_values);
    batch.values.reserve(n_values);
  }
  encode_dict(event, view.names(), batch);
  if (const auto position = to_position(at)) {
    batch.add_position(position->first, position->second);
  }
  batch.end_event();
  MatchOptions options;
  options.deliver = to_deliver(deliver);
  MatchResult result;
  {
    const nb::gil_scoped_release released;
    result = matcher.match(std::move(view), batch, options);
  }
  nb::list ids;
  for (const std::uint32_t target : result.targets) ids.append(to_python(result.id(target)));
  return ids;
}

// Ids of targets as Arrow buffers: (None, int64 values), or (int64 ends, bytes). Those that are
// not known are 0 or empty.
nb::object id_buffers(const MatchResult& result, std::span<const std::uint32_t> targets,
                      const std::vector<bool>* is_known = nullptr) {
  const auto id_of = [&](std::uint32_t target) {
    return is_known == nullptr || (*is_known)[target] ? result.id(target) : IdView();
  };
  const bool is_string = result.id_type() == IdType::string;
  ReusedVector<std::int64_t> numbers;
  ReusedVector<std::uint8_t> bytes;
  {
    const nb::gil_scoped_release released;
    if (is_string) {
      numbers.reserve(targets.size() + 1);
      numbers.push_back(0);
      for (const std::uint32_t target : targets) {
        const std::string_view text = id_of(target).string;
        bytes.insert(bytes.end(), text.begin(), text.end());
        numbers.push_back(static_cast<std::int64_t>(bytes.size()));
      }
    } else {
      constexpr std::size_t kPerTask = 1 << 11;
      numbers.resize(targets.size());
      parallel_for(
          (targets.size() + kPerTask - 1) / kPerTask, result.n_threads, [&](std::size_t task) {
            const std::size_t begin = task * kPerTask;
            const auto some = targets.subspan(begin, std::min(kPerTask, targets.size() - begin));
            if (is_known == nullptr) {
              result.integer_ids(some, numbers.data() + begin);
              return;
            }
            for (std::size_t at = 0; at < some.size(); ++at) {
              numbers[begin + at] = id_of(some[at]).integer;
            }
          });
    }
  }
  if (is_string) return nb::make_tuple(to_numpy(std::move(numbers)), to_numpy(std::move(bytes)));
  return nb::make_tuple(nb::none(), to_numpy(std::move(numbers)));
}

std::span<const std::uint64_t> row_of(const MatchResult& result, std::size_t event) {
  return {result.bits.data() + event * result.words_per_event, result.words_per_event};
}

// The targets of one event, of ids and bitset outputs.
std::vector<std::uint32_t> targets_of(const MatchResult& result, std::size_t event) {
  if (event >= result.n_events) {
    throw ArgumentError("event must be below " + std::to_string(result.n_events) + ", not " +
                        std::to_string(event));
  }
  if (result.output == Output::ids) {
    return {result.targets.begin() + result.offsets[event],
            result.targets.begin() + result.offsets[event + 1]};
  }
  if (result.output == Output::count) throw ArgumentError("output 'count' keeps no ids");
  const std::span<const std::uint64_t> row = row_of(result, event);
  std::vector<std::uint32_t> targets(simd().popcount(row.data(), row.size()));
  simd().bits_to_indices(row.data(), row.size(), targets.data());
  return targets;
}

nb::dict to_dict(const Counters& counters) {
  nb::dict all;
  all["filters"] = counters.filters;
  all["constraints"] = counters.constraints;
  all["candidates"] = counters.candidates;
  all["cells"] = counters.cells;
  all["nodes"] = counters.nodes;
  all["bits"] = counters.bits;
  return all;
}

void bind_result(nb::module_& module) {
  nb::class_<MatchResult>(module, "MatchResult")
      .def_ro("n_events", &MatchResult::n_events)
      .def_ro("n_targets", &MatchResult::n_targets)
      .def_prop_ro("counters", [](const MatchResult& result) { return to_dict(result.counters); })
      .def("offsets",
           [](nb::object self) {  // of the result's own memory, which it keeps
             auto& result = nb::cast<MatchResult&>(self);
             return nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>>(
                 result.offsets.data(), {result.offsets.size()}, self);
           })
      .def(
          "id_buffers",
          [](const MatchResult& result) { return id_buffers(result, result.targets); },
          nb::sig(
              "def id_buffers(self) -> tuple[NDArray[numpy.int64] | None, NDArray[numpy.generic]]"))
      .def(
          "id_buffers_of",
          [](const MatchResult& result, std::size_t event) {
            return id_buffers(result, targets_of(result, event));
          },
          nb::sig("def id_buffers_of(self, event: int, /) -> tuple[NDArray[numpy.int64] | None, "
                  "NDArray[numpy.generic]]"))
      .def(
          "domain_buffers",
          [](const MatchResult& result) {
            std::vector<std::uint32_t> all(result.n_targets);
            for (std::uint32_t target = 0; target < all.size(); ++target) all[target] = target;
            std::vector<bool> is_known = result.known_targets();
            const nb::object buffers = id_buffers(result, all, &is_known);
            return nb::make_tuple(
                buffers[0], buffers[1],
                to_numpy(std::vector<std::uint8_t>(is_known.begin(), is_known.end())));
          },
          nb::sig("def domain_buffers(self) -> tuple[NDArray[numpy.int64] | None, "
                  "NDArray[numpy.generic], NDArray[numpy.uint8]]"))
      .def("bits",
           [](nb::object self) {
             auto& result = nb::cast<MatchResult&>(self);
             return nb::ndarray<nb::numpy, const std::uint64_t, nb::ndim<2>>(
                 result.bits.data(), {result.n_events, result.words_per_event}, self);
           })
      .def("counts", [](const MatchResult& result) {
        ReusedVector<std::int64_t> counts = result.counts;
        if (result.output == Output::ids) {
          for (std::size_t event = 0; event < result.n_events; ++event) {
            counts.push_back(result.offsets[event + 1] - result.offsets[event]);
          }
        } else if (result.output == Output::bitset) {
          for (std::size_t event = 0; event < result.n_events; ++event) {
            const std::span<const std::uint64_t> row = row_of(result, event);
            counts.push_back(static_cast<std::int64_t>(simd().popcount(row.data(), row.size())));
          }
        }
        return to_numpy(std::move(counts));
      });
}

nb::dict to_dict(const MatcherStats& stats) {
  nb::dict all;
  all["n_subscriptions"] = stats.n_subscriptions;
  all["n_subscribers"] = stats.n_subscribers;
  all["n_attributes"] = stats.n_attributes;
  all["n_delta_filters"] = stats.n_delta_filters;
  all["n_dead"] = stats.n_dead;
  all["n_moved"] = stats.n_moved;
  all["n_merges"] = stats.n_merges;
  all["is_merging"] = stats.is_merging;
  all["version"] = stats.version;
  all["n_store_bytes"] = stats.n_store_bytes;
  all["n_delta_bytes"] = stats.n_delta_bytes;
  all["n_logs"] = stats.n_logs;
  all["n_log_bytes"] = stats.n_log_bytes;
  all["n_image_bytes"] = stats.n_image_bytes;
  all["checkpoint_error"] = stats.checkpoint_error.c_str();
  nb::list segments;
  for (const SegmentStats& each : stats.segments) {
    nb::dict segment;
    segment["engine"] = each.engine.c_str();
    segment["is_indexed"] = each.is_indexed;
    segment["n_filters"] = each.n_filters;
    segment["n_fallback_filters"] = each.n_fallback_filters;
    segment["n_constraints"] = each.n_constraints;
    segment["n_table_bytes"] = each.n_table_bytes;
    segment["n_index_bytes"] = each.n_index_bytes;
    segments.append(segment);
  }
  all["segments"] = segments;
  return all;
}

nb::dict to_dict(const Parameters& parameters) {
  nb::dict all;
  for (const auto& [name, value] : parameters) all[name.c_str()] = value;
  return all;
}

nb::dict to_dict(const EngineEstimate& estimate) {
  nb::dict all, work;
  all["engine"] = estimate.engine.c_str();
  all["parameters"] = to_dict(estimate.parameters);
  all["ns"] = estimate.ns;
  all["is_measured"] = estimate.is_measured;
  all["n_bytes"] = estimate.n_bytes;
  for (const auto& [name, amount] : estimate.work) work[name.c_str()] = amount;
  all["work"] = work;
  return all;
}

nb::dict to_dict(const CallCost& cost) {
  nb::dict all;
  all["ns"] = cost.ns;
  all["event_ns"] = cost.event_ns;
  return all;
}

nb::dict to_dict(const DeviceReasons& device) {
  nb::dict all;
  all["engine"] = device.engine.c_str();
  all["why_not"] = device.why_not.c_str();
  all["least_events"] = device.least_events;
  all["here"] = device.is_measured ? nb::object(to_dict(device.here)) : nb::none();
  all["there"] = device.is_measured ? nb::object(to_dict(device.there)) : nb::none();
  all["n_index_bytes"] = device.n_index_bytes;
  return all;
}

nb::dict to_dict(const SegmentReasons& segment) {
  nb::dict all;
  all["n_filters"] = segment.n_filters;
  all["is_indexed"] = segment.is_indexed;
  all["is_planned"] = segment.is_planned;
  all["n_events"] = segment.n_events;
  all["is_guess"] = segment.is_guess;
  all["n_attributes"] = segment.n_attributes;
  all["positions"] = segment.positions;
  all["to_subscribers"] = segment.to_subscribers;
  all["n_matches"] = segment.n_matches;
  all["planning_s"] = segment.planning_s;
  all["best_ns"] = segment.best_ns;
  all["best_single_ns"] = segment.best_single_ns;
  nb::list groups;
  for (const GroupReasons& each : segment.groups) {
    nb::dict group;
    group["filters"] = each.filters.c_str();
    group["engine"] = each.engine.c_str();
    group["parameters"] = to_dict(each.parameters);
    group["n_filters"] = each.n_filters;
    group["n_index_bytes"] = each.n_index_bytes;
    group["n_trial_filters"] = each.n_trial_filters;
    nb::list estimates;
    for (const EngineEstimate& estimate : each.estimates) estimates.append(to_dict(estimate));
    group["estimates"] = estimates;
    group["device"] = each.device ? nb::object(to_dict(*each.device)) : nb::none();
    groups.append(group);
  }
  all["groups"] = groups;
  return all;
}

nb::dict to_dict(const FilterSummary& summary) {
  nb::dict all;
  all["n_filters"] = summary.n_filters;
  nb::dict attributes;
  for (const AttributeSummary& each : summary.attributes) {
    nb::dict attribute;
    attribute["numbers"] = each.accepts_numbers;
    attribute["strings"] = each.accepts_strings;
    attribute["booleans"] = each.accepts_booleans;
    attribute["n_needing"] = each.n_needing;
    attribute["low"] = each.low;
    attribute["high"] = each.high;
    attributes[each.name.c_str()] = attribute;
  }
  all["attributes"] = attributes;
  all["n_with_area"] = summary.n_with_area;
  all["box"] = nb::make_tuple(summary.min_x, summary.min_y, summary.max_x, summary.max_y);
  all["max_radius"] = summary.max_radius;
  return all;
}

// Matches a table. Each task encodes the rows that it matches: the rows of a large table, as
// engines read them, would have left the cache before they are matched, or be written by another
// thread.
MatchResult match_stream(const Matcher& matcher, const View& view, nb::handle capsule,
                         nb::handle position, nb::handle deliver, nb::handle output) {
  constexpr std::size_t kLeastRows = 16384;
  const MatchOptions options{to_output(output), to_deliver(deliver)};
  const PositionNames names = to_position_names(position);
  const EventStream stream(capsule);
  const nb::gil_scoped_release released;
  const MatcherOptions& own = matcher.options();
  if (stream.n_rows() >= kLeastRows && !own.counts_hits) {
    try {
      return matcher.match_parts(
          view, stream.n_rows(),
          [&](std::size_t begin, std::size_t end, EventBatch& batch) {
            stream.encode(begin, end, view.names(), names, batch);
          },
          options);
    } catch (const EventError&) {
      // A part does not know its place in the table: the whole says which row is bad.
    }
  }
  EventBatch all;
  stream.encode(view.names(), names, all);
  return matcher.match(view, all, options);
}

nb::object encode_json(const Matcher&, const View& view, nb::handle data, nb::handle position,
                       bool skip_bad_lines) {
  Py_buffer buffer;
  std::string_view text;
  const bool is_str = PyUnicode_Check(data.ptr());
  if (is_str) {
    text = utf8_of<EventError>(data.ptr(), "JSON lines");
  } else {
    if (PyObject_GetBuffer(data.ptr(), &buffer, PyBUF_SIMPLE) != 0) {
      PyErr_Clear();
      throw ArgumentTypeError("JSON lines must be a str or bytes, not " +
                              std::string(Py_TYPE(data.ptr())->tp_name));
    }
    text = {static_cast<const char*>(buffer.buf), static_cast<std::size_t>(buffer.len)};
  }
  const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> guard(
      is_str ? nullptr : &buffer, [](Py_buffer* held) { PyBuffer_Release(held); });
  JsonOptions options{to_position_names(position), skip_bad_lines};
  JsonResult result;
  {
    const nb::gil_scoped_release released;
    result = decode_json_lines(text, view.names(), options);
  }
  nb::list errors;
  for (const LineError& error : result.errors) {
    errors.append(nb::make_tuple(error.line, error.reason.c_str()));
  }
  std::vector<std::int64_t> lines(result.lines.begin(), result.lines.end());
  return nb::make_tuple(std::make_shared<EventBatch>(std::move(result.events)),
                        to_numpy(std::move(lines)), errors, result.n_errors);
}

}  // namespace

void bind_matcher(nb::module_& module) {
  bind_result(module);
  nb::class_<View>(module, "View");
  nb::class_<Matcher>(module, "Matcher")
      .def(
          "__init__",
          [](Matcher* self, const std::string& engine, std::optional<std::string> space,
             std::size_t threads, bool count_matches,
             const std::map<std::string, double>& parameters, std::optional<std::string> path,
             bool create, const std::string& sync, bool read_only, bool verify) {
            MatcherOptions options;
            options.engine = engine;
            if (space == "earth") {
              options.space = Space::earth;
            } else if (space == "plane") {
              options.space = Space::plane;
            } else if (space) {
              throw ArgumentError("space must be 'plane' or 'earth', not '" + *space + "'");
            }
            options.n_threads = threads;
            options.counts_hits = count_matches;
            options.parameters = parameters;
            if (path) {
              options.storage = {*path, create, to_sync_policy(sync), read_only, verify};
            }
            const nb::gil_scoped_release released;
            new (self) Matcher(options);
          },
          nb::arg("engine"), nb::arg("space").none(), nb::arg("threads"), nb::arg("count_matches"),
          nb::arg("parameters"), nb::arg("path").none(), nb::arg("create"), nb::arg("sync"),
          nb::arg("read_only"), nb::arg("verify"))
      .def_prop_ro("space",
                   [](const Matcher& matcher) {
                     return matcher.space() == Space::plane ? "plane" : "earth";
                   })
      .def(
          "_save",
          [](Matcher& matcher, const std::string& path) {
            const nb::gil_scoped_release released;
            matcher.save(path);
          },
          nb::arg("path"))
      .def(
          "checkpoint",
          [](Matcher& matcher) {
            const nb::gil_scoped_release released;
            matcher.checkpoint();
          },
          "Rewrites the directory so that it holds what lives, and nothing else. This also happens "
          "by itself in the background when the logs have grown.")
      .def(
          "close",
          [](Matcher& matcher) {
            const nb::gil_scoped_release released;
            matcher.close();
          },
          "Syncs what was changed and lets go of the directory; no change is possible afterwards.")
      .def("subscribe", &subscribe_one,
           nb::sig("def subscribe(self, id: int | str, predicate: str, *, subscriber: int | str | "
                   "None = None) -> None"),
           nb::arg("id").none(), nb::arg("predicate"), nb::kw_only(),
           nb::arg("subscriber").none() = nb::none(),
           "Adds a subscription, or replaces the one that has this id.")
      .def("_subscribe_arrow", &subscribe_arrow,
           nb::sig("def _subscribe_arrow(self, stream: object, /) -> list[tuple[int, Exception]]"))
      .def(
          "unsubscribe",
          [](Matcher& matcher, nb::handle id) {
            const IdView view = to_id(id, "id");
            const nb::gil_scoped_release released;
            matcher.unsubscribe({&view, 1});
          },
          nb::arg("id").none(), nb::sig("def unsubscribe(self, id: int | str) -> None"),
          "Removes a subscription; an unknown id is an UnknownIdError.")
      .def(
          "unsubscribe_many",
          [](Matcher& matcher, nb::handle ids) {
            if (PyUnicode_Check(ids.ptr()) || !nb::isinstance<nb::iterable>(ids)) {
              throw ArgumentTypeError("ids must be a list of ids, not " +
                                      nb::cast<std::string>(nb::repr(ids)));
            }
            std::vector<nb::object> kept;
            std::vector<IdView> views;
            for (nb::handle id : ids) {
              kept.push_back(nb::borrow(id));
              views.push_back(to_id(id, "id"));
            }
            const nb::gil_scoped_release released;
            matcher.unsubscribe(views);
          },
          nb::arg("ids").none(),
          nb::sig("def unsubscribe_many(self, ids: collections.abc.Iterable[int] | "
                  "collections.abc.Iterable[str]) -> None"),
          "Removes subscriptions, all or none.")
      .def("match", &match_one,
           nb::sig("def match(self, event: Mapping[str, object], *, at: tuple[float, float] | None "
                   "= None, deliver: str = 'subscriptions') -> list[int] | list[str]"),
           nb::arg("event").none(), nb::kw_only(), nb::arg("at").none() = nb::none(),
           nb::arg("deliver").none() = "subscriptions",
           "The ids of the subscriptions (or subscribers) that the event satisfies, each once.")
      .def(
          "_match_batch",
          [](Matcher& matcher, const EventBatch& events, nb::handle deliver, nb::handle output) {
            const MatchOptions options{to_output(output), to_deliver(deliver)};
            const nb::gil_scoped_release released;
            return matcher.match(matcher.view(), events, options);
          },
          nb::arg("events").none(), nb::arg("deliver").none(), nb::arg("output").none())
      .def("_view", &view_of, "The state with all changes so far.")
      .def(
          "_match_view",
          [](Matcher& matcher, const View& view, const EventBatch& events, nb::handle deliver,
             nb::handle output) {
            const MatchOptions options{to_output(output), to_deliver(deliver)};
            const nb::gil_scoped_release released;
            return matcher.match(view, events, options);
          },
          nb::arg("view"), nb::arg("events").none(), nb::arg("deliver").none(),
          nb::arg("output").none())
      .def("_match_stream", &match_stream, nb::arg("view"), nb::arg("capsule"),
           nb::arg("position").none(), nb::arg("deliver").none(), nb::arg("output").none())
      .def(
          "_encode_dicts",
          [](const Matcher&, const View& view, nb::handle events, nb::handle position) {
            return encode_dicts(events, view.names(), to_position_names(position));
          },
          nb::arg("view"), nb::arg("events").none(), nb::arg("position").none())
      .def(
          "_encode_stream",
          [](const Matcher&, const View& view, nb::handle capsule, nb::handle position) {
            return encode_stream(capsule, view.names(), to_position_names(position));
          },
          nb::arg("view"), nb::arg("capsule"), nb::arg("position").none())
      .def("_encode_json", &encode_json,
           nb::sig("def _encode_json(self, view: View, data: str | bytes, position: tuple[str, "
                   "str] | None, skip_bad_lines: bool) -> tuple[EventBatch, NDArray[numpy.int64], "
                   "list[tuple[int, str]], int]"),
           nb::arg("view"), nb::arg("data").none(), nb::arg("position").none(),
           nb::arg("skip_bad_lines"))
      .def(
          "flush",
          [](Matcher& matcher) {
            const nb::gil_scoped_release released;
            matcher.flush();
          },
          "Waits until every change is indexed.")
      .def(
          "_move",
          [](Matcher& matcher, nb::handle id, double x, double y,
             std::optional<std::uint32_t> area) {
            const Move row{to_id(id, "id"), x, y, area};
            std::vector<RowError> errors;
            {
              const nb::gil_scoped_release released;
              errors = matcher.move({&row, 1});
            }
            if (errors.empty()) return;
            if (!matcher.contains(row.id)) throw UnknownIdError(errors[0].reason);
            throw ArgumentError("subscription " + to_text(row.id) + ": " + errors[0].reason);
          },
          nb::arg("id").none(), nb::arg("x"), nb::arg("y"), nb::arg("area").none())
      .def("_move_arrow", &move_arrow,
           nb::sig("def _move_arrow(self, stream: object, /) -> list[tuple[int, Exception]]"))
      .def(
          "_top",
          [](const Matcher& matcher, std::size_t n) {
            nb::list all;
            for (const Matcher::Hits& each : matcher.top(n)) {
              all.append(
                  nb::make_tuple(to_python({each.type, each.integer, each.string}), each.n_hits));
            }
            return all;
          },
          nb::arg("n"), nb::sig("def _top(self, n: int) -> list[tuple[int | str, int]]"))
      .def(
          "_stats", [](const Matcher& matcher) { return to_dict(matcher.stats()); },
          nb::sig("def _stats(self) -> dict[str, object]"))
      .def(
          "_plan",
          [](const Matcher& matcher) {
            nb::list all;
            for (const SegmentReasons& segment : matcher.plan()) all.append(to_dict(segment));
            return all;
          },
          nb::sig("def _plan(self) -> list[dict[str, object]]"))
      .def(
          "_summary",
          [](Matcher& matcher) {
            FilterSummary summary;
            {
              const nb::gil_scoped_release released;
              matcher.flush();
              summary = summarize(matcher.view());
            }
            return to_dict(summary);
          },
          "What its filters ask of events, all in all.",
          nb::sig("def _summary(self) -> dict[str, object]"))
      .def("__len__", &Matcher::size)
      .def(
          "__contains__",
          [](const Matcher& matcher, nb::handle id) {
            try {
              return matcher.contains(to_id(id, "id"));
            } catch (const Error&) {  // what cannot be an id is not there
              return false;
            }
          },
          nb::arg("id").none())
      .def(
          "__getitem__",
          [](const Matcher& matcher, nb::handle id) { return matcher.predicate(to_id(id, "id")); },
          nb::arg("id").none())
      .def(
          "__iter__",
          [](const Matcher& matcher) -> nb::object {
            nb::list all;
            if (matcher.id_type() == IdType::integer) {
              for (const std::int64_t id : matcher.integer_ids()) all.append(nb::int_(id));
            } else {
              for (const std::string& id : matcher.string_ids()) {
                all.append(nb::str(id.data(), id.size()));
              }
            }
            return nb::iter(all);
          },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[int] | "
                  "collections.abc.Iterator[str]"));
}

}  // namespace tamis
