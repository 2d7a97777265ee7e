#include "translator.hpp"

#include <unistd.h>

#include <algorithm>

#include "tamis/error.hpp"
#include "twin.hpp"

namespace tamis {
namespace {

const Engine* twin_of(const Engine& engine) {
  if (engine.on_device == nullptr) return nullptr;
  const auto found = std::find_if(engines().begin(), engines().end(), [&](const Engine& each) {
    return std::string_view(each.name) == engine.on_device;
  });
  return found == engines().end() ? nullptr : &*found;
}

// The parameters that both know.
Parameters parameters_for(const Engine& twin, const Parameters& of_host) {
  Parameters shared;
  for (const Parameter& each : twin.parameters) {
    if (const auto found = of_host.find(each.name); found != of_host.end()) shared.insert(*found);
  }
  return complete_parameters(twin, shared);
}

// With all areas where they are now; moves that come from now on are left out.
std::unique_ptr<Index> build_beside(const Group& group, const EngineChoice& choice) {
  const SegmentFilters& filters = group.filters();
  const Engine& engine = *choice.engine;
  if (engine.build_owned == nullptr) return engine.build(filters.table, choice.parameters);
  std::unique_ptr<Index> index =
      engine.build_owned(filters.table, choice.parameters, filters.slot_of.span());
  if (filters.centres == nullptr) return index;
  auto& movable = dynamic_cast<MovableIndex&>(*index);
  movable.attach(filters.centres);
  Centre centre;
  for (std::size_t filter = 0; filter < group.size(); filter = filters.end_of_slot(filter)) {
    const std::uint32_t slot = filters.slot_of[filter];
    if (!filters.centres->read(slot, centre)) continue;
    if (!movable.can_move(slot)) throw ArgumentError(kMovedTwin);
    movable.follow(slot, centre.point);
  }
  return index;
}

}  // namespace

Translator::Translator(std::optional<std::size_t> device_from, std::size_t n_threads, Settle settle)
    : device_from_(device_from),
      n_threads_(n_threads),
      settle_(std::move(settle)),
      process_(::getpid()) {}

bool Translator::is_wanted() const {
  // A child of fork finds this as some other thread left it, and has no device.
  if (process_ != ::getpid()) return false;
  if (device_from_) return *device_from_ > 0;
  return lately_.load(std::memory_order_relaxed) > 0;
}

bool Translator::wants(const Group& group) const {
  return group.engine().on_device != nullptr && (device_from_ || group.size() >= kLeastFilters);
}

bool Translator::wants(const Segment& segment) const {
  return segment.is_planned() && is_wanted() &&
         std::any_of(segment.groups().begin(), segment.groups().end(),
                     [&](const Group& group) { return wants(group) && group.twin() == nullptr; });
}

void Translator::translate(const Segment& segment, const SampledEvents& events, bool is_again) {
  if (!segment.is_planned() || !is_wanted()) return;
  if (is_again) lost_with_.clear();
  for (const Group& group : segment.groups()) {
    if (wants(group)) translate(group, events, is_again);
  }
}

void Translator::translate(const Group& group, const SampledEvents& events, bool is_again) {
  const Twin* const before = group.twin();
  if (before != nullptr && (!is_again || before->has_failed() || device_from_)) return;
  if (!device_from_ && events.events.size() < kLeastSample) return;  // later
  const Engine* const twin = twin_of(group.engine());
  if (twin == nullptr) return;
  group.check();
  const auto give_up = [&](std::string why, const Calibration* measured = nullptr) {
    set_twin(group, std::make_unique<Twin>(*twin, std::move(why), measured));
  };
  if (!gone_.empty()) return give_up(gone_);
  if (const auto lost = lost_with_.find(twin);
      lost != lost_with_.end() && group.size() < 2 * lost->second) {
    return give_up(std::string(kSlower) + " for " + std::to_string(lost->second) + " filters");
  }
  try {
    if (std::string reason = twin->unavailable(); !reason.empty()) return give_up(reason);
    const EngineChoice choice{twin, parameters_for(*twin, group.choice().parameters)};
    for (FilterIdx filter = 0; filter < group.size(); ++filter) {
      if (!choice.can_index(group.table(), filter)) return give_up("it cannot index all filters");
    }
    std::shared_ptr<Index> index = before == nullptr ? nullptr : before->index();
    const bool is_new = index == nullptr;
    if (is_new) index = build_beside(group, choice);
    if (device_from_) {
      set_twin(group, std::make_unique<Twin>(*twin, std::move(index), *device_from_), is_new);
      return;
    }
    const TrialTargets targets =
        events.is_for_subscribers()
            ? TrialTargets::subscribers(group.filters().subscriber_of.span())
            : TrialTargets::own(group.size());
    const Calibration measured = calibrate({group.index(), group.engine()}, {*index, *twin},
                                           targets, events.events, n_threads_);
    if (measured.least_events != kNever) {
      set_twin(group, std::make_unique<Twin>(*twin, std::move(index), measured), is_new);
      return;
    }
    lost_with_[twin] = group.size();
    // An index that was in use stays, for calls may be in it.
    if (before != nullptr && before->index()) {
      set_twin(group, std::make_unique<Twin>(*twin, std::move(index), measured));
    } else {
      give_up(kSlower, &measured);
    }
  } catch (const UnavailableError& error) {  // no room: the next segment may have it
    give_up(error.what());
  } catch (const ArgumentError& error) {  // what it cannot take
    give_up(error.what());
  } catch (const Error& error) {
    gone_ = error.what();
    give_up(gone_);
  } catch (const std::bad_alloc&) {
    give_up("this machine has no memory for a second index");
  }
}

void Translator::set_twin(const Group& group, std::unique_ptr<Twin> twin, bool is_new) {
  Settled settled;
  if (settle_ && group.movable() != nullptr) {
    settled = settle_(group, *twin, is_new && twin->index() != nullptr);
    if (!settled.is_whole) twin = std::make_unique<Twin>(twin->engine(), kMovedTwin);
  }
  if (twin->index()) {
    times_.forget();
    has_device_.store(true, std::memory_order_relaxed);
  }
  group.set_twin(std::move(twin));
}

Side Translator::choose_timed(std::span<const std::shared_ptr<const Segment>> segments,
                              CallKind call) {
  if (!has_device_.load(std::memory_order_relaxed)) return Side::host;
  std::size_t least = kNever;
  for (const auto& segment : segments) {
    for (const Group& group : segment->groups()) {
      const Twin* const twin = group.twin();
      if (twin != nullptr && twin->is_usable()) least = std::min(least, twin->least_events());
    }
  }
  if (least == kNever) return Side::host;
  const Side expected = call.n_events < least ? Side::host : Side::device;
  return device_from_ ? expected : times_.choose(call, expected);
}

void Translator::grow_older() {
  const int lately = lately_.load(std::memory_order_relaxed);
  if (lately > 0) lately_.store(lately - 1, std::memory_order_relaxed);
}

}  // namespace tamis
