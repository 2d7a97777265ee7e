// Ranks of numbers on a device, and the slots that lanes read there.
//
// A device takes numbers alone, of attributes whose boundaries are whole numbers that lie close
// (IntegerCuts): an event with another value is the host's.
#pragma once

#include "buffers.hpp"
#include "common/ranks.hpp"
#include "engines/tuple_key/records.hpp"
#include "ranked_launch.hpp"

namespace tamis::cuda {

class RanksOnDevice {
 public:
  RanksOnDevice(const FilterTable& table, const Ranks& ranks,
                const tuple_key::RecordEncoder& encoder, Stream stream);
  // Without slots. `is_used` [n_attributes]: some filter has it.
  RanksOnDevice(const Ranks& ranks, const std::vector<bool>& is_used, Stream stream);

  const RankedAttribute* attributes() const { return attributes_.data(); }
  const RankedSlot* slots() const { return slots_.data(); }
  std::size_t n_attributes() const { return flags_.size(); }
  // Can the device take this attribute? What it takes are numbers without a residue.
  bool takes(AttributeId attribute) const {
    return (flags_[attribute] & RankedAttribute::kHost) == 0;
  }
  bool is_used(AttributeId attribute) const {
    return (flags_[attribute] & RankedAttribute::kUsed) != 0;
  }
  std::size_t n_bytes() const;  // on the device, and a few here

 private:
  void bring_attributes(const Ranks& ranks, Stream stream);

  std::vector<std::uint32_t> flags_;  // [n_attributes]
  DeviceArray<IntegersOf<1>> integers_;
  DeviceArray<RankedAttribute> attributes_;
  DeviceArray<RankedSlot> slots_;
};

}  // namespace tamis::cuda
