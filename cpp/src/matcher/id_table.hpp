// Ids with a dense number for each, in order of arrival.
//
// The bytes of string ids lie in an arena and never move; a reader may call `at` for numbers that
// it was told of while the writer adds more.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "grow_only.hpp"
#include "tamis/event_batch.hpp"
#include "tamis/id.hpp"

namespace tamis {

class IdTable {
 public:
  std::uint32_t add(const IdView& id) {
    const IdView kept = id.type == IdType::string ? IdView::of(arena_.copy(id.string)) : id;
    ids_.push_back(kept);
    n_string_bytes_ += kept.string.size();
    return static_cast<std::uint32_t>(ids_.size() - 1);
  }
  const IdView& at(std::uint32_t number) const { return ids_[number]; }
  std::size_t size() const { return ids_.size(); }
  std::size_t n_bytes() const { return ids_.n_bytes() + n_string_bytes_; }

 private:
  GrowOnly<IdView> ids_;
  StringArena arena_;
  std::size_t n_string_bytes_ = 0;
};

using NumberOfId = std::unordered_map<IdView, std::uint32_t, IdHash>;

}  // namespace tamis
