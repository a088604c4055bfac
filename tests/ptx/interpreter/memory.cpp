#include "tests/ptx/interpreter/memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace ptx {

void GlobalMemory::add(std::uint64_t start, std::vector<unsigned char> bytes) {
  const auto at = std::upper_bound(ranges_.begin(), ranges_.end(), start,
                                   [](std::uint64_t x, const Range& range) { return x < range.start; });
  if (at != ranges_.begin()) {
    Range& before = *std::prev(at);
    const std::uint64_t end = before.start + before.bytes.size();
    if (start < end) throw Fault(fmt::format("a record holds the address {:x} twice", start));
    if (start == end) {
      before.bytes.insert(before.bytes.end(), bytes.begin(), bytes.end());
      before.stamps.resize((before.bytes.size() + 1) / 2);
      return;
    }
  }
  const std::size_t halves = (bytes.size() + 1) / 2;
  ranges_.insert(at, {start, std::move(bytes), std::vector<Stamp>(halves)});
}

GlobalMemory::Range* GlobalMemory::search(std::uint64_t address, std::size_t bytes) {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                      [](std::uint64_t x, const Range& range) { return x < range.start; });
  if (after == ranges_.begin()) return nullptr;
  Range& range = *std::prev(after);
  const std::uint64_t at = address - range.start;
  if (at >= range.bytes.size() || bytes > range.bytes.size() - at) return nullptr;
  last_ = static_cast<std::size_t>(std::prev(after) - ranges_.begin());
  return &range;
}

bool GlobalMemory::written_ahead(std::uint64_t address, std::size_t bytes) const {
  return std::any_of(ahead_.begin(), ahead_.end(), [&](const auto& range) {
    return range.first < address + bytes && address < range.first + range.second;
  });
}

std::string GlobalMemory::describe(std::uint64_t address) const {
  const Range* nearest = nullptr;
  std::uint64_t distance = ~std::uint64_t{0};
  for (const Range& range : ranges_) {
    const std::uint64_t end = range.start + range.bytes.size();
    const std::uint64_t away = address < range.start ? range.start - address
                               : address < end       ? 0
                                                     : address - end;
    if (away < distance) distance = away, nearest = &range;
  }
  if (nearest == nullptr) return fmt::format("{:x}, and the launch has no memory", address);
  const std::size_t bytes = nearest->bytes.size();
  if (distance == 0)
    return fmt::format("{:x}, byte {} of {} bytes", address, address - nearest->start, bytes);
  const char* const side = address < nearest->start ? "before" : "after";
  return fmt::format("{:x}, {} bytes {} {} bytes of memory", address, distance, side, bytes);
}

}  // namespace ptx
