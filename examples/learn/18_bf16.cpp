// Exercise 18: rounding to bf16
//
// A bf16 is the upper half of an f32: 1 sign, 8 bits of exponent, 7 bits of fraction. It reaches as far as f32 with two
// to three digits. Cutting off the lower half rounds towards 0, and many sums of such numbers drift. So round to the
// nearest, and from the middle to the one whose last bit is 0:
//
//   0x3f808000   is in the middle of 0x3f80 and 0x3f81: 0x3f80
//   0x3f818000   is in the middle of 0x3f81 and 0x3f82: 0x3f82
//
// A NaN must stay one: rounding may carry into its exponent, or leave only zeros of its fraction, which is infinity.
// In Eddy: docs/bf16.md.
#include <bit>
#include <cstdint>

std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>(bits >> 16);  // your code: this cuts off
}

float from_bf16(std::uint16_t x) {
  return 0;  // your code
}
