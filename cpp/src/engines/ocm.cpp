// `ocm`: Parallel Content Matching on a multicore CPU (papers/000 and 001, sections 3.1 and 3.2).
//
// Filters are divided by a small bit vector of their names, and an event visits the tables whose
// vector is included in its own. There it evaluates the constraints on its names and counts for
// each filter how many hold: a filter with as many as it has constraints matches.
//
//     names_         tables, rows and filters: common/name_tables.hpp. With each constraint:
//     operators_     u8     (ConstrOp)
//     operands_      u64    a double, or a place in one of the side arrays (ConstrVal)
//     Worker::counts u8 [filters of the largest table], 0 between tables (FiltersCount)
//
// What is not counted, areas and residuals are verified when the count is reached; filters without
// a countable constraint are verified for each event.
//
// Cost for an event with K bits: 2^K lookups or a scan over all NameVectors to select the tables;
// for each of them a search for each attribute; a Bloom test for each constraint of these rows, and
// an evaluation for each that passes. docs/engines/ocm.md has the formula.
#include "ocm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/comparison.hpp"
#include "common/name_tables.hpp"
#include "common/thread_pool.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

enum Operator : std::uint8_t {
  // Below: a set of Order; the operand is the double.
  kBetween = 8,   // the operand is a place in ranges_
  kString = 16,   // and a set of Order; the operand is a place in strings_
  kGeneral = 32,  // the operand is a constraint of the filter table
};

struct StringOperand {
  std::uint64_t key = 0;
  std::uint32_t constraint = 0;  // decides where the keys are the same
};

// A value of the event as comparisons need it.
struct PreparedValue {
  NumberKey number;
  std::uint64_t string_key = 0;
};

// What one thread needs to evaluate tables.
struct Worker {
  std::vector<std::uint8_t> counts;    // [filters of the largest table]
  std::vector<std::uint32_t> touched;  // [filters of the largest table] whose count is not 0
  std::size_t n_touched = 0;
  std::vector<std::uint32_t> reached;  // places in infos_ whose count is complete
  std::uint64_t n_blooms = 0, n_evaluated = 0;
};

class OcmScratch final : public Scratch {
 public:
  ValueByAttribute event;
  NameSelection selection;
  std::vector<PreparedValue> values;  // of the selection
  std::vector<Worker> workers;        // [table_threads]
};

class OcmIndex final : public Index {
 public:
  OcmIndex(std::shared_ptr<const FilterTable> table, const NameTables::Settings& settings,
           std::size_t n_workers)
      : table_(std::move(table)), n_workers_(n_workers), names_(*table_, settings) {
    const std::vector<std::uint32_t> constraints = names_.take_constraints();
    operators_.reserve(constraints.size());
    operands_.reserve(constraints.size());
    for (const std::uint32_t constraint : constraints) append_constraint(constraint);
    ranges_.shrink_to_fit();
    strings_.shrink_to_fit();
  }

  std::unique_ptr<Scratch> make_scratch() const override;
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;
  std::size_t n_bytes() const override;

 private:
  using Line = NameSelection::Line;
  using Visit = NameSelection::Visit;
  using FilterInfo = NameTables::FilterInfo;

  void append_constraint(std::uint32_t constraint);
  void prepare(const EventBatch& events, std::size_t event, OcmScratch& scratch) const;
  void evaluate(const OcmScratch& scratch, std::size_t visits_begin, std::size_t visits_end,
                Worker& worker) const;
  void evaluate_row(const Line& line, const PreparedValue& prepared, const EventValue& value,
                    std::uint64_t missing, std::uint32_t first_filter, Worker& worker) const;
  bool accepts_special(std::uint8_t op, std::uint64_t operand, const PreparedValue& prepared,
                       const EventValue& value) const;

  std::shared_ptr<const FilterTable> table_;
  std::size_t n_workers_;
  NameTables names_;
  std::vector<std::uint8_t> operators_;  // [n_counted]
  std::vector<std::uint64_t> operands_;  // [n_counted]
  std::vector<NumberRange> ranges_;      // of kBetween, in the order of rows
  std::vector<StringOperand> strings_;   // of kString, in the order of rows
};

// Operator and operand of a constraint: a comparison where it is one.
void OcmIndex::append_constraint(std::uint32_t idx) {
  const Constraint& constraint = table_->constraint(idx);
  const auto append = [&](unsigned op, std::uint64_t operand) {
    operators_.push_back(static_cast<std::uint8_t>(op));
    operands_.push_back(operand);
  };
  const Comparison comparison = comparison_of(*table_, constraint);
  if (comparison.orders != 0 && comparison.is_string) {
    strings_.push_back({string_key(comparison.text), idx});
    append(kString | comparison.orders, strings_.size() - 1);
  } else if (comparison.orders != 0) {
    append(comparison.orders, std::bit_cast<std::uint64_t>(comparison.number));
  } else if (constraint.is_interval()) {
    ranges_.push_back(table_->number(constraint.set));
    append(kBetween, ranges_.size() - 1);
  } else {
    append(kGeneral, idx);
  }
}

std::unique_ptr<Scratch> OcmIndex::make_scratch() const {
  auto scratch = std::make_unique<OcmScratch>();
  scratch->workers.resize(n_workers_);
  for (Worker& worker : scratch->workers) {
    worker.counts.resize(names_.largest_table());
    worker.touched.resize(names_.largest_table());
  }
  return scratch;
}

// Phases 1 and 2, filter selection and constraint selection.
void OcmIndex::prepare(const EventBatch& events, std::size_t event, OcmScratch& scratch) const {
  scratch.event.load(events, event, table_->n_attributes(), table_->space());
  names_.select(events, event, scratch.selection);
  scratch.values.clear();
  for (const NameSelection::Value& each : scratch.selection.values) {
    const EventValue& value = each.value;
    scratch.values.push_back(
        {NumberKey::of(value), value.kind == Kind::string ? string_key(value.string()) : 0});
  }
}

bool OcmIndex::accepts_special(std::uint8_t op, std::uint64_t operand,
                               const PreparedValue& prepared, const EventValue& value) const {
  if (op == kGeneral) {
    return table_->accepts(table_->constraint(static_cast<std::uint32_t>(operand)), value);
  }
  if (op == kBetween) {
    return value.kind == Kind::number && ranges_[operand].contains(value.number().before());
  }
  if (value.kind != Kind::string) return false;
  const StringOperand& string = strings_[operand];
  if (prepared.string_key != string.key) {
    return (op & (prepared.string_key < string.key ? kLess : kGreater)) != 0;
  }
  return table_->accepts(table_->constraint(string.constraint), value);
}

inline void OcmIndex::evaluate_row(const Line& line, const PreparedValue& prepared,
                                   const EventValue& value, std::uint64_t missing,
                                   std::uint32_t first_filter, Worker& worker) const {
  const NumberKey number = prepared.number;
  const std::uint64_t* const blooms = names_.blooms().data();
  const std::uint32_t* const filter_nos = names_.filter_nos().data();
  const FilterInfo* const infos = names_.infos().data() + first_filter;
  std::uint8_t* const counts = worker.counts.data();
  for (std::uint32_t at = line.begin; at < line.end; ++at) {
    if ((blooms[at] & missing) != 0) continue;
    ++worker.n_evaluated;
    const std::uint8_t op = operators_[at];
    const bool is_accepted =
        op <= kAnyOrder
            ? (op & order_to(number.nearest, number.tie, std::bit_cast<double>(operands_[at]))) != 0
            : accepts_special(op, operands_[at], prepared, value);
    if (!is_accepted) continue;
    const std::uint32_t filter_no = filter_nos[at];
    const std::uint8_t count = ++counts[filter_no];
    if (count == 1) worker.touched[worker.n_touched++] = filter_no;
    if (count == infos[filter_no].size) {
      worker.reached.push_back(first_filter + filter_no);
    }
  }
}

// Phase 3, evaluation and counting, on some of the tables.
void OcmIndex::evaluate(const OcmScratch& scratch, std::size_t visits_begin, std::size_t visits_end,
                        Worker& worker) const {
  const NameSelection& selection = scratch.selection;
  const std::uint64_t missing = ~selection.bloom;
  std::uint32_t line = visits_begin == 0 ? 0 : selection.visits[visits_begin - 1].lines_end;
  for (std::size_t each = visits_begin; each < visits_end; ++each) {
    const Visit& visit = selection.visits[each];
    const std::uint32_t first_filter = names_.tables()[visit.table].first_filter;
    for (; line < visit.lines_end; ++line) {
      const Line& row = selection.lines[line];
      worker.n_blooms += row.end - row.begin;
      evaluate_row(row, scratch.values[row.value_idx], selection.values[row.value_idx].value,
                   missing, first_filter, worker);
    }
    for (std::size_t at = 0; at < worker.n_touched; ++at) worker.counts[worker.touched[at]] = 0;
    worker.n_touched = 0;
  }
}

void OcmIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                     Scratch& given_scratch, Collector& out) const {
  OcmScratch& scratch = static_cast<OcmScratch&>(given_scratch);
  Counters counters;
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    prepare(events, each, scratch);
    const std::size_t n_visits = scratch.selection.visits.size();
    const std::size_t n_tasks = std::min(n_workers_, n_visits);
    if (n_tasks <= 1) {
      evaluate(scratch, 0, n_visits, scratch.workers[0]);
    } else {
      // As OpenMP's static schedule: each thread has a run of tables of the same length.
      parallel_for(n_tasks, n_tasks, [this, &scratch](std::size_t task) {
        const std::size_t n_all = scratch.selection.visits.size();
        const std::size_t n_parts = std::min(n_workers_, n_all);
        evaluate(scratch, task * n_all / n_parts, (task + 1) * n_all / n_parts,
                 scratch.workers[task]);
      });
    }
    counters.filters += names_.n_filters(scratch.selection);
    counters.cells += n_visits;
    for (Worker& worker : scratch.workers) {
      for (const std::uint32_t place : worker.reached) {
        const FilterInfo& info = names_.infos()[place];
        if (out.has(info.filter)) continue;
        if (!info.has_rest || table_->accepts(info.filter, scratch.event)) out.add(info.filter);
      }
      counters.candidates += worker.reached.size();
      counters.bits += std::exchange(worker.n_blooms, 0);
      counters.constraints += std::exchange(worker.n_evaluated, 0);
      worker.reached.clear();
    }
    for (const FilterIdx idx : names_.always()) {
      if (!out.has(idx) && table_->accepts(idx, scratch.event)) out.add(idx);
    }
    counters.filters += names_.always().size();
    counters.candidates += names_.always().size();
  }
  out.counters += counters;
}

std::size_t OcmIndex::n_bytes() const {
  const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  return sizeof(*this) + names_.n_bytes() + bytes(operators_) + bytes(operands_) + bytes(ranges_) +
         bytes(strings_);
}

constexpr Parameter kParameters[] = {
    {"name_vector_bits", 64, 1, 64, "bits of a NameVector, which divides filters into tables"},
    {"filter_selection", 1, 0, 1, "0: all filters in one table"},
    {"table_threads", 1, 1, 256, "threads that share the tables of one event"},
};

std::size_t whole(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine ocm must be a whole number, not " + std::to_string(value));
  }
  return static_cast<std::size_t>(value);
}

}  // namespace

constinit const std::span<const Parameter> kOcmParameters = kParameters;

std::unique_ptr<Index> build_ocm(std::shared_ptr<const FilterTable> table,
                                 const Parameters& parameters) {
  const NameTables::Settings settings{
      .name_vector_bits = whole(parameters, "name_vector_bits"),
      .has_filter_selection = whole(parameters, "filter_selection") != 0};
  return std::make_unique<OcmIndex>(std::move(table), settings, whole(parameters, "table_threads"));
}

}  // namespace tamis
