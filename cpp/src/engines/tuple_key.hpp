#pragma once

#include <memory>
#include <span>

#include "tamis/engine.hpp"

namespace tamis {

extern const std::span<const Parameter> kTupleKeyParameters;

std::unique_ptr<Index> build_tuple_key(std::shared_ptr<const FilterTable> table,
                                       const Parameters& parameters);
std::unique_ptr<Index> open_tuple_key(std::shared_ptr<const FilterTable> table,
                                      const Parameters& parameters, const SectionReader& sections);

}  // namespace tamis
