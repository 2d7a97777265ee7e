// Parts of a matcher: filters, whose they are, and the index over them.
#pragma once

#include <memory>
#include <vector>

#include "tamis/engine.hpp"

namespace tamis {

// Filters with the slot and subscriber of each.
struct SegmentFilters {
  explicit SegmentFilters(Space space) : table(std::make_shared<FilterTable>(space)) {}
  std::shared_ptr<FilterTable> table;
  std::vector<std::uint32_t> slot_of;        // [n_filters]; filters of a slot stand side by side
  std::vector<std::uint32_t> subscriber_of;  // [n_filters]

  std::size_t size() const { return slot_of.size(); }
  void add(std::size_t n_filters, std::uint32_t slot, std::uint32_t subscriber) {
    slot_of.insert(slot_of.end(), n_filters, slot);
    subscriber_of.insert(subscriber_of.end(), n_filters, subscriber);
  }
};

// Immutable. A segment that is not yet indexed by the matcher's engine has a naive index.
class Segment {
 public:
  Segment(SegmentFilters filters, const Engine& engine, const Parameters& parameters,
          bool is_indexed)
      : engine_(engine),
        is_indexed_(is_indexed),
        filters_(std::move(filters)),
        index_(engine.build(filters_.table, parameters)) {
    for (std::size_t filter = 1; filter < size(); ++filter) {
      has_repeats_ = has_repeats_ || slot_of()[filter] == slot_of()[filter - 1];
    }
  }

  const Engine& engine() const { return engine_; }
  const FilterTable& table() const { return *filters_.table; }
  const Index& index() const { return *index_; }
  const std::vector<std::uint32_t>& slot_of() const { return filters_.slot_of; }
  const std::vector<std::uint32_t>& subscriber_of() const { return filters_.subscriber_of; }
  std::size_t size() const { return filters_.size(); }
  bool is_indexed() const { return is_indexed_; }
  bool has_repeats() const { return has_repeats_; }  // some slot has several filters

 private:
  const Engine& engine_;
  bool is_indexed_;
  SegmentFilters filters_;
  std::unique_ptr<Index> index_;
  bool has_repeats_ = false;
};

// The newest filters. One writer appends while matches read the filters of their snapshot: every
// array has its room reserved, so nothing moves and nothing that a match reads is written again.
class Delta {
 public:
  Delta(Space space, std::size_t n_filters) : filters_(space) {
    filters_.table->reserve(n_filters);
    filters_.slot_of.reserve(n_filters);
    filters_.subscriber_of.reserve(n_filters);
  }

  bool has_room_for(const FilterTable& more) const {
    return filters_.table->has_room_for(more) &&
           filters_.size() + more.size() <= filters_.slot_of.capacity();
  }
  std::size_t n_most() const { return filters_.slot_of.capacity(); }
  SegmentFilters& filters() { return filters_; }  // the writer's
  const FilterTable& table() const { return *filters_.table; }
  const std::uint32_t* slot_of() const { return filters_.slot_of.data(); }
  const std::uint32_t* subscriber_of() const { return filters_.subscriber_of.data(); }

 private:
  SegmentFilters filters_;
};

}  // namespace tamis
