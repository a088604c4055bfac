// Splitting and merging blocks. No CUDA here: unit tests run it on memory that does not exist.
#include "cuda/runtime/pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/memory/readable_bytes.h"

namespace eddy::cuda {
namespace {

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Pool::~Pool() {
  for (const auto& [memory, bytes] : segments_) raw_.give_back(memory, bytes);
}

void* Pool::allocate(std::size_t bytes, std::int64_t elsewhere) {
  if (bytes == 0) return nullptr;
  if (bytes > (std::size_t{1} << 46)) out_of_memory(raw_, bytes, stats_, largest_free(), limit_);
  const std::size_t rounded = round_up(bytes, kUnit);
  if (limit_ > 0 && stats_.live_bytes + elsewhere + static_cast<std::int64_t>(rounded) > limit_)
    out_of_memory(raw_, bytes, stats_, largest_free(), limit_);
  const bool small = rounded <= kSmallRequest;
  auto block = best_fit(small, rounded);
  if (block == blocks_.end()) block = new_segment(small, rounded);
  if (block == blocks_.end()) {
    trim();
    block = new_segment(small, rounded);
  }
  if (block == blocks_.end()) out_of_memory(raw_, bytes, stats_, largest_free(), limit_);
  set_free(block, false);
  try {
    split(block, rounded);
  } catch (...) {  // std::bad_alloc: the host has no memory
    set_free(block, true);
    throw;
  }
  stats_.live_bytes += static_cast<std::int64_t>(block->second.bytes);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  ++stats_.allocations;
  return block->first;
}

bool Pool::deallocate(void* memory) noexcept {
  const auto block = blocks_.find(static_cast<char*>(memory));
  if (block == blocks_.end() || block->second.free) return false;
  stats_.live_bytes -= static_cast<std::int64_t>(block->second.bytes);
  set_free(block, true);
  join(block, std::next(block));
  if (block != blocks_.begin()) join(std::prev(block), block);
  return true;
}

void Pool::trim() {
  if (keeps_segments_) return;
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto block = blocks_.find(segment->first);
    if (!block->second.free || block->second.bytes != segment->second) {
      ++segment;
      continue;
    }
    set_free(block, false);  // takes it out of the free list
    blocks_.erase(block);
    raw_.give_back(segment->first, segment->second);
    stats_.reserved_bytes -= static_cast<std::int64_t>(segment->second);
    segment = segments_.erase(segment);
  }
}

std::size_t Pool::largest_free() const {
  std::size_t largest = 0;
  for (const auto& sizes : free_)
    if (!sizes.empty()) largest = std::max(largest, sizes.rbegin()->first);
  return largest;
}

Pool::Blocks::iterator Pool::best_fit(bool small, std::size_t bytes) {
  const auto found = free_[small].lower_bound({bytes, nullptr});
  return found == free_[small].end() ? blocks_.end() : blocks_.find(found->second);
}

Pool::Blocks::iterator Pool::new_segment(bool small, std::size_t bytes) {
  const std::size_t least = round_up(bytes, kSegmentUnit);
  std::size_t length = std::max(small ? kSmallSegment : kLargeSegment, least);
  void* memory = raw_.take(length);
  if (memory == nullptr && length > least) memory = raw_.take(length = least);
  if (memory == nullptr) return blocks_.end();
  char* const start = static_cast<char*>(memory);
  try {
    segments_.emplace(start, length);
    const auto block = add_block(start, length, start, small);
    stats_.reserved_bytes += static_cast<std::int64_t>(length);
    return block;
  } catch (...) {  // std::bad_alloc: the host has no memory
    segments_.erase(start);
    raw_.give_back(memory, length);
    throw;
  }
}

Pool::Blocks::iterator Pool::add_block(char* address, std::size_t bytes, char* segment, bool small) {
  const auto block = blocks_.emplace(address, Block{bytes, segment, true, small}).first;
  try {
    free_[small].emplace(bytes, address);
  } catch (...) {  // std::bad_alloc: the host has no memory
    blocks_.erase(block);
    throw;
  }
  return block;
}

void Pool::set_free(Blocks::iterator block, bool free) noexcept {
  auto& [bytes, segment, is_free, small, entry] = block->second;
  is_free = free;
  if (free) {
    entry.value() = {bytes, block->first};
    free_[small].insert(std::move(entry));
  } else {
    entry = free_[small].extract({bytes, block->first});
  }
}

void Pool::split(Blocks::iterator block, std::size_t bytes) {
  Block& first = block->second;
  // A remainder that no request of this kind could use stays with its block.
  const std::size_t rest = first.bytes - bytes;
  if (rest < (first.small ? kUnit : kSmallRequest)) return;
  add_block(block->first + bytes, rest, first.segment, first.small);
  first.bytes = bytes;
}

void Pool::join(Blocks::iterator block, Blocks::iterator next) {
  if (next == blocks_.end() || !block->second.free || !next->second.free ||
      block->second.segment != next->second.segment)
    return;
  set_free(block, false);
  set_free(next, false);
  block->second.bytes += next->second.bytes;
  blocks_.erase(next);
  set_free(block, true);
}

void out_of_memory(const RawMemory& raw, std::size_t bytes, const AllocatorStats& stats,
                   std::size_t largest_free, std::int64_t limit) {
  const std::string device = raw.describe();
  fail<OutOfMemoryError>(
      "memory: no room for {} beside {} in use: {} bytes could not be had on {}: live {}, peak {}, reserved {}, "
      "largest free block {}, limit {}{}{}{} (lower --train.batch, --train.sequence or --model.context, raise "
      "--train.accumulate, or use checkpointing)",
      readable_bytes(static_cast<double>(bytes)), readable_bytes(static_cast<double>(stats.live_bytes)),
      bytes, raw.name(), stats.live_bytes, stats.peak_bytes, stats.reserved_bytes, largest_free,
      limit > 0 ? std::to_string(limit) : "none", device.empty() ? "" : ", ", device,
      detail::memory_report());
}

}  // namespace eddy::cuda
