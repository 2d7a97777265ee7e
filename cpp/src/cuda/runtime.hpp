// What host code asks of a device: memory, copies, streams. buffers.hpp has owners for them.
//
// Every function that can fail throws UnavailableError where the device has no memory left, and
// Error where it failed or is gone.
#pragma once

#include <cstddef>

namespace tamis::cuda {

using Stream = void*;  // work in order, beside the host's
using Mark = void*;    // a place in a stream that the host can wait for
using Graph = void*;   // work that is started as a whole, again and again

void* allocate(std::size_t n_bytes);  // on the device
void release(void* memory) noexcept;
void* allocate_pinned(std::size_t n_bytes);  // on the host, where copies need no detour
void release_pinned(void* memory) noexcept;

Stream make_stream();
void release_stream(Stream stream) noexcept;
Mark make_mark();
void release_mark(Mark mark) noexcept;

// These return before the work is done.
void copy_to_device(void* to, const void* from, std::size_t n_bytes, Stream stream);
void copy_to_host(void* to, const void* from, std::size_t n_bytes, Stream stream);
void copy_on_device(void* to, const void* from, std::size_t n_bytes, Stream stream);
void clear(void* memory, std::size_t n_bytes, Stream stream);
void record(Mark mark, Stream stream);
void wait_for(Mark mark, Stream stream);  // what comes behind in the stream waits

void wait_for(Mark mark);
void synchronize(Stream stream);

// What this thread starts in the stream between the two is not done, but kept: copies, kernels, and
// those of other streams that wait for a mark of this one and that it waits for in the end.
void begin_capture(Stream stream);
Graph end_capture(Stream stream);
void release_graph(Graph graph) noexcept;
void start(Graph graph, Stream stream);

}  // namespace tamis::cuda
