// The device allocator: a pool over cudaMalloc, the unpooled form, and the pool for captured work.
#include "cuda/runtime/allocator.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/runtime/pool.h"
#include "cuda/runtime/stream.cuh"
#include "tensor/base/format.h"

namespace eddy::cuda {
namespace {

class DeviceMemory final : public RawMemory {
 public:
  void* take(std::size_t bytes) override {
    stream();  // opens the GPU and makes it current on this thread
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaSuccess) return memory;
    if (error != cudaErrorMemoryAllocation) throw_cuda_error("cudaMalloc", error);
    cudaGetLastError();  // handled: the next check must not report it
    return nullptr;
  }
  void give_back(void* memory, std::size_t) noexcept override {
    if (!is_open()) return;  // closing the GPU has freed it
    // The last kernel that uses the block may still be in flight.
    try {
      synchronize();
    } catch (const Error&) {
      // A kernel failed, or the process is ending and the runtime is gone. The next call that can throw
      // reports it.
    }
    if (cudaFree(memory) != cudaSuccess)
      static_cast<void>(cudaGetLastError());  // the next launch must not report it
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
    if (capturing_)
      return captured_.allocate(bytes, plain_ ? plain_stats_.live_bytes : pool_.stats().live_bytes);
    return plain_ ? allocate_plain(bytes) : pool_.allocate(bytes, captured_.stats().live_bytes);
  }

  void deallocate(void* memory, std::size_t bytes) noexcept override {
    if (memory == nullptr) return;
    const std::lock_guard lock(mutex_);
    if (captured_.deallocate(memory)) return give_captured_back();
    if (!plain_) {
      pool_.deallocate(memory);
      return;
    }
    plain_stats_.live_bytes -= static_cast<std::int64_t>(bytes);
    plain_stats_.reserved_bytes -= static_cast<std::int64_t>(bytes);
    --plain_pieces_;
    if (capturing_)
      later_.emplace_back(memory, bytes);  // cudaFree waits, which a capture forbids
    else
      memory_.give_back(memory, bytes);
  }

  void trim() override {
    const std::lock_guard lock(mutex_);
    trim_locked();
  }
  // A replay uses the memory of captured work again, so the peak counts all of it as live.
  AllocatorStats stats() const override {
    const std::lock_guard lock(mutex_);
    AllocatorStats stats = plain_ ? plain_stats_ : pool_.stats();
    const AllocatorStats captured = captured_.stats();
    stats.live_bytes += captured.live_bytes;
    stats.peak_bytes += captured.reserved_bytes;
    stats.reserved_bytes += captured.reserved_bytes;
    stats.allocations += captured.allocations;
    return stats;
  }
  std::int64_t segments() const {
    const std::lock_guard lock(mutex_);
    return (plain_ ? plain_pieces_ : pool_.segments()) + captured_.segments();
  }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    pool_.reset_peak();
    plain_stats_.peak_bytes = plain_stats_.live_bytes;
  }
  void set_limit(std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    pool_.set_limit(bytes);
    captured_.set_limit(bytes);
    limit_ = bytes;
  }

  void* allocate_for_backend(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    void* memory = memory_.take(bytes);
    if (memory == nullptr) {
      trim_locked();
      memory = memory_.take(bytes);
    }
    if (memory == nullptr)
      out_of_memory(memory_, bytes, plain_ ? plain_stats_ : pool_.stats(), pool_.largest_free(), limit_);
    return memory;
  }
  void free_for_backend(void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    memory_.give_back(memory, bytes);
  }

  void serve_captures(bool on) {
    const std::lock_guard lock(mutex_);
    capturing_ = on;
    if (on) return;
    for (const auto& [memory, bytes] : later_) memory_.give_back(memory, bytes);
    later_.clear();
  }
  void use_captured(int change) {
    const std::lock_guard lock(mutex_);
    captures_ += change;
    captured_.keep_segments(captures_ > 0);
    give_captured_back();
  }

  int captures() const {
    const std::lock_guard lock(mutex_);
    return captures_;
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
  void trim_locked() {
    if (capturing_) return;  // captured work may contain addresses of cached memory
    pool_.trim();
    if (captures_ == 0) captured_.trim();
  }
  // Frees memory that is cached for captured work when none is left, for example after a failed capture. The
  // other pool could not use it.
  void give_captured_back() {
    if (captures_ == 0 && captured_.stats().live_bytes == 0) captured_.trim();
  }
  void* allocate_plain(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    const std::int64_t live = plain_stats_.live_bytes + captured_.stats().live_bytes;
    const bool over_limit = limit_ > 0 && live + static_cast<std::int64_t>(bytes) > limit_;
    // Room for all that a capture may free: deallocate may not fail.
    const std::size_t most = later_.size() + static_cast<std::size_t>(plain_pieces_) + 1;
    if (later_.capacity() < most) later_.reserve(2 * most);
    void* const memory = over_limit ? nullptr : memory_.take(bytes);
    if (memory == nullptr) out_of_memory(memory_, bytes, plain_stats_, 0, limit_);
    plain_stats_.live_bytes += static_cast<std::int64_t>(bytes);
    plain_stats_.reserved_bytes += static_cast<std::int64_t>(bytes);
    plain_stats_.peak_bytes = std::max(plain_stats_.peak_bytes, plain_stats_.live_bytes);
    ++plain_stats_.allocations;
    ++plain_pieces_;
    return memory;
  }

  mutable std::mutex mutex_;
  DeviceMemory memory_;
  Pool pool_{memory_};
  Pool captured_{memory_};
  bool capturing_ = false;
  int captures_ = 0;
  bool plain_ = false;
  std::vector<std::pair<void*, std::size_t>> later_;  // freed during a capture, in the unpooled form
  AllocatorStats plain_stats_;
  std::int64_t plain_pieces_ = 0;
  std::int64_t limit_ = 0;
};

// Never destroyed: static destructors may still free tensors.
CudaAllocator& only_allocator() {
  static CudaAllocator* const allocator = new CudaAllocator;
  return *allocator;
}

}  // namespace

Allocator& device_allocator() {
  return only_allocator();
}

std::int64_t device_segments() {
  return only_allocator().segments();
}

void set_plain_allocator(bool plain) {
  only_allocator().set_plain(plain);
}

void* allocate_backend_memory(std::size_t bytes) {
  return only_allocator().allocate_for_backend(bytes);
}
void free_backend_memory(void* memory, std::size_t bytes) {
  only_allocator().free_for_backend(memory, bytes);
}

void serve_from_capture_pool(bool on) {
  only_allocator().serve_captures(on);
}

int captures_alive() {
  return only_allocator().captures();
}

CapturePoolUse::CapturePoolUse() {
  only_allocator().use_captured(1);
}
CapturePoolUse::~CapturePoolUse() {
  only_allocator().use_captured(-1);
}

}  // namespace eddy::cuda
