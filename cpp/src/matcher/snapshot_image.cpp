// A snapshot as an image file, and back.
//
//     meta, names                                     what the matcher knows
//     totals, slots, subscribers, ..., texts          the store (store.cpp)
//     s<i>/g<j>/about, table/..., slot_of, index/...  group j of segment i (segment.cpp)
#include <cstring>

#include "snapshot.hpp"

namespace tamis {
namespace {

struct Meta {
  std::uint64_t id_type, n_segments, n_names;
};

// In place of the engine that a segment was built for.
constexpr const char* kPlanned = "engine auto\n";

std::string segment_prefix(std::size_t segment) { return "s" + std::to_string(segment) + "/"; }
std::string group_prefix(std::size_t segment, std::size_t group) {
  return segment_prefix(segment) + "g" + std::to_string(group) + "/";
}

}  // namespace

void save_snapshot(const Snapshot& snapshot, ImageWriter& image) {
  std::vector<std::shared_ptr<const Segment>> segments = snapshot.segments;
  std::vector<bool> is_used(snapshot.n_slots);
  SegmentFilters newest(snapshot.n_delta_filters > 0 ? snapshot.delta->table().space()
                                                     : Space::plane);
  if (snapshot.n_delta_filters > 0) {
    newest.append(snapshot.delta->filters(), 0, snapshot.n_delta_filters);
    const EngineChoice naive{&find_engine("naive"), {}};
    segments.push_back(Segment::unindexed(std::move(newest), naive));
  }
  for (const auto& segment : segments) {
    for (const Group& group : segment->groups()) {
      for (const std::uint32_t slot : group.filters().slot_of) is_used[slot] = true;
    }
  }
  const Meta meta{static_cast<std::uint64_t>(snapshot.id_type), segments.size(),
                  snapshot.names->size()};
  image.write("meta", &meta, sizeof meta);
  std::string names;
  for (AttributeId id = 0; id < snapshot.names->size(); ++id) {
    const std::string_view name = snapshot.names->name(id);
    const auto length = static_cast<std::uint32_t>(name.size());
    names.append(reinterpret_cast<const char*>(&length), sizeof length);
    names += name;
  }
  image.write("names", names.data(), names.size());
  snapshot.store->save(snapshot.version, snapshot.n_slots, snapshot.n_subscribers, is_used, image);
  for (std::size_t at = 0; at < segments.size(); ++at) {
    const std::uint32_t about[2] = {segments[at]->is_indexed(),
                                    static_cast<std::uint32_t>(segments[at]->groups().size())};
    image.write(segment_prefix(at) + "about", about, sizeof about);
    const std::string choice =
        segments[at]->is_planned() ? kPlanned : segments[at]->choice().text();
    image.write(segment_prefix(at) + "choice", choice.data(), choice.size());
    for (std::size_t group = 0; group < segments[at]->groups().size(); ++group) {
      PrefixedWriter sections(image, group_prefix(at, group));
      segments[at]->groups()[group].save(sections);
    }
  }
}

OpenedImage open_image(const std::shared_ptr<const Image>& image, Space space,
                       const EngineChoice* wanted, const EngineChoice& naive) {
  const ImageReader reader(image, "");
  OpenedImage opened;
  const std::span<const Meta> meta = reader.span<Meta>("meta");
  if (meta.size() != 1 || meta[0].id_type > 2)
    image->fail("is damaged: it does not say what it is");
  opened.id_type = static_cast<IdType>(meta[0].id_type);
  std::span<const char> names = reader.span<char>("names");
  for (std::uint64_t left = meta[0].n_names; left > 0; --left) {
    std::uint32_t length = 0;
    if (names.size() < sizeof length) image->fail("is damaged: a name is missing");
    std::memcpy(&length, names.data(), sizeof length);
    names = names.subspan(sizeof length);
    if (names.size() < length) image->fail("is damaged: a name is missing");
    opened.names.emplace_back(names.data(), length);
    names = names.subspan(length);
  }
  opened.store = std::make_shared<Store>();
  opened.store->open(image, space);
  for (std::size_t at = 0; at < meta[0].n_segments; ++at) {
    const std::span<const std::uint32_t> about =
        reader.span<std::uint32_t>(segment_prefix(at) + "about");
    if (about.size() != 2) image->fail("is damaged: it does not say what a segment is");
    const std::span<const char> text = reader.span<char>(segment_prefix(at) + "choice");
    const bool is_planned = std::string_view(text.data(), text.size()) == kPlanned;
    const EngineChoice choice =
        is_planned ? naive : EngineChoice::read({text.data(), text.size()}, *image);
    // What another engine than the wanted one has indexed is for the next merge.
    bool is_indexed = about[0] != 0 && choice.engine != nullptr &&
                      (wanted == nullptr ? is_planned : !is_planned && choice == *wanted);
    const bool wants_index = is_indexed;
    std::vector<Group> groups;
    for (std::size_t group = 0; group < about[1]; ++group) {
      Group::Opened each = Group::open(
          image, group_prefix(at, group), space, opened.names.size(), opened.store->n_slots(),
          opened.store->n_subscriber_numbers(), wants_index, naive, opened.store->centres());
      is_indexed = is_indexed && each.has_index;
      groups.push_back(std::move(each.group));
    }
    opened.segments.push_back(
        is_planned && is_indexed ? Segment::planned(std::move(groups))
                                 : std::make_shared<const Segment>(
                                       std::move(groups), is_indexed ? choice : naive, is_indexed));
  }
  return opened;
}

}  // namespace tamis
