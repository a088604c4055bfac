// The GPU's memory as a launch sees it: ranges of bytes at the addresses they had when the launch was recorded.
//
// Every access must lie in one range and be aligned to its size. Who wrote what is remembered, by two bytes:
// a block may read what another one wrote only after that one's release was acquired. Each block counts its
// releases; `clock[b]` of a block says up to which release of block b it has seen. What the launch ahead of a dependent
// one wrote is known too: it may be read after griddepcontrol.wait alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/ptx/interpreter/types.h"

namespace ptx {

class GlobalMemory {
 public:
  // What is known of two bytes.
  struct Stamp {
    std::uint32_t writer = 0;  // block + 1, or 0
    std::uint32_t release : 24 = 0;
    std::uint32_t type : 8 = 0;  // of the store
  };
  struct Range {
    std::uint64_t start;
    std::vector<unsigned char> bytes;
    std::vector<Stamp> stamps;
  };

  // Ranges that touch become one.
  void add(std::uint64_t start, std::vector<unsigned char> bytes);
  // Returns the range that holds all of the bytes, or nullptr.
  Range* find(std::uint64_t address, std::size_t bytes) {
    if (last_ < ranges_.size()) {
      Range& range = ranges_[last_];
      if (address - range.start < range.bytes.size() && bytes <= range.bytes.size() - (address - range.start))
        return &range;
    }
    return search(address, bytes);
  }
  const std::vector<Range>& ranges() const { return ranges_; }
  // What the launch ahead wrote.
  void add_written_ahead(std::uint64_t start, std::uint64_t bytes) { ahead_.emplace_back(start, bytes); }
  bool written_ahead(std::uint64_t address, std::size_t bytes) const;
  // Where it is, in words: "4 bytes after the end of 256 bytes at 7f..".
  std::string describe(std::uint64_t address) const;

  // The clocks that releases left at addresses.
  std::map<std::uint64_t, std::vector<std::uint32_t>> released;

 private:
  Range* search(std::uint64_t address, std::size_t bytes);

  std::vector<Range> ranges_;                                   // sorted
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ahead_;  // start and bytes
  std::size_t last_ = 0;
};

}  // namespace ptx
