// The device by CUDA's runtime, linked statically: it finds the driver when it is first called, so
// that the package loads where there is none.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <atomic>

#include "check_cuda.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "runtime.hpp"

namespace tamis {
namespace {

// Compute capability of the oldest kernels in the package.
constexpr int kOldestMajor = 8;

// The process that first asked for a device. A child of fork must not touch CUDA: some thread of
// its parent may have been within it, and holds its locks for ever.
std::atomic<int> process{0};
bool is_child() {
  const int first = process.load(std::memory_order_relaxed);
  return first != 0 && first != ::getpid();
}

std::string find_reason() {
  int n_devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&n_devices);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    const auto version = [](int number) {
      return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
    };
    if (driver == 0) return "no NVIDIA driver was found";
    return "the NVIDIA driver is too old: it knows CUDA " + version(driver) +
           " and this build needs " + version(runtime);
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && n_devices == 0)) {
    return "no NVIDIA GPU was found";
  }
  if (status != cudaSuccess) return std::string("CUDA says: ") + cudaGetErrorString(status);
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  if (major < kOldestMajor) {
    return "the GPU has compute capability " + std::to_string(major) + "." + std::to_string(minor) +
           ", and 8.0 is needed";
  }
  return {};
}

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* mark) { return static_cast<cudaEvent_t>(mark); }

}  // namespace

std::string cuda_unavailable() {
  int none = 0;
  process.compare_exchange_strong(none, ::getpid(), std::memory_order_relaxed);
  if (is_child()) return "a GPU cannot be used after fork: start a new process instead";
  static const std::string reason = find_reason();
  return reason;
}

bool is_pinned(const void* memory) {
  // Where nobody asked for a device nothing is, and CUDA need not wake up.
  if (process.load(std::memory_order_relaxed) == 0 || !cuda_unavailable().empty()) return false;
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeHost && attributes.devicePointer == memory;
}

namespace cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const std::string reason = cudaGetErrorString(status);
  cudaGetLastError();  // or the next call would report this error again
  throw_failed(what, reason);
}

void* allocate(std::size_t n_bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, n_bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t n_free = 0, n_all = 0;
    cudaMemGetInfo(&n_free, &n_all);
    throw_no_memory(n_bytes, n_free);
  }
  check(status, "allocate memory");
  return memory;
}
// At the end of a process CUDA may be gone before us: its errors are of no use here.
void release(void* memory) noexcept {
  if (!is_child()) cudaFree(memory);
}

void* allocate_pinned(std::size_t n_bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocHost(&memory, n_bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw_no_pinned_memory(n_bytes);
  }
  check(status, "allocate pinned memory");
  return memory;
}
void release_pinned(void* memory) noexcept {
  if (!is_child()) cudaFreeHost(memory);
}

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  return stream;
}
void release_stream(Stream stream) noexcept {
  if (!is_child()) cudaStreamDestroy(stream_of(stream));
}
Mark make_mark() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
  return event;
}
void release_mark(Mark mark) noexcept {
  if (!is_child()) cudaEventDestroy(event_of(mark));
}

void copy_to_device(void* to, const void* from, std::size_t n_bytes, Stream stream) {
  check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyHostToDevice, stream_of(stream)), "copy");
}
void copy_to_host(void* to, const void* from, std::size_t n_bytes, Stream stream) {
  check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToHost, stream_of(stream)), "copy");
}
void copy_on_device(void* to, const void* from, std::size_t n_bytes, Stream stream) {
  check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToDevice, stream_of(stream)), "copy");
}
void clear(void* memory, std::size_t n_bytes, Stream stream) {
  check(cudaMemsetAsync(memory, 0, n_bytes, stream_of(stream)), "clear memory");
}
void record(Mark mark, Stream stream) {
  check(cudaEventRecord(event_of(mark), stream_of(stream)), "record an event");
}
void wait_for(Mark mark, Stream stream) {
  check(cudaStreamWaitEvent(stream_of(stream), event_of(mark), 0), "wait for an event");
}
void wait_for(Mark mark) { check(cudaEventSynchronize(event_of(mark)), "finish its work"); }
void synchronize(Stream stream) {
  check(cudaStreamSynchronize(stream_of(stream)), "finish its work");
}

void begin_capture(Stream stream) {
  check(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal),
        "capture a graph");
}
Graph end_capture(Stream stream) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_of(stream), &graph), "capture a graph");
  cudaGraphExec_t made = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&made, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "make a graph");
  return made;
}
void release_graph(Graph graph) noexcept {
  if (!is_child()) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}
void start(Graph graph, Stream stream) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream)), "start a graph");
}

}  // namespace cuda
}  // namespace tamis
