// The one table of engines.
#include <algorithm>
#include <charconv>
#include <limits>

#include "cuda/block_bitmap_cuda.hpp"
#include "cuda/ccm.hpp"
#include "cuda/clcb_cuda.hpp"
#include "cuda/device.hpp"
#include "cuda/hem_cuda.hpp"
#include "cuda/spatial_grid_cuda.hpp"
#include "cuda/tuple_key_cuda.hpp"
#include "engines/ada_rein.hpp"
#include "engines/be_tree.hpp"
#include "engines/bit_vector.hpp"
#include "engines/block_bitmap.hpp"
#include "engines/clcb.hpp"
#include "engines/hem.hpp"
#include "engines/naive.hpp"
#include "engines/ocm.hpp"
#include "engines/opindex.hpp"
#include "engines/r_tree.hpp"
#include "engines/rein.hpp"
#include "engines/sff.hpp"
#include "engines/spatial_grid.hpp"
#include "engines/tama.hpp"
#include "engines/tuple_key.hpp"
#include "tamis/engine.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace {

std::string always_available() { return {}; }

// What the planner reckons with: docs/planner.md says how these were fitted.
constexpr double kEventAttributes = std::numeric_limits<double>::quiet_NaN();
constexpr CostModel kTupleKeyCosts[] = {{.near = {.number = 17,
                                                  .string = 68,
                                                  .match = 4,
                                                  .constraint = 0.2,
                                                  .candidate = 5,
                                                  .cell = 3,
                                                  .bit = 0.25},
                                         .far = {.number = 26,
                                                 .string = 100,
                                                 .match = 6,
                                                 .constraint = 1,
                                                 .candidate = 20,
                                                 .cell = 7,
                                                 .bit = 0.5},
                                         .settling = 0.25,
                                         .parameter = "event_attributes",
                                         .value = kEventAttributes}};
constexpr CostModel kBlockBitmapCosts[] = {
    {.near = {.event = 50, .number = 9, .string = 70, .match = 6, .candidate = 12, .cell = 7},
     .far = {.event = 50, .number = 14, .string = 100, .match = 9, .candidate = 60, .cell = 11},
     .parameter = "layout",
     .value = 1},
    {.near = {.event = 50, .number = 9, .string = 70, .match = 6, .candidate = 60, .cell = 25},
     .far = {.event = 50, .number = 14, .string = 100, .match = 9, .candidate = 150, .cell = 50},
     .parameter = "layout",
     .value = 2}};
constexpr CostModel kSpatialGridCosts[] = {{.near = {.event = 80,
                                                     .number = 5,
                                                     .string = 10,
                                                     .match = 10,
                                                     .filter = 0.5,
                                                     .candidate = 20,
                                                     .cell = 10,
                                                     .bit = 2},
                                            .far = {.event = 80,
                                                    .number = 5,
                                                    .string = 10,
                                                    .match = 30,
                                                    .filter = 1,
                                                    .candidate = 80,
                                                    .cell = 40,
                                                    .bit = 5},
                                            .needs_areas = true}};
constexpr CostModel kClcbCosts[] = {
    {.near = {.event = 110, .string = 20, .match = 10, .filter = 4, .candidate = 10, .bit = 0.03},
     .far = {.event = 110, .string = 20, .match = 30, .filter = 15, .candidate = 60, .bit = 0.1},
     .needs_areas = true}};
constexpr CostModel kRTreeCosts[] = {
    {.near = {.event = 40, .match = 10, .filter = 5, .candidate = 12, .cell = 3, .node = 40},
     .far = {.event = 40, .match = 50, .filter = 60, .candidate = 60, .cell = 10, .node = 70},
     .needs_areas = true,
     .parameter = "bulk_load",
     .value = 1}};
constexpr CostModel kHemCosts[] = {{.near = {.event = 200,
                                             .number = 60,
                                             .string = 100,
                                             .match = 4,
                                             .filter = 0.9,
                                             .cell = 2,
                                             .bit = 0.1},
                                    .far = {.event = 200,
                                            .number = 60,
                                            .string = 100,
                                            .match = 5,
                                            .filter = 1.3,
                                            .cell = 10,
                                            .bit = 0.3},
                                    .least_share = 0.4,
                                    .needs_events = true}};
constexpr CostModel kNaiveCosts[] = {
    {.near = {.event = 40, .string = 5, .match = 4, .filter = 1.4, .cell = 16},
     .far = {.event = 40, .string = 5, .match = 6, .filter = 2, .cell = 30}}};

constexpr std::size_t kDeviceTask = 1 << 16;  // less would not fill a GPU

const Engine kEngines[] = {
    {.name = "tuple-key",
     .device = "cpu",
     .is_exact = true,
     .description = "keys of up to three names or values, a bitmap of them, then SIMD tests",
     .features = kEverything,
     .parameters = kTupleKeyParameters,
     .unavailable = always_available,
     .build = build_tuple_key,
     .open = open_tuple_key,
     .costs = kTupleKeyCosts,
     .on_device = "tuple-key-cuda"},
    {.name = "tuple-key-cuda",
     .device = "cuda",
     .is_exact = true,
     .description = "tuple-key on a GPU: a thread for each event of a batch",
     .features = kEverything,
     .parameters = kTupleKeyCudaParameters,
     .unavailable = cuda_unavailable,
     .build = build_tuple_key_cuda,
     .n_task_events = kDeviceTask},
    {.name = "block-bitmap",
     .device = "cpu",
     .is_exact = true,
     .description = "bitmaps over blocks of filters that lie close together, then verification",
     .features = kEverything,
     .parameters = kBlockBitmapParameters,
     .unavailable = always_available,
     .build = build_block_bitmap,
     .open = open_block_bitmap,
     .n_task_events = 4096,
     .costs = kBlockBitmapCosts,
     .on_device = "block-bitmap-cuda"},
    {.name = "block-bitmap-cuda",
     .device = "cuda",
     .is_exact = true,
     .description = "block-bitmap on a GPU: lines in shared memory, events of a batch pass by",
     .features = kEverything,
     .parameters = kBlockBitmapCudaParameters,
     .unavailable = cuda_unavailable,
     .build = build_block_bitmap_cuda,
     .n_task_events = kDeviceTask},
    {.name = "spatial-grid",
     .device = "cpu",
     .is_exact = true,
     .description = "areas in buckets by cell and name, then circle, names and content",
     .features = kEverything,
     .parameters = kSpatialGridParameters,
     .unavailable = always_available,
     .build = build_spatial_grid,
     .open = open_spatial_grid,
     .build_owned = build_owned_spatial_grid,
     .costs = kSpatialGridCosts,
     .on_device = "spatial-grid-cuda"},
    {.name = "spatial-grid-cuda",
     .device = "cuda",
     .is_exact = true,
     .description = "spatial-grid on a GPU: tasks for each event of a batch, moves in bulk",
     .features = kEverything,
     .parameters = kSpatialGridParameters,
     .unavailable = cuda_unavailable,
     .build = build_spatial_grid_cuda,
     .build_owned = build_owned_spatial_grid_cuda,
     .n_task_events = kDeviceTask},
    {.name = "ocm",
     .device = "cpu",
     .is_exact = true,
     .description = "PCM on the CPU: tables by a bit vector of names, then counting",
     .features = kEverything,
     .parameters = kOcmParameters,
     .unavailable = always_available,
     .build = build_ocm},
    {.name = "ccm",
     .device = "cuda",
     .is_exact = true,
     .description = "PCM on a GPU: tables by a bit vector of names, then a thread a constraint",
     .features = kEverything,
     .n_most_constraints = kCcmMostConstraints,
     .parameters = kCcmParameters,
     .unavailable = cuda_unavailable,
     .build = build_ccm},
    {.name = "hem",
     .device = "cpu",
     .is_exact = true,
     .description = "HEM: what an event rules out, marked by ORing bitsets of groups of cells",
     .features = kEverything,
     .parameters = kHemParameters,
     .unavailable = always_available,
     .build = build_hem,
     .costs = kHemCosts},
    {.name = "hem-cuda",
     .device = "cuda",
     .is_exact = true,
     .description = "hem on a GPU: a thread for each word of the bitsets, and for each pair",
     .features = kEverything,
     .parameters = kHemCudaParameters,
     .unavailable = cuda_unavailable,
     .build = build_hem_cuda},
    {.name = "rein",
     .device = "cpu",
     .is_exact = true,
     .description = "REIN: what an event rules out, marked cell by cell",
     .features = kEverything,
     .parameters = kReinParameters,
     .unavailable = always_available,
     .build = build_rein},
    {.name = "ada-rein",
     .device = "cpu",
     .is_exact = false,
     .description = "Ada-REIN: REIN without the attributes whose absence costs few false positives",
     .features = kEverything,
     .parameters = kAdaReinParameters,
     .unavailable = always_available,
     .build = build_ada_rein},
    {.name = "opindex",
     .device = "cpu",
     .is_exact = true,
     .description = "partitions by pivot attribute, lists by attribute and operator, counting",
     .features = kEverything,
     .parameters = {},
     .unavailable = always_available,
     .build = build_opindex},
    {.name = "sff",
     .device = "cpu",
     .is_exact = true,
     .description = "Siena Fast Forwarding: shared constraints, lists by operator, counting",
     .features = kEverything,
     .parameters = {},
     .unavailable = always_available,
     .build = build_sff},
    {.name = "tama",
     .device = "cpu",
     .is_exact = true,
     .description = "TAMA: each attribute in layers of cells, counting, candidates verified",
     .features = kEverything,
     .parameters = kTamaParameters,
     .unavailable = always_available,
     .build = build_tama},
    {.name = "be-tree",
     .device = "cpu",
     .is_exact = true,
     .description = "a tree that divides filters by attribute and by halves of its values",
     .features = kEverything,
     .parameters = kBeTreeParameters,
     .unavailable = always_available,
     .build = build_be_tree},
    {.name = "bit-vector",
     .device = "cpu",
     .is_exact = true,
     .description = "distinct constraints to a bit vector, filters by their first one",
     .features = kEverything,
     .parameters = kBitVectorParameters,
     .unavailable = always_available,
     .build = build_bit_vector},
    {.name = "clcb",
     .device = "cpu",
     .is_exact = true,
     .description = "every filter by Bloom filter of names, circle and content, in that order",
     .features = kEverything,
     .parameters = kClcbParameters,
     .unavailable = always_available,
     .build = build_clcb,
     .costs = kClcbCosts},
    {.name = "clcb-cuda",
     .device = "cuda",
     .is_exact = true,
     .description = "clcb on a GPU: a thread for each filter, and for each constraint",
     .features = kEverything,
     .n_most_constraints = kClcbCudaMostConstraints,
     .parameters = kClcbCudaParameters,
     .unavailable = cuda_unavailable,
     .build = build_clcb_cuda},
    {.name = "r-tree",
     .device = "cpu",
     .is_exact = true,
     .description = "R*-tree over the areas, content verified after",
     .features = kEverything,
     .parameters = kRTreeParameters,
     .unavailable = always_available,
     .build = build_r_tree,
     .costs = kRTreeCosts},
    {.name = "naive",
     .device = "cpu",
     .is_exact = true,
     .description = "evaluates every filter, compiled",
     .features = kEverything,
     .parameters = {},
     .unavailable = always_available,
     .build = build_naive,
     .open = open_naive,
     .costs = kNaiveCosts},
};

template <typename Items, typename Name>
std::string listed(const Items& items, Name name) {
  std::string all;
  for (const auto& item : items) {
    if (!all.empty()) all += ", ";
    all += name(item);
  }
  return all.empty() ? "none" : all;
}

std::string shown(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

std::span<const Engine> engines() { return kEngines; }

const Engine& find_engine(const std::string& name) {
  for (const Engine& engine : engines()) {
    if (name != engine.name) continue;
    if (const std::string reason = engine.unavailable(); !reason.empty()) {
      throw UnavailableError("engine " + name + " is not available here: " + reason);
    }
    return engine;
  }
  throw ArgumentError("engine must be one of auto, " +
                      listed(engines(), [](const Engine& each) { return each.name; }) + ", not " +
                      name);
}

Parameters complete_parameters(const Engine& engine, const Parameters& given) {
  Parameters all;
  for (const Parameter& parameter : engine.parameters) all[parameter.name] = parameter.preset;
  for (const auto& [name, value] : given) {
    const auto known =
        std::find_if(engine.parameters.begin(), engine.parameters.end(),
                     [&, &wanted = name](const Parameter& each) { return wanted == each.name; });
    if (known == engine.parameters.end()) {
      throw ArgumentError("engine " + std::string(engine.name) + " has no parameter " + name +
                          "; it has: " + listed(engine.parameters, [](const Parameter& each) {
                            return each.name;
                          }));
    }
    if (!(value >= known->low && value <= known->high)) {
      throw ArgumentError("parameter " + name + " of engine " + engine.name + " must lie between " +
                          shown(known->low) + " and " + shown(known->high) + ", not " +
                          shown(value));
    }
    all[name] = value;
  }
  return all;
}

std::uint32_t features_of(const FilterTable& table, FilterIdx idx) {
  const FilterTable::Filter& filter = table.filter(idx);
  std::uint32_t features =
      (filter.areas.count > 0 ? kAreas : 0u) | (filter.residuals.count > 0 ? kResiduals : 0u);
  for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
    const Constraint& constraint = table.constraint(filter.constraints.first + at);
    if (constraint.is_interval()) {
      features |= kNumbers;
      continue;
    }
    const GeneralSet& set = table.general(constraint);
    if (set.numbers.count > 0) features |= kNumbers;
    if (set.strings.count > 0) features |= kStrings;
    if (set.flags & (GeneralSet::kTrue | GeneralSet::kFalse)) features |= kBooleans;
    if (set.flags & GeneralSet::kAbsent) features |= kAbsence;
    if (set.patterns.count > 0) features |= kPatterns;
  }
  return features;
}

}  // namespace tamis
