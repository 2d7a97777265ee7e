// What is known of each subscription, by slot.
#pragma once

#include <string>
#include <vector>

#include "grow_only.hpp"
#include "id_table.hpp"

namespace tamis {

class Store {
 public:
  // Read by matches, for the numbers of their snapshot.
  IdTable ids;          // slot -> id
  IdTable subscribers;  // subscriber -> id

  // The writer's alone.
  std::vector<std::uint32_t> subscriber_of;  // slot -> subscriber
  std::vector<std::string> predicates;       // slot -> text
  NumberOfId slot_of;                        // of live subscriptions
  NumberOfId subscriber_number;

  std::uint32_t add(const IdView& id, std::string predicate, const IdView& subscriber) {
    const std::uint32_t slot = ids.add(id);
    predicates.push_back(std::move(predicate));
    auto known = subscriber_number.find(subscriber);
    if (known == subscriber_number.end()) {
      const std::uint32_t number = subscribers.add(subscriber);
      known = subscriber_number.emplace(subscribers.at(number), number).first;
    }
    subscriber_of.push_back(known->second);
    // The key must be the copy that lives here, not the one of a slot that is gone.
    slot_of.erase(id);
    slot_of.emplace(ids.at(slot), slot);
    return slot;
  }

  std::size_t n_bytes() const {
    constexpr std::size_t kEntry = sizeof(NumberOfId::value_type) + 2 * sizeof(void*);
    std::size_t total = ids.n_bytes() + subscribers.n_bytes() +
                        subscriber_of.capacity() * sizeof(std::uint32_t) +
                        predicates.capacity() * sizeof(std::string) +
                        (slot_of.size() + subscriber_number.size()) * kEntry +
                        (slot_of.bucket_count() + subscriber_number.bucket_count()) * sizeof(void*);
    for (const std::string& predicate : predicates) total += predicate.capacity();
    return total;
  }
};

}  // namespace tamis
