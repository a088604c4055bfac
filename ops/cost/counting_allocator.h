// The memory of the counting devices: addresses of no memory, and the statistics that the CPU's allocator would have
// (tensor/memory/allocator.cpp): the same size classes, freed blocks that wait in lists for the next request of their
// class, small blocks cut from slabs.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tensor/memory/allocator.h"
#include "tensor/memory/size_classes.h"

namespace eddy::detail {

class CountingAllocator final : public Allocator {
 public:
  void* allocate(std::size_t bytes) override;
  void deallocate(void* pointer, std::size_t bytes) noexcept override;
  // Forgets all freed blocks, small ones too, so that what is counted from here on depends on nothing before it.
  void trim() override;
  // reserved_bytes are those that would have been written: what a process has resident. The system gives memory to what
  // is written, by whole huge pages in a large block.
  AllocatorStats stats() const override;
  void reset_peak() override;
  // Live bytes beyond the limit are an OutOfMemoryError; 0: no limit.
  void set_limit(std::int64_t bytes) override;

 private:
  struct Block {
    std::size_t address = 0;
    std::size_t written = 0;  // the largest request that it served, in whole huge pages
  };

  mutable std::mutex mutex_;
  static constexpr int kClasses = 8 * 58;  // of any size that a number holds
  std::array<std::vector<Block>, kClasses> free_;
  std::array<std::size_t, kClasses> blocks_{};            // of each class, free or in use
  std::unordered_map<std::size_t, std::size_t> written_;  // of the blocks in use, by address
  std::size_t next_ = std::size_t{1} << 5 * sizeof(std::size_t);
  std::array<std::size_t, 2> slabs_left_{};  // of small blocks, and of others
  std::int64_t limit_ = 0;
  AllocatorStats stats_;
};

}  // namespace eddy::detail
