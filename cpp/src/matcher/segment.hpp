// Parts of a matcher: filters, whose they are, and the indexes over them.
//
//     segment   groups, each of them filters and one engine's index over them
//     group 0   what the matcher's engine can index
//     group 1   the fallback, if there is need of one: what it cannot, evaluated one by one
//
// With engine="auto" a planner says which groups there are (planner.hpp). All filters of a
// subscription are in one group.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "pivot_index.hpp"
#include "storage/image.hpp"
#include "tamis/engine.hpp"
#include "twin.hpp"

namespace tamis {

// Filters with the slot and subscriber of each.
struct SegmentFilters {
  explicit SegmentFilters(Space space) : table(std::make_shared<FilterTable>(space)) {}
  std::shared_ptr<FilterTable> table;
  Column<std::uint32_t> slot_of;           // [n_filters]; filters of a slot stand side by side
  Column<std::uint32_t> subscriber_of;     // [n_filters]
  std::shared_ptr<const Centres> centres;  // of slots that have moved; null: an engine's own test

  std::size_t size() const { return slot_of.size(); }
  void add(std::size_t n_filters, std::uint32_t slot, std::uint32_t subscriber) {
    slot_of.append(n_filters, slot);
    subscriber_of.append(n_filters, subscriber);
  }
  // Room for all of `more` beyond the room that was reserved so far.
  void reserve_more(const SegmentFilters& more);
  // Appends some filters of another with the same attribute ids.
  void append(const SegmentFilters& other, std::size_t begin, std::size_t end);
  void shrink();  // gives back room that is not used
  // Has a filter an area that has moved in place since?
  bool has_moved() const;
  // Brings the areas of the table to where they are now. Nobody may read the table meanwhile.
  void take_moves();
  // The same filters, which `owner` keeps.
  SegmentFilters borrow(const std::shared_ptr<const void>& owner) const {
    SegmentFilters same(table->space());
    same.table = table;
    same.slot_of = Column<std::uint32_t>::borrow(slot_of.span(), owner);
    same.subscriber_of = Column<std::uint32_t>::borrow(subscriber_of.span(), owner);
    same.centres = centres;
    return same;
  }
  // The end of the filters that belong to the same slot as the one at `begin`.
  std::size_t end_of_slot(std::size_t begin) const {
    std::size_t end = begin;
    while (end < size() && slot_of[end] == slot_of[begin]) ++end;
    return end;
  }
};

// What builds the index of a group.
struct EngineChoice {
  const Engine* engine = nullptr;
  Parameters parameters;

  bool can_index(const FilterTable& table, FilterIdx filter) const;
  // As in files. An engine that is not here is null.
  std::string text() const;
  static EngineChoice read(std::string_view text, const Image& image);
  friend bool operator==(const EngineChoice&, const EngineChoice&) = default;
};

class Group {
 public:
  Group(SegmentFilters filters, EngineChoice choice)
      : Group(std::make_shared<const SegmentFilters>(std::move(filters)), std::move(choice)) {}
  // Over filters that other groups may have, too.
  Group(std::shared_ptr<const SegmentFilters> filters, EngineChoice choice);
  // With an index that is there already.
  Group(SegmentFilters filters, EngineChoice choice, std::shared_ptr<const Index> index);

  const EngineChoice& choice() const { return choice_; }
  const Engine& engine() const { return *choice_.engine; }
  const SegmentFilters& filters() const { return *filters_; }
  const std::shared_ptr<const SegmentFilters>& shared_filters() const { return filters_; }
  const FilterTable& table() const { return *filters_->table; }
  const Index& index() const { return *index_; }
  MovableIndex* movable() const { return movable_; }  // the index, for the writer; or null
  // Areas move in the index and in what is beside it on a device; for the writer.
  bool can_move(std::uint32_t slot) const {
    if (movable_ == nullptr || !movable_->can_move(slot)) return false;
    const Twin* const beside = twin();
    return beside == nullptr || !beside->follows() || beside->can_move(slot);
  }
  void follow(std::uint32_t slot, const Point& point) const {
    movable_->follow(slot, point);
    if (const Twin* const beside = twin(); beside != nullptr && beside->follows()) {
      beside->follow(slot, point);
    }
  }
  const std::uint32_t* slot_of() const { return filters_->slot_of.data(); }
  const std::uint32_t* subscriber_of() const { return filters_->subscriber_of.data(); }
  // Different ones. Counted when it is first asked for.
  std::size_t n_subscribers() const {
    const std::size_t known = n_subscribers_.load(std::memory_order_relaxed);
    return known != 0 ? known : count_subscribers();
  }
  std::size_t size() const { return filters_->size(); }
  bool has_repeats() const { return has_repeats_; }           // some slot has several filters
  const std::uint64_t* runs() const { return runs_.data(); }  // of slots, for Collector::Setup
  std::size_t n_table_bytes() const;
  // Of the index when it was built. The writer alone may ask it for its size where areas move.
  std::size_t n_built_bytes() const { return n_built_bytes_; }

  // The index beside it on a device, or why there is none; null: that was not asked yet. Any thread
  // may read it, and it lives as long as the group; one thread sets it. Where areas move, the
  // writer must not do so meanwhile.
  const Twin* twin() const { return twin_.load(std::memory_order_acquire); }
  void set_twin(std::unique_ptr<Twin> twin) const {
    twin->keep(twin_.load(std::memory_order_relaxed));
    twin_.store(twin.release(), std::memory_order_release);
  }

  void save(SectionWriter& sections) const;
  // What was saved under `prefix`; without its index, a naive one instead. Sections that refer to
  // others are checked now, values and index on first use. Slots and numbers of subscribers must
  // lie below the given ones.
  struct Opened;
  static Opened open(const std::shared_ptr<const Image>& image, const std::string& prefix,
                     Space space, std::size_t n_names, std::size_t n_slots, std::size_t n_numbers,
                     bool wants_index, const EngineChoice& naive,
                     std::shared_ptr<const Centres> centres);
  // Throws StorageError if the file of the group is damaged. Quick from the second time on.
  void check() const {
    if (!is_checked_.load(std::memory_order_acquire)) check_image();
  }

  Group(Group&& other) noexcept
      : choice_(std::move(other.choice_)),
        filters_(std::move(other.filters_)),
        index_(std::move(other.index_)),
        movable_(other.movable_),
        n_built_bytes_(other.n_built_bytes_),
        n_subscribers_(other.n_subscribers_.load()),
        has_repeats_(other.has_repeats_),
        runs_(std::move(other.runs_)),
        is_checked_(other.is_checked_.load()),
        image_(std::move(other.image_)),
        prefix_(std::move(other.prefix_)),
        twin_(other.twin_.exchange(nullptr)) {}
  ~Group() { delete twin_.load(); }

 private:
  void check_image() const;
  std::size_t count_subscribers() const;

  EngineChoice choice_;
  std::shared_ptr<const SegmentFilters> filters_;
  std::shared_ptr<const Index> index_;
  MovableIndex* movable_ = nullptr;
  std::size_t n_built_bytes_ = 0;
  mutable std::atomic<std::size_t> n_subscribers_{0};  // 0: not counted
  bool has_repeats_ = false;
  std::vector<std::uint64_t> runs_;
  mutable std::atomic<bool> is_checked_{true};
  std::shared_ptr<const Image> image_;
  std::string prefix_;
  mutable std::atomic<const Twin*> twin_{nullptr};  // owned
};

struct Group::Opened {
  Group group;
  bool has_index;  // the one that was saved
};

// Immutable. A segment that is not yet indexed by the matcher's engine has a pivot index.
class Segment {
 public:
  Segment(std::vector<Group> groups, EngineChoice choice, bool is_indexed);
  // Filters that wait for the next merge, with their pivot index, which is built if it is null.
  static std::shared_ptr<const Segment> unindexed(
      SegmentFilters filters, const EngineChoice& naive,
      std::shared_ptr<const PivotIndex> index = nullptr);
  // Groups that a planner chose.
  static std::shared_ptr<const Segment> planned(std::vector<Group> groups);
  // Indexed by an engine, and by `naive` what that cannot index.
  static std::shared_ptr<const Segment> build(SegmentFilters filters, const EngineChoice& choice,
                                              const EngineChoice& naive);

  const std::vector<Group>& groups() const { return groups_; }
  // What the matcher was told to take, whether or not some groups fell back; of a planned segment,
  // what its largest group has.
  const EngineChoice& choice() const { return choice_; }
  bool is_planned() const { return is_planned_; }
  std::size_t size() const { return size_; }  // filters
  bool is_indexed() const { return is_indexed_; }
  std::uint64_t serial() const { return serial_; }  // unlike any other's in the process

 private:
  std::vector<Group> groups_;
  EngineChoice choice_;
  bool is_indexed_;
  bool is_planned_ = false;
  std::size_t size_ = 0;
  std::uint64_t serial_;
};

// The newest filters. One writer appends while matches read the filters of their snapshot: every
// array has its room reserved, so nothing moves and nothing that a match reads is written again.
class Delta {
 public:
  Delta(Space space, std::size_t n_filters)
      : filters_(space), index_(std::make_shared<PivotIndex>(filters_.table, n_filters)) {
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
  // Indexes the filters that were added since the last time.
  void index_new() {
    for (; n_indexed_ < filters_.size(); ++n_indexed_) index_->append();
  }
  const std::shared_ptr<PivotIndex>& index() const { return index_; }
  const SegmentFilters& filters() const { return filters_; }
  const FilterTable& table() const { return *filters_.table; }
  const std::uint32_t* slot_of() const { return filters_.slot_of.data(); }
  const std::uint32_t* subscriber_of() const { return filters_.subscriber_of.data(); }

 private:
  SegmentFilters filters_;
  std::shared_ptr<PivotIndex> index_;
  std::size_t n_indexed_ = 0;
};

}  // namespace tamis
