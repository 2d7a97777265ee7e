#include "columns.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/comparison.hpp"

namespace tamis::cuda {
namespace {

std::int16_t known_length(std::size_t length) {
  return static_cast<std::int16_t>(std::min<std::size_t>(length, kLongString));
}

struct Operation {
  std::uint8_t op = 0;
  std::uint64_t operand = 0;
  bool is_decided = true;
};

Operation operation_of(const FilterTable& table, const Constraint& constraint,
                       std::vector<Interval>& intervals) {
  const Comparison comparison = comparison_of(table, constraint);
  if (comparison.orders != 0 && comparison.is_string) {
    const std::int16_t length = known_length(comparison.text.size());
    return {static_cast<std::uint8_t>(kStringOperand | length << kOperandShift | comparison.orders),
            string_key(comparison.text), length != kLongString};
  }
  if (comparison.orders != 0) {
    return {static_cast<std::uint8_t>(kNumberOperand | comparison.orders),
            std::bit_cast<std::uint64_t>(comparison.number), true};
  }
  Range numbers{constraint.set, 1};
  if (!constraint.is_interval()) {
    const GeneralSet& set = table.general(constraint);
    if (set.flags != 0 || set.strings.count > 0 || set.patterns.count > 0) {
      return {kUndecided, 0, false};
    }
    numbers = set.numbers;
  }
  const std::uint64_t first = intervals.size();
  for (std::uint32_t at = 0; at < numbers.count; ++at) {
    const NumberRange& range = table.number(numbers.first + at);
    intervals.push_back({range.low, range.high, range.low_fine, range.high_fine});
  }
  return {kIntervalsOperand, first | std::uint64_t{numbers.count} << 32, true};
}

InputLine line_of(const EventValue& value) {
  InputLine line{};
  if (value.kind == Kind::number) {
    line.key = std::bit_cast<std::uint64_t>(value.nearest);
    line.fine = value.residue;
    line.kind = kNumberValue;
  } else if (value.kind == Kind::string) {
    line.key = string_key(value.string());
    line.fine = known_length(value.length);
    line.kind = kStringValue;
  }
  return line;
}

}  // namespace

DeviceColumns::DeviceColumns(const FilterTable& table, NameTables& names, Stream stream) {
  const std::vector<std::uint32_t> constraints = names.take_constraints();
  const std::vector<std::uint32_t> places = names.places();
  undecided_.resize(names.infos().size());
  std::vector<std::uint8_t> operators(constraints.size());
  std::vector<std::uint64_t> operands(constraints.size());
  std::vector<Interval> intervals;
  for (std::size_t at = 0; at < constraints.size(); ++at) {
    const Operation operation = operation_of(table, table.constraint(constraints[at]), intervals);
    operators[at] = operation.op;
    operands[at] = operation.operand;
    if (!operation.is_decided) undecided_[places[at]] = true;
  }
  const auto copied = [&](const auto& items) { return to_device(std::span(items), stream); };
  blooms_ = copied(names.blooms());
  operators_ = copied(std::as_const(operators));
  operands_ = copied(std::as_const(operands));
  filters_ = copied(places);
  intervals_ = copied(std::as_const(intervals));
  names.drop_columns();
}

void InputParts::add(const NameSelection& selection, std::size_t event) {
  blooms_[event] = selection.bloom;
  for (const NameSelection::Line& row : selection.lines) {
    InputLine line = line_of(selection.values[row.value_idx].value);
    line.first_constraint = row.begin;
    line.n_constraints = row.end - row.begin;
    line.event = static_cast<std::uint8_t>(event);
    lines_.push_back(line);
  }
}

void InputParts::finish() {
  while (inputs_.size() < n_parts()) inputs_.emplace_back(1);
  for (std::size_t idx = 0; idx < n_parts(); ++idx) {
    Input& input = *inputs_[idx].data();
    const std::size_t first = idx * kMostLines;
    const std::size_t n_lines = std::min(kMostLines, lines_.size() - first);
    std::memcpy(input.blooms, blooms_.data(), sizeof input.blooms);
    std::memcpy(input.lines, lines_.data() + first, n_lines * sizeof(InputLine));
  }
}

InputParts::Part InputParts::part(std::size_t idx) const {
  const std::size_t first = idx * kMostLines;
  const std::size_t end = std::min(first + kMostLines, lines_.size());
  std::uint32_t longest = 0;
  for (std::size_t at = first; at < end; ++at)
    longest = std::max(longest, lines_[at].n_constraints);
  return {*inputs_[idx].data(), static_cast<std::uint32_t>(end - first), longest};
}

}  // namespace tamis::cuda
