// Interning of attribute names: see catalogue.hpp for the layout.
//
// A version that was handed out is never written again: the next new name first copies the whole
// table. A burst of new names copies once, because nobody takes a version in between.
#include "tamis/catalogue.hpp"

#include <atomic>
#include <utility>

#include "tamis/error.hpp"

namespace tamis {

namespace {

constexpr std::size_t kFirstSlots = 16;

std::atomic<std::uint64_t> next_catalogue_id{1};

}  // namespace

// `name` must not be in the table yet.
void Names::insert(std::string_view name) {
  if (names_.size() >= kNoAttribute - 1) {
    throw ArgumentError("the names of attributes must be fewer than 4294967294");
  }
  const auto place = [](std::vector<Slot>& slots, std::uint64_t hash, std::uint32_t id_plus_one) {
    const std::size_t mask = slots.size() - 1;
    std::size_t at = hash & mask;
    while (slots[at].id_plus_one != 0) at = (at + 1) & mask;
    slots[at] = {static_cast<std::uint32_t>(hash >> 32), id_plus_one};
  };
  // At most half of the slots are taken: probes stay short, and `find` always meets a free one.
  if (2 * (names_.size() + 1) > slots_.size()) {
    std::vector<Slot> grown(slots_.empty() ? kFirstSlots : 2 * slots_.size());
    for (std::size_t id = 0; id < names_.size(); ++id) {
      place(grown, hash_name(names_[id]), static_cast<std::uint32_t>(id + 1));
    }
    slots_ = std::move(grown);
    mask_ = slots_.size() - 1;
  }
  names_.emplace_back(name);
  place(slots_, hash_name(name), static_cast<std::uint32_t>(names_.size()));
}

Catalogue::Catalogue() : names_(std::make_shared<Names>()) {
  names_->catalogue_id_ = next_catalogue_id.fetch_add(1, std::memory_order_relaxed);
}

AttributeId Catalogue::intern(std::string_view name) {
  if (const AttributeId known = names_->find(name); known != kNoAttribute) return known;
  if (is_shared_) {
    auto copy = std::make_shared<Names>(*names_);
    if (copy->prefixes_) copy->prefixes_ = std::make_shared<Names>(*copy->prefixes_);
    names_ = std::move(copy);
    is_shared_ = false;
  }
  // Prefixes first: should memory run out halfway, one too many of them does no harm.
  for (std::size_t dot = name.find('.'); dot != std::string_view::npos;
       dot = name.find('.', dot + 1)) {
    if (!names_->prefixes_) names_->prefixes_ = std::make_shared<Names>();
    const std::string_view prefix = name.substr(0, dot);
    if (names_->prefixes_->find(prefix) == kNoAttribute) names_->prefixes_->insert(prefix);
  }
  names_->insert(name);
  return static_cast<AttributeId>(names_->size() - 1);
}

std::shared_ptr<const Names> Catalogue::names() const {
  is_shared_ = true;
  return names_;
}

}  // namespace tamis
