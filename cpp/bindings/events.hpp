// Encoders of Python objects, for the matcher's binding.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "bindings.hpp"
#include "tamis/encode.hpp"

namespace tamis {

// Adds one event, a dict of attributes. Attributes that nobody mentions are not looked at.
void encode_dict(nb::handle event, const Names& names, EventBatch& batch);
std::optional<std::pair<double, double>> to_position(nb::handle at);

std::shared_ptr<EventBatch> encode_dicts(nb::handle events, const Names& names,
                                         const PositionNames& position);
// From an arrow_array_stream capsule; the GIL is released for the work.
std::shared_ptr<EventBatch> encode_stream(nb::handle capsule, const Names& names,
                                          const PositionNames& position);
PositionNames to_position_names(nb::handle position);

}  // namespace tamis
