#include "segment.hpp"

#include <algorithm>
#include <charconv>

namespace tamis {
namespace {

std::atomic<std::uint64_t> next_serial{1};

// The columns that refer to others are checked when a file is opened; the rest when it is used.
bool is_reference(const std::string& name) {
  return name != "numbers" && name != "bytes" && name != "areas";
}

std::unique_ptr<Index> build_index(const SegmentFilters& filters, const EngineChoice& choice) {
  const Engine& engine = *choice.engine;
  if (engine.build_owned == nullptr) return engine.build(filters.table, choice.parameters);
  return engine.build_owned(filters.table, choice.parameters, filters.slot_of.span());
}

// What may be moved by the writer.
MovableIndex* as_movable(Index* index, const std::shared_ptr<const Centres>& centres) {
  auto* const movable = centres ? dynamic_cast<MovableIndex*>(index) : nullptr;
  if (movable != nullptr) movable->attach(centres);
  return movable;
}

bool find_repeats(const SegmentFilters& filters) {
  for (std::size_t filter = 1; filter < filters.size(); ++filter) {
    if (filters.slot_of[filter] == filters.slot_of[filter - 1]) return true;
  }
  return false;
}

}  // namespace

void SegmentFilters::reserve_more(const SegmentFilters& more) {
  table->reserve_more(*more.table);
  slot_of.reserve(slot_of.capacity() + more.size());
  subscriber_of.reserve(subscriber_of.capacity() + more.size());
}

void SegmentFilters::append(const SegmentFilters& other, std::size_t begin, std::size_t end) {
  table->append(*other.table, static_cast<FilterIdx>(begin), static_cast<FilterIdx>(end), {});
  slot_of.append({other.slot_of.data() + begin, end - begin});
  subscriber_of.append({other.subscriber_of.data() + begin, end - begin});
}

bool SegmentFilters::has_moved() const {
  return centres != nullptr && std::any_of(slot_of.begin(), slot_of.end(), [&](std::uint32_t slot) {
           return centres->has_moved(slot);
         });
}

void SegmentFilters::take_moves() {
  Centre centre;
  for (std::size_t filter = 0; centres != nullptr && filter < size(); ++filter) {
    if (!centres->read(slot_of[filter], centre)) continue;
    table->move_areas(static_cast<FilterIdx>(filter), centre.x, centre.y);
  }
}

void SegmentFilters::shrink() {
  table->shrink();
  slot_of.shrink();
  subscriber_of.shrink();
}

// "engine <name>", then "<parameter> <value>" a line.
std::string EngineChoice::text() const {
  std::string all = "engine " + std::string(engine->name) + "\n";
  for (const auto& [name, value] : parameters) {
    char digits[32];
    all += name + " " +
           std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr) + "\n";
  }
  return all;
}

EngineChoice EngineChoice::read(std::string_view text, const Image& image) {
  EngineChoice choice;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::string_view key = line.substr(0, line.find(' '));
    if (key.size() == line.size()) image.fail("is damaged: it does not say what built an index");
    const std::string_view value = line.substr(key.size() + 1);
    if (key == "engine") {
      for (const Engine& engine : engines()) {
        if (value == engine.name && engine.unavailable().empty()) choice.engine = &engine;
      }
      continue;
    }
    double& number = choice.parameters[std::string(key)];
    if (std::from_chars(value.data(), value.data() + value.size(), number).ec != std::errc{}) {
      image.fail("is damaged: a parameter of an index is no number");
    }
  }
  return choice;
}

bool EngineChoice::can_index(const FilterTable& table, FilterIdx filter) const {
  return (features_of(table, filter) & ~engine->features) == 0 &&
         table.filter(filter).constraints.count <= engine->n_most_constraints;
}

Group::Group(std::shared_ptr<const SegmentFilters> filters, EngineChoice choice)
    : choice_(std::move(choice)),
      filters_(std::move(filters)),
      has_repeats_(find_repeats(*filters_)),
      runs_(find_runs(filters_->slot_of.span())) {
  std::unique_ptr<Index> index = build_index(*filters_, choice_);
  movable_ = as_movable(index.get(), filters_->centres);
  n_built_bytes_ = index->n_bytes();
  index_ = std::move(index);
}

Group::Group(SegmentFilters filters, EngineChoice choice, std::shared_ptr<const Index> index)
    : choice_(std::move(choice)),
      filters_(std::make_shared<const SegmentFilters>(std::move(filters))),
      index_(std::move(index)),
      n_built_bytes_(index_->n_bytes()),
      has_repeats_(find_repeats(*filters_)),
      runs_(find_runs(filters_->slot_of.span())) {}

std::size_t Group::n_table_bytes() const {
  return table().n_bytes() + filters_->slot_of.n_bytes() + filters_->subscriber_of.n_bytes();
}

void Group::save(SectionWriter& sections) const {
  check();
  const std::string choice = choice_.text();
  sections.write("choice", choice.data(), choice.size());
  const std::uint64_t n_attributes = table().n_attributes();
  sections.write("n_attributes", &n_attributes, sizeof n_attributes);
  FilterTable::for_each_column(
      [&](const std::string& name, const auto& items) { sections.write("table/" + name, items); },
      table());
  sections.write("slot_of", filters_->slot_of);
  sections.write("subscriber_of", filters_->subscriber_of);
  PrefixedWriter index_sections(sections, "index/");
  index_->save(index_sections);
}

Group::Opened Group::open(const std::shared_ptr<const Image>& image, const std::string& prefix,
                          Space space, std::size_t n_names, std::size_t n_slots,
                          std::size_t n_numbers, bool wants_index, const EngineChoice& naive,
                          std::shared_ptr<const Centres> centres) {
  const ImageReader reader(image, prefix);
  const std::span<const char> text = reader.span<char>("choice");
  const EngineChoice saved = EngineChoice::read({text.data(), text.size()}, *image);
  const std::span<const std::uint64_t> n_attributes = reader.span<std::uint64_t>("n_attributes");

  SegmentFilters filters(space);
  FilterTable::for_each_column(
      [&]<typename T>(const std::string& name, Column<T>& items) {
        if (is_reference(name)) reader.check("table/" + name);
        items = reader.column<T>("table/" + name);
      },
      *filters.table);
  if (n_attributes.size() == 1) filters.table->set_n_attributes(n_attributes[0]);
  const auto fail = [&](const std::string& what) {
    image->fail("is damaged: " + what + " leads outside of it");
  };
  if (filters.table->n_attributes() > n_names) fail("an attribute");
  if (const std::string damage = filters.table->find_damage(); !damage.empty()) fail(damage);
  const auto read_numbers = [&](const char* name, std::size_t n_most) {
    reader.check(name);
    Column<std::uint32_t> numbers = reader.column<std::uint32_t>(name);
    if (numbers.size() != filters.table->size()) fail("a filter");
    for (const std::uint32_t number : numbers) {
      if (number >= n_most) fail("a filter");
    }
    return numbers;
  };
  filters.slot_of = read_numbers("slot_of", n_slots);
  filters.subscriber_of = read_numbers("subscriber_of", n_numbers);

  // An index that is not wanted, or that this build does not know, is built by the next merge.
  const bool takes_index = wants_index && saved.engine != nullptr && saved.engine->open != nullptr;
  const EngineChoice choice = takes_index ? saved : naive;
  filters.centres = std::move(centres);
  // An index that areas can move in follows them; for any other they are moved in the table.
  if ((!takes_index || choice.engine->build_owned == nullptr) && filters.has_moved()) {
    reader.check("table/areas");
    filters.take_moves();
  }
  const std::shared_ptr<const FilterTable> table = filters.table;
  std::unique_ptr<Index> index;
  try {
    index = takes_index ? choice.engine->open(table, choice.parameters,
                                              ImageReader(image, prefix + "index/"))
                        : choice.engine->build(table, choice.parameters);
  } catch (const StorageError&) {
    throw;
  } catch (const Error& error) {
    image->fail(error.what());
  }
  MovableIndex* const movable = as_movable(index.get(), filters.centres);
  Opened opened{Group(std::move(filters), choice, std::move(index)), takes_index};
  opened.group.movable_ = movable;
  opened.group.image_ = image;
  opened.group.prefix_ = prefix;
  opened.group.is_checked_ = false;
  if (movable != nullptr && opened.group.filters_->has_moved()) {
    opened.group.check();
    Centre centre;
    for (std::size_t filter = 0; filter < opened.group.size(); ++filter) {
      const std::uint32_t slot = opened.group.slot_of()[filter];
      if (filter > 0 && opened.group.slot_of()[filter - 1] == slot) continue;
      if (opened.group.filters_->centres->read(slot, centre) && movable->can_move(slot)) {
        movable->follow(slot, centre.point);
      }
    }
  }
  return opened;
}

std::size_t Group::count_subscribers() const {
  std::vector<bool> is_here;
  std::size_t n_all = 0;
  for (const std::uint32_t subscriber : filters_->subscriber_of.span()) {
    if (subscriber >= is_here.size()) is_here.resize(std::size_t{2} * subscriber + 1);
    if (is_here[subscriber]) continue;
    is_here[subscriber] = true;
    ++n_all;
  }
  n_subscribers_.store(n_all, std::memory_order_relaxed);
  return n_all;
}

void Group::check_image() const {
  image_->check_all(prefix_);
  is_checked_.store(true, std::memory_order_release);
}

Segment::Segment(std::vector<Group> groups, EngineChoice choice, bool is_indexed)
    : groups_(std::move(groups)),
      choice_(std::move(choice)),
      is_indexed_(is_indexed),
      serial_(next_serial.fetch_add(1, std::memory_order_relaxed)) {
  for (const Group& group : groups_) size_ += group.size();
}

std::shared_ptr<const Segment> Segment::unindexed(SegmentFilters filters, const EngineChoice& naive,
                                                  std::shared_ptr<const PivotIndex> index) {
  if (!index) {
    auto built = std::make_shared<PivotIndex>(filters.table, filters.size());
    for (std::size_t filter = 0; filter < filters.size(); ++filter) built->append();
    index = std::move(built);
  }
  std::vector<Group> groups;
  groups.emplace_back(std::move(filters), naive, std::move(index));
  return std::make_shared<const Segment>(std::move(groups), naive, false);
}

std::shared_ptr<const Segment> Segment::planned(std::vector<Group> groups) {
  const auto largest =
      std::max_element(groups.begin(), groups.end(),
                       [](const Group& a, const Group& b) { return a.size() < b.size(); });
  const EngineChoice choice = largest->choice();
  auto segment = std::make_shared<Segment>(std::move(groups), choice, true);
  segment->is_planned_ = true;
  return segment;
}

std::shared_ptr<const Segment> Segment::build(SegmentFilters filters, const EngineChoice& choice,
                                              const EngineChoice& naive) {
  // Of each subscription: can the engine index all of its filters?
  std::vector<bool> is_home(filters.size(), true);
  std::size_t n_away = 0;
  for (std::size_t begin = 0, end = 0; begin < filters.size(); begin = end) {
    end = filters.end_of_slot(begin);
    bool can_index = true;
    for (std::size_t filter = begin; filter < end && can_index; ++filter) {
      can_index = choice.can_index(*filters.table, static_cast<FilterIdx>(filter));
    }
    if (can_index) continue;
    for (std::size_t filter = begin; filter < end; ++filter) is_home[filter] = false;
    n_away += end - begin;
  }
  std::vector<Group> groups;
  if (n_away == 0 || n_away == filters.size()) {
    groups.emplace_back(std::move(filters), n_away == 0 ? choice : naive);
    return std::make_shared<const Segment>(std::move(groups), choice, true);
  }
  SegmentFilters home(filters.table->space()), away(filters.table->space());
  for (std::size_t begin = 0, end = 0; begin < filters.size(); begin = end) {
    while (end < filters.size() && is_home[end] == is_home[begin]) ++end;
    (is_home[begin] ? home : away).append(filters, begin, end);
  }
  home.centres = away.centres = filters.centres;
  filters = SegmentFilters(home.table->space());
  home.shrink();
  away.shrink();
  groups.emplace_back(std::move(home), choice);
  groups.emplace_back(std::move(away), naive);
  return std::make_shared<const Segment>(std::move(groups), choice, true);
}

}  // namespace tamis
