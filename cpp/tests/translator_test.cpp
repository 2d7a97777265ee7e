// "auto" on a device: the same answers whatever goes there, and the arithmetic of what should.
#include "matcher/translator.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <thread>

#include "against_naive.hpp"
#include "folder.hpp"
#include "matcher/calibration.hpp"
#include "storage/journal.hpp"
#include "tamis/matcher.hpp"

namespace tamis {
namespace {

using namespace against_naive;
using testing::Folder;

constexpr std::size_t kNames = 12;

bool is_near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

void subscribe(Matcher& matcher, std::int64_t first, const std::vector<std::string>& predicates) {
  std::vector<NewSubscription> rows;
  for (std::size_t at = 0; at < predicates.size(); ++at) {
    const std::int64_t id = first + static_cast<std::int64_t>(at);
    rows.push_back({IdView::of(id), predicates[at], IdView::of(id % 50)});
  }
  CHECK(matcher.subscribe(rows).empty());
}

// With the attribute ids that the matcher has.
EventBatch encoded(const Matcher& matcher, const EventBatch& events) {
  const View view = matcher.view();
  std::vector<AttributeId> id_of(kNames);
  for (AttributeId id = 0; id < view.names().size(); ++id) {
    id_of[std::stoul(std::string(view.names().name(id)).substr(1))] = id;
  }
  EventBatch same;
  same.encode_for(view.names());
  for (std::size_t event = 0; event < events.size(); ++event) {
    for (std::size_t at = events.offsets[event]; at < events.offsets[event + 1]; ++at) {
      same.add(id_of[events.attributes[at]], events.values[at]);
    }
    same.add_position(events.x[event], events.y[event]);
    same.end_event();
  }
  return same;
}

using Found = std::vector<std::vector<std::int64_t>>;  // of each event: ids, or their number
Found found_by(const Matcher& matcher, const EventBatch& events, const MatchOptions& options) {
  const MatchResult result = matcher.match(matcher.view(), encoded(matcher, events), options);
  Found all(events.size());
  for (std::size_t event = 0; event < events.size(); ++event) {
    if (options.output == Output::count) {
      all[event] = {result.counts[event]};
    } else if (options.output == Output::ids) {
      for (auto at = result.offsets[event]; at < result.offsets[event + 1]; ++at) {
        all[event].push_back(result.id(result.targets[static_cast<std::size_t>(at)]).integer);
      }
    } else {
      for (std::uint32_t target = 0; target < result.n_targets; ++target) {
        const std::uint64_t word = result.bits[event * result.words_per_event + target / 64];
        if (word >> (target % 64) & 1) all[event].push_back(result.id(target).integer);
      }
    }
    std::sort(all[event].begin(), all[event].end());
  }
  return all;
}

void check_same(const Matcher& matcher, const Matcher& naive, const EventBatch& events) {
  for (const Output output : {Output::ids, Output::bitset, Output::count}) {
    for (const Deliver deliver : {Deliver::subscriptions, Deliver::subscribers}) {
      const MatchOptions options{output, deliver};
      CHECK(found_by(matcher, events, options) == found_by(naive, events, options));
    }
  }
}

std::vector<std::string> random_predicates(Random& random, std::size_t n) {
  std::vector<std::string> all(n);
  for (std::string& each : all) each = random_predicate(random, kNames);
  return all;
}

EventBatch random_batch(Random& random, std::size_t n_events) {
  return random_events(random, n_events, kNames);
}

std::vector<DeviceReasons> devices_of(const Matcher& matcher) {
  std::vector<DeviceReasons> all;
  for (const SegmentReasons& segment : matcher.plan()) {
    for (const GroupReasons& group : segment.groups) {
      if (group.device) all.push_back(*group.device);
    }
  }
  return all;
}

Matcher& with(Matcher& matcher, const std::vector<std::string>& predicates) {
  subscribe(matcher, 0, predicates);
  matcher.flush();
  return matcher;
}

MatcherOptions options_of(std::string engine, std::optional<std::size_t> device_from = {},
                          std::size_t n_threads = 1) {
  MatcherOptions options;
  options.engine = std::move(engine);
  options.device_from = device_from;
  options.n_threads = n_threads;
  return options;
}

TEST(translator_fits_what_calls_take) {
  const std::vector<CallTime> line{{16, 1000 + 16 * 3}, {4096, 1000 + 4096 * 3}, {256, 1768}};
  CHECK(is_near(fit_call_cost(line).ns, 1000));
  CHECK(is_near(fit_call_cost(line).event_ns, 3));
  // Short calls count as much as long ones: 10 % of each leaves both parts near.
  const std::vector<CallTime> noisy{{16, 1.1 * 31'000}, {4096, 0.9 * 34'000}, {65536, 81'000}};
  CHECK(std::abs(fit_call_cost(noisy).ns - 31'000) < 4'000);
  CHECK(std::abs(fit_call_cost(noisy).event_ns - 0.76) < 0.15);
  // Neither part is negative.
  const std::vector<CallTime> bent{{16, 16}, {256, 2560}, {4096, 409'600}};
  CHECK_EQ(fit_call_cost(bent).ns, 0);
  CHECK(fit_call_cost(bent).event_ns > 1);
  const std::vector<CallTime> falling{{16, 900}, {256, 800}};
  CHECK_EQ(fit_call_cost(falling).event_ns, 0);
  CHECK(fit_call_cost(falling).ns > 800 && fit_call_cost(falling).ns < 900);
  const std::vector<CallTime> single{{16, 160}, {16, 160}};
  CHECK(is_near(fit_call_cost(single).event_ns, 10));
  CHECK_EQ(fit_call_cost({}).ns, 0);
}

// What calls of 16, 256 and 4,096 events take.
std::size_t least_events(const double (&here)[3], const double (&there)[3]) {
  constexpr double kSizes[] = {16, 256, 4096};
  std::vector<CallTime> both[2];
  for (std::size_t at = 0; at < 3; ++at) {
    both[0].push_back({kSizes[at], here[at]});
    both[1].push_back({kSizes[at], there[at]});
  }
  return find_least_events(both[0], both[1]);
}

TEST(translator_finds_where_a_device_is_clearly_quicker) {
  // 0.9 * 200 n > 31,000 + n
  CHECK_EQ(least_events({3200, 51'200, 819'200}, {31'016, 31'256, 35'096}), 174u);
  // With several threads a call of 256 takes hardly more than one of 16.
  CHECK_EQ(least_events({60'000, 130'000, 1'000'000}, {80'000, 150'000, 600'000}), 637u);
  // Never below what was timed, and from the last loss on.
  CHECK_EQ(least_events({1e6, 1e7, 1e8}, {31'000, 31'000, 31'000}), 16u);
  CHECK_EQ(least_events({50'000, 30'000, 1e6}, {31'000, 31'000, 31'000}), 274u);
  // Behind the largest, if that is foreseeable; slower or hardly quicker; so late that it is
  // chance.
  CHECK_EQ(least_events({16, 256, 4096}, {9000, 9000, 9000}), 10'000u);
  CHECK_EQ(least_events({1600, 25'600, 409'600}, {31'016, 55'000, 440'000}), kNever);
  CHECK_EQ(least_events({1600, 25'600, 409'600}, {1520, 24'320, 389'120}), kNever);
  CHECK_EQ(least_events({16, 256, 4096}, {1e9, 1e9, 1e9}), kNever);
  CHECK_EQ(find_least_events({}, {}), kNever);
}

TEST(translator_answers_are_the_same_on_a_device) {
  Random random(41);
  std::size_t n_devices = 0;
  for (const std::size_t from : {1, 100}) {
    for (const std::size_t n_threads : {1, 3}) {
      Matcher matcher(options_of("auto", from, n_threads)), naive(options_of("naive"));
      std::int64_t next = 0;
      // A large segment, smaller ones, and a delta.
      for (const std::size_t n : {3000, 400, 130, 20}) {
        const std::vector<std::string> predicates = random_predicates(random, n);
        for (Matcher* each : {&matcher, &naive}) {
          subscribe(*each, next, predicates);
          if (n > 20) each->flush();
        }
        next += static_cast<std::int64_t>(n);
        for (std::int64_t id = next % 7; id < next; id += 41) {
          const IdView view = IdView::of(id);
          if (!naive.contains(view)) continue;
          for (Matcher* each : {&matcher, &naive}) each->unsubscribe({&view, 1});
        }
        for (const std::size_t n_events : {std::size_t{1}, from, 1 + below(random, 200)}) {
          check_same(matcher, naive, random_batch(random, n_events));
        }
      }
      // Several tasks, of the device or of the host.
      const EventBatch many = random_batch(random, n_threads == 1 || from == 1 ? 300 : 9000);
      const MatchOptions counts{Output::count, Deliver::subscriptions};
      CHECK(found_by(matcher, many, counts) == found_by(naive, many, counts));
      for (const DeviceReasons& device : devices_of(matcher)) {
        CHECK(device.why_not.empty());
        CHECK_EQ(device.least_events, from);
        CHECK(device.n_index_bytes > 0);
        CHECK(!device.is_measured);
        ++n_devices;
      }
      std::size_t n_bytes = 0, n_stats = 0;
      for (const SegmentReasons& segment : matcher.plan()) {
        for (const GroupReasons& group : segment.groups) {
          n_bytes += group.n_index_bytes + (group.device ? group.device->n_index_bytes : 0);
        }
      }
      for (const SegmentStats& segment : matcher.stats().segments) n_stats += segment.n_index_bytes;
      CHECK_EQ(n_bytes, n_stats);
    }
  }
  CHECK(n_devices > 0);
}

TEST(translator_remembers_large_calls_for_a_while_and_tries_each_group_once) {
  Random random(61);
  std::vector<std::string> predicates(Translator::kLeastFilters);
  for (std::string& each : predicates) {
    each = "a0 = " + std::to_string(below(random, 90)) + " AND a1 > " +
           std::to_string(below(random, 90));
  }
  const auto segment_of = [&](const char* engine) {
    SegmentFilters filters(Space::plane);
    filters.table = table_of(predicates, 2);
    for (std::uint32_t slot = 0; slot < filters.table->size(); ++slot) filters.add(1, slot, slot);
    std::vector<Group> groups;
    groups.emplace_back(
        std::move(filters),
        EngineChoice{&find_engine(engine), complete_parameters(find_engine(engine), {})});
    return Segment::planned(std::move(groups));
  };
  const std::shared_ptr<const Segment> segment = segment_of("tuple-key");
  const Group& group = segment->groups()[0];
  const SampledEvents events{random_events(random, 64, 2), {}};
  SampledEvents for_subscribers{random_events(random, 64, 2), {}};
  for_subscribers.uses.add({false, Output::ids, Deliver::subscribers}, 64, 1000);
  Translator translator(std::nullopt, 2);
  CHECK(!translator.wants(*segment));
  translator.see_call({Translator::kLargeCall - 1, false}, Side::host, 1);
  CHECK(!translator.wants(*segment));
  translator.see_call({Translator::kLargeCall, false}, Side::host, 1);
  CHECK(translator.wants(*segment));
  CHECK(translator.wants(*segment_of("spatial-grid")));
  CHECK(!translator.wants(*segment_of("naive")));
  translator.grow_older();
  CHECK(translator.wants(*segment));
  translator.grow_older();
  CHECK(!translator.wants(*segment));
  translator.translate(*segment, events, false);
  CHECK(group.twin() == nullptr);

  translator.see_call({Translator::kLargeCall, false}, Side::host, 1);
  translator.translate(*segment, {random_events(random, 3, 2), {}}, false);
  CHECK(group.twin() == nullptr);  // too few events: later
  translator.translate(*segment, events, false);
  const Twin* const first = group.twin();
  CHECK(first != nullptr && first->reasons().is_measured);
  CHECK(!translator.wants(*segment));
  translator.translate(*segment, events, false);
  CHECK(group.twin() == first);
  // Other events: measured again. An index that is in use stays where it is.
  const std::shared_ptr<const Index> index = first->index();
  translator.translate(*segment, for_subscribers, true);
  CHECK(group.twin() != first && group.twin()->reasons().is_measured);
  if (index) CHECK(group.twin()->index() == index);
  // Where it has lost, a group of the same size is not tried.
  const bool has_lost = group.twin()->reasons().least_events == 0;
  const std::shared_ptr<const Segment> other = segment_of("tuple-key");
  translator.translate(*other, events, false);
  CHECK(other->groups()[0].twin() != nullptr);
  CHECK_EQ(other->groups()[0].twin()->reasons().is_measured, !has_lost);
}

TEST(translator_leaves_matchers_alone_that_have_small_calls) {
  Random random(43);
  // Of one kind, so that they are one group.
  std::vector<std::string> predicates(Translator::kLeastFilters + 100);
  for (std::string& each : predicates) {
    for (const char* name : {"a0", " AND a1", " AND a2"}) {
      each += name + std::string(" = ") + std::to_string(below(random, 30));
    }
  }
  const EventBatch few = random_batch(random, 1000);
  const EventBatch many = random_batch(random, Translator::kLargeCall);
  Matcher never(options_of("auto", 0)), measured(options_of("auto")), named(options_of("naive"));
  for (Matcher* each : {&never, &measured}) {
    with(*each, predicates);
    found_by(*each, few, {Output::count, Deliver::subscriptions});
    each->flush();
    CHECK(devices_of(*each).empty());
    found_by(*each, many, {Output::count, Deliver::subscriptions});
    each->flush();
  }
  CHECK(devices_of(never).empty());
  // A large call: flush() returns when both were timed, whichever won.
  const std::vector<DeviceReasons> devices = devices_of(measured);
  CHECK(!devices.empty());
  for (const DeviceReasons& device : devices) {
    CHECK(device.is_measured);
    CHECK(device.here.event_ns > 0 && device.there.event_ns >= 0);
    CHECK_EQ(device.least_events == 0, !device.why_not.empty());
  }
  with(named, predicates);
  const MatchOptions options{Output::count, Deliver::subscriptions};
  CHECK(found_by(measured, few, options) == found_by(named, few, options));
}

TEST(translator_builds_again_after_open) {
  Random random(47);
  const Folder folder;
  const std::vector<std::string> predicates = random_predicates(random, 3000);
  Matcher naive(options_of("naive"));
  with(naive, predicates);
  {
    Matcher matcher(options_of("auto", 1));
    with(matcher, predicates).save(folder / "saved");
    CHECK(!devices_of(matcher).empty());
  }
  MatcherOptions options = options_of("auto", 1, 2);
  options.storage = StorageOptions{folder / "saved", false, SyncPolicy::none, false, false};
  Matcher opened(options);
  CHECK(devices_of(opened).empty());
  check_same(opened, naive, random_batch(random, 200));
  opened.flush();
  CHECK(!devices_of(opened).empty());
  check_same(opened, naive, random_batch(random, 200));
}

#ifndef __SANITIZE_THREAD__  // which takes no new threads after fork
TEST(translator_stays_on_the_host_in_a_child_of_fork) {
  Random random(53);
  const std::vector<std::string> predicates = random_predicates(random, 3000);
  Matcher matcher(options_of("auto", 1, 2)), naive(options_of("naive"));
  with(matcher, predicates);
  with(naive, predicates);
  const EventBatch events = random_batch(random, 300);
  const MatchOptions options{Output::ids, Deliver::subscriptions};
  const Found expected = found_by(naive, events, options);
  CHECK(found_by(matcher, events, options) == expected);
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 0;
    try {
      const std::vector<DeviceReasons> devices = devices_of(matcher);
      for (const DeviceReasons& each : devices) {
        if (each.why_not.find("after fork") == std::string::npos) status = 1;
      }
      if (devices.empty() || found_by(matcher, events, options) != expected) status = 2;
      subscribe(matcher, 10'000, random_predicates(random, 3000));
      matcher.flush();  // builds nothing there
      if (found_by(matcher, events, options).size() != events.size()) status = 3;
      for (const DeviceReasons& each : devices_of(matcher)) {
        if (each.least_events != 0) status = 4;
      }
    } catch (...) {
      status = 5;
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  CHECK(found_by(matcher, events, options) == expected);
}
#endif

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

// Enough of them that "auto" takes spatial-grid: half of what the next best takes.
constexpr std::int64_t kCircles = 20'000;

double random_place(Random& random) { return static_cast<double>(below(random, 100'000)) / 1000; }

// In a square of 100 x 100. Those that end with LIKE cannot move on a device.
std::vector<std::string> circles(Random& random, std::int64_t n, bool has_patterns) {
  std::vector<std::string> all(static_cast<std::size_t>(n));
  for (std::string& each : all) {
    each = "NEAR(" + number(random_place(random)) + ", " + number(random_place(random)) +
           ", 2) AND a" + std::to_string(below(random, kNames)) + " > " +
           std::to_string(below(random, 10));
    if (has_patterns && below(random, 20) == 0) each += " AND a0 LIKE '%x%'";
  }
  return all;
}

EventBatch placed_events(Random& random, std::size_t n_events) {
  EventBatch events;
  events.n_known = kNames;
  for (std::size_t event = 0; event < n_events; ++event) {
    if (below(random, 4) == 0) events.add(0, EventValue::of(std::string_view("axb")));
    for (AttributeId attribute = 1; attribute < kNames; ++attribute) {
      if (below(random, 3) > 0) continue;
      events.add(attribute, EventValue::of(static_cast<double>(below(random, 12))));
    }
    events.add_position(random_place(random), random_place(random));
    events.end_event();
  }
  return events;
}

std::vector<Move> random_moves(Random& random, std::size_t n_moves) {
  std::vector<Move> moves;
  for (std::size_t at = 0; at < n_moves; ++at) {
    const auto id = static_cast<std::int64_t>(below(random, kCircles));
    moves.push_back({IdView::of(id), random_place(random), random_place(random), std::nullopt});
  }
  return moves;
}

// "auto" with these circles, in spatial-grid and on a device if that can be had: it goes by times,
// and on a busy machine, or under a sanitizer, another engine may win, so this tries several times.
std::unique_ptr<Matcher> with_grid_on_device(const std::vector<std::string>& predicates,
                                             std::size_t n_threads) {
  std::unique_ptr<Matcher> matcher;
  bool is_there = false;
  for (int attempt = 0; attempt < 5 && !is_there; ++attempt) {
    matcher = std::make_unique<Matcher>(options_of("auto", 1, n_threads));
    with(*matcher, predicates);
    const std::vector<DeviceReasons> devices = devices_of(*matcher);
    is_there = std::any_of(devices.begin(), devices.end(), [](const DeviceReasons& each) {
      return each.engine == "spatial-grid-cuda" && each.why_not.empty();
    });
  }
  return matcher;
}

TEST(translator_has_areas_follow_on_a_device) {
  constexpr std::uint32_t kSlots = 1000;
  SegmentFilters filters(Space::plane);
  std::vector<std::string> predicates;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    const std::string pattern = slot == 7 ? " AND a0 LIKE '%x%'" : "";
    predicates.push_back("NEAR(" + std::to_string(slot) + ", 0, 0.4)" + pattern);
    filters.add(1, slot, slot);
  }
  filters.table = table_of(predicates, 2);
  const auto centres = std::make_shared<Centres>();
  centres->grow_to(kSlots);
  filters.centres = centres;
  // Before there is a second index, and after.
  const auto move = [&](const Group& group, std::uint32_t slot, double x, double y) {
    group.follow(slot, {x, y, 0});
    centres->move(slot, {x, y, {x, y, 0}});
  };
  std::vector<Group> groups;
  const Engine& engine = find_engine("spatial-grid");
  groups.emplace_back(std::move(filters), EngineChoice{&engine, complete_parameters(engine, {})});
  const std::shared_ptr<const Segment> segment = Segment::planned(std::move(groups));
  const Group& group = segment->groups()[0];
  CHECK(group.can_move(3) && group.can_move(7) && !group.can_move(kSlots));
  move(group, 3, 5000, 1);
  std::size_t n_settled = 0;
  Translator translator(1, 1, [&](const Group& of, const Twin&, bool is_new) {
    CHECK(&of == &group && is_new);
    ++n_settled;
    return Translator::Settled{};
  });
  translator.translate(*segment, {}, false);
  CHECK_EQ(n_settled, 1u);
  const Twin* const twin = group.twin();
  CHECK(twin != nullptr && twin->follows() && twin->reasons().why_not.empty());
  CHECK(group.can_move(4) && !group.can_move(7));
  move(group, 4, 6000, 2);

  EventBatch events;
  for (const double x : {3.0, 5000.0, 4.0, 6000.0, 5.0}) {
    events.add_position(x, x == 5000 ? 1 : x == 6000 ? 2 : 0);
    events.end_event();
  }
  const auto found = [&](const Index& index) {
    Collector::Setup setup;
    setup.output = Output::ids;
    setup.slot_of = setup.target_of = group.slot_of();
    setup.n_targets = kSlots;
    Stamps stamps;
    CollectorBuffers buffers;
    Collector out(setup, stamps, buffers);
    const std::unique_ptr<Scratch> scratch = index.make_scratch();
    index.match(events, 0, events.size(), *scratch, out);
    std::vector<std::vector<std::uint32_t>> all;
    for (std::size_t event = 0; event < events.size(); ++event) {
      all.emplace_back(out.targets().begin() + static_cast<std::ptrdiff_t>(out.begin(event)),
                       out.targets().begin() + static_cast<std::ptrdiff_t>(out.end(event)));
    }
    return all;
  };
  const std::vector<std::vector<std::uint32_t>> expected{{}, {3}, {}, {4}, {5}};
  CHECK(found(group.index()) == expected);
  CHECK(found(*twin->index()) == expected);

  // It is built once.
  translator.translate(*segment, {}, false);
  CHECK(group.twin() == twin);
}

TEST(translator_areas_move_on_a_device_too) {
  Random random(67);
  for (const bool has_patterns : {false, true}) {
    const std::vector<std::string> predicates = circles(random, kCircles, has_patterns);
    const std::unique_ptr<Matcher> own = with_grid_on_device(predicates, has_patterns ? 1 : 3);
    Matcher& matcher = *own;
    Matcher naive(options_of("naive"));
    with(naive, predicates);
    check_same(matcher, naive, placed_events(random, 40));
    for (const std::size_t n_moves : {1, 40, 5000}) {
      const std::vector<Move> moves = random_moves(random, n_moves);
      for (Matcher* each : {&matcher, &naive}) CHECK(each->move(moves).empty());
      for (const std::size_t n_events : {1, 40}) {
        check_same(matcher, naive, placed_events(random, n_events));
      }
    }
    // Another index, which begins where the areas are.
    const std::vector<std::string> more = circles(random, kCircles / 4, false);
    for (Matcher* each : {&matcher, &naive}) {
      subscribe(*each, kCircles, more);
      each->flush();
    }
    check_same(matcher, naive, placed_events(random, 40));
  }
}

// What moves while an index on the device is built must be there when it is used.
TEST(translator_areas_move_while_a_device_takes_them_over) {
  Random random(71);
  Matcher matcher(options_of("auto", 1, 2)), naive(options_of("naive"));
  const std::vector<std::string> predicates = circles(random, kCircles, false);
  for (Matcher* each : {&matcher, &naive}) subscribe(*each, 0, predicates);
  std::atomic<bool> is_done{false};
  std::thread matching([&] {
    Random own(79);
    while (!is_done) {
      const EventBatch events = placed_events(own, 1 + below(own, 20));
      CHECK_EQ(found_by(matcher, events, {Output::ids, Deliver::subscribers}).size(),
               events.size());
    }
  });
  std::vector<std::vector<Move>> moves;
  for (std::int64_t round = 1; round <= 2; ++round) {
    const std::vector<std::string> more = circles(random, kCircles / 10, false);
    for (Matcher* each : {&matcher, &naive}) subscribe(*each, 100'000 * round, more);
    std::atomic<bool> is_flushed{false};
    std::thread moving([&] {
      // Not for ever: flush() may wait for what moves.
      for (int each = 0; each < 2000 && !is_flushed; ++each) {
        moves.push_back(random_moves(random, 20));
        CHECK(matcher.move(moves.back()).empty());
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
    matcher.flush();
    is_flushed = true;
    moving.join();
  }
  is_done = true;
  matching.join();
  for (const std::vector<Move>& each : moves) CHECK(naive.move(each).empty());
  const EventBatch events = placed_events(random, 300);
  const MatchOptions options{Output::ids, Deliver::subscriptions};
  CHECK(found_by(matcher, events, options) == found_by(naive, events, options));
}

// For the sanitizers: twins come and go while others match.
TEST(translator_works_while_others_match_and_subscribe) {
  Random random(59);
  Matcher matcher(options_of("auto", 50, 2));
  const std::vector<std::string> predicates = random_predicates(random, 1500);
  with(matcher, predicates);
  std::atomic<bool> is_done{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      Random own(static_cast<std::uint64_t>(thread));
      while (!is_done) {
        const EventBatch events = random_batch(own, 1 + below(own, 100));
        CHECK_EQ(found_by(matcher, events, {Output::ids, Deliver::subscribers}).size(),
                 events.size());
        matcher.plan();
      }
    });
  }
  for (std::int64_t round = 1; round <= 3; ++round) {
    subscribe(matcher, 2000 * round, random_predicates(random, 700));
    matcher.flush();
  }
  is_done = true;
  for (std::thread& each : threads) each.join();
}

}  // namespace
}  // namespace tamis
