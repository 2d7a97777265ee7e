// `naive`: evaluates every filter on every event, on typed values.
//
// The filter table is the index: constraints of a filter stand side by side and are tested in order
// until one fails. It shares nothing with cleverer engines but the table itself, which is why
// benchmarks check their answers with it.
//
//     firsts_  [n]  a copy of each filter's first constraint, 8 bytes
//     table         everything else
//
// A block of filters at a time: first all those whose first constraint lacks its attribute are
// dropped, without a jump, then the others are fetched into the cache, then evaluated. Evaluating
// each filter at once waits for memory at every one whose attribute is there, and took twice
// as long on pcm-default (2.2 and 1.05 ms an event on a busy 2-core Xeon, 2026-11-15).
//
// Cost: n filters, n to n * constraints-per-filter tests an event.
#include "naive.hpp"

#include <algorithm>
#include <array>

#include "tamis/prefetch.hpp"

namespace tamis {
namespace {

constexpr Constraint kNoConstraint{.attribute = 0, .set = Constraint::kOptional};
constexpr FilterIdx kBlock = 256;  // filters

// The filter from its constraint number `at` on; those before it hold.
inline void evaluate(const FilterTable& table, FilterIdx idx, std::uint32_t at,
                     const ValueByAttribute& event, Counters& counters, Collector& out) {
  const FilterTable::Filter& filter = table.filter(idx);
  for (; at < filter.constraints.count; ++at) {
    const Constraint& constraint = table.constraint(filter.constraints.first + at);
    ++counters.constraints;
    if (!table.accepts(constraint, event[constraint.attribute])) return;
  }
  ++counters.candidates;
  if (!out.has(idx) && table.verify_rest(filter, event)) out.add(idx);
}

class NaiveScratch final : public Scratch {
 public:
  ValueByAttribute event;
};

class NaiveIndex final : public Index {
 public:
  NaiveIndex(std::shared_ptr<const FilterTable> table, Column<Constraint> firsts)
      : table_(std::move(table)), firsts_(std::move(firsts)) {}
  explicit NaiveIndex(std::shared_ptr<const FilterTable> table) : table_(std::move(table)) {
    firsts_.reserve(table_->size());
    for (FilterIdx idx = 0; idx < table_->size(); ++idx) {
      const Range& constraints = table_->filter(idx).constraints;
      firsts_.push_back(constraints.count > 0 ? table_->constraint(constraints.first)
                                              : kNoConstraint);
    }
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<NaiveScratch>();
  }

  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override {
    const FilterTable& table = *table_;
    const std::size_t n_attributes = std::max<std::size_t>(1, table.n_attributes());
    ValueByAttribute& event = static_cast<NaiveScratch&>(scratch).event;
    const auto n_filters = static_cast<FilterIdx>(firsts_.size());
    std::array<FilterIdx, kBlock> present;
    Counters counters;
    for (std::size_t each = begin; each < end; ++each) {
      out.begin_event();
      event.load(events, each, n_attributes, table.space());
      for (FilterIdx block = 0; block < n_filters; block += kBlock) {
        const FilterIdx block_end = std::min(n_filters, block + kBlock);
        std::size_t n_present = 0;
        for (FilterIdx idx = block; idx < block_end; ++idx) {
          const Constraint& first = firsts_[idx];
          present[n_present] = idx;
          n_present += event.has(first.attribute) | !first.needs_attribute();
        }
        for (std::size_t at = 0; at < n_present; ++at) {
          const Constraint& first = firsts_[present[at]];
          prefetch_line(&table.filter(present[at]));
          if (first.is_interval()) prefetch_line(&table.number(first.set));
        }
        for (std::size_t at = 0; at < n_present; ++at) {
          const Constraint& first = firsts_[present[at]];
          if (first.set == kNoConstraint.set || table.accepts(first, event[first.attribute])) {
            evaluate(table, present[at], 1, event, counters, out);
          }
        }
        counters.constraints += block_end - block;
        counters.cells += n_present;
      }
      counters.filters += n_filters;
    }
    out.counters += counters;
  }

  std::size_t n_bytes() const override { return sizeof(*this) + firsts_.n_bytes(); }
  void save(SectionWriter& sections) const override { sections.write("firsts", firsts_); }

 private:
  std::shared_ptr<const FilterTable> table_;
  Column<Constraint> firsts_;  // [n_filters]
};

}  // namespace

std::unique_ptr<Index> build_naive(std::shared_ptr<const FilterTable> table, const Parameters&) {
  return std::make_unique<NaiveIndex>(std::move(table));
}

std::unique_ptr<Index> open_naive(std::shared_ptr<const FilterTable> table, const Parameters&,
                                  const SectionReader& sections) {
  return std::make_unique<NaiveIndex>(std::move(table), sections.column<Constraint>("firsts"));
}

}  // namespace tamis
