// The answer of a matcher for one event at a place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tamis/matcher.hpp"

namespace tamis::testing {

// The ids of what matches an event there all of whose attributes have the value, in order.
inline std::vector<std::int64_t> ids_at(const Matcher& matcher, double x, double y,
                                        std::int64_t value = 1) {
  const View view = matcher.view();
  EventBatch events;
  events.encode_for(view.names());
  for (AttributeId attribute = 0; attribute < view.names().size(); ++attribute) {
    events.add(attribute, EventValue::of(value));
  }
  events.add_position(x, y);
  events.end_event();
  const MatchResult result = matcher.match(view, events, {});
  std::vector<std::int64_t> ids;
  for (const std::uint32_t target : result.targets) ids.push_back(result.id(target).integer);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace tamis::testing
