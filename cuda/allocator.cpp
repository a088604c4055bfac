// The pool over cudaMalloc, and the plain form.
#include "cuda/allocator.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "cuda/pool.h"
#include "cuda/stream.cuh"
#include "tensor/format.h"

namespace eddy::cuda {
namespace {

class DeviceMemory final : public RawMemory {
 public:
  void* take(std::size_t bytes) override {
    stream();  // opens the GPU and makes it this thread's
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaSuccess) return memory;
    if (error != cudaErrorMemoryAllocation) throw_cuda_error("cudaMalloc", error);
    cudaGetLastError();  // handled: not to be found by the next check
    return nullptr;
  }
  void give_back(void* memory, std::size_t) noexcept override {
    if (!is_open()) return;  // it went with the GPU's context
    // Whoever used the block last may still be queued.
    try {
      synchronize();
    } catch (const Error&) {
      // A kernel failed, or the process is ending and the runtime is gone: the next call that can throw says
      // so.
    }
    cudaFree(memory);
  }
  std::string name() const override { return "cuda:" + std::to_string(device_index()); }
  std::string describe() const override {
    std::size_t unused = 0, total = 0;
    if (!is_open() || cudaMemGetInfo(&unused, &total) != cudaSuccess) return "";
    return fmt::format("the device has {} of {} bytes unused", unused, total);
  }
};

class CudaAllocator final : public Allocator {
 public:
  void* allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    return plain_ ? allocate_plain(bytes) : pool_.allocate(bytes);
  }

  void deallocate(void* memory, std::size_t bytes) noexcept override {
    if (memory == nullptr) return;
    const std::lock_guard lock(mutex_);
    if (!plain_) return pool_.deallocate(memory);
    plain_stats_.live_bytes -= static_cast<std::int64_t>(bytes);
    plain_stats_.reserved_bytes -= static_cast<std::int64_t>(bytes);
    memory_.give_back(memory, bytes);
  }

  void trim() override {
    const std::lock_guard lock(mutex_);
    pool_.trim();
  }
  AllocatorStats stats() const override {
    const std::lock_guard lock(mutex_);
    return plain_ ? plain_stats_ : pool_.stats();
  }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    pool_.reset_peak();
    plain_stats_.peak_bytes = plain_stats_.live_bytes;
  }
  void set_limit(std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    pool_.set_limit(bytes);
    limit_ = bytes;
  }

  void set_plain(bool plain) {
    const std::lock_guard lock(mutex_);
    if (plain == plain_) return;
    const std::int64_t live = plain_ ? plain_stats_.live_bytes : pool_.stats().live_bytes;
    if (live > 0)
      fail<ValueError>(
          "cuda allocator: {} bytes are live (choose the plain or the pooled form before the first)", live);
    pool_.trim();
    plain_ = plain;
  }

 private:
  void* allocate_plain(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    const bool over_limit = limit_ > 0 && plain_stats_.live_bytes + static_cast<std::int64_t>(bytes) > limit_;
    void* const memory = over_limit ? nullptr : memory_.take(bytes);
    if (memory == nullptr) out_of_memory(memory_, bytes, plain_stats_, 0, limit_);
    plain_stats_.live_bytes += static_cast<std::int64_t>(bytes);
    plain_stats_.reserved_bytes += static_cast<std::int64_t>(bytes);
    plain_stats_.peak_bytes = std::max(plain_stats_.peak_bytes, plain_stats_.live_bytes);
    ++plain_stats_.allocations;
    return memory;
  }

  mutable std::mutex mutex_;
  DeviceMemory memory_;
  Pool pool_{memory_};
  bool plain_ = false;
  AllocatorStats plain_stats_;
  std::int64_t limit_ = 0;
};

// Lives to the end: tensors may be freed by static destructors.
CudaAllocator& only_allocator() {
  static CudaAllocator* const allocator = new CudaAllocator;
  return *allocator;
}

}  // namespace

Allocator& device_allocator() {
  return only_allocator();
}

void set_plain_allocator(bool plain) {
  only_allocator().set_plain(plain);
}

}  // namespace eddy::cuda
