// A limit on what an allocator gives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tensor/memory/allocator.h"

namespace eddy {

// Lets an allocator give `bytes` beside what is live already, while it exists; a request for more is an
// OutOfMemoryError.
class MemoryLimit {
 public:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

  MemoryLimit(Allocator& memory, std::int64_t bytes) : memory_(memory) {
    const std::int64_t live = memory.stats().live_bytes;
    memory.set_limit(bytes < kNone - live ? live + std::max<std::int64_t>(1, bytes) : 0);
  }
  ~MemoryLimit() { memory_.set_limit(0); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  Allocator& memory_;
};

}  // namespace eddy
