// The pool of the caching GPU allocator, without CUDA: it divides segments of raw memory that someone else
// takes from the device. cudaMalloc and cudaFree wait for the whole GPU; a block from the pool costs two
// look-ups in a tree.
//
// Small requests (up to 512 KiB) share segments of 8 MiB, large ones get segments of 32 MiB, or of their own
// size when that is more, so that the small and long-lived do not cut up the large. Within a segment a
// request takes the smallest free block that fits and splits it; a block that comes back merges with free
// neighbours. Sizes are multiples of 512 bytes. When the device refuses, segments that are wholly free go
// back to it and the request is tried once more.
//
// A block may be handed out again while the GPU still works on it: everything runs on one stream, so whoever
// gets it next comes after. Not for several threads at once: the caller locks.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tensor/memory/allocator.h"

namespace eddy::cuda {

// Where segments come from.
class RawMemory {
 public:
  virtual ~RawMemory() = default;
  // Memory aligned to 512 bytes, or nullptr when there is not enough.
  virtual void* take(std::size_t bytes) = 0;
  virtual void give_back(void* memory, std::size_t bytes) noexcept = 0;
  // "cuda:0", for errors.
  virtual std::string name() const = 0;
  // What the device says of its memory, for errors; may be empty.
  virtual std::string describe() const = 0;
};

class Pool {
 public:
  static constexpr std::size_t kUnit = 512;
  static constexpr std::size_t kSmallRequest = std::size_t{512} << 10;
  static constexpr std::size_t kSmallSegment = std::size_t{8} << 20;
  static constexpr std::size_t kLargeSegment = std::size_t{32} << 20;
  static constexpr std::size_t kSegmentUnit = std::size_t{2} << 20;  // what drivers hand out memory in

  explicit Pool(RawMemory& raw) : raw_(raw) {}
  // Gives all segments back, with what is live in them.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // At least `bytes`, aligned to 512; nullptr for 0. `elsewhere`: bytes live beside this pool, which count
  // for the limit too.
  // errors: OutOfMemoryError.
  void* allocate(std::size_t bytes, std::int64_t elsewhere = 0);
  // Takes back what allocate gave; nullptr does nothing. Returns whether it was this pool's.
  bool deallocate(void* memory) noexcept;
  // Gives back the segments in which nothing is live.
  void trim();
  // While on, trim gives nothing back, and neither does a request that the device refuses.
  void keep_segments(bool on) { keeps_segments_ = on; }

  AllocatorStats stats() const { return stats_; }
  std::int64_t segments() const { return static_cast<std::int64_t>(segments_.size()); }
  void reset_peak() { stats_.peak_bytes = stats_.live_bytes; }
  // The most that may be live; 0 for no limit.
  void set_limit(std::int64_t bytes) { limit_ = bytes; }
  std::size_t largest_free() const;

 private:
  struct Block {
    std::size_t bytes;
    char* segment;  // its first byte
    bool free;
    bool small;  // of a segment for small requests
  };
  using Blocks = std::map<char*, Block>;

  Blocks::iterator best_fit(bool small, std::size_t bytes);
  Blocks::iterator new_segment(bool small, std::size_t bytes);
  void set_free(Blocks::iterator block, bool free);
  void split(Blocks::iterator block, std::size_t bytes);
  // Joins a block with the one behind it, if both are free parts of one segment.
  void join(Blocks::iterator block, Blocks::iterator next);

  RawMemory& raw_;
  Blocks blocks_;                          // all, by address: neighbours in a segment are neighbours here
  std::map<char*, std::size_t> segments_;  // their sizes
  std::array<std::set<std::pair<std::size_t, char*>>, 2> free_;  // [small], by size, then address
  AllocatorStats stats_;
  std::int64_t limit_ = 0;
  bool keeps_segments_ = false;
};

// Throws the error of a request that cannot be met. `limit` is 0 where there is none.
[[noreturn]] void out_of_memory(const RawMemory& raw, std::size_t bytes, const AllocatorStats& stats,
                                std::size_t largest_free, std::int64_t limit);

}  // namespace eddy::cuda
