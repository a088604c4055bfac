// Numbers of 16 bits of IEEE 754, which files hold and tensors do not.
#pragma once

#include <cstdint>

namespace eddy {

// Returns the number of an IEEE 754 binary16: 1 bit of sign, 5 of exponent, 10 of mantissa. Every one is an f32.
inline float from_half(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu, mantissa = bits & 0x3ffu;
  if (exponent == 0) return (sign != 0 ? -0x1p-24f : 0x1p-24f) * static_cast<float>(mantissa);
  const std::uint32_t wide = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
  return __builtin_bit_cast(float, sign | wide << 23 | mantissa << 13);
}

}  // namespace eddy
