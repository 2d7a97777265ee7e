// Events as the filters let one expect them, for a matcher that has seen none.
#pragma once

#include "tamis/filter_table.hpp"

namespace tamis {

// The guess: where filters constrain a fourth of all attributes or more, events have all of them;
// otherwise one and a half times as many as a filter constrains. Attributes are as frequent as in
// the filters, and values are among those that some filter accepts. Where filters have areas,
// events lie in one or near it. Always the same for the same filters.
EventBatch guess_events(const FilterTable& table, std::size_t n_events);

}  // namespace tamis
