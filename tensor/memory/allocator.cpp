// The caching CPU allocator. Each doubling has eight size classes (at most 12.5 % waste). A freed block goes
// to the list of its class and is reused, last in first out. Blocks of 2 MiB and more are mapped individually
// with advice to use huge pages; smaller ones are cut from slabs. When the system has no memory, cached
// large blocks are returned to it and the request is tried once more.
#include "tensor/memory/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/memory/readable_bytes.h"
#include "tensor/memory/size_classes.h"
#include "tensor/system/memory.h"

namespace eddy {
namespace {

using namespace size_classes;

detail::MemoryReport report_memory = nullptr;

class CpuAllocator final : public Allocator {
 public:
  void* allocate(std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    if (static_cast<std::uint64_t>(bytes) > std::uint64_t{1} << 46) out_of_memory(bytes);
    const int size_class = class_of(bytes);
    const std::size_t rounded = class_bytes(size_class);
    std::lock_guard lock(mutex_);
    if (limit_ > 0 && stats_.live_bytes + static_cast<std::int64_t>(rounded) > limit_) out_of_memory(bytes);
    auto& list = free_[static_cast<std::size_t>(size_class)];
    auto& blocks = blocks_[static_cast<std::size_t>(size_class)];
    void* block = nullptr;
    if (!list.empty()) {
      block = list.back();
      list.pop_back();
    } else {
      // deallocate may not fail, so the list has room for all blocks of its class.
      if (list.capacity() <= blocks) list.reserve(2 * blocks + 8);
      block = rounded >= kLarge ? map(rounded) : carve(rounded);
      if (block == nullptr) {
        trim_locked();
        block = rounded >= kLarge ? map(rounded) : carve(rounded);
        if (block == nullptr) out_of_memory(bytes);
      }
      ++blocks;
    }
    stats_.live_bytes += static_cast<std::int64_t>(rounded);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    ++stats_.allocations;
    return block;
  }

  void deallocate(void* pointer, std::size_t bytes) noexcept override {
    if (pointer == nullptr) return;
    const int size_class = class_of(bytes);
    std::lock_guard lock(mutex_);
    stats_.live_bytes -= static_cast<std::int64_t>(class_bytes(size_class));
    free_[static_cast<std::size_t>(size_class)].push_back(pointer);
  }

  void trim() override {
    std::lock_guard lock(mutex_);
    trim_locked();
  }
  AllocatorStats stats() const override {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() override {
    std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.live_bytes;
  }
  void set_limit(std::int64_t bytes) override {
    std::lock_guard lock(mutex_);
    limit_ = bytes;
  }

 private:
  // Mapped memory aligned to 2 MiB, so that whole huge pages back it.
  void* map(std::size_t bytes) {
    const std::size_t length = mapped_length(bytes);
    void* raw = mmap(nullptr, length + kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(raw);
    const std::uintptr_t start = (address + kLarge - 1) & ~(kLarge - 1);
    if (start > address) munmap(raw, start - address);
    const std::uintptr_t end = address + length + kLarge;
    if (end > start + length) munmap(reinterpret_cast<void*>(start + length), end - start - length);
    advise_huge_pages(reinterpret_cast<void*>(start), length);
    stats_.reserved_bytes += static_cast<std::int64_t>(length);
    return reinterpret_cast<void*>(start);
  }
  // Whole pages: 4 KiB on x86-64, 16 on macOS, up to 64 on ARM64.
  static std::size_t mapped_length(std::size_t bytes) {
    constexpr std::size_t kPage = std::size_t{64} << 10;
    return (bytes + kPage - 1) & ~(kPage - 1);
  }

  void* carve(std::size_t bytes) {
    Slab& slab = slabs_[bytes < kSmall ? 0 : 1];
    if (slab.left < bytes) {
      void* const memory = map(slab_bytes(bytes));
      if (memory == nullptr) return nullptr;
      slab = {static_cast<char*>(memory), slab_bytes(bytes)};
    }
    void* const block = slab.next;
    slab.next += bytes;
    slab.left -= bytes;
    return block;
  }

  void trim_locked() {
    for (int size_class = 0; size_class < kCount; ++size_class) {
      const std::size_t bytes = class_bytes(size_class);
      if (bytes < kLarge) continue;
      for (void* block : free_[static_cast<std::size_t>(size_class)]) {
        munmap(block, mapped_length(bytes));
        stats_.reserved_bytes -= static_cast<std::int64_t>(mapped_length(bytes));
      }
      blocks_[static_cast<std::size_t>(size_class)] -= free_[static_cast<std::size_t>(size_class)].size();
      free_[static_cast<std::size_t>(size_class)].clear();
    }
  }

  [[noreturn]] void out_of_memory(std::size_t bytes) const {
    std::size_t largest_free = 0;
    for (int size_class = kCount - 1; size_class >= 0 && largest_free == 0; --size_class)
      if (!free_[static_cast<std::size_t>(size_class)].empty()) largest_free = class_bytes(size_class);
    fail<OutOfMemoryError>(
        "memory: no room for {} beside {} in use: {} bytes could not be had on cpu: live {}, peak {}, reserved {}, "
        "largest free block {}, limit {}{} (lower --train.batch, --train.sequence or --model.context, raise "
        "--train.accumulate, or use checkpointing{})",
        readable_bytes(static_cast<double>(bytes)), readable_bytes(static_cast<double>(stats_.live_bytes)),
        bytes, stats_.live_bytes, stats_.peak_bytes, stats_.reserved_bytes, largest_free,
        limit_ > 0 ? std::to_string(limit_) : "none", detail::memory_report(),
        limit_ > 0 ? "; --memory-check warn sets no limit" : "");
  }

  mutable std::mutex mutex_;
  std::array<std::vector<void*>, kCount> free_;
  std::array<std::size_t, kCount> blocks_{};  // of each class, free or in use
  struct Slab {
    char* next = nullptr;
    std::size_t left = 0;
  };
  std::array<Slab, 2> slabs_;  // of small blocks, and of the others that are not mapped on their own
  AllocatorStats stats_;
  std::int64_t limit_ = 0;
};

std::array<Allocator*, kDeviceTypeCount> allocators{};

}  // namespace

Allocator& allocator(Device device) {
  if (device.type == DeviceType::cpu) {
    static CpuAllocator* const cpu =
        new CpuAllocator;  // lives to the end: tensors may be freed by static destructors
    return *cpu;
  }
  Allocator* found = allocators[static_cast<std::size_t>(device.type)];
  if (found == nullptr)
    fail<DeviceError>("device: {} is not in this build (it has: cpu; configure with -DEDDY_CUDA=ON)",
                      to_string(device));
  return *found;
}

void set_allocator(DeviceType type, Allocator* new_allocator) {
  allocators[static_cast<std::size_t>(type)] = new_allocator;
}

void detail::set_memory_report(MemoryReport report) {
  report_memory = report;
}

std::string detail::memory_report() {
  char text[1024] = "";
  if (report_memory != nullptr) report_memory(text, sizeof text);
  return text;
}

std::string to_string(const Device& device) {
  if (device.type == DeviceType::counting) return "counting";
  return device.type == DeviceType::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

}  // namespace eddy
