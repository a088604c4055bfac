// The size classes of the CPU allocator, apart from where its memory comes from: what counts memory without taking
// any (ops/cost/counting_allocator.h) rounds in the same way.
#pragma once

#include <bit>
#include <cstddef>

namespace eddy::size_classes {

inline constexpr std::size_t kAlignment = 64;
// A huge page. Larger blocks are mapped on their own, smaller ones are cut from slabs.
inline constexpr std::size_t kLarge = std::size_t{2} << 20;
inline constexpr std::size_t kSlab = std::size_t{4} << 20;
// Those below this have slabs of their own, of one huge page. A few of them between blocks of a megabyte would leave a
// quarter of each slab unused, and how many there are depends on what ran before.
inline constexpr std::size_t kSmall = std::size_t{64} << 10;
inline constexpr int kCount = 8 * 44;

// Returns the class of a request: sizes 64, 128, …, 512, then eight steps to each doubling.
constexpr int class_of(std::size_t bytes) {
  const std::size_t units = (bytes + kAlignment - 1) / kAlignment;
  if (units <= 8) return static_cast<int>(units) - 1;
  const int exponent = static_cast<int>(std::bit_width(units - 1)) - 4;  // 8 <= (units - 1) >> exponent < 16
  return 8 * exponent + static_cast<int>((units - 1) >> exponent);
}

// Returns the bytes of a slab for blocks of so many bytes.
constexpr std::size_t slab_bytes(std::size_t bytes) {
  return bytes < kSmall ? kLarge : kSlab;
}

// Returns the bytes of a block of a class.
constexpr std::size_t class_bytes(int size_class) {
  if (size_class < 8) return static_cast<std::size_t>(size_class + 1) * kAlignment;
  const int exponent = size_class / 8 - 1;
  return (static_cast<std::size_t>(size_class % 8 + 9) << exponent) * kAlignment;
}

}  // namespace eddy::size_classes
