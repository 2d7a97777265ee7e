// An immutable part of a matcher: filters, the index over them, and whose they are.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tamis/engine.hpp"

namespace tamis {

// Filters with the slot of each, before they are indexed.
struct SegmentFilters {
  explicit SegmentFilters(Space space) : table(std::make_shared<FilterTable>(space)) {}
  std::shared_ptr<FilterTable> table;
  std::vector<std::uint32_t> slot_of;        // [n_filters]; filters of a slot stand side by side
  std::vector<std::uint32_t> subscriber_of;  // [n_filters]

  void add(std::size_t n_filters, std::uint32_t slot, std::uint32_t subscriber) {
    slot_of.insert(slot_of.end(), n_filters, slot);
    subscriber_of.insert(subscriber_of.end(), n_filters, subscriber);
  }
};

class Segment {
 public:
  Segment(SegmentFilters filters, const Engine& engine, const Parameters& parameters)
      : engine_(engine),
        table_(std::move(filters.table)),
        slot_of_(std::move(filters.slot_of)),
        subscriber_of_(std::move(filters.subscriber_of)),
        index_(engine.build(table_, parameters)) {
    for (std::size_t filter = 1; filter < slot_of_.size(); ++filter) {
      has_repeats_ = has_repeats_ || slot_of_[filter] == slot_of_[filter - 1];
    }
  }

  const Engine& engine() const { return engine_; }
  const FilterTable& table() const { return *table_; }
  const Index& index() const { return *index_; }
  const std::vector<std::uint32_t>& slot_of() const { return slot_of_; }
  const std::vector<std::uint32_t>& subscriber_of() const { return subscriber_of_; }
  std::size_t size() const { return slot_of_.size(); }
  bool has_repeats() const { return has_repeats_; }  // some slot has several filters

  // Working memory for one thread; give it back for the next.
  std::unique_ptr<Scratch> take_scratch() const {
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(spare_.back());
        spare_.pop_back();
        return scratch;
      }
    }
    return index_->make_scratch();
  }
  void give_back(std::unique_ptr<Scratch> scratch) const {
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(scratch));
  }

 private:
  const Engine& engine_;
  std::shared_ptr<const FilterTable> table_;
  std::vector<std::uint32_t> slot_of_, subscriber_of_;
  std::unique_ptr<Index> index_;
  bool has_repeats_ = false;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> spare_;
};

}  // namespace tamis
