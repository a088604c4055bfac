// Numbers of 16 bits as the upper half of a float, as PTX converts them.
#pragma once

#include <bit>
#include <cstdint>

namespace ptx {

inline float from_bf16(std::uint16_t half) {
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}

// To the nearest, ties to even; every NaN becomes 0x7fff.
inline std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<std::uint16_t>(x != x ? 0x7fffu : rounded);
}

}  // namespace ptx
