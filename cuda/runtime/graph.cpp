// Capturing the stream into a CUDA graph.
//
// While the stream captures, launches and asynchronous copies become nodes of a graph, in their order and
// with the bytes of their arguments. A replay is one call for all of them. So a step of thousands of
// launches, some 2 us each, is limited by the GPU and not by the host.
//
// Addresses are among those bytes, so memory must stay in place. During a capture the allocator serves
// tensors from a pool that only captured work uses (allocator.h). All captured work shares that pool: replays
// run one after the other on one stream, and what a later one needs is held by a tensor.
#include "cuda/runtime/graph.h"

#include <atomic>
#include <cstring>
#include <vector>

#include "cuda/runtime/allocator.h"
#include "cuda/runtime/stream.cuh"
#include "tensor/base/format.h"

namespace eddy::cuda {
namespace {

class Graph final : public CapturedWork {
 public:
  Graph() = default;
  ~Graph() override {
    // A replay that uses this memory may still be in flight.
    try {
      if (exec_ != nullptr) synchronize();
    } catch (const Error&) {
      // A kernel failed: the next call that can throw reports it.
    }
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
    for (void* bytes : pinned_) cudaFreeHost(bytes);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay() override {
    if (capturing()) fail<DeviceError>("cuda: a replay inside a capture (one after the other)");
    check(cudaGraphLaunch(exec_, stream()), "cudaGraphLaunch");
  }

  void finish(cudaGraph_t graph) { check(cudaGraphInstantiate(&exec_, graph, 0), "cudaGraphInstantiate"); }
  void keep(const Tensor& tensor) { tensors_.push_back(tensor); }
  const void* keep(const void* from, std::size_t bytes) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc");
    pinned_.push_back(memory);
    return std::memcpy(memory, from, bytes);
  }

 private:
  CapturePoolUse pool_;
  std::vector<Tensor> tensors_;
  std::vector<void*> pinned_;
  cudaGraphExec_t exec_ = nullptr;
};

std::atomic<Graph*> current{nullptr};

// The stream captures while an object of this class lives.
class Capturing {
 public:
  explicit Capturing(Graph& graph) {
    // Relaxed: memory may be allocated during the capture. The graph must not contain the allocation.
    check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    current.store(&graph);
    serve_from_capture_pool(true);
  }
  ~Capturing() {
    if (!ended_) end();
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

  // errors: DeviceError when CUDA has invalidated the capture.
  cudaGraph_t finish() {
    check(end(), "cudaStreamEndCapture");
    return graph_;
  }

 private:
  cudaError_t end() {
    ended_ = true;
    const cudaError_t result = cudaStreamEndCapture(stream(), &graph_);
    current.store(nullptr);
    serve_from_capture_pool(false);
    if (result != cudaSuccess) cudaGetLastError();  // so that a later check does not report this one again
    return result;
  }

  bool ended_ = false;
  cudaGraph_t graph_ = nullptr;
};

}  // namespace

std::unique_ptr<CapturedWork> capture(const std::function<void()>& work, bool allocates) {
  if (capturing()) fail<DeviceError>("cuda: a capture inside a capture (one after the other)");
  synchronize();
  if (allocates) device_allocator().trim();  // else the memory would be needed twice
  auto graph = std::make_unique<Graph>();
  Capturing recording(*graph);
  work();
  graph->finish(recording.finish());
  return graph;
}

bool capturing() {
  return current.load(std::memory_order_relaxed) != nullptr;
}

void keep_for_capture(const Tensor& tensor) {
  if (Graph* const graph = current.load()) graph->keep(tensor);
}

const void* keep_bytes(const void* from, std::size_t bytes) {
  return current.load()->keep(from, bytes);
}

void refuse_wait(const char* what) {
  fail<DeviceError>(
      "cuda: {} while work is being captured (a captured step decides nothing by values on the GPU; "
      "train.capture = \"off\" runs without)",
      what);
}

}  // namespace eddy::cuda
