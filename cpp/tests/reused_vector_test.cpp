// Large blocks are taken again, and results do not depend on what was in them.
#include "tamis/reused_vector.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "check.hpp"
#include "common/thread_pool.hpp"

namespace tamis {
namespace {

TEST(reused_vector_takes_a_block_again_for_about_as_many_items) {
  const std::uint64_t* data = nullptr;
  {
    ReusedVector<std::uint64_t> items(300'000, 1);
    data = items.data();
  }
  const ReusedVector<std::uint64_t> again(299'000, 2);
  CHECK(again.data() == data);
  CHECK(std::all_of(again.begin(), again.end(), [](std::uint64_t item) { return item == 2; }));
}

TEST(reused_vector_of_any_size_holds_its_items) {
  for (std::size_t n_items = 1; n_items < std::size_t{40} << 20; n_items = n_items * 5 / 3 + 1) {
    ReusedVector<std::uint32_t> items(n_items, 7);
    items.resize(n_items + 1);
    items.back() = 8;
    CHECK_EQ(items.front(), 7u);
    CHECK_EQ(items[n_items - 1], 7u);
    CHECK_EQ(items.back(), 8u);
  }
}

TEST(reused_vector_blocks_are_of_one_thread_at_a_time) {
  std::atomic<std::size_t> n_wrong = 0;
  parallel_for(200, 4, [&](std::size_t task) {
    const ReusedVector<std::size_t> items(150'000 + 20'000 * (task % 5), task);
    for (const std::size_t item : items) n_wrong += item != task;
  });
  CHECK_EQ(n_wrong.load(), 0u);
}

}  // namespace
}  // namespace tamis
