#pragma once

#include "tamis/engine.hpp"

namespace tamis {

std::unique_ptr<Index> build_naive(std::shared_ptr<const FilterTable> table, const Parameters&);
std::unique_ptr<Index> open_naive(std::shared_ptr<const FilterTable> table, const Parameters&,
                                  const SectionReader&);

}  // namespace tamis
