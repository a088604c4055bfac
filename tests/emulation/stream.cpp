// The emulated GPU's stream, graphs, copies and events. Work is queued and runs late, as on a GPU that the
// host is ahead of: work that reads host memory after it was overwritten gives wrong results here too.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/emulation/include/cuda_runtime_api.h"

struct EmulatedGraph {
  std::vector<std::function<void()>> works;
};

struct EmulatedStream {
  std::vector<std::function<void()>> queue;
  EmulatedGraph* capture = nullptr;
  bool capture_failed = false;
  bool relaxed = false;  // allocations do not invalidate the capture
};

namespace {

constexpr std::size_t kLongestQueue = 64;

EmulatedStream*& the_stream() {
  static EmulatedStream* stream = nullptr;
  return stream;
}

bool capturing() {
  return the_stream() != nullptr && the_stream()->capture != nullptr;
}

// The result of a call that waits: an error while a stream is captured.
cudaError_t wait_for_all() {
  if (capturing()) {
    the_stream()->capture_failed = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  emulation::finish();
  return cudaSuccess;
}

cudaError_t error_of_allocation() {
  if (!capturing() || the_stream()->relaxed) return cudaSuccess;
  the_stream()->capture_failed = true;
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace

namespace emulation {

void submit(EmulatedStream* stream, std::function<void()> work) {
  if (stream == nullptr || stream != the_stream()) stop("work for a stream that is not open");
  if (current_device() != 0) stop("work for a stream of GPU 0 while GPU %d is current", current_device());
  if (stream->capture != nullptr) {
    stream->capture->works.push_back(std::move(work));
    return;
  }
  stream->queue.push_back(std::move(work));
  if (stream->queue.size() >= kLongestQueue) finish();
}

void finish() {
  if (the_stream() == nullptr || the_stream()->queue.empty()) return;
  const std::vector<std::function<void()>> works = std::exchange(the_stream()->queue, {});
  const OpenMemory open;
  for (const std::function<void()>& work : works) work();
}

}  // namespace emulation

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (the_stream() != nullptr) emulation::stop("a second stream");
  *stream = the_stream() = new EmulatedStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  emulation::finish();
  delete stream;
  the_stream() = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return wait_for_all();
}
cudaError_t cudaDeviceSynchronize() {
  return wait_for_all();
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (const cudaError_t error = error_of_allocation(); error != cudaSuccess) return error;
  *memory = emulation::take_memory(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (const cudaError_t error = wait_for_all(); error != cudaSuccess) return error;
  emulation::give_memory_back(memory);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  if (const cudaError_t error = error_of_allocation(); error != cudaSuccess) return error;
  *memory = emulation::take_pinned(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t error = wait_for_all(); error != cudaSuccess) return error;
  emulation::give_pinned_back(memory);
  return cudaSuccess;
}

// Pinned memory is read and written when the copy runs. Pageable memory is read before the call returns (in a
// captured graph: at every replay) and written before it returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice && !emulation::is_pinned(from) && !capturing()) {
    const auto* const first = static_cast<const unsigned char*>(from);
    const auto kept = std::make_shared<std::vector<unsigned char>>(first, first + bytes);
    emulation::submit(stream, [=] { std::memcpy(to, kept->data(), bytes); });
    return cudaSuccess;
  }
  emulation::submit(stream, [=] {
    if (kind == cudaMemcpyDeviceToDevice) emulation::count_launch("memcpy");
    if (kind == cudaMemcpyDeviceToDevice && emulation::counts_only()) return;
    std::memcpy(to, from, bytes);
  });
  const bool waits = kind == cudaMemcpyDeviceToHost && !emulation::is_pinned(to) && !capturing();
  return waits ? wait_for_all() : cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  emulation::submit(stream, [=] {
    emulation::count_launch("memset");
    if (!emulation::counts_only()) std::memset(to, value, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                              cudaStream_t stream) {
  emulation::submit(stream, [=] {
    emulation::count_launch("memset");
    if (emulation::counts_only()) return;
    for (std::size_t row = 0; row < height; ++row)
      std::memset(static_cast<char*>(to) + row * pitch, value, width);
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  if (kind != cudaMemcpyDeviceToDevice) emulation::stop("cudaMemcpy2DAsync copies within the GPU only");
  emulation::submit(stream, [=] {
    emulation::count_launch("memcpy");
    if (emulation::counts_only()) return;
    for (std::size_t row = 0; row < height; ++row)
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                  width);
  });
  return cudaSuccess;
}

// ---- events: only this matters, that waiting for one runs the queue

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->recorded = true;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return event->recorded ? wait_for_all() : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1;
  return cudaSuccess;
}

// ---- graphs: the captured work, in order

struct EmulatedGraphExec {
  std::vector<std::function<void()>> works;
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  stream->capture = new EmulatedGraph;
  stream->capture_failed = false;
  stream->relaxed = mode == cudaStreamCaptureModeRelaxed;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (stream->capture == nullptr) return cudaErrorIllegalState;
  EmulatedGraph* const captured = std::exchange(stream->capture, nullptr);
  if (stream->capture_failed) {
    delete captured;
    return cudaErrorStreamCaptureInvalidated;
  }
  *graph = captured;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture_failed   ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = graph->works.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new EmulatedGraphExec{graph->works};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const std::function<void()>& work : exec->works) emulation::submit(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
