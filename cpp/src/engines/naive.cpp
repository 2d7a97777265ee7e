// `naive`: evaluates every filter on every event, on typed values.
//
// The filter table is the index: constraints of a filter stand side by side and are tested in order
// until one fails. It shares nothing with cleverer engines but the table itself, which is why
// benchmarks check their answers with it.
//
// Cost: n filters, n to n * constraints-per-filter tests an event.
#include "naive.hpp"

namespace tamis {
namespace {

class NaiveScratch final : public Scratch {
 public:
  ValueByAttribute event;
};

class NaiveIndex final : public Index {
 public:
  explicit NaiveIndex(std::shared_ptr<const FilterTable> table) : table_(std::move(table)) {}

  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<NaiveScratch>();
  }

  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override {
    match_naive(*table_, static_cast<FilterIdx>(table_->size()), table_->n_attributes(), events,
                begin, end, static_cast<NaiveScratch&>(scratch).event, out);
  }

  std::size_t n_bytes() const override { return sizeof(*this); }

 private:
  std::shared_ptr<const FilterTable> table_;
};

}  // namespace

void match_naive(const FilterTable& table, FilterIdx n_filters, std::size_t n_attributes,
                 const EventBatch& events, std::size_t begin, std::size_t end,
                 ValueByAttribute& event, Collector& out) {
  std::uint64_t n_constraints = 0;
  std::uint64_t n_candidates = 0;
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    event.load(events, each, n_attributes, table.space());
    for (FilterIdx idx = 0; idx < n_filters; ++idx) {
      const FilterTable::Filter& filter = table.filter(idx);
      bool is_match = true;
      for (std::uint32_t at = 0; is_match && at < filter.constraints.count; ++at) {
        const Constraint& constraint = table.constraint(filter.constraints.first + at);
        is_match = table.accepts(constraint, event[constraint.attribute]);
        ++n_constraints;
      }
      if (!is_match) continue;
      ++n_candidates;
      if (!out.has(idx) && table.verify_rest(filter, event)) out.add(idx);
    }
  }
  out.counters.filters += (end - begin) * n_filters;
  out.counters.constraints += n_constraints;
  out.counters.candidates += n_candidates;
}

std::unique_ptr<Index> build_naive(std::shared_ptr<const FilterTable> table, const Parameters&) {
  return std::make_unique<NaiveIndex>(std::move(table));
}

std::unique_ptr<Index> open_naive(std::shared_ptr<const FilterTable> table, const Parameters&,
                                  const SectionReader&) {
  return std::make_unique<NaiveIndex>(std::move(table));
}

}  // namespace tamis
