// The device is the host: memory is malloc's, and work is done when it is asked for.
#include "cuda/runtime.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "cuda/device.hpp"
#include "cuda/errors.hpp"
#include "recording.hpp"
#include "runtime.hpp"

namespace tamis {

std::string cuda_unavailable() { return {}; }

namespace cuda {
namespace {

std::mutex pinned_mutex;
std::map<const std::byte*, std::size_t> pinned;  // bytes of each allocation

// In front of each allocation: its size, and room so that what follows is aligned as CUDA aligns.
constexpr std::size_t kHead = 256;

std::atomic<std::size_t> n_free{std::numeric_limits<std::size_t>::max()};
std::atomic<std::size_t> n_taken{0};
std::atomic<bool> is_gone{false};
constexpr std::size_t kMany = std::numeric_limits<std::size_t>::max();
std::atomic<std::size_t> n_calls_left{kMany};

void check(const char* what) {
  if (n_calls_left != kMany && (n_calls_left == 0 || n_calls_left-- == 0)) is_gone = true;
  if (is_gone) throw_failed(what, "the device is gone");
}

void* take(std::size_t n_bytes) {
  auto* const head =
      static_cast<std::byte*>(::operator new(kHead + n_bytes, std::align_val_t{kHead}));
  std::memcpy(head, &n_bytes, sizeof n_bytes);
  std::memset(head + kHead, 0xA5, n_bytes);  // nobody may count on zeros
  n_taken += n_bytes;
  return head + kHead;
}

std::size_t give_back(void* memory) {
  std::byte* const head = static_cast<std::byte*>(memory) - kHead;
  std::size_t n_bytes = 0;
  std::memcpy(&n_bytes, head, sizeof n_bytes);
  ::operator delete(head, std::align_val_t{kHead});
  n_taken -= n_bytes;
  return n_bytes;
}

}  // namespace

namespace shim {

void set_free_bytes(std::size_t n_bytes) { n_free = n_bytes; }
void set_lost(bool is_lost) {
  is_gone = is_lost;
  n_calls_left = kMany;
}
void lose_after(std::size_t n_calls) { n_calls_left = n_calls; }
std::size_t n_bytes_taken() { return n_taken; }

}  // namespace shim

void* allocate(std::size_t n_bytes) {
  check("allocate memory");
  std::size_t before = n_free;
  do {
    if (n_bytes > before) throw_no_memory(n_bytes, before);
  } while (!n_free.compare_exchange_weak(before, before - n_bytes));
  return take(n_bytes);
}
void release(void* memory) noexcept { n_free += give_back(memory); }
void* allocate_pinned(std::size_t n_bytes) {
  check("allocate pinned memory");
  if (n_bytes > n_free) throw_no_memory(n_bytes, n_free);  // it is short of that, too
  void* const memory = take(n_bytes);
  const std::lock_guard lock(pinned_mutex);
  pinned[static_cast<std::byte*>(memory)] = n_bytes;
  return memory;
}
void release_pinned(void* memory) noexcept {
  {
    const std::lock_guard lock(pinned_mutex);
    pinned.erase(static_cast<std::byte*>(memory));
  }
  give_back(memory);
}

Stream make_stream() { return nullptr; }
void release_stream(Stream) noexcept {}
Mark make_mark() { return nullptr; }
void release_mark(Mark) noexcept {}

void copy_to_device(void* to, const void* from, std::size_t n_bytes, Stream) {
  check("copy");
  do_or_record([=] { std::memcpy(to, from, n_bytes); });
}
void copy_to_host(void* to, const void* from, std::size_t n_bytes, Stream) {
  check("copy");
  do_or_record([=] { std::memcpy(to, from, n_bytes); });
}
void copy_on_device(void* to, const void* from, std::size_t n_bytes, Stream) {
  check("copy");
  do_or_record([=] { std::memcpy(to, from, n_bytes); });
}
void clear(void* memory, std::size_t n_bytes, Stream) {
  check("clear memory");
  do_or_record([=] { std::memset(memory, 0, n_bytes); });
}
void record(Mark, Stream) {}
void wait_for(Mark, Stream) { check("wait for an event"); }
void wait_for(Mark) { check("finish its work"); }
void synchronize(Stream) { check("finish its work"); }

void begin_capture(Stream) {
  check("capture a graph");
  recording = new Recording;
}
Graph end_capture(Stream) {
  std::unique_ptr<Recording> made(std::exchange(recording, nullptr));
  check("capture a graph");
  return made.release();
}
void release_graph(Graph graph) noexcept { delete static_cast<Recording*>(graph); }
void start(Graph graph, Stream) {
  check("start a graph");
  for (const auto& work : *static_cast<Recording*>(graph)) work();
}

}  // namespace cuda

bool is_pinned(const void* memory) {
  const auto* const at = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(cuda::pinned_mutex);
  auto next = cuda::pinned.upper_bound(at);
  if (next == cuda::pinned.begin()) return false;
  --next;
  return at < next->first + next->second;
}

}  // namespace tamis
