#pragma once

#include "tamis/engine.hpp"

namespace tamis {

std::unique_ptr<Index> build_naive(std::shared_ptr<const FilterTable> table, const Parameters&);
std::unique_ptr<Index> open_naive(std::shared_ptr<const FilterTable> table, const Parameters&,
                                  const SectionReader&);

// Evaluates the first `n_filters` of a table: what the index does, and how a delta is matched.
void match_naive(const FilterTable& table, FilterIdx n_filters, std::size_t n_attributes,
                 const EventBatch& events, std::size_t begin, std::size_t end,
                 ValueByAttribute& event, Collector& out);

}  // namespace tamis
