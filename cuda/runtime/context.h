// The one GPU that this process computes on: its stream, its staging memory, its clock. All kernels, products
// and copies of the library run on one stream, in the order in which they were asked for. No CUDA header is
// needed to include this.
//
// The GPU is opened by the first use, not by the installation of the backend: a build with CUDA starts and
// computes on the CPU where there is no GPU.
#pragma once

#include <cstddef>

#include "tensor/base/device.h"
#include "tensor/base/dtype.h"

namespace eddy::cuda {

// Chooses the GPU, counted from 0 as CUDA counts the visible ones. Without a call it is GPU 0.
// errors: DeviceError when another one is open already.
void use_device(int index);
// Opens the GPU, where that has not happened.
// errors: DeviceError when there is none or none with this number, or when this build holds no code for it;
// the text says what to install or rebuild.
void open();
bool is_open();
// Whether it is open, or could be.
bool can_open();
// The number of the GPU that is or will be used.
int device_index();

// Waits until everything asked for so far is done.
// errors: DeviceError for a kernel that failed meanwhile, and while work is being captured.
void synchronize();

// Copies to the GPU. While work is being captured, the bytes are kept, and go up at every replay. The source
// may be overwritten when this returns: it goes through pinned memory in pieces, and up to 4 MiB do not wait
// for work that is still queued.
void upload(void* to, const void* from, std::size_t bytes);
// Copies from the GPU, and waits for it.
// errors: DeviceError while work is being captured.
void download(void* to, const void* from, std::size_t bytes);

// With checks on, every launch is waited for, so that an error names the kernel that caused it. For tests.
void set_launch_checks(bool on);

// Frees all that the backend holds on the GPU and leaves it; the next use opens it again. For programs that
// look for leaks. The caller holds no tensor there any more.
// errors: DeviceError while captured work is alive: its graph and its memory are on the GPU, which is then
// left open.
void close();

// The time that the work between start and stop took on the GPU.
class Timer {
 public:
  Timer();
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  void start();
  // Milliseconds since start, after waiting for the work.
  double stop();

 private:
  void *begin_ = nullptr, *end_ = nullptr;
};

// Throws the DeviceError of a tensor on another GPU than this process's. These stand apart, because .cu
// files cannot format.
[[noreturn]] void refuse_other_gpu(const Device& device);
// Throws the DeviceError of a kernel with more blocks than a grid can have.
[[noreturn]] void refuse_launch(const char* kernel, std::int64_t blocks);
// Throws the DtypeError of a kernel that computes in f32 alone.
[[noreturn]] void refuse_dtype(const char* kernel, Dtype dtype);
inline void require_f32(const char* kernel, Dtype dtype) {
  if (dtype != Dtype::f32) refuse_dtype(kernel, dtype);
}

}  // namespace eddy::cuda
