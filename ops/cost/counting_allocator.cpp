// Free lists of addresses.
#include "ops/cost/counting_allocator.h"

#include <algorithm>

#include "tensor/base/format.h"

namespace eddy {

using namespace detail;
using namespace size_classes;

namespace {

// Bytes of a block that are resident when so many were written: huge pages whole, but not past the block.
std::size_t written_bytes(std::size_t bytes, int size_class) {
  const std::size_t whole = class_bytes(size_class);
  return whole < kLarge ? whole : std::min(whole, (bytes + kLarge - 1) / kLarge * kLarge);
}

}  // namespace

void* CountingAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const int size_class = class_of(bytes);
  const std::size_t rounded = class_bytes(size_class), written = written_bytes(bytes, size_class);
  const std::lock_guard lock(mutex_);
  if (limit_ > 0 && stats_.live_bytes + static_cast<std::int64_t>(rounded) > limit_)
    fail<OutOfMemoryError>("memory: {} bytes are counted beside {} in use (at most {})", rounded,
                           stats_.live_bytes, limit_);
  std::vector<Block>& list = free_[static_cast<std::size_t>(size_class)];
  std::size_t& blocks = blocks_[static_cast<std::size_t>(size_class)];
  Block block;
  if (!list.empty()) {
    block = list.back();
    list.pop_back();
  } else {
    // deallocate may not fail, so the list has room for all blocks of its class.
    if (list.capacity() <= blocks) list.reserve(2 * blocks + 8);
    ++blocks;
    block.address = next_;
    next_ += rounded;
    if (rounded < kLarge) {
      std::size_t& left = slabs_left_[rounded < kSmall ? 0 : 1];
      if (left < rounded) {
        left = slab_bytes(rounded);
        stats_.reserved_bytes += static_cast<std::int64_t>(left);
      }
      left -= rounded;
      block.written = rounded;
    }
  }
  if (written > block.written) {
    stats_.reserved_bytes += static_cast<std::int64_t>(written - block.written);
    block.written = written;
  }
  written_[block.address] = block.written;
  stats_.live_bytes += static_cast<std::int64_t>(rounded);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  ++stats_.allocations;
  return reinterpret_cast<void*>(block.address);
}

void CountingAllocator::deallocate(void* pointer, std::size_t bytes) noexcept {
  if (pointer == nullptr) return;
  const int size_class = class_of(bytes);
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<std::size_t>(pointer);
  const auto found = written_.find(address);
  stats_.live_bytes -= static_cast<std::int64_t>(class_bytes(size_class));
  free_[static_cast<std::size_t>(size_class)].push_back({address, found->second});
  written_.erase(found);
}

void CountingAllocator::trim() {
  const std::lock_guard lock(mutex_);
  for (std::size_t size_class = 0; size_class < free_.size(); ++size_class) {
    blocks_[size_class] -= free_[size_class].size();
    free_[size_class].clear();
  }
  slabs_left_ = {};
  stats_.reserved_bytes = 0;
  for (const auto& [address, written] : written_) stats_.reserved_bytes += static_cast<std::int64_t>(written);
}

AllocatorStats CountingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CountingAllocator::set_limit(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}

void CountingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.live_bytes;
}

}  // namespace eddy
