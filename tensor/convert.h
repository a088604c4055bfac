// Conversion of one element to another type, and dispatch on the size of an element, for the copies and casts
// of the CPU and of the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tensor/base/dtype.h"
#include "tensor/base/host_device.h"

namespace eddy {

// Returns an i64 as an f64 that rounds to any narrower type as the i64 itself would. Beyond 2^53 the lowest
// bits are merged into a sticky bit, so that the next rounding never sees a false tie (as in bf16::nearest).
EDDY_HD_INLINE double sticky_double(std::int64_t value) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53, kLow = (std::int64_t{1} << 11) - 1;
  if (value > -kExact && value < kExact) return static_cast<double>(value);
  return static_cast<double>((value & kLow) != 0 ? (value & ~kLow) | (kLow + 1) : value);
}

// Returns the value as type To. A conversion to bf16 rounds once.
template <class To, class From>
EDDY_HOST_DEVICE To convert(From value) {
  if constexpr (std::is_same_v<To, bf16> && std::is_same_v<From, std::int64_t>) {
    return bf16::nearest(sticky_double(value));
  } else if constexpr (std::is_same_v<To, bf16> && !std::is_same_v<From, float> && sizeof(From) >= 4) {
    return bf16::nearest(static_cast<double>(value));
  } else if constexpr (std::is_same_v<To, bf16>) {
    return bf16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<From, bf16>) {
    return static_cast<To>(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

// Calls visit with a zero of the unsigned type of the element's size, for copies, which only move bits.
template <class Visit>
void dispatch_by_size(Dtype dtype, Visit&& visit) {
  switch (dtype_bytes(dtype)) {
    case 1:
      return visit(std::uint8_t{});
    case 2:
      return visit(std::uint16_t{});
    case 4:
      return visit(std::uint32_t{});
    default:
      return visit(std::uint64_t{});
  }
}

}  // namespace eddy
