// Numbers with fewer bits than a float has, as PTX converts them: bf16 as the upper half of one, TF32 as one whose last
// 13 bits are 0.
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

// To the nearest, ties away from zero; every NaN becomes 0x7fffffff.
inline std::uint32_t to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return 0x7fffffffu;
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}

}  // namespace ptx
