// Groups of a segment: what an engine of few features cannot index falls back, and nobody notices.
#include "matcher/segment.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"
#include "folder.hpp"
#include "matcher/snapshot.hpp"
#include "tamis/ast.hpp"
#include "tamis/normal_form.hpp"

namespace tamis {
namespace {

using testing::Folder;
using Random = std::mt19937;

constexpr std::size_t kNames = 6;

// An engine as if it knew neither absence nor areas, and at most two constraints of a filter.
EngineChoice few_features(const std::string& name = "ocm") {
  static std::map<std::string, Engine> made;
  Engine& engine = made.try_emplace(name, find_engine(name)).first->second;
  engine.features = kEverything & ~(kAbsence | kAreas);
  engine.n_most_constraints = 2;
  return {&engine, complete_parameters(engine, {})};
}
EngineChoice naive() { return {&find_engine("naive"), {}}; }

std::string condition(Random& random, bool is_plain) {
  const std::string name = "a" + std::to_string(random() % kNames);
  switch (random() % (is_plain ? 4 : 7)) {
    case 0:
      return name + " = 's" + std::to_string(random() % 3) + "'";
    case 1:
      return name + " LIKE '%1'";
    case 2:
    case 3:
      return name + " >= " + std::to_string(random() % 4);
    case 4:
      return name + " IS NULL";
    case 5:
      return "NEAR(1, 1, 2)";
    default:
      return "(" + name + " IS NULL OR " + name + " < 2)";
  }
}

// One to three filters of one to three constraints; `kind` 0: the engine can index all.
std::string predicate(Random& random, unsigned kind) {
  std::string text;
  for (std::size_t filter = 0, n_filters = 1 + random() % 3; filter < n_filters; ++filter) {
    if (filter > 0) text += " OR ";
    const std::size_t n_conditions = 1 + random() % (kind == 0 ? 2 : 3);
    for (std::size_t each = 0; each < n_conditions; ++each) {
      text += (each > 0 ? " AND " : "") + condition(random, kind == 0);
    }
  }
  return text;
}

EventBatch random_events(Random& random, const Names& names, std::size_t n_events) {
  EventBatch events;
  events.encode_for(names);
  static const std::string texts[] = {"s0", "s1", "s2"};
  for (std::size_t event = 0; event < n_events; ++event) {
    for (AttributeId attribute = 0; attribute < kNames; ++attribute) {
      if (random() % 3 == 0) continue;
      events.add(attribute, random() % 2 ? EventValue::of(static_cast<std::int64_t>(random() % 5))
                                         : EventValue::of(std::string_view(texts[random() % 3])));
    }
    events.add_position(static_cast<double>(random() % 6), 1);
    events.end_event();
  }
  return events;
}

// Subscriptions with a store, as filters that a segment is built of.
struct Subscriptions {
  Subscriptions(std::size_t n_subscriptions, unsigned kinds, unsigned seed) : random(seed) {
    for (std::size_t name = 0; name < kNames; ++name) names.intern("a" + std::to_string(name));
    Ast ast;
    for (std::size_t id = 0; id < n_subscriptions; ++id) {
      const std::string text = predicate(random, kinds == 2 ? id % 2 : kinds);
      parse(text, ast);
      const std::size_t n_before = filters.table->size();
      filters.table->append(to_normal_form(ast), names);
      const std::size_t n_filters = filters.table->size() - n_before;
      const std::uint32_t slot =
          store->add(IdView::of(static_cast<std::int64_t>(id)), text,
                     IdView::of(static_cast<std::int64_t>(id % 20)), n_filters > 0, 1);
      filters.add(n_filters, slot, store->subscriber_of(slot));
    }
    for (std::uint32_t slot = 0; slot < n_subscriptions; slot += 3) store->kill(slot, 2);
  }
  SegmentFilters copy() const {
    SegmentFilters all(Space::plane);
    all.append(filters, 0, filters.size());
    return all;
  }
  std::shared_ptr<const Snapshot> snapshot(std::shared_ptr<const Segment> segment) const {
    return snapshot(std::move(segment), store);
  }
  std::shared_ptr<const Snapshot> snapshot(std::shared_ptr<const Segment> segment,
                                           std::shared_ptr<const Store> of_segment) const {
    auto made = std::make_shared<Snapshot>();
    made->segments = {std::move(segment)};
    made->names = names.names();
    made->version = 3;
    made->id_type = IdType::integer;
    made->n_slots = of_segment->n_slots();
    made->n_subscribers = of_segment->n_subscriber_numbers();
    made->has_dead = true;
    made->store = std::move(of_segment);
    return made;
  }

  Random random;
  Catalogue names;
  SegmentFilters filters{Space::plane};
  std::shared_ptr<Store> store = std::make_shared<Store>();
};

// Ids of each event, by every output and to both targets.
using Answers = std::vector<std::set<std::int64_t>>;
Answers answers_of(const Snapshot& snapshot, const EventBatch& events, Deliver deliver) {
  Workspace workspace;
  const auto id_of = [&](std::uint32_t target) {
    return (deliver == Deliver::subscribers ? snapshot.store->subscriber_id(target)
                                            : snapshot.store->id(target))
        .integer;
  };
  const auto match_all = [&](Output output, const MatchRows& rows) {
    return match_range(snapshot, events, {output, deliver}, false, 0, events.size(), Side::host,
                       rows, workspace);
  };
  std::vector<std::int64_t> n_ids(events.size(), -1), counts(events.size(), -2);
  const MatchPart ids = match_all(Output::ids, {n_ids.data(), nullptr, 0});
  match_all(Output::count, {counts.data(), nullptr, 0});
  const std::size_t n_targets =
      deliver == Deliver::subscribers ? snapshot.n_subscribers : snapshot.n_slots;
  const std::size_t n_words = (n_targets + 63) / 64;
  std::vector<std::uint64_t> bits(n_words * events.size());
  match_all(Output::bitset, {nullptr, bits.data(), n_words});
  CHECK(n_ids == counts);
  Answers answers(events.size());
  std::size_t at = 0;
  for (std::size_t event = 0; event < events.size(); ++event) {
    for (std::int64_t each = 0; each < n_ids[event]; ++each, ++at) {
      answers[event].insert(id_of(ids.targets[at]));
    }
    CHECK_EQ(answers[event].size(), static_cast<std::size_t>(n_ids[event]));  // each once
    std::set<std::int64_t> by_bits;
    for (std::uint32_t target = 0; target < n_targets; ++target) {
      if (bits[event * n_words + target / 64] >> (target % 64) & 1) by_bits.insert(id_of(target));
    }
    CHECK(by_bits == answers[event]);
  }
  return answers;
}

void check_same_answers(const Snapshot& snapshot, const Snapshot& expected,
                        const EventBatch& events) {
  for (const Deliver deliver : {Deliver::subscriptions, Deliver::subscribers}) {
    const Answers wanted = answers_of(expected, events, deliver);
    CHECK(answers_of(snapshot, events, deliver) == wanted);
    std::size_t n_found = 0;
    for (const auto& each : wanted) n_found += each.size();
    CHECK(n_found > events.size());  // or the test says nothing
  }
}

TEST(a_segment_puts_what_its_engine_cannot_index_into_a_fallback) {
  const EngineChoice few = few_features();
  for (unsigned seed = 1; seed <= 5; ++seed) {
    Subscriptions given(400, 2, seed);
    // What must fall back, said another way than Segment::build says it.
    std::map<std::uint32_t, bool> falls_back;
    for (FilterIdx filter = 0; filter < given.filters.size(); ++filter) {
      const std::uint32_t features = features_of(*given.filters.table, filter);
      falls_back[given.filters.slot_of[filter]] |=
          (features & (kAbsence | kAreas)) != 0 ||
          given.filters.table->filter(filter).constraints.count > 2;
    }
    const std::shared_ptr<const Segment> segment = Segment::build(given.copy(), few, naive());
    CHECK_EQ(segment->groups().size(), 2u);
    CHECK(segment->is_indexed());
    CHECK(segment->choice() == few);
    CHECK_EQ(segment->size(), given.filters.size());
    CHECK(segment->groups()[0].choice() == few);
    CHECK(segment->groups()[1].choice() == naive());
    std::map<std::uint32_t, std::size_t> n_filters;
    for (std::size_t group = 0; group < 2; ++group) {
      const Group& each = segment->groups()[group];
      CHECK(each.size() > 50);
      CHECK_EQ(each.size(), each.table().size());
      for (FilterIdx filter = 0; filter < each.size(); ++filter) {
        const std::uint32_t slot = each.slot_of()[filter];
        CHECK_EQ(falls_back[slot], group == 1);
        CHECK_EQ(each.subscriber_of()[filter], given.store->subscriber_of(slot));
        if (group == 0) CHECK(few.can_index(each.table(), filter));
        ++n_filters[slot];
      }
    }
    for (const std::uint32_t slot : given.filters.slot_of) --n_filters[slot];
    CHECK(std::all_of(n_filters.begin(), n_filters.end(),
                      [](const auto& each) { return each.second == 0; }));

    const EventBatch events = random_events(given.random, *given.names.names(), 60);
    check_same_answers(*given.snapshot(segment),
                       *given.snapshot(Segment::unindexed(given.copy(), naive())), events);
  }
}

TEST(a_segment_has_one_group_where_all_or_none_falls_back) {
  const EngineChoice few = few_features();
  const Subscriptions plain(100, 0, 1);
  const std::shared_ptr<const Segment> home = Segment::build(plain.copy(), few, naive());
  CHECK_EQ(home->groups().size(), 1u);
  CHECK(home->groups()[0].choice() == few);

  EngineChoice nothing = few;
  static const Engine knows_nothing = [] {
    Engine engine = find_engine("ocm");
    engine.features = 0;
    return engine;
  }();
  nothing.engine = &knows_nothing;
  Subscriptions given(100, 0, 1);
  const std::shared_ptr<const Segment> away = Segment::build(given.copy(), nothing, naive());
  CHECK_EQ(away->groups().size(), 1u);
  CHECK(away->groups()[0].choice() == naive());
  CHECK(away->choice() == nothing);  // nobody tries to index it again
  CHECK(away->is_indexed());
  const EventBatch events = random_events(given.random, *given.names.names(), 30);
  check_same_answers(*given.snapshot(away),
                     *given.snapshot(Segment::unindexed(given.copy(), naive())), events);
}

TEST(both_groups_of_a_segment_are_saved_and_opened) {
  for (const Engine& engine : engines()) {
    if (!engine.unavailable().empty() || !engine.is_exact) continue;
    const Folder folder;
    Subscriptions given(300, 2, 9);
    const std::shared_ptr<const Segment> segment =
        Segment::build(given.copy(), few_features(engine.name), naive());
    const std::shared_ptr<const Snapshot> saved = given.snapshot(segment);
    const std::string path = folder / "image";
    ImageWriter writer(path);
    save_snapshot(*saved, writer);
    writer.finish();
    const EventBatch events = random_events(given.random, *given.names.names(), 60);

    const EngineChoice wanted{&engine, complete_parameters(engine, {})};
    EngineChoice other = wanted;
    other.parameters["of another kind"] = 1;
    for (const EngineChoice* choice : {&wanted, &std::as_const(other)}) {
      const std::shared_ptr<const Image> image = Image::open(path, writer.n_bytes());
      const OpenedImage opened = open_image(image, Space::plane, choice, naive());
      CHECK_EQ(opened.segments.size(), 1u);
      CHECK_EQ(opened.names.size(), kNames);
      const Segment& found = *opened.segments[0];
      CHECK_EQ(found.groups().size(), 2u);
      // What cannot be opened, or is not wanted so, waits for a merge.
      const bool is_taken = choice == &wanted && engine.open != nullptr;
      CHECK_EQ(found.is_indexed(), is_taken);
      for (std::size_t group = 0; group < 2; ++group) {
        CHECK_EQ(found.groups()[group].size(), segment->groups()[group].size());
        CHECK_EQ(std::string(found.groups()[group].engine().name),
                 std::string(group == 0 && is_taken ? engine.name : "naive"));
      }
      check_same_answers(*given.snapshot(opened.segments[0], opened.store), *saved, events);
    }
  }
}

// A subscriber that has gone keeps its number, and must not keep engines from stopping.
TEST(segment_stops_where_all_subscribers_that_it_has_are_settled) {
  constexpr std::size_t kFilters = 6000, kSubscribers = 10;
  for (const char* name : {"tuple-key", "block-bitmap", "sff"}) {
    Subscriptions given(0, 0, 5);
    Ast ast;
    given.store->add(IdView::of(std::int64_t{-1}), "a1 = 1", IdView::of(std::int64_t{-1}), false,
                     1);
    for (std::size_t id = 0; id < kFilters; ++id) {
      const std::string text = "a0 != " + std::to_string(id % 50);
      parse(text, ast);
      given.filters.table->append(to_normal_form(ast), given.names);
      const std::uint32_t slot =
          given.store->add(IdView::of(static_cast<std::int64_t>(id)), text,
                           IdView::of(static_cast<std::int64_t>(id % kSubscribers)), true, 1);
      given.filters.add(1, slot, given.store->subscriber_of(slot));
    }
    const Engine& engine = find_engine(name);
    const EngineChoice choice{&engine, complete_parameters(engine, {})};
    const Engine& naive = find_engine("naive");
    const auto segment =
        Segment::build(given.copy(), choice, {&naive, complete_parameters(naive, {})});
    CHECK_EQ(segment->groups()[0].n_subscribers(), kSubscribers);
    Snapshot snapshot;
    snapshot.segments = {segment};
    snapshot.names = given.names.names();
    snapshot.version = 3;
    snapshot.store = given.store;
    snapshot.n_slots = given.store->n_slots();
    snapshot.n_subscribers = given.store->n_subscriber_numbers();
    CHECK_EQ(snapshot.n_subscribers, kSubscribers + 1);
    EventBatch events;
    events.encode_for(*snapshot.names);
    events.add(0, EventValue::of(std::int64_t{70}));
    events.end_event();
    Workspace workspace;
    std::int64_t n_found = 0;
    const MatchPart part = match_range(snapshot, events, {Output::ids, Deliver::subscribers}, false,
                                       0, 1, Side::host, {&n_found, nullptr, 0}, workspace);
    CHECK_EQ(n_found, static_cast<std::int64_t>(kSubscribers));
    CHECK(part.counters.candidates < kFilters / 2);
  }
}

}  // namespace
}  // namespace tamis
