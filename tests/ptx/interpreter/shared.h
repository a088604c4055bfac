// A block's shared memory, and who wrote and read it last, by two bytes.
//
// Two accesses of different threads to one place, of which one writes, need a barrier between them: bar.sync,
// or within a warp bar.warp.sync, or an arrival at an mbarrier behind the first and a wait for its phase ahead of the
// second (transactions.h). An arrival shows what its warp did before its last bar.warp.sync. Between are also the steps
// of asynchronous copies (written when waited for) and of products of warpgroups, which read through another proxy: the
// writer must pass fence.proxy.async and then a barrier.
// source: PTX ISA 9.0, "Memory Consistency Model", "Proxies" and "Data Movement: cp.async".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/ptx/interpreter/types.h"

namespace ptx {

struct Warp;

class SharedMemory {
 public:
  // Addresses begin here: a multiple of 16 and of nothing larger, as a kernel must expect.
  static constexpr std::uint64_t kStart = 1040;

  // Forgets everything. Bytes are 255 at first.
  void start(std::size_t bytes);
  std::size_t size() const { return bytes_.size(); }
  // The bytes from an address on; the access must have been checked.
  unsigned char* at(std::uint64_t address) { return bytes_.data() + (address - kStart); }

  // errors of all: Fault for an access out of bounds or in a race, and for one of bytes whose copy or product
  // runs. read also for bytes that nobody wrote.
  void read(const Warp& warp, int lane, std::uint64_t address, int bytes);
  void write(const Warp& warp, int lane, std::uint64_t address, int bytes);
  // Atomic operations do not race with each other.
  void update(const Warp& warp, int lane, std::uint64_t address, int bytes);
  // From now until `arrive` nobody may touch these 16 bytes.
  void begin_copy(const Warp& warp, int lane, std::uint64_t address);
  void arrive(const Warp& warp, int lane, std::uint64_t address);
  // From now until `arrive_box` nobody may touch these bytes; then those that waited for this phase of an mbarrier.
  void begin_box(const Warp& warp, int lane, std::uint64_t address, std::size_t bytes);
  void arrive_box(std::uint64_t address, std::span<const unsigned char> bytes, std::size_t barrier,
                  std::uint64_t phase);
  // From now on what each warp reads is remembered, for arrivals at mbarriers.
  void remember_readers(std::size_t warps);
  // fence.proxy.async of these lanes of a warp.
  void publish(const Warp& warp, Mask lanes);
  // A product of the warp's warpgroup reads two bytes; returns their number.
  // errors: Fault unless their writer published them and passed a barrier.
  std::uint32_t begin_product(const Warp& warp, std::uint64_t address);
  void end_product(const Warp& warp, std::span<const std::uint32_t> halves);
  // All threads passed a barrier.
  void pass_barrier() { ++epoch_; }

 private:
  struct Half {
    std::uint32_t written = 0, read = 0;              // at which barrier; 0 never
    std::uint32_t written_order = 0, read_order = 0;  // of the warp
    std::uint16_t writer = 0, reader = 0;             // threads
    std::uint8_t readers = 0;                         // kNobody and so on
    std::uint16_t products = 0;                       // that run and read it
    std::uint16_t box = 0;    // 1 + the mbarrier of the copy that wrote it; 0 for a thread
    std::uint64_t phase = 0;  // of that mbarrier
    bool copying = false, published = false, atomic = false;
  };
  enum : std::uint8_t { kNobody, kOneThread, kOneWarp, kSeveral };

  std::size_t check(const Warp& warp, int lane, std::uint64_t address, int bytes, const char* what) const;
  void check_still(const Warp& warp, int lane, std::uint64_t address, const Half& half) const;
  void check_ready(const Warp& warp, std::uint64_t address, const Half& half) const;
  void mark_written(const Warp& warp, int lane, Half& half, bool atomic);
  bool shows(const Warp& warp, const Half& half) const;
  void note_reader(const Warp& warp, std::size_t half);

  std::vector<unsigned char> bytes_;
  std::vector<Half> halves_;
  // [half][warp]: the barrier and the warp's order of its last read. Empty without mbarriers.
  struct Read {
    std::uint32_t epoch = 0, order = 0;
  };
  std::vector<Read> reads_;
  std::size_t warps_ = 0;
  std::uint32_t epoch_ = 1;
};

}  // namespace ptx
