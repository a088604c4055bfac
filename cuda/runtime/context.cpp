// Opening the GPU, error messages, staging, timing.
#include "cuda/runtime/context.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/runtime/allocator.h"
#include "cuda/runtime/device.h"
#include "cuda/runtime/gemm.h"
#include "cuda/runtime/graph.h"
#include "cuda/runtime/stream.cuh"
#include "tensor/base/format.h"

namespace eddy::cuda {
namespace {

// Pinned memory for small uploads: two halves, each filled from its start. A half is reused after the copies
// out of it are done, which an event recorded behind the last of them tells.
class Staging {
 public:
  static constexpr std::size_t kHalf = std::size_t{4} << 20;

  void copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    if (memory_ == nullptr) allocate();
    if (used_ + bytes > kHalf) turn(stream);
    char* const piece = memory_ + (second_ ? kHalf : 0) + used_;
    std::memcpy(piece, from, bytes);
    check(cudaMemcpyAsync(to, piece, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    used_ += (bytes + 63) / 64 * 64;
  }

  // The stream must be idle.
  void free() {
    if (memory_ == nullptr) return;
    for (cudaEvent_t& event : done_) cudaEventDestroy(event);
    cudaFreeHost(memory_);
    *this = Staging();
  }

 private:
  void allocate() {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, 2 * kHalf, cudaHostAllocDefault), "cudaHostAlloc");
    for (cudaEvent_t& event : done_)
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    memory_ = static_cast<char*>(memory);
  }

  void turn(cudaStream_t stream) {
    check(cudaEventRecord(done_[second_], stream), "cudaEventRecord");
    recorded_[second_] = true;
    second_ = !second_;
    used_ = 0;
    if (recorded_[second_]) check(cudaEventSynchronize(done_[second_]), "cudaEventSynchronize");
  }

  char* memory_ = nullptr;
  cudaEvent_t done_[2] = {};
  bool recorded_[2] = {};
  bool second_ = false;
  std::size_t used_ = 0;
};

struct State {
  std::mutex mutex;  // protects opening, closing and staging
  std::atomic<bool> is_open{false};
  std::atomic<bool> launch_checks{false};
  int index = 0;
  int multiprocessors = 0;
  std::uint64_t times_opened = 0;
  cudaStream_t stream = nullptr;
  Staging staging;
  std::function<void()> wait_also;
};

thread_local cudaStream_t stream_of_thread = nullptr;  // in place of the GPU's

// Never destroyed: static destructors may still free tensors.
State& state() {
  static State* const only = new State;
  return *only;
}

void open_locked(State& s) {
  std::string why_none;
  const std::vector<DeviceInfo> found = devices(&why_none);
  if (found.empty())
    fail<DeviceError>(
        "cuda: no GPU can be used: {} (install NVIDIA's driver for this toolkit, or compute on the cpu; "
        "the command info of Eddy's program shows what this build sees)",
        why_none);
  const auto mine =
      std::find_if(found.begin(), found.end(), [&](const DeviceInfo& d) { return d.index == s.index; });
  if (mine == found.end())
    fail<DeviceError>("cuda: there is no GPU {}: CUDA shows {} (they are counted from 0)", s.index,
                      found.size());
  if (const std::string problem = mismatch(*mine); !problem.empty()) fail<DeviceError>("cuda: {}", problem);
  check(cudaSetDevice(s.index), "cudaSetDevice");
  if (const std::string problem = probe(*mine); !problem.empty()) fail<DeviceError>("cuda: {}", problem);
  check(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  s.multiprocessors = mine->multiprocessors;
  ++s.times_opened;
  s.is_open.store(true, std::memory_order_release);
}

// Returns what a user can do about an error.
const char* advice(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorInitializationError:
      return "install or update NVIDIA's driver; `nvidia-smi` shows what it sees";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidDeviceFunction:
      return "this build has no code for the GPU: build on its machine by `cmake --preset cuda`";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return "an earlier kernel failed and this process cannot use the GPU any more: `tests/run.sh --gpu "
             "--sanitize` finds the kernel";
    case cudaErrorLaunchTimeout:
      return "a kernel ran longer than the GPU's display allows: use a GPU without a display";
    case cudaErrorMemoryAllocation:
      return "lower train.batch or model.context, or end other programs on the GPU";
    case cudaErrorDevicesUnavailable:
      return "another program uses the GPU exclusively: end it";
    case cudaErrorECCUncorrectable:
      return "the GPU's memory is damaged: restart the machine, then use another GPU";
    default:
      return "the command info of Eddy's program shows the GPU, the driver and what this build was made for";
  }
}

}  // namespace

void use_device(int index) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.is_open.load() && s.index != index)
    fail<DeviceError>(
        "cuda: GPU {} asked for and {} is open (one GPU per process; choose before the first use)", index,
        s.index);
  if (index < 0) fail<DeviceError>("cuda: GPU {} (they are counted from 0)", index);
  s.index = index;
}

void open() {
  stream();
}

bool is_open() {
  return state().is_open.load(std::memory_order_acquire);
}

bool can_open() {
  if (is_open()) return true;
  std::string why_none;
  for (const DeviceInfo& device : devices(&why_none))
    if (device.index == device_index()) return mismatch(device).empty();
  return false;
}

int device_index() {
  return state().index;
}
bool has_wgmma() {
  static const bool has = is_measured(device_index());  // the GPU of a process does not change
  return has;
}

cudaStream_t stream() {
  State& s = state();
  if (!s.is_open.load(std::memory_order_acquire)) {
    const std::lock_guard lock(s.mutex);
    if (!s.is_open.load()) open_locked(s);
  }
  // CUDA keeps a current GPU for each thread.
  thread_local std::uint64_t bound = 0;
  if (bound != s.times_opened) {
    check(cudaSetDevice(s.index), "cudaSetDevice");
    bound = s.times_opened;
  }
  return stream_of_thread != nullptr ? stream_of_thread : s.stream;
}

OnStream::OnStream(cudaStream_t stream) : before_(std::exchange(stream_of_thread, stream)) {}
OnStream::~OnStream() {
  stream_of_thread = before_;
}

int multiprocessors() {
  stream();
  return state().multiprocessors;
}

std::uint64_t times_opened() {
  stream();
  return state().times_opened;
}

void throw_cuda_error(const char* call, cudaError_t error) {
  cudaGetLastError();  // so that a later check does not report this one again
  fail<DeviceError>("cuda: {}: {} ({})", call, cudaGetErrorString(error), advice(error));
}

void check_launch(const char* kernel) {
  check(cudaGetLastError(), kernel);
  if (state().launch_checks.load(std::memory_order_relaxed) && !capturing())
    check(cudaStreamSynchronize(stream()), kernel);
}

void synchronize() {
  if (capturing()) refuse_wait("the host waits for the GPU");
  if (state().wait_also) state().wait_also();
  if (is_open()) check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
}

void wait_also(std::function<void()> wait) {
  state().wait_also = std::move(wait);
}

void upload(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const cudaStream_t queue = stream();
  if (capturing())
    return check(cudaMemcpyAsync(to, keep_bytes(from, bytes), bytes, cudaMemcpyHostToDevice, queue),
                 "cudaMemcpyAsync");
  State& s = state();
  const std::lock_guard lock(s.mutex);
  for (std::size_t done = 0; done < bytes; done += Staging::kHalf)
    s.staging.copy(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
                   std::min(bytes - done, Staging::kHalf), queue);
}

void download(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (capturing()) refuse_wait("a value is read from the GPU");
  const cudaStream_t queue = stream();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, queue), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(queue), "cudaStreamSynchronize");
}

LaterDownload::~LaterDownload() {
  if (pinned_ == nullptr) return;
  // The copy may still write.
  if (is_open()) cudaEventSynchronize(static_cast<cudaEvent_t>(done_));
  cudaEventDestroy(static_cast<cudaEvent_t>(done_));
  cudaFreeHost(pinned_);
}

void LaterDownload::start(const void* from, std::size_t bytes) {
  const cudaStream_t queue = stream();
  if (done_ == nullptr) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    done_ = event;
  }
  if (bytes > room_) {
    if (pinned_ != nullptr) {
      check(cudaEventSynchronize(static_cast<cudaEvent_t>(done_)), "cudaEventSynchronize");
      cudaFreeHost(pinned_);
      pinned_ = nullptr;
    }
    check(cudaHostAlloc(&pinned_, bytes, cudaHostAllocDefault), "cudaHostAlloc");
    room_ = bytes;
  }
  bytes_ = bytes;
  check(cudaMemcpyAsync(pinned_, from, bytes, cudaMemcpyDeviceToHost, queue), "cudaMemcpyAsync");
  check(cudaEventRecord(static_cast<cudaEvent_t>(done_), queue), "cudaEventRecord");
}

void LaterDownload::wait(void* to) {
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(done_)), "cudaEventSynchronize");
  std::memcpy(to, pinned_, bytes_);
}

void set_launch_checks(bool on) {
  state().launch_checks.store(on);
}

void close() {
  State& s = state();
  if (!is_open()) return;
  if (const int alive = captures_alive(); alive > 0)
    fail<DeviceError>("cuda: the GPU cannot be closed: captured work is alive: {} (drop it first)", alive);
  check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  forget_product_plans();
  device_allocator().trim();
  const std::lock_guard lock(s.mutex);
  s.staging.free();
  check(cudaStreamDestroy(s.stream), "cudaStreamDestroy");
  s.stream = nullptr;
  s.is_open.store(false);
  check(cudaDeviceReset(), "cudaDeviceReset");  // affects this process alone
}

Timer::Timer() {
  stream();
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  begin_ = begin;
  check(cudaEventCreate(&end), "cudaEventCreate");
  end_ = end;
}

Timer::~Timer() {
  if (begin_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(begin_));
  if (end_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(end_));
}

void Timer::start() {
  check(cudaEventRecord(static_cast<cudaEvent_t>(begin_), stream()), "cudaEventRecord");
}

double Timer::stop() {
  float ms = 0;
  check(cudaEventRecord(static_cast<cudaEvent_t>(end_), stream()), "cudaEventRecord");
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(end_)), "cudaEventSynchronize");
  check(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(begin_), static_cast<cudaEvent_t>(end_)),
        "cudaEventElapsedTime");
  return static_cast<double>(ms);
}

void refuse_other_gpu(const Device& device) {
  fail<DeviceError>("cuda: a copy to or from {} (this process computes on cuda:{}; one GPU per process)",
                    to_string(device), device_index());
}

void refuse_launch(const char* kernel, std::int64_t blocks) {
  fail<DeviceError>("cuda: {}: a grid of {} blocks (up to 2^31 - 1; cut the tensor into parts)", kernel,
                    blocks);
}

void refuse_dtype(const char* kernel, Dtype dtype) {
  fail<DtypeError>("{}: {} on cuda (the GPU computes in f32; cast it, or compute on the cpu)", kernel,
                   dtype_name(dtype));
}

}  // namespace eddy::cuda
