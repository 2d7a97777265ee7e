#pragma once

#include "tamis/engine.hpp"

namespace tamis {

std::unique_ptr<Index> build_sff(std::shared_ptr<const FilterTable> table, const Parameters&);

}  // namespace tamis
