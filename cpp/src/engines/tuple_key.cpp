// `tuple-key`: each filter stands under one key of up to three terms, and an event looks up the
// keys that it has.
//
// Ours; no paper. A term is "attribute present" or "attribute = value"; which terms make a filter's
// key is decided by estimated cost (tuple_key/planner.hpp). Few filters share a key with an event
// by chance, so that little is left to test, and a test is one step of SIMD on a dense record.
//
//     event ─► ranks ─► terms by group ─► hashes of all keys      (tuple_key/key_index.hpp)
//                                           │ bitmap with counts: is there such a key?
//                                           ▼
//     starts    │ …  │ …  │                 where its records begin
//                 ▼
//     records   │ always … │ filter lanes │ filter lanes │ …      (tuple_key/kernels.hpp)
//
// or, in a plan with guards, in a list: two more terms of each filter, which the event must have
// before its record is fetched.
//
// Before that, if few subscribers are all that matters: the filters that accept most events
// (tuple_key/likely.hpp).
//
// Records lie in the order of a plan's keys, so that those of one key are neighbours; a further
// plan for events of other widths has copies in its own order, or, where records are large, entries
// that refer to them. Filters without any term (IS NULL, areas alone, TRUE) are at the front and
// are tested for each event. An event that would probe more keys than there are filters tests all
// records instead.
//
// Invariants: a filter that accepts an event has its key among the event's keys, in each plan;
// records decide, names and all, and what lanes cannot say the filter table decides.
//
// Cost: see docs/engines/tuple-key.md.
#include "engines/tuple_key.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "engines/tuple_key/index.hpp"
#include "tamis/error.hpp"
#include "tamis/huge_pages.hpp"

namespace tamis {
namespace tuple_key {
namespace {

constexpr double kMostRecordBytes = 18;  // for a constraint, of all copies of records

}  // namespace

TupleKeyIndex::TupleKeyIndex(std::shared_ptr<const FilterTable> table,
                             const Planner::Settings& settings)
    : table_(std::move(table)), ranks_(*table_) {
  RecordEncoder encoder(*table_, ranks_);
  const std::size_t n_filters = table_->size();
  header_.lane_bytes = encoder.lane_bytes();
  std::uint64_t n_units = 0;
  for (FilterIdx filter = 0; filter < n_filters; ++filter) {
    if (!encoder.is_impossible(filter)) n_units += encoder.size_of(filter);
  }
  const Planner planner(
      encoder.terms(), table_->n_attributes(),
      8.0 * static_cast<double>(n_units) / static_cast<double>(std::max<std::size_t>(1, n_filters)),
      settings);

  // A further plan has its own copies of records, in its own order, where memory allows.
  const std::size_t n_plans = planner.plans().size();
  const double bytes_of_copy =
      8.0 * static_cast<double>(n_units) /
      static_cast<double>(std::max<std::size_t>(1, table_->n_constraints()));
  const std::size_t n_copies =
      std::clamp(static_cast<std::size_t>(kMostRecordBytes / std::max(1.0, bytes_of_copy)),
                 std::size_t{1}, n_plans);
  if (n_units * n_copies >= std::uint64_t{1} << 32) {
    throw ArgumentError("a segment of engine tuple-key must not exceed 32 GiB of records");
  }
  std::vector<std::uint64_t> records;
  records.reserve(n_units * n_copies + kRecordPadding / 8);
  advise_huge_pages(records.data(), records.capacity() * sizeof records[0]);
  records.resize(records.capacity());
  std::vector<std::uint32_t> record_at(n_filters);
  std::uint32_t at = 0;
  const auto write = [&](FilterIdx filter) {
    encoder.write(filter, records.data() + at);
    record_at[filter] = at;
    at += encoder.size_of(filter);
  };
  for (FilterIdx filter = 0; filter < n_filters; ++filter) {
    if (encoder.terms()[filter].empty() && !encoder.is_impossible(filter)) write(filter);
  }
  header_.always_end = at;
  std::vector<std::uint32_t> order;
  for (std::size_t each = 0; each < n_plans; ++each) {
    plans_.emplace_back(planner, planner.plans()[each], encoder.terms(), table_->n_attributes(),
                        order);
    // Behind guards so few records are tested that their order does not matter.
    const bool is_in_order = each < n_copies && !plans_.back().has_guards();
    if (is_in_order || each == 0) {
      for (const std::uint32_t filter : order) write(filter);
    }
    plans_.back().place_records(order, record_at, at, is_in_order);
    if (each == 0) header_.records_end = at;
  }
  likely_ = LikelyFilters(planner, *table_, ranks_, encoder.terms());
  header_.n_plans = static_cast<std::uint32_t>(plans_.size());
  slots_ = std::move(encoder.slots);
  defaults_ = std::move(encoder.defaults);
  records_ = std::move(records);
  plan_of_width_ = planner.plan_of_width();
}

TupleKeyIndex::TupleKeyIndex(std::shared_ptr<const FilterTable> table,
                             const SectionReader& sections)
    : table_(std::move(table)),
      ranks_(*table_, sections),
      slots_(sections.column<AttributeSlots>("tuple_key/slots")),
      defaults_(sections.column<std::uint32_t>("tuple_key/defaults")),
      records_(sections.column<std::uint64_t>("tuple_key/records")),
      plan_of_width_(sections.column<std::uint8_t>("tuple_key/plan_of_width")) {
  const std::span<const Header> header = sections.span<Header>("tuple_key/header");
  if (header.size() != 1 || slots_.size() != table_->n_attributes() || plan_of_width_.empty() ||
      records_.size() * 8 < header[0].records_end * std::size_t{8} + kRecordPadding) {
    throw Error("the index of engine tuple-key must be that of its table, not of another");
  }
  header_ = header[0];
  for (std::uint32_t plan = 0; plan < header_.n_plans; ++plan) {
    plans_.emplace_back(sections, "tuple_key/plan" + std::to_string(plan) + "/");
  }
  likely_ = LikelyFilters(sections, table_->n_attributes());
}

void TupleKeyIndex::save(SectionWriter& sections) const {
  ranks_.save(sections);
  sections.write("tuple_key/slots", slots_);
  sections.write("tuple_key/defaults", defaults_);
  sections.write("tuple_key/records", records_);
  sections.write("tuple_key/plan_of_width", plan_of_width_);
  sections.write("tuple_key/header", &header_, sizeof header_);
  for (std::size_t plan = 0; plan < plans_.size(); ++plan) {
    plans_[plan].save(sections, "tuple_key/plan" + std::to_string(plan) + "/");
  }
  likely_.save(sections);
}

std::size_t TupleKeyIndex::n_bytes() const {
  std::size_t n_all = sizeof(*this) + ranks_.n_bytes() + slots_.n_bytes() + defaults_.n_bytes() +
                      records_.n_bytes() + plan_of_width_.n_bytes() + likely_.n_bytes();
  for (const KeyIndex& plan : plans_) n_all += sizeof(plan) + plan.n_bytes();
  return n_all;
}

}  // namespace tuple_key

namespace {

constexpr Parameter kParameters[] = {
    {"event_attributes", 0, 0, 1e6, "attributes of an event, on average; 0: not known"},
    {"key_terms", 3, 1, 3, "terms of a key, at most"},
    {"groups", 0, 0, 16, "groups of attributes that a key must not cross; 0: by cost"},
    {"guards", 0, 0, 2, "two more terms beside each key's filters; 0: by cost; 1: no; 2: yes"},
};

std::uint32_t whole(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine tuple-key must be a whole number, not " +
                        std::to_string(value));
  }
  return static_cast<std::uint32_t>(value);
}

}  // namespace

constinit const std::span<const Parameter> kTupleKeyParameters = kParameters;

std::unique_ptr<Index> build_tuple_key(std::shared_ptr<const FilterTable> table,
                                       const Parameters& parameters) {
  tuple_key::Planner::Settings settings;
  settings.event_attributes = parameters.at("event_attributes");
  settings.key_terms = whole(parameters, "key_terms");
  settings.n_groups = whole(parameters, "groups");
  settings.guards = static_cast<tuple_key::Choice>(whole(parameters, "guards"));
  return std::make_unique<tuple_key::TupleKeyIndex>(std::move(table), settings);
}

std::unique_ptr<Index> open_tuple_key(std::shared_ptr<const FilterTable> table, const Parameters&,
                                      const SectionReader& sections) {
  return std::make_unique<tuple_key::TupleKeyIndex>(std::move(table), sections);
}

}  // namespace tamis
