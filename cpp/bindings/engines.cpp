// The table of engines, and what this machine offers them.
#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "common/simd.hpp"
#include "cuda/device.hpp"
#include "tamis/engine.hpp"

namespace tamis {
namespace {

constexpr std::pair<Feature, const char*> kFeatureNames[] = {
    {kNumbers, "numbers"},   {kStrings, "strings"}, {kBooleans, "booleans"},  {kAbsence, "absence"},
    {kPatterns, "patterns"}, {kAreas, "areas"},     {kResiduals, "residuals"}};

constexpr SimdLevel kLevels[] = {SimdLevel::v2, SimdLevel::avx2, SimdLevel::avx512};

}  // namespace

void bind_engines(nb::module_& module) {
  module.def("engines", [] {
    nb::list all;
    for (const Engine& engine : engines()) {
      nb::dict facts;
      facts["name"] = engine.name;
      facts["device"] = engine.device;
      facts["exact"] = engine.is_exact;
      facts["description"] = engine.description;
      nb::list supports;
      for (const auto& [feature, name] : kFeatureNames) {
        if (engine.features & feature) supports.append(name);
      }
      facts["supports"] = nb::tuple(supports);
      nb::list parameters;
      for (const Parameter& each : engine.parameters) {
        parameters.append(
            nb::make_tuple(each.name, each.preset, each.low, each.high, each.meaning));
      }
      facts["parameters"] = nb::tuple(parameters);
      facts["unavailable"] = engine.unavailable();
      all.append(facts);
    }
    return all;
  });
  module.def("cuda_unavailable", &cuda_unavailable,
             "Why no GPU engine can run here; empty if one can.");
  module.def("simd_level", [] { return simd_level_name(simd_level()); });
  module.def("simd_levels", [] {
    nb::list all;
    for (const SimdLevel level : kLevels) {
      if (has_simd_level(level)) all.append(simd_level_name(level));
    }
    return all;
  });
  module.def(
      "set_simd_level",
      [](const std::string& name) {
        for (const SimdLevel level : kLevels) {
          if (name == simd_level_name(level)) return set_simd_level(level);
        }
        throw ArgumentError("the SIMD level must be v2, avx2 or avx512, not " + name);
      },
      nb::arg("name"));
}

}  // namespace tamis
