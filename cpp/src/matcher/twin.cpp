#include "twin.hpp"

#include <unistd.h>

#include <new>

#include "tamis/error.hpp"

namespace tamis {

Twin::Twin(const Engine& engine, std::string why_not, const Calibration* measured)
    : engine_(engine),
      is_measured_(measured != nullptr),
      why_not_(std::move(why_not)),
      process_(::getpid()) {
  if (measured != nullptr) measured_ = *measured;
}

Twin::Twin(const Engine& engine, std::shared_ptr<Index> index, std::size_t least_events)
    : engine_(engine),
      index_(std::move(index)),
      movable_(dynamic_cast<MovableIndex*>(index_.get())),
      least_events_(least_events),
      process_(::getpid()) {}

Twin::Twin(const Engine& engine, std::shared_ptr<Index> index, const Calibration& measured)
    : Twin(engine, std::move(index), measured.least_events) {
  is_measured_ = true;
  measured_ = measured;
}

bool Twin::is_of_this_process() const { return process_ == ::getpid(); }

void Twin::switch_off(const char* why) const {
  const auto* text = new std::string(why);
  const std::string* expected = nullptr;
  if (!failed_.compare_exchange_strong(expected, text, std::memory_order_acq_rel)) delete text;
}

void Twin::match(const EventBatch& events, std::size_t begin, std::size_t end,
                 std::unique_ptr<Scratch>& scratch, const Index& host, Scratch& scratch_on_host,
                 Collector& out) const {
  try {
    if (!scratch) scratch = index_->make_scratch();
    index_->match(index_->reads_columns() ? events : events.rows(), begin, end, *scratch, out);
    return;
  } catch (const Error& error) {
    switch_off(error.what());
    scratch.reset();
  }
  // It fails before it begins the first event of a batch (Engine::on_device), so those that were
  // begun are whole.
  const std::size_t next = begin + out.n_events();
  if (next < end) host.match(events.rows(), next, end, scratch_on_host, out);
}

void Twin::follow(std::uint32_t slot, const Point& point) const {
  try {
    movable_->follow(slot, point);
  } catch (const std::bad_alloc&) {
    switch_off("this machine has no memory for what moves there");
  }
}

DeviceReasons Twin::reasons() const {
  DeviceReasons all;
  all.engine = engine_.name;
  all.why_not = why_not_;
  if (const std::string* failed = failed_.load(std::memory_order_acquire)) all.why_not = *failed;
  if (index_ && !is_of_this_process()) all.why_not = kForkedTwin;
  if (all.why_not.empty() && least_events_ == kNever) all.why_not = kSlower;
  if (all.why_not.empty()) all.least_events = least_events_;
  all.is_measured = is_measured_;
  all.here = measured_.here;
  all.there = measured_.there;
  all.n_index_bytes = n_bytes();
  return all;
}

}  // namespace tamis
