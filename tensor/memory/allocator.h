// Memory for buffers. The CPU allocator keeps freed blocks in huge pages, by size class. The first write to a
// fresh page costs 1.75 us (2 GB/s, against 14 GB/s for later writes, measured on a two-core Xeon), so a
// training step must reuse the blocks of the previous step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor/base/device.h"

namespace eddy {

// What an allocator has handed out so far.
struct AllocatorStats {
  std::int64_t live_bytes = 0;      // allocated now, rounded up to size classes
  std::int64_t peak_bytes = 0;      // the most that was live since the last reset_peak
  std::int64_t reserved_bytes = 0;  // obtained from the system, live and cached
  std::int64_t allocations = 0;     // calls of allocate so far
};

// Memory of one kind of device.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // Returns 64-byte aligned memory of at least `bytes`; nullptr for 0.
  // errors: OutOfMemoryError if the request fails even after the cached blocks were returned to the system.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* pointer, std::size_t bytes) noexcept = 0;
  // Returns cached blocks to the system.
  virtual void trim() = 0;
  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
  // Sets an upper limit on live bytes, 0 for none; for tests and for sharing a machine.
  virtual void set_limit(std::int64_t bytes) = 0;
};

// Returns the allocator of a device.
// errors: DeviceError when this build has no backend for it.
Allocator& allocator(Device device);
// Sets the allocator of a device type. A backend calls it when it is installed.
void set_allocator(DeviceType type, Allocator* allocator);

namespace detail {
// Writes into `text` how much memory the tape keeps alive, and for which modules. Out-of-memory errors
// include it. Autograd sets it. The buffer is given, because nothing can be allocated at that moment.
using MemoryReport = void (*)(char* text, std::size_t capacity);
void set_memory_report(MemoryReport report);
// Returns the current text of that report; empty without one.
std::string memory_report();
}  // namespace detail

}  // namespace eddy
