// The pool of the caching GPU allocator, without CUDA: it divides segments of raw memory, which RawMemory
// takes from the device, into blocks. cudaMalloc and cudaFree wait for the whole GPU; a block from the pool
// costs two look-ups in a tree.
//
//   request                  segment
//   small, up to 512 KiB     8 MiB
//   large                    32 MiB, or its own size if that is more
//
// Small requests have segments of their own, so that small, long-lived blocks do not fragment the large ones.
// Within a segment a request takes the smallest free block that fits and splits it; a freed block merges with
// free neighbours. Sizes are multiples of 512 bytes. If the device refuses a segment, segments that are
// wholly free are given back and the request is repeated once.
//
// A block may be reused while the GPU still works on it: everything runs on one stream, so its next user
// comes later in the stream. Not thread-safe: the caller locks.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tensor/memory/allocator.h"

namespace eddy::cuda {

// The source of segments.
class RawMemory {
 public:
  virtual ~RawMemory() = default;
  // Returns memory aligned to 512 bytes, or nullptr when there is not enough.
  virtual void* take(std::size_t bytes) = 0;
  virtual void give_back(void* memory, std::size_t bytes) noexcept = 0;
  // The device's name in errors, such as "cuda:0".
  virtual std::string name() const = 0;
  // What the device says about its memory, for errors; may be empty.
  virtual std::string describe() const = 0;
};

class Pool {
 public:
  static constexpr std::size_t kUnit = 512;
  static constexpr std::size_t kSmallRequest = std::size_t{512} << 10;
  static constexpr std::size_t kSmallSegment = std::size_t{8} << 20;
  static constexpr std::size_t kLargeSegment = std::size_t{32} << 20;
  static constexpr std::size_t kSegmentUnit = std::size_t{2} << 20;  // the drivers' allocation unit

  explicit Pool(RawMemory& raw) : raw_(raw) {}
  // Gives all segments back, including live blocks.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Returns at least `bytes` bytes, aligned to 512; nullptr for 0. `elsewhere`: live bytes outside this pool
  // that count towards the limit.
  // errors: OutOfMemoryError.
  void* allocate(std::size_t bytes, std::int64_t elsewhere = 0);
  // Frees a block and returns true, or returns false if it is not this pool's. nullptr does nothing.
  bool deallocate(void* memory) noexcept;
  // Gives back the segments that have no live block.
  void trim();
  // While on, trim gives nothing back, and neither does a request that the device refuses.
  void keep_segments(bool on) { keeps_segments_ = on; }

  AllocatorStats stats() const { return stats_; }
  std::int64_t segments() const { return static_cast<std::int64_t>(segments_.size()); }
  void reset_peak() { stats_.peak_bytes = stats_.live_bytes; }
  // Sets the most bytes that may be live; 0 for no limit.
  void set_limit(std::int64_t bytes) { limit_ = bytes; }
  std::size_t largest_free() const;

 private:
  using FreeBlocks = std::set<std::pair<std::size_t, char*>>;  // by size, then address
  struct Block {
    std::size_t bytes;
    char* segment;  // address of its segment
    bool free;
    bool small;  // in a segment for small requests
    FreeBlocks::node_type
        entry{};  // in use: its entry of the free blocks, so that freeing it takes no memory
  };
  using Blocks = std::map<char*, Block>;

  Blocks::iterator best_fit(bool small, std::size_t bytes);
  Blocks::iterator new_segment(bool small, std::size_t bytes);
  void set_free(Blocks::iterator block, bool free) noexcept;
  // Adds a free block.
  Blocks::iterator add_block(char* address, std::size_t bytes, char* segment, bool small);
  void split(Blocks::iterator block, std::size_t bytes);
  // Merges a block with the next one if both are free and in the same segment.
  void join(Blocks::iterator block, Blocks::iterator next);

  RawMemory& raw_;
  Blocks blocks_;                          // all, by address: neighbours in a segment are neighbours here
  std::map<char*, std::size_t> segments_;  // address -> bytes
  std::array<FreeBlocks, 2> free_;         // [small]
  AllocatorStats stats_;
  std::int64_t limit_ = 0;
  bool keeps_segments_ = false;
};

// Throws the OutOfMemoryError of a request. `limit` is 0 if there is none.
[[noreturn]] void out_of_memory(const RawMemory& raw, std::size_t bytes, const AllocatorStats& stats,
                                std::size_t largest_free, std::int64_t limit);

}  // namespace eddy::cuda
