#include "workloads.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "single_events.hpp"
#include "tamis/ast.hpp"
#include "tamis/normal_form.hpp"

namespace tamis::bench {
namespace {

class Writer {
 public:
  explicit Writer(Workload& workload) : workload_(workload) {
    for (int name = 0; name < 100; ++name) names_.intern("a" + std::to_string(name));
  }
  void add(const std::string& filter, std::uint32_t target) {
    parse(filter, ast_);
    workload_.table->append(to_normal_form(ast_), names_);
    workload_.slot_of.push_back(static_cast<std::uint32_t>(workload_.slot_of.size()));
    workload_.target_of.push_back(target);
  }

 private:
  Workload& workload_;
  Catalogue names_;
  Ast ast_;
};

std::vector<std::size_t> distinct(Random& random, std::size_t count, std::size_t limit) {
  std::vector<std::size_t> all(limit);
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (std::size_t at = 0; at < count; ++at)
    std::swap(all[at], all[at + below(random, limit - at)]);
  all.resize(count);
  return all;
}

}  // namespace

void Workload::answer_by_naive() {
  SingleEvents naive(*this, "naive", {});
  naive.match(0, events.size());
  expected = naive.take_found();
}

double Workload::targets_per_event() const {
  std::size_t n_found = 0;
  for (const auto& each : expected) n_found += each.size();
  return static_cast<double>(n_found) / static_cast<double>(expected.size());
}

Places::Places(bool is_zipf) {
  Random random(5);
  std::vector<double> weights;
  for (int spot = 0; is_zipf && spot < 1000; ++spot) {
    spots_.push_back({uniform_(random), uniform_(random)});
    weights.push_back(1.0 / (spot + 1));
  }
  popular_ = std::discrete_distribution<std::size_t>(weights.begin(), weights.end());
}

std::pair<float, float> Places::operator()(Random& random) {
  if (spots_.empty()) {
    const auto x = static_cast<float>(uniform_(random));
    return {x, static_cast<float>(uniform_(random))};
  }
  const auto& [x, y] = spots_[popular_(random)];
  const auto near = [&](double at) {
    return static_cast<float>(std::clamp(at + 0.05 * normal_(random), 0.0, 1.0));
  };
  const float near_x = near(x);
  return {near_x, near(y)};
}

Workload pcm_default(double share) {
  Workload all;
  all.name = "pcm-default";
  all.n_targets = 10;
  Random random(1);
  const char* const operators[] = {" = ", " != ", " < ", " > "};
  Writer writer(all);
  const auto n_filters = static_cast<std::size_t>(250'000 * share);
  for (std::size_t filter = 0; filter < n_filters; ++filter) {
    std::string text;
    for (const std::size_t name : distinct(random, 3 + below(random, 3), 100)) {
      text += (text.empty() ? "a" : " AND a") + std::to_string(name) + operators[below(random, 4)] +
              std::to_string(below(random, 100));
    }
    writer.add(text, static_cast<std::uint32_t>(filter % 10));
  }
  all.events.n_known = 100;
  const std::size_t n_events = share > 1 ? 50 : 1000;  // naive answers them all
  for (std::size_t event = 0; event < n_events; ++event) {
    for (const std::size_t name : distinct(random, 3 + below(random, 3), 100)) {
      all.events.add(static_cast<AttributeId>(name),
                     EventValue::of(static_cast<std::int64_t>(below(random, 100))));
    }
    all.events.end_event();
  }
  return all;
}

Workload clcb_default(double share, bool always, bool is_zipf, std::size_t n_radii) {
  Workload all;
  all.name = always        ? "clcb-always"
             : is_zipf     ? "clcb-zipf"
             : n_radii > 1 ? "clcb-three-radii"
                           : "clcb-default";
  Places places(is_zipf);
  const auto n_subscriptions = static_cast<std::size_t>(250'000 * share);
  all.n_targets = n_subscriptions;
  Random random(2);
  const double radius = std::sqrt(0.0001 / std::numbers::pi);
  Writer writer(all);
  for (std::size_t filter = 0; filter < 10 * n_subscriptions; ++filter) {
    const auto [x, y] = places(random);
    // One radius, or that one, half of it and twice.
    const double of_size[] = {1, 0.5, 2};
    std::string text = "NEAR(" + std::to_string(x) + ", " + std::to_string(y) + ", " +
                       std::to_string(radius * of_size[filter % n_radii]) + ")";
    const std::size_t group = always ? 0 : below(random, 20);
    for (const std::size_t name : distinct(random, 3 + below(random, 3), 5)) {
      text += " AND a" + std::to_string(5 * group + name);
      const std::string value = std::to_string(below(random, 100));
      const std::size_t kind = below(random, 10);
      text += always ? " >= 0"
                     : (kind == 0  ? " = "
                        : kind < 6 ? " != "
                        : kind < 8 ? " < "
                                   : " > ") +
                           value;
    }
    writer.add(text, static_cast<std::uint32_t>(filter / 10));
  }
  all.events.n_known = 100;
  for (std::size_t event = 0; event < 200; ++event) {
    const std::size_t group = always ? 0 : below(random, 20);
    for (const std::size_t name : distinct(random, always ? 5 : 3 + below(random, 3), 5)) {
      all.events.add(static_cast<AttributeId>(5 * group + name),
                     EventValue::of(static_cast<std::int64_t>(below(random, 100))));
    }
    const auto [x, y] = places(random);
    all.events.add_position(x, y);
    all.events.end_event();
  }
  return all;
}

Workload hem_default(double share) {
  Workload all;
  all.name = "hem-default";
  const auto n_filters = static_cast<std::size_t>(1'000'000 * share);
  all.n_targets = n_filters;
  Random random(3);
  Writer writer(all);
  for (std::size_t filter = 0; filter < n_filters; ++filter) {
    std::string text;
    for (const std::size_t name : distinct(random, 10, 20)) {
      const std::size_t low = 1 + below(random, 700'000);
      text += (text.empty() ? "a" : " AND a") + std::to_string(name) + " BETWEEN " +
              std::to_string(low) + " AND " + std::to_string(low + 300'000);
    }
    writer.add(text, static_cast<std::uint32_t>(filter));
  }
  all.events.n_known = 100;
  for (std::size_t event = 0; event < 200; ++event) {
    for (AttributeId name = 0; name < 20; ++name) {
      all.events.add(name, EventValue::of(static_cast<std::int64_t>(1 + below(random, 1'000'000))));
    }
    all.events.end_event();
  }
  return all;
}

}  // namespace tamis::bench
