#include "ranks_on_device.hpp"

#include "engines/tuple_key/items.hpp"

namespace tamis::cuda {

using tuple_key::AttributeSlots;
using tuple_key::kNoSlot;

RanksOnDevice::RanksOnDevice(const FilterTable& table, const Ranks& ranks,
                             const tuple_key::RecordEncoder& encoder, Stream stream)
    : flags_(table.n_attributes()) {
  std::vector<RankedSlot> slots(encoder.defaults.size());
  for (AttributeId attribute = 0; attribute < flags_.size(); ++attribute) {
    const AttributeSlots& of = encoder.slots[attribute];
    if (of.is_used()) flags_[attribute] |= RankedAttribute::kUsed;
    const auto set_slot = [&](std::uint32_t slot, std::uint32_t view) {
      if (slot != kNoSlot) slots[slot] = {attribute | view, encoder.defaults[slot]};
    };
    set_slot(of.all, 0);
    set_slot(of.numbers, 0);
    set_slot(of.strings, RankedSlot::kStrings);
  }
  for (const tuple_key::FilterTerm& term : encoder.terms().terms) {
    flags_[term.attribute] |= RankedAttribute::kTerm;
  }
  bring_attributes(ranks, stream);
  slots_ = to_device(std::span<const RankedSlot>(slots), stream);
}

RanksOnDevice::RanksOnDevice(const Ranks& ranks, const std::vector<bool>& is_used, Stream stream)
    : flags_(is_used.size()) {
  for (AttributeId attribute = 0; attribute < flags_.size(); ++attribute) {
    if (is_used[attribute]) flags_[attribute] |= RankedAttribute::kUsed;
  }
  bring_attributes(ranks, stream);
}

void RanksOnDevice::bring_attributes(const Ranks& ranks, Stream stream) {
  std::vector<RankedAttribute> attributes(flags_.size());
  std::vector<IntegersOf<1>> integers;
  std::vector<std::size_t> integers_at(attributes.size());
  for (AttributeId attribute = 0; attribute < attributes.size(); ++attribute) {
    if (!ranks.has_integer_cuts(attribute)) flags_[attribute] |= RankedAttribute::kHost;
    const IntegerCuts cuts = ranks.integer_cuts(attribute);
    attributes[attribute].cuts = {nullptr, cuts.low, cuts.n_integers, cuts.n_cuts};
    integers_at[attribute] = integers.size();
    for (std::size_t at = 0; at * Integers::kIntegers < cuts.n_integers; ++at) {
      std::uint32_t n_cuts = cuts.integers[at].n_cuts;
      for (std::size_t half = 0; half < 2; ++half) {
        const std::uint32_t before = cuts.integers[at].cuts_before[half];
        const std::uint32_t after = cuts.integers[at].cuts_after[half];
        integers.push_back({n_cuts, {before}, {after}});
        n_cuts += count_bits(before) + count_bits(after);
      }
    }
  }
  integers_ = to_device(std::span<const IntegersOf<1>>(integers), stream);
  for (AttributeId attribute = 0; attribute < attributes.size(); ++attribute) {
    attributes[attribute].cuts.integers = integers_.data() + integers_at[attribute];
    attributes[attribute].flags = flags_[attribute];
    attributes[attribute].hash = tuple_key::presence_hash(attribute);
  }
  attributes_ = to_device(std::span<const RankedAttribute>(attributes), stream);
}

std::size_t RanksOnDevice::n_bytes() const {
  return flags_.capacity() * sizeof flags_[0] + integers_.n_bytes() + attributes_.n_bytes() +
         slots_.n_bytes();
}

}  // namespace tamis::cuda
