// `r-tree`: an R*-tree over the areas, content verified after (the spatial rival of papers/003,
// section 5; the tree is that of Beckmann, Kriegel, Schneider and Seeger, SIGMOD 1990).
//
// A node's box encloses the boxes below it, so an event descends only where a box holds its
// position. A circle whose box holds it is tested exactly, and the filters of circles that hold are
// verified.
//
//     nodes_          breadth first: children of a node follow one another, leaves come last
//       first_child, n_groups, first_group
//     groups_         f32, 16 boxes a group:  ┌ x low ×16 │ x high ×16 │ y low ×16 │ y high ×16 ┐
//                     rounded outwards        └ … on the earth z low ×16 │ z high ×16 as well   ┘
//     circles_        4 × f64, in the order of the leaves: child i of a leaf is first_child + i
//     filter_begins_  of each circle, in filters_
//     filters_        of the table; those that share a circle stand together
//     unplaced_       filters without an area that is not negated, and with boundless ones:
//                     verified for each event
//
// The plane has boxes of two dimensions. The earth has boxes of three, around caps of the unit
// sphere: there is no date line and no pole in them.
//
// Invariants: a node but the root has at least two entries; a box holds every point that its
// circle's exact test accepts (it is widened by more than the test can err); all leaves are on one
// level; a filter is in filters_ once or in unplaced_.
//
// Cost for an event: the nodes whose boxes hold the position, the circles whose boxes do, the
// filters whose circles do. docs/engines/r-tree.md has the formula.
#include "r_tree.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>

#include "common/placed_filter.hpp"
#include "common/simd.hpp"
#include "tamis/error.hpp"
#include "tamis/prefetch.hpp"

namespace tamis {
namespace {

constexpr std::size_t kLanes = 16;         // boxes of a group, as find_boxes has it
constexpr std::size_t kNearlyLeast = 32;   // R*: entries whose overlap is compared
constexpr double kBoundless = 1e150;       // beyond it, products of widths would overflow
constexpr std::size_t kAhead = 8;          // filters of which a part is fetched before it is needed
constexpr std::size_t kMaxCapacity = 256;  // of a node
constexpr std::size_t kMaxGroups = kMaxCapacity / kLanes;

struct Circle {
  Point centre;
  double limit = 0;
};

struct Settings {
  std::size_t node_capacity = 0;
  std::size_t min_entries = 0;   // of a node that was split
  std::size_t n_reinserted = 0;  // of an overfull node
  bool has_bulk_load = false;
  bool shares_areas = false;
};

template <std::size_t D>
struct Box {
  std::array<double, D> low, high;

  static Box empty() {
    Box box;
    box.low.fill(std::numeric_limits<double>::infinity());
    box.high.fill(-std::numeric_limits<double>::infinity());
    return box;
  }
  void enclose(const Box& other) {
    for (std::size_t at = 0; at < D; ++at) {
      low[at] = std::min(low[at], other.low[at]);
      high[at] = std::max(high[at], other.high[at]);
    }
  }
  Box enclosing(const Box& other) const {
    Box box = *this;
    box.enclose(other);
    return box;
  }
  double volume() const {
    double product = 1;
    for (std::size_t at = 0; at < D; ++at) product *= high[at] - low[at];
    return product;
  }
  double margin() const {
    double sum = 0;
    for (std::size_t at = 0; at < D; ++at) sum += high[at] - low[at];
    return sum;
  }
  double overlap(const Box& other) const {
    double product = 1;
    for (std::size_t at = 0; at < D; ++at) {
      const double width = std::min(high[at], other.high[at]) - std::max(low[at], other.low[at]);
      if (width <= 0) return 0;
      product *= width;
    }
    return product;
  }
  double centre(std::size_t at) const { return low[at] / 2 + high[at] / 2; }
  double centre_distance(const Box& other) const {
    double sum = 0;
    for (std::size_t at = 0; at < D; ++at) {
      const double apart = centre(at) - other.centre(at);
      sum += apart * apart;
    }
    return sum;
  }
};

// Every point that is_within(point, centre, limit) accepts.
//
// If it does, fl(dx²) <= limit, so |dx| exceeds the root of the limit by two roundings at most; and
// where dx² underflows to 0, |dx| is below 1e-161.
Box<2> plane_box(const Circle& circle) {
  const double reach = std::sqrt(circle.limit) * (1 + 1e-15) + 1e-160;
  const double centre[] = {circle.centre.x, circle.centre.y};
  Box<2> box;
  for (std::size_t at = 0; at < 2; ++at) {
    box.low[at] = std::nextafter(centre[at] - reach, -std::numeric_limits<double>::infinity());
    box.high[at] = std::nextafter(centre[at] + reach, std::numeric_limits<double>::infinity());
  }
  return box;
}

// A cap of angle t around c reaches along an axis from cos(a + t) to cos(a - t), where a is the
// angle between c and the axis; to the end of the axis if that lies in the cap. Points and centres
// are unit vectors up to 1e-15, and 1e-12 is 6 micrometres on the earth.
Box<3> earth_box(const Circle& circle) {
  constexpr double kSlack = 1e-12;
  const double half_chord = std::sqrt(circle.limit) / 2 + 1e-14;
  Box<3> box;
  if (half_chord >= 1) {
    box.low.fill(-1 - kSlack);
    box.high.fill(1 + kSlack);
    return box;
  }
  const double cos_cap = 1 - 2 * half_chord * half_chord;
  const double sin_cap = 2 * half_chord * std::sqrt(1 - half_chord * half_chord);
  const double centre[] = {circle.centre.x, circle.centre.y, circle.centre.z};
  for (std::size_t at = 0; at < 3; ++at) {
    const double cos_axis = centre[at];
    const double sin_axis = std::hypot(centre[(at + 1) % 3], centre[(at + 2) % 3]);
    const double high = cos_axis >= cos_cap ? 1 : cos_axis * cos_cap + sin_axis * sin_cap;
    const double low = -cos_axis >= cos_cap ? -1 : cos_axis * cos_cap - sin_axis * sin_cap;
    box.low[at] = low - kSlack;
    box.high[at] = high + kSlack;
  }
  return box;
}

// The nearest floats that are not above and not below.
float round_down(double value) {
  if (value < -FLT_MAX) return -std::numeric_limits<float>::infinity();
  if (value > FLT_MAX) {
    return value == std::numeric_limits<double>::infinity() ? std::numeric_limits<float>::infinity()
                                                            : FLT_MAX;
  }
  const auto nearest = static_cast<float>(value);
  return nearest > value ? std::nextafter(nearest, -std::numeric_limits<float>::infinity())
                         : nearest;
}
float round_up(double value) { return -round_down(-value); }

// The tree while it is built.
template <std::size_t D>
class RStarTree {
 public:
  struct Entry {
    Box<D> box;
    std::uint32_t child = 0;  // a node; in a leaf, a circle
  };
  struct Node {
    unsigned level = 0;  // of leaves: 0
    std::vector<Entry> entries;
  };

  explicit RStarTree(const Settings& settings) : settings_(settings) { nodes_.emplace_back(); }

  const Node& node(std::uint32_t idx) const { return nodes_[idx]; }
  std::uint32_t root() const { return root_; }

  void insert(const Entry& entry) {
    reinserted_levels_ = 0;
    insert(entry, 0);
  }

  void bulk_load(std::vector<Entry> entries) {
    if (entries.empty()) return;
    nodes_.clear();
    for (unsigned level = 0;; ++level) {
      std::vector<Entry> parents = pack(entries, level);
      if (parents.size() == 1) break;
      entries = std::move(parents);
    }
    root_ = static_cast<std::uint32_t>(nodes_.size() - 1);
  }

 private:
  struct Step {
    std::uint32_t node = 0, slot = 0;
  };
  struct Choice {
    double growth = 0, volume = 0;
    std::uint32_t slot = 0;
    bool operator<(const Choice& other) const {
      return std::tie(growth, volume) < std::tie(other.growth, other.volume);
    }
  };

  static Box<D> box_of(std::span<const Entry> entries) {
    Box<D> box = Box<D>::empty();
    for (const Entry& entry : entries) box.enclose(entry.box);
    return box;
  }

  void insert(const Entry& entry, unsigned level);
  std::uint32_t choose_subtree(const Node& node, const Box<D>& box);
  std::vector<Entry> take_farthest(std::uint32_t node);
  std::uint32_t split(std::uint32_t node);
  std::vector<Entry> pack(std::vector<Entry>& entries, unsigned level);

  Settings settings_;
  std::vector<Node> nodes_;
  std::uint32_t root_ = 0;
  std::uint64_t reinserted_levels_ = 0;  // since the last entry from outside
  std::vector<Choice> choices_;          // of choose_subtree, kept for its memory
};

// Where does the box fit best? Above leaves: where overlap grows least, among the kNearlyLeast
// whose volume grows least; higher up, where volume grows least. Then by growth, then by volume.
template <std::size_t D>
std::uint32_t RStarTree<D>::choose_subtree(const Node& node, const Box<D>& box) {
  std::vector<Choice>& choices = choices_;
  choices.clear();
  for (std::uint32_t slot = 0; slot < node.entries.size(); ++slot) {
    const Box<D>& child = node.entries[slot].box;
    const double volume = child.volume();
    choices.push_back({child.enclosing(box).volume() - volume, volume, slot});
  }
  const auto least = std::min_element(choices.begin(), choices.end());
  // A child that grows by nothing overlaps its neighbours no more than before.
  if (node.level > 1 || least->growth <= 0) return least->slot;
  if (choices.size() > kNearlyLeast) {
    std::nth_element(choices.begin(), choices.begin() + (kNearlyLeast - 1), choices.end());
    choices.resize(kNearlyLeast);
  }
  std::sort(choices.begin(), choices.end());
  double least_overlap = std::numeric_limits<double>::infinity();
  std::uint32_t best = choices.front().slot;
  for (const Choice& choice : choices) {
    const Box<D>& child = node.entries[choice.slot].box;
    const Box<D> grown = child.enclosing(box);
    double overlap = 0;
    for (std::uint32_t slot = 0; slot < node.entries.size() && overlap < least_overlap; ++slot) {
      if (slot == choice.slot) continue;
      const Box<D>& other = node.entries[slot].box;
      const double after = grown.overlap(other);
      if (after > 0) overlap += after - child.overlap(other);
    }
    if (overlap < least_overlap) {
      least_overlap = overlap;
      best = choice.slot;
    }
    if (least_overlap <= 0) break;
  }
  return best;
}

// The entries farthest from the middle of the node, the nearest of them first.
template <std::size_t D>
auto RStarTree<D>::take_farthest(std::uint32_t node) -> std::vector<Entry> {
  std::vector<Entry>& entries = nodes_[node].entries;
  const Box<D> whole = box_of(entries);
  std::vector<std::pair<double, std::uint32_t>> order;
  for (std::uint32_t slot = 0; slot < entries.size(); ++slot) {
    order.emplace_back(whole.centre_distance(entries[slot].box), slot);
  }
  std::sort(order.begin(), order.end());
  std::vector<Entry> near, far;
  const std::size_t n_near = entries.size() - settings_.n_reinserted;
  for (std::size_t at = 0; at < order.size(); ++at) {
    (at < n_near ? near : far).push_back(entries[order[at].second]);
  }
  entries = std::move(near);
  return far;
}

// The axis whose divisions have the least sum of margins; along it the division with the least
// overlap, then the least volume. Gives back the new node.
template <std::size_t D>
std::uint32_t RStarTree<D>::split(std::uint32_t node) {
  std::vector<Entry> entries = std::move(nodes_[node].entries);
  const std::size_t n_entries = entries.size();
  const std::size_t least = settings_.min_entries;
  std::vector<Box<D>> heads(n_entries), tails(n_entries);  // boxes of [0, at] and [at, end)
  struct Division {
    double overlap = std::numeric_limits<double>::infinity();
    double volume = std::numeric_limits<double>::infinity();
    std::size_t axis = 0, size = 0;
    bool is_by_high = false;
  };
  double least_margin = std::numeric_limits<double>::infinity();
  Division best;
  const auto sort = [&](std::size_t axis, bool is_by_high) {
    std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
      return is_by_high ? std::tie(a.box.high[axis], a.box.low[axis], a.child) <
                              std::tie(b.box.high[axis], b.box.low[axis], b.child)
                        : std::tie(a.box.low[axis], a.box.high[axis], a.child) <
                              std::tie(b.box.low[axis], b.box.high[axis], b.child);
    });
  };
  for (std::size_t axis = 0; axis < D; ++axis) {
    double margins = 0;
    Division best_of_axis;
    for (const bool is_by_high : {false, true}) {
      sort(axis, is_by_high);
      heads[0] = entries[0].box;
      for (std::size_t at = 1; at < n_entries; ++at) {
        heads[at] = heads[at - 1].enclosing(entries[at].box);
      }
      tails[n_entries - 1] = entries[n_entries - 1].box;
      for (std::size_t at = n_entries - 1; at-- > 0;) {
        tails[at] = tails[at + 1].enclosing(entries[at].box);
      }
      for (std::size_t size = least; size + least <= n_entries; ++size) {
        const Box<D>&head = heads[size - 1], &tail = tails[size];
        margins += head.margin() + tail.margin();
        const Division division{head.overlap(tail), head.volume() + tail.volume(), axis, size,
                                is_by_high};
        if (std::tie(division.overlap, division.volume) <
                std::tie(best_of_axis.overlap, best_of_axis.volume) ||
            best_of_axis.size == 0) {
          best_of_axis = division;
        }
      }
    }
    if (margins < least_margin || best.size == 0) {
      least_margin = margins;
      best = best_of_axis;
    }
  }
  sort(best.axis, best.is_by_high);
  const auto middle = entries.begin() + static_cast<std::ptrdiff_t>(best.size);
  const auto added = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({nodes_[node].level, {middle, entries.end()}});
  nodes_[node].entries.assign(entries.begin(), middle);
  return added;
}

template <std::size_t D>
void RStarTree<D>::insert(const Entry& entry, unsigned level) {
  std::vector<Step> path;
  std::uint32_t at = root_;
  while (nodes_[at].level > level) {
    const std::uint32_t slot = choose_subtree(nodes_[at], entry.box);
    nodes_[at].entries[slot].box.enclose(entry.box);
    path.push_back({at, slot});
    at = nodes_[at].entries[slot].child;
  }
  nodes_[at].entries.push_back(entry);
  while (nodes_[at].entries.size() > settings_.node_capacity) {
    const unsigned full_level = nodes_[at].level;
    const std::uint64_t level_bit = std::uint64_t{1} << full_level;
    if (!path.empty() && settings_.n_reinserted > 0 && (reinserted_levels_ & level_bit) == 0) {
      reinserted_levels_ |= level_bit;
      const std::vector<Entry> removed = take_farthest(at);
      for (std::size_t step = path.size(); step-- > 0;) {
        Entry& parent = nodes_[path[step].node].entries[path[step].slot];
        parent.box = box_of(nodes_[parent.child].entries);
      }
      for (const Entry& again : removed) insert(again, full_level);
      return;
    }
    const std::uint32_t added = split(at);
    const Entry old_half{box_of(nodes_[at].entries), at};
    const Entry new_half{box_of(nodes_[added].entries), added};
    if (path.empty()) {
      root_ = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({full_level + 1, {old_half, new_half}});
      return;
    }
    nodes_[path.back().node].entries[path.back().slot] = old_half;
    at = path.back().node;
    path.pop_back();
    nodes_[at].entries.push_back(new_half);
  }
}

// Sort-tile-recursive packing of one level: slices along the first key, runs along the second in
// each. On the earth the keys are z, of which equal steps are equal areas, and the longitude.
template <std::size_t D>
auto RStarTree<D>::pack(std::vector<Entry>& entries, unsigned level) -> std::vector<Entry> {
  struct Key {
    double first = 0, second = 0;
    std::uint32_t slot = 0;
  };
  std::vector<Key> keys(entries.size());
  for (std::uint32_t slot = 0; slot < entries.size(); ++slot) {
    const Box<D>& box = entries[slot].box;
    keys[slot] = D == 2 ? Key{box.centre(0), box.centre(1), slot}
                        : Key{box.centre(D - 1), std::atan2(box.centre(1), box.centre(0)), slot};
  }
  const std::size_t capacity = settings_.node_capacity;
  const std::size_t n_nodes = (entries.size() + capacity - 1) / capacity;
  const double ratio = D == 2 ? 1 : 1 / std::numbers::pi;  // of the sides of all that is covered
  const auto n_slices = std::max<std::size_t>(
      1, static_cast<std::size_t>(std::sqrt(ratio * static_cast<double>(n_nodes)) + 0.5));
  // Sizes are as even as whole numbers allow, so that no node is left nearly empty.
  const auto share = [](std::size_t total, std::size_t part, std::size_t n_parts) {
    return total * part / n_parts;
  };
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return std::tie(a.first, a.second, a.slot) < std::tie(b.first, b.second, b.slot);
  });
  std::vector<Entry> parents;
  for (std::size_t slice = 0; slice < n_slices; ++slice) {
    const std::size_t first_node = share(n_nodes, slice, n_slices);
    const std::size_t slice_nodes = share(n_nodes, slice + 1, n_slices) - first_node;
    const std::size_t begin = share(entries.size(), first_node, n_nodes);
    const std::size_t size = share(entries.size(), first_node + slice_nodes, n_nodes) - begin;
    std::sort(keys.begin() + static_cast<std::ptrdiff_t>(begin),
              keys.begin() + static_cast<std::ptrdiff_t>(begin + size),
              [](const Key& a, const Key& b) {
                return std::tie(a.second, a.first, a.slot) < std::tie(b.second, b.first, b.slot);
              });
    for (std::size_t node = 0; node < slice_nodes; ++node) {
      Node packed;
      packed.level = level;
      const std::size_t last = begin + share(size, node + 1, slice_nodes);
      for (std::size_t at = begin + share(size, node, slice_nodes); at < last; ++at) {
        packed.entries.push_back(entries[keys[at].slot]);
      }
      parents.push_back({box_of(packed.entries), static_cast<std::uint32_t>(nodes_.size())});
      nodes_.push_back(std::move(packed));
    }
  }
  return parents;
}

class RTreeScratch final : public Scratch {
 public:
  ValueByAttribute event;
  std::vector<std::uint32_t> open;  // nodes to visit
  std::vector<FilterIdx> located;   // filters whose circle holds the position
};

class RTreeIndex final : public Index {
 public:
  RTreeIndex(std::shared_ptr<const FilterTable> table, const Settings& settings)
      : table_(std::move(table)), n_dimensions_(table_->space() == Space::plane ? 2 : 3) {
    collect_circles(settings);
    if (n_dimensions_ == 2) {
      build<2>(settings, plane_box);
    } else {
      build<3>(settings, earth_box);
    }
  }

  std::unique_ptr<Scratch> make_scratch() const override {
    return std::make_unique<RTreeScratch>();
  }

  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override;

  std::size_t n_bytes() const override {
    const auto bytes = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
    return sizeof(*this) + bytes(nodes_) + bytes(groups_) + bytes(circles_) +
           bytes(filter_begins_) + bytes(filters_) + bytes(unplaced_);
  }

 private:
  struct FlatNode {
    std::uint32_t first_child = 0;  // a node; of a leaf, a circle
    std::uint32_t first_group = 0;
    std::uint32_t n_groups = 0;
  };

  void collect_circles(const Settings& settings);
  template <std::size_t D>
  void build(const Settings& settings, Box<D> (*box_of)(const Circle&));
  template <std::size_t D>
  void flatten(const RStarTree<D>& tree);

  void search(RTreeScratch& scratch, Counters& counters) const;
  void verify(std::span<const FilterIdx> located, const ValueByAttribute& event,
              std::uint32_t n_areas_held, Collector& out, Counters& counters) const;

  std::shared_ptr<const FilterTable> table_;
  std::size_t n_dimensions_;
  std::uint32_t first_leaf_ = 0;
  std::vector<FlatNode> nodes_;
  std::vector<float> groups_;                 // [n_groups * n_dimensions * 32]
  std::vector<Circle> circles_;               // [n_circles]
  std::vector<std::uint32_t> filter_begins_;  // [n_circles + 1]
  std::vector<FilterIdx> filters_;
  std::vector<FilterIdx> unplaced_;
};

// Fills circles_, filter_begins_ and filters_, in an order that has nothing to do with the tree
// yet.
void RTreeIndex::collect_circles(const Settings& settings) {
  struct Run {  // filters that follow one another in `placed` and share a circle
    Circle circle;
    std::uint32_t first = 0, count = 0;
  };
  const auto key = [](const Circle& circle) {
    return std::tie(circle.centre.x, circle.centre.y, circle.centre.z, circle.limit);
  };
  std::vector<FilterIdx> placed;
  std::vector<Run> runs;
  const auto n_filters = static_cast<FilterIdx>(table_->size());
  for (FilterIdx idx = 0; idx < n_filters; ++idx) {
    const std::uint32_t area_idx = smallest_area(*table_, table_->filter(idx));
    if (area_idx == kNoArea) {
      unplaced_.push_back(idx);
      continue;
    }
    const Area& area = table_->area(area_idx);
    const Circle circle{area.centre, area.limit};
    if (n_dimensions_ == 2) {
      const Box<2> box = plane_box(circle);
      if (!(std::max({-box.low[0], -box.low[1], box.high[0], box.high[1]}) < kBoundless)) {
        unplaced_.push_back(idx);
        continue;
      }
    }
    const auto at = static_cast<std::uint32_t>(placed.size());
    placed.push_back(idx);
    if (settings.shares_areas && !runs.empty() && key(runs.back().circle) == key(circle)) {
      ++runs.back().count;
    } else {
      runs.push_back({circle, at, 1});
    }
  }
  if (settings.shares_areas) {
    std::stable_sort(runs.begin(), runs.end(),
                     [&](const Run& a, const Run& b) { return key(a.circle) < key(b.circle); });
  }
  filters_.reserve(placed.size());
  const Circle* last = nullptr;
  for (const Run& run : runs) {
    if (!settings.shares_areas || last == nullptr || key(*last) != key(run.circle)) {
      circles_.push_back(run.circle);
      filter_begins_.push_back(static_cast<std::uint32_t>(filters_.size()));
    }
    last = &run.circle;
    const auto first = placed.begin() + run.first;
    filters_.insert(filters_.end(), first, first + run.count);
  }
  filter_begins_.push_back(static_cast<std::uint32_t>(filters_.size()));
}

template <std::size_t D>
void RTreeIndex::build(const Settings& settings, Box<D> (*box_of)(const Circle&)) {
  if (circles_.empty()) return;
  using Entry = typename RStarTree<D>::Entry;
  RStarTree<D> tree(settings);
  std::vector<Entry> entries(circles_.size());
  for (std::uint32_t circle = 0; circle < circles_.size(); ++circle) {
    entries[circle] = {box_of(circles_[circle]), circle};
  }
  if (settings.has_bulk_load) {
    tree.bulk_load(std::move(entries));
  } else {
    // In the order of the table, as subscriptions would come: circles_ are sorted by place, and
    // neighbours one after the other leave a tree's nodes half empty.
    std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
      return filters_[filter_begins_[a.child]] < filters_[filter_begins_[b.child]];
    });
    for (const Entry& entry : entries) tree.insert(entry);
  }
  flatten(tree);
}

template <std::size_t D>
void RTreeIndex::flatten(const RStarTree<D>& tree) {
  std::vector<Circle> circles;
  std::vector<std::uint32_t> begins;
  std::vector<FilterIdx> filters;
  circles.reserve(circles_.size());
  begins.reserve(filter_begins_.size());
  filters.reserve(filters_.size());
  std::vector<std::uint32_t> order{tree.root()};
  for (std::size_t at = 0; at < order.size(); ++at) {
    const auto& node = tree.node(order[at]);
    if (node.level == 0 && (at == 0 || tree.node(order[at - 1]).level > 0)) {
      first_leaf_ = static_cast<std::uint32_t>(at);
    }
    FlatNode flat;
    flat.first_child = static_cast<std::uint32_t>(node.level == 0 ? circles.size() : order.size());
    flat.first_group = static_cast<std::uint32_t>(groups_.size() / (D * 2 * kLanes));
    flat.n_groups = static_cast<std::uint32_t>((node.entries.size() + kLanes - 1) / kLanes);
    const std::size_t first_float = groups_.size();
    groups_.resize(first_float + flat.n_groups * D * 2 * kLanes);
    for (std::size_t slot = 0; slot < flat.n_groups * kLanes; ++slot) {
      float* const lane =
          groups_.data() + first_float + slot / kLanes * D * 2 * kLanes + slot % kLanes;
      for (std::size_t axis = 0; axis < D; ++axis) {
        const bool is_used = slot < node.entries.size();
        lane[axis * 2 * kLanes] = is_used ? round_down(node.entries[slot].box.low[axis])
                                          : std::numeric_limits<float>::infinity();
        lane[axis * 2 * kLanes + kLanes] = is_used ? round_up(node.entries[slot].box.high[axis])
                                                   : -std::numeric_limits<float>::infinity();
      }
    }
    nodes_.push_back(flat);
    for (const auto& entry : node.entries) {
      if (node.level > 0) {
        order.push_back(entry.child);
        continue;
      }
      circles.push_back(circles_[entry.child]);
      begins.push_back(static_cast<std::uint32_t>(filters.size()));
      filters.insert(filters.end(), filters_.begin() + filter_begins_[entry.child],
                     filters_.begin() + filter_begins_[entry.child + 1]);
    }
  }
  begins.push_back(static_cast<std::uint32_t>(filters.size()));
  circles_ = std::move(circles);
  filter_begins_ = std::move(begins);
  filters_ = std::move(filters);
}

// Filters lie all over the table, so their records are fetched ahead. Most fail on their first
// constraint, for less than it costs to ask the collector.
void RTreeIndex::verify(std::span<const FilterIdx> located, const ValueByAttribute& event,
                        std::uint32_t n_areas_held, Collector& out, Counters& counters) const {
  const std::size_t n_located = located.size();
  counters.filters += n_located;
  for (std::size_t at = 0; at < n_located; ++at) {
    if (at + 2 * kAhead < n_located) {
      prefetch_line(&table_->filter(located[at + 2 * kAhead]));
    }
    if (at + kAhead < n_located) {
      const Range ahead = table_->filter(located[at + kAhead]).constraints;
      if (ahead.count > 0) prefetch_line(&table_->constraint(ahead.first));
    }
    const FilterTable::Filter& filter = table_->filter(located[at]);
    std::uint32_t n_held = 0;
    if (filter.constraints.count > 0) {
      const Constraint& first = table_->constraint(filter.constraints.first);
      ++counters.constraints;
      if (!table_->accepts(first, event[first.attribute])) continue;
      n_held = 1;
    }
    if (out.has(located[at])) continue;
    ++counters.candidates;
    if (accepts_content(*table_, filter, event, n_held, n_areas_held, counters.constraints)) {
      out.add(located[at]);
    }
  }
}

void RTreeIndex::search(RTreeScratch& scratch, Counters& counters) const {
  const SimdKernels& kernels = simd();
  const Point point = scratch.event.position();
  const double coordinates[] = {point.x, point.y, point.z};
  float below[3], above[3];
  for (std::size_t axis = 0; axis < 3; ++axis) {
    below[axis] = round_down(coordinates[axis]);
    above[axis] = round_up(coordinates[axis]);
  }
  std::uint16_t masks[kMaxGroups];
  scratch.open.assign(1, 0);
  while (!scratch.open.empty()) {
    const std::uint32_t node_idx = scratch.open.back();
    scratch.open.pop_back();
    const FlatNode& node = nodes_[node_idx];
    ++counters.nodes;
    kernels.find_boxes(groups_.data() + node.first_group * n_dimensions_ * 2 * kLanes,
                       node.n_groups, n_dimensions_, below, above, masks);
    for (std::uint32_t group = 0; group < node.n_groups; ++group) {
      for (unsigned mask = masks[group]; mask != 0; mask &= mask - 1) {
        const std::uint32_t child = node.first_child + group * static_cast<std::uint32_t>(kLanes) +
                                    static_cast<std::uint32_t>(std::countr_zero(mask));
        if (node_idx < first_leaf_) {
          scratch.open.push_back(child);
          continue;
        }
        ++counters.cells;
        const Circle& circle = circles_[child];
        if (is_within(point, circle.centre, circle.limit)) {
          scratch.located.insert(scratch.located.end(), filters_.begin() + filter_begins_[child],
                                 filters_.begin() + filter_begins_[child + 1]);
        }
      }
    }
  }
}

void RTreeIndex::match(const EventBatch& events, std::size_t begin, std::size_t end,
                       Scratch& given_scratch, Collector& out) const {
  RTreeScratch& scratch = static_cast<RTreeScratch&>(given_scratch);
  Counters counters;
  for (std::size_t each = begin; each < end; ++each) {
    out.begin_event();
    scratch.event.load(events, each, table_->n_attributes(), table_->space());
    if (!nodes_.empty() && scratch.event.has_position()) {
      scratch.located.clear();
      search(scratch, counters);
      verify(scratch.located, scratch.event, 1, out, counters);
    }
    verify(unplaced_, scratch.event, 0, out, counters);
  }
  out.counters += counters;
}

constexpr Parameter kParameters[] = {
    {"node_capacity", 32, 4, kMaxCapacity, "entries of a node at most"},
    {"bulk_load", 0, 0, 1, "1: packed by sorting and tiling; 0: inserted one by one"},
    {"min_fill_percent", 40, 10, 50, "of the capacity, in each half of a node that is split"},
    {"reinsertion_percent", 30, 0, 50, "of the capacity, taken out of an overfull node"},
    {"share_areas", 1, 0, 1, "1: filters with the same area are one entry"},
};

std::size_t whole(const Parameters& parameters, const char* name) {
  const double value = parameters.at(name);
  if (value != std::floor(value)) {
    throw ArgumentError("parameter " + std::string(name) +
                        " of engine r-tree must be a whole number, not " + std::to_string(value));
  }
  return static_cast<std::size_t>(value);
}

}  // namespace

constinit const std::span<const Parameter> kRTreeParameters = kParameters;

std::unique_ptr<Index> build_r_tree(std::shared_ptr<const FilterTable> table,
                                    const Parameters& parameters) {
  Settings settings;
  settings.node_capacity = whole(parameters, "node_capacity");
  // With nodes of one entry, a tree of equal boxes would grow in height and not in width.
  settings.min_entries = std::max<std::size_t>(
      2, settings.node_capacity * whole(parameters, "min_fill_percent") / 100);
  settings.n_reinserted = settings.node_capacity * whole(parameters, "reinsertion_percent") / 100;
  settings.has_bulk_load = whole(parameters, "bulk_load") != 0;
  settings.shares_areas = whole(parameters, "share_areas") != 0;
  return std::make_unique<RTreeIndex>(std::move(table), settings);
}

}  // namespace tamis
