// The second index of a group, on a device, beside the one on the host.
//
// It is never needed: where it cannot be built there is none, and where it fails the index on the
// host goes on with the events that it had not begun, and it is switched off.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "calibration.hpp"

namespace tamis {

// Why there is none, or why it is not used, besides errors.
inline constexpr const char* kSlower = "it is not quicker there";
inline constexpr const char* kMovedTwin = "an area has moved that cannot move there";
inline constexpr const char* kForkedTwin = "a GPU cannot be used after fork";

class Twin {
 public:
  // An attempt that came to nothing, and why.
  Twin(const Engine& engine, std::string why_not, const Calibration* measured = nullptr);
  // From so many events on, as measured or as it was asked for.
  Twin(const Engine& engine, std::shared_ptr<Index> index, std::size_t least_events);
  Twin(const Engine& engine, std::shared_ptr<Index> index, const Calibration& measured);
  Twin(const Twin&) = delete;
  ~Twin() { delete failed_.load(std::memory_order_relaxed); }

  // Takes over what it replaces, which others may be reading.
  void keep(const Twin* before) { before_.reset(before); }

  const Engine& engine() const { return engine_; }
  const std::shared_ptr<Index>& index() const { return index_; }  // null: there is none
  bool has_failed() const { return failed_.load(std::memory_order_relaxed) != nullptr; }
  // From so many events on a call is expected to be quicker there; kNever: none is.
  std::size_t least_events() const { return least_events_; }
  // In a child of fork it is not: no device survives that.
  bool is_usable() const {
    return least_events_ != kNever && !has_failed() && is_of_this_process();
  }
  // Index::match, on the device or, if that fails, on the host. Makes its scratch if that is null.
  void match(const EventBatch& events, std::size_t begin, std::size_t end,
             std::unique_ptr<Scratch>& scratch, const Index& host, Scratch& scratch_on_host,
             Collector& out) const;
  DeviceReasons reasons() const;
  std::size_t n_bytes() const { return index_ ? index_->n_bytes() : 0; }

  // --- of the writer, where areas move ---
  // Must those of the group move here, too? Then none may move that cannot do so here.
  bool follows() const { return movable_ != nullptr && !has_failed() && is_of_this_process(); }
  bool can_move(std::uint32_t slot) const { return movable_->can_move(slot); }
  void follow(std::uint32_t slot, const Point& point) const;

 private:
  bool is_of_this_process() const;
  void switch_off(const char* why) const;

  const Engine& engine_;
  std::shared_ptr<Index> index_;
  MovableIndex* movable_ = nullptr;  // the same, if areas move in it
  std::size_t least_events_ = kNever;
  bool is_measured_ = false;
  Calibration measured_;
  std::string why_not_;
  int process_;
  std::unique_ptr<const Twin> before_;
  mutable std::atomic<const std::string*> failed_{nullptr};  // why; set once
};

}  // namespace tamis
