// The interface of an engine: build an index of filters, match events against it.
//
// Live changes, deletions, ids, durability and fallbacks are the matcher's, written once.
// docs/engines/add-an-engine.md says how to add one: one file, one line in registry.cpp, one page.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tamis/centres.hpp"
#include "tamis/collector.hpp"
#include "tamis/event_batch.hpp"
#include "tamis/filter_table.hpp"
#include "tamis/sections.hpp"

namespace tamis {

// Working memory of one thread on one index, reused between calls. It may outlive the index.
class Scratch {
 public:
  virtual ~Scratch() = default;
};

class Index {
 public:
  virtual ~Index() = default;
  virtual std::unique_ptr<Scratch> make_scratch() const = 0;
  // Calls out.begin_event() for each event from `begin` to `end`, in order, and out.add() for every
  // filter that matches it (it may leave out those that out.has()). Several threads may call this
  // at once, each with its own scratch and collector.
  virtual void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
                     Collector& out) const = 0;
  // Can it match EventBatch::columns? Else it is given rows.
  virtual bool reads_columns() const { return false; }
  virtual std::size_t n_bytes() const = 0;  // without the filter table
  // Writes what Engine::open needs, if the engine has one.
  virtual void save(SectionWriter&) const {}
};

// Where the area of a slot goes.
struct SlotMove {
  std::uint32_t slot = 0;
  Point point;
};

// An index whose areas can move while others match. One thread moves at a time.
//
// The area of a slot can move in place if it is the only one of its predicate, and all filters that
// have it have it as an area. A move is: follow(slot, point), then Centres::move(slot, ...). What a
// match finds is verified by the centre that Centres has then, so each match sees every slot at its
// old place or at its new one.
class MovableIndex : public Index {
 public:
  // Once, before anybody matches or moves: where those are that have moved.
  virtual void attach(std::shared_ptr<const Centres> centres) = 0;
  // Is an area of the slot here that can move?
  virtual bool can_move(std::uint32_t slot) = 0;
  // The slot's area will be, or is already, at this point. It must be one that can move.
  virtual void follow(std::uint32_t slot, const Point& point) = 0;
  // A few moves that come next: fetches what they will read, all at once.
  virtual void prefetch(std::span<const SlotMove> moves) const = 0;
  // Have moves left so much behind that the index should be built again?
  virtual bool is_worn() const = 0;
  // In a child after fork: readers of other threads are not here.
  virtual void forget_readers() = 0;
};

using Parameters = std::map<std::string, double>;

struct Parameter {
  const char* name;
  double preset;
  double low, high;
  const char* meaning;
};

// What an engine can index; the rest of a segment's filters goes to a fallback.
enum Feature : std::uint32_t {
  kNumbers = 1,
  kStrings = 2,
  kBooleans = 4,
  kAbsence = 8,    // IS NULL, and sets that accept a missing value
  kPatterns = 16,  // LIKE that is more than a prefix
  kAreas = 32,
  kResiduals = 64,
  kEverything = 127
};

// What an event costs, in ns for each unit of work, for the planner of "auto". It times a small
// index and counts its work; from these it estimates how much more a large one takes.
struct WorkCost {
  double event = 0;   // once
  double number = 0;  // for each attribute of the event: looking it up, ranking its value
  double string = 0;  // the same, if its value is a string
  double match = 0;   // for each filter that matches
  // For each unit of Counters.
  double filter = 0, constraint = 0, candidate = 0, cell = 0, node = 0, bit = 0;
};

struct CostModel {
  WorkCost near;              // where the index lies in the caches of a core
  WorkCost far;               // where it lies in memory
  bool needs_areas = false;   // it gains nothing from filters without an area
  double least_share = 0;     // of the filters that match an event; it is not tried with fewer
  bool needs_events = false;  // it is not tried while events, and how they come, are guessed
  // Of the filters that an engine must look at until some ten subscribers are settled: this one has
  // those in front that match most events.
  double settling = 1;
  // The parameter that the planner sets, if not all have their presets; NaN stands for the number
  // of attributes of an event.
  const char* parameter = nullptr;
  double value = 0;
};

struct Engine {
  const char* name;
  const char* device;  // "cpu" or "cuda"
  bool is_exact;
  const char* description;
  std::uint32_t features;                                // of Feature
  std::uint32_t n_most_constraints = ~std::uint32_t{0};  // of a filter that it can index
  std::span<const Parameter> parameters;
  std::string (*unavailable)();  // why not here; empty: available
  std::unique_ptr<Index> (*build)(std::shared_ptr<const FilterTable>, const Parameters&);
  // Null: an index of this engine is built again after its file was opened.
  std::unique_ptr<Index> (*open)(std::shared_ptr<const FilterTable>, const Parameters&,
                                 const SectionReader&) = nullptr;
  // Instead of build, for an engine to which it matters whose the filters are: the slot of each.
  // Filters of one slot stand side by side. Gives a MovableIndex.
  std::unique_ptr<Index> (*build_owned)(std::shared_ptr<const FilterTable>, const Parameters&,
                                        std::span<const std::uint32_t> slot_of) = nullptr;
  // Events that a thread hands over at once, at most, where a matcher has several threads. More
  // than these if its events share work.
  std::size_t n_task_events = 256;
  // One for each way to build it that the planner may choose; none: "auto" never takes it.
  std::span<const CostModel> costs = {};
  // The engine that has the same filters on a GPU: "auto" sends large batches there (translator.hpp
  // in matcher/). Null: none. It must take the filters that this one takes, its areas must move if
  // they do so in this one, and it must fail, where a device fails, before it begins the first
  // event of a batch.
  const char* on_device = nullptr;
};

// Every engine, in order of priority. One explicit table: self-registering statics vanish from
// static libraries.
std::span<const Engine> engines();
// Throws ArgumentError with the names there are, or UnavailableError.
const Engine& find_engine(const std::string& name);
// Presets filled in; throws ArgumentError for an unknown name or a value out of range.
Parameters complete_parameters(const Engine& engine, const Parameters& given);
// What the filter needs of an engine, of Feature.
std::uint32_t features_of(const FilterTable& table, FilterIdx filter);

}  // namespace tamis
