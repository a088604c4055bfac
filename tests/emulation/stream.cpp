// The emulated GPU's streams, graphs, copies and events. Work is queued and runs late, as on a GPU that the
// host is ahead of: work that reads host memory after it was overwritten gives wrong results here too. Of several
// streams each runs in its order, and which one goes on is random: work that does not wait for what another stream
// does for it gives wrong results, though perhaps not in the first run.
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/emulation/include/cuda_runtime_api.h"

struct EmulatedGraph {
  std::vector<std::function<void()>> works;
};

struct EmulatedStream {
  struct Item {
    std::function<void()> work;
    std::function<bool()> may_run = {};  // none: at once
  };
  std::deque<Item> queue;
  EmulatedGraph* capture = nullptr;
  bool capture_failed = false;
  bool relaxed = false;  // allocations do not invalidate the capture

  bool can_go_on() const { return !queue.empty() && (!queue.front().may_run || queue.front().may_run()); }
};

namespace {

constexpr std::size_t kLongestQueue = 64;
double gpu_ms = 0;  // what the GPU has spent

// The first one is the library's: captures are of it.
std::vector<EmulatedStream*>& the_streams() {
  static std::vector<EmulatedStream*> streams;
  return streams;
}

EmulatedStream* the_stream() {
  return the_streams().empty() ? nullptr : the_streams().front();
}

bool capturing() {
  return the_stream() != nullptr && the_stream()->capture != nullptr;
}

bool is_open(EmulatedStream* stream) {
  return std::find(the_streams().begin(), the_streams().end(), stream) != the_streams().end();
}

bool has_work() {
  return std::any_of(the_streams().begin(), the_streams().end(),
                     [](const EmulatedStream* stream) { return !stream->queue.empty(); });
}

// Runs the next work of one of the streams that can go on. Returns false if none can.
bool run_one() {
  static std::minstd_rand random(20);
  std::vector<EmulatedStream*> ready;
  for (EmulatedStream* const stream : the_streams())
    if (stream->can_go_on()) ready.push_back(stream);
  if (ready.empty()) return false;
  EmulatedStream* const stream = ready[random() % ready.size()];
  const std::function<void()> work = std::move(stream->queue.front().work);
  stream->queue.pop_front();
  work();
  return true;
}

// Waits until the stream has done all that it has.
void wait_for(EmulatedStream* stream) {
  if (stream->queue.empty()) return;  // opening the memory takes time
  const emulation::OpenMemory open;
  while (!stream->queue.empty())
    if (!run_one()) emulation::stop("the host waits for work that does not end");
}

// The result of a call that waits: an error while a stream is captured.
cudaError_t wait_for_all() {
  if (capturing()) {
    the_stream()->capture_failed = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  for (EmulatedStream* const stream : the_streams()) wait_for(stream);
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
  submit_when(stream, nullptr, std::move(work));
}

void submit_when(EmulatedStream* stream, std::function<bool()> may_run, std::function<void()> work) {
  if (!is_open(stream)) stop("work for a stream that is not open");
  if (current_device() != 0) stop("work for a stream of GPU 0 while GPU %d is current", current_device());
  if (stream->capture != nullptr) {
    stream->capture->works.push_back(std::move(work));
    return;
  }
  stream->queue.push_back({std::move(work), std::move(may_run)});
  if (stream->queue.size() >= kLongestQueue) finish();
}

void spend(double ms) {
  gpu_ms += ms;
}

void finish() {
  if (!has_work()) return;
  const OpenMemory open;
  while (run_one()) {
  }
}

}  // namespace emulation

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = the_streams().emplace_back(new EmulatedStream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  emulation::finish();
  if (!stream->queue.empty()) emulation::stop("a stream ends with work that does not");
  std::erase(the_streams(), stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (capturing()) return wait_for_all();
  wait_for(stream);
  return cudaSuccess;
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

// ---- events: they count how often they were recorded, how often a stream came to that, and when it was

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent{std::make_shared<EmulatedEvent::Counts>()};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream->capture != nullptr) return cudaSuccess;  // marks in a graph have no times here
  const auto counts = event->counts;
  emulation::submit(stream, [counts, now = ++counts->recorded] {
    counts->reached = now;
    counts->ms = gpu_ms;
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (capturing()) return wait_for_all();
  if (event->counts->reached == event->counts->recorded) return cudaSuccess;
  const emulation::OpenMemory open;
  while (event->counts->reached < event->counts->recorded)
    if (!run_one()) emulation::stop("the host waits for an event that does not come");
  return cudaSuccess;
}
// As time passes between two questions, some work is done.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (has_work()) {
    const emulation::OpenMemory open;
    run_one();
  }
  return event->counts->reached < event->counts->recorded ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  emulation::submit_when(
      stream,
      [counts = event->counts, awaited = event->counts->recorded] { return counts->reached >= awaited; },
      [] {});
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = static_cast<float>(1 + end->counts->ms - begin->counts->ms);
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
