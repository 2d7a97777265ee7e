// engine="auto" on a machine with a GPU: from how many events on it goes there, and what calls
// take.
//
// tamis_translator_bench: a line for each workload and number of threads, then calls of 16 to
// 65,536 events, the quickest of seven each, beside a matcher that stays on the CPU.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tamis/matcher.hpp"

namespace tamis {
namespace {

using Random = std::mt19937_64;

struct Workload {
  const char* name;
  std::size_t n_values;    // of an attribute
  std::size_t n_names;     // in each of three ranges, of which a filter has one attribute
  std::size_t event_size;  // attributes of an event
  std::string (*condition)(Random&);
};

constexpr Workload kWorkloads[] = {
    {"values", 20, 13, 8, [](Random& random) { return " = " + std::to_string(random() % 20); }},
    {"intervals", 1000, 3, 9, [](Random& random) {
       const std::size_t low = random() % 900;
       return " BETWEEN " + std::to_string(low) + " AND " + std::to_string(low + 100);
     }}};

std::vector<std::string> make_filters(const Workload& workload, std::size_t n) {
  Random random(3);
  std::vector<std::string> all(n);
  for (std::string& text : all) {
    for (std::size_t at = 0; at < 3; ++at) {
      const std::size_t name = workload.n_names * at + random() % workload.n_names;
      text += (at == 0 ? "a" : " AND a") + std::to_string(name) + workload.condition(random);
    }
  }
  return all;
}

EventBatch make_events(const Workload& workload, const Names& names, std::size_t n_events) {
  Random random(5);
  EventBatch events;
  events.encode_for(names);
  std::vector<AttributeId> ids(names.size());
  std::iota(ids.begin(), ids.end(), AttributeId{0});
  for (std::size_t event = 0; event < n_events; ++event) {
    std::shuffle(ids.begin(), ids.end(), random);
    for (std::size_t at = 0; at < workload.event_size; ++at) {
      events.add(ids[at], EventValue::of(static_cast<std::int64_t>(random() % workload.n_values)));
    }
    events.end_event();
  }
  return events;
}

double call_us(const Matcher& matcher, const Workload& workload, std::size_t n_events) {
  const EventBatch events = make_events(workload, matcher.view().names(), n_events);
  double least = 1e300;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    matcher.match(matcher.view(), events, {});
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count());
  }
  return least;
}

void run(const Workload& workload, std::size_t n_filters, std::size_t n_threads) {
  const std::vector<std::string> texts = make_filters(workload, n_filters);
  std::vector<NewSubscription> rows;
  for (std::size_t id = 0; id < n_filters; ++id) {
    rows.push_back({IdView::of(static_cast<std::int64_t>(id)), texts[id], std::nullopt});
  }
  MatcherOptions options;
  options.n_threads = n_threads;
  Matcher matcher(options);
  options.device_from = 0;
  Matcher on_cpu(options);
  for (Matcher* each : {&matcher, &on_cpu}) {
    each->subscribe(rows);
    each->flush();
    call_us(*each, workload, 1 << 16);
    each->flush();
  }
  for (const SegmentReasons& segment : matcher.plan()) {
    for (const GroupReasons& group : segment.groups) {
      std::printf("%s, %zu filters, %zu threads, %s: ", workload.name, n_filters, n_threads,
                  group.engine.c_str());
      if (!group.device) {
        std::puts("nothing tried");
        continue;
      }
      const DeviceReasons& device = *group.device;
      std::printf("from %zu events, %.1f us + %.2f ns there, %.1f us + %.2f ns here %s\n",
                  device.least_events, device.there.ns / 1e3, device.there.event_ns,
                  device.here.ns / 1e3, device.here.event_ns, device.why_not.c_str());
    }
  }
  for (std::size_t n_events = 16; n_events <= 1 << 16; n_events *= 4) {
    std::printf("  %6zu events  %10.1f us  %10.1f us on the CPU\n", n_events,
                call_us(matcher, workload, n_events), call_us(on_cpu, workload, n_events));
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace tamis

int main() {
  for (const tamis::Workload& workload : tamis::kWorkloads) {
    for (const std::size_t n_filters : {10'000, 300'000}) {
      for (const std::size_t n_threads : {1, 8}) tamis::run(workload, n_filters, n_threads);
    }
  }
}
