// The one GPU that this process computes on: its stream, its staging memory, its timer. All kernels, products
// and copies of the library run on one stream, in the order in which they are enqueued, but for what GPUs of
// several processes exchange (peers.h). No CUDA header is needed to include this.
//
// The first use opens the GPU, not the installation of the backend: a build with CUDA also starts, and
// computes on the CPU, where there is no GPU.
#pragma once

#include <cstddef>
#include <functional>

#include "tensor/base/device.h"
#include "tensor/base/dtype.h"

namespace eddy::detail {}

namespace eddy::cuda {

// Kernels name what is for them alone, their arguments and slots (ops/), without the namespace.
using namespace detail;

// Chooses the GPU, counted from 0 as CUDA counts the visible ones. The default is GPU 0.
// errors: DeviceError when another one is open already.
void use_device(int index);
// Opens the GPU if it is not open.
// errors: DeviceError when there is no GPU, none with this number, or when this build holds no code for it;
// the text says what to install or rebuild.
void open();
bool is_open();
// Returns whether the GPU is open or can be opened.
bool can_open();
// Returns the number of the GPU that is or will be used.
int device_index();
// Returns whether it has wgmma: GPUs of compute capability 9.0 have, and no other.
bool has_wgmma();

// Waits until all enqueued work is done.
// errors: DeviceError for a kernel that failed meanwhile, and during a capture.
void synchronize();
// Has synchronize() also wait for work that is not on the stream of the GPU; null: for none.
void wait_also(std::function<void()> wait);

// Copies to the GPU. `from` may be overwritten as soon as this returns: the bytes pass through pinned memory
// in pieces, and up to 4 MiB do not wait for queued work. During a capture the bytes are kept and uploaded at
// every replay.
void upload(void* to, const void* from, std::size_t bytes);
// Copies from the GPU and waits for the copy.
// errors: DeviceError during a capture.
void download(void* to, const void* from, std::size_t bytes);

// Copies from the GPU that are waited for later, one at a time. The bytes go through pinned memory.
class LaterDownload {
 public:
  LaterDownload() = default;
  ~LaterDownload();
  LaterDownload(const LaterDownload&) = delete;
  LaterDownload& operator=(const LaterDownload&) = delete;
  // Enqueues a copy and does not wait.
  void start(const void* from, std::size_t bytes);
  // Waits for it, not for what was enqueued after it, and writes the bytes.
  void wait(void* to);

 private:
  void *pinned_ = nullptr, *done_ = nullptr;
  std::size_t room_ = 0, bytes_ = 0;
};

// With checks on, the host waits for every launch, so that an error names the kernel that caused it. For
// tests.
void set_launch_checks(bool on);

// Frees all that the backend holds on the GPU and closes it; the next use opens it again. For programs that
// look for leaks. The caller must hold no tensor on the GPU.
// errors: DeviceError while captured work is alive, whose graph and memory are on the GPU, which then stays
// open.
void close();

// Measures the time on the GPU of the work between start and stop.
class Timer {
 public:
  Timer();
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  void start();
  // Waits for the work and returns the milliseconds since start.
  double stop();

 private:
  void *begin_ = nullptr, *end_ = nullptr;
};

// Throws the DeviceError of a tensor on a GPU that is not this process's. This and the next two are functions
// because .cu files cannot format.
[[noreturn]] void refuse_other_gpu(const Device& device);
// Throws the DeviceError of a kernel with more blocks than a grid can have.
[[noreturn]] void refuse_launch(const char* kernel, std::int64_t blocks);
// Throws the DtypeError of a kernel that supports f32 alone.
[[noreturn]] void refuse_dtype(const char* kernel, Dtype dtype);
inline void require_f32(const char* kernel, Dtype dtype) {
  if (dtype != Dtype::f32) refuse_dtype(kernel, dtype);
}

}  // namespace eddy::cuda
