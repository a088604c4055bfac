// hint: Add to the 32 bits before you shift: 0x7fff, which reaches the next number from just above the middle.
// hint: In the middle the last bit that stays decides: add bits >> 16 & 1 too.
// hint: For a NaN skip this, and set a bit of the fraction that stays (0x40), in case all others were cut off.
#include <limits>

#include <learn.h>
#include EXERCISE

namespace eddy_learn {

std::string hex(std::uint32_t bits) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", bits);
  return text;
}

int check() {
  const auto expect = [](std::uint32_t from, std::uint16_t want, const char* note) {
    same("to_bf16 of the bits " + hex(from), hex(to_bf16(std::bit_cast<float>(from))), hex(want), note);
  };
  expect(0x3f800000, 0x3f80, "1 has no lower bits");
  expect(0x3f807fff, 0x3f80, "below the middle");
  expect(0x3f808001, 0x3f81, "above the middle");
  expect(0x3f808000, 0x3f80, "the middle goes to the even one");
  expect(0x3f818000, 0x3f82, "the middle goes to the even one");
  expect(0xbf818000, 0xbf82, "the same for negative numbers");
  expect(0x3fffffff, 0x4000, "the carry reaches the exponent: this is 2");
  expect(0x7f7fffff, 0x7f80, "the largest f32 becomes infinite");
  expect(0x7f800000, 0x7f80, "infinity");
  expect(0x80000000, 0x8000, "minus zero");
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xffffffffu}) {
    const std::uint16_t got = to_bf16(std::bit_cast<float>(bits));
    holds((got & 0x7fffu) > 0x7f80u, "to_bf16 of the NaN " + hex(bits), hex(got),
          "a NaN: exponent all ones, fraction not 0");
  }
  near("from_bf16(0x3fc0)", from_bf16(0x3fc0), 1.5);
  near("from_bf16(0xc2f7)", from_bf16(0xc2f7), -123.5);
  near("from_bf16(0xff80)", from_bf16(0xff80), -std::numeric_limits<double>::infinity());
  return result();
}

}  // namespace eddy_learn
