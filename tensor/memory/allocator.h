// Memory for buffers. The CPU allocator caches freed blocks by size class on huge pages: fresh pages
// cost 1.75 us each to touch first (2 GB/s against 14 GB/s to rewrite, measured on a two-core Xeon), so a
// training step must reuse the blocks of the step before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor/base/device.h"

namespace eddy {

struct AllocatorStats {
  std::int64_t live_bytes = 0;      // handed out now, rounded up to size classes
  std::int64_t peak_bytes = 0;      // the most that was live since the last reset_peak
  std::int64_t reserved_bytes = 0;  // held from the system, live and cached
  std::int64_t allocations = 0;     // calls of allocate so far
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  // 64-byte aligned memory of at least `bytes`; nullptr for 0.
  // errors: OutOfMemoryError after cached blocks were given back and the request still failed.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* pointer, std::size_t bytes) noexcept = 0;
  // Gives cached blocks back to the system.
  virtual void trim() = 0;
  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
  // An upper limit on live bytes, 0 for none; for tests and for sharing a machine.
  virtual void set_limit(std::int64_t bytes) = 0;
};

// The allocator of a device.
// errors: DeviceError when this build has no backend for it.
Allocator& allocator(Device device);
// Called by a backend when it is installed.
void set_allocator(DeviceType type, Allocator* allocator);

// Writes what the tape keeps alive, and for which modules, into `text`: a part of the out-of-memory error.
// Set by autograd. It gets a buffer because nothing may be allocated from the allocator that has just failed.
using MemoryReport = void (*)(char* text, std::size_t capacity);
void set_memory_report(MemoryReport report);
// What that report says now; empty without one.
std::string memory_report();

}  // namespace eddy
