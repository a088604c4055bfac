// hint: Add to the 32 bits before you shift: 0x7fff, which reaches the next number from just above the middle.
// hint: In the middle the last bit that stays decides: add bits >> 16 & 1 too.
// hint: For a NaN skip this, and set a bit of the fraction that stays (0x40), in case all others were cut off.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

std::string hex(std::uint32_t bits) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", bits);
  return text;
}

void check() {
  const auto to = [](const std::string& part, std::uint32_t bits, const std::string& what) {
    asks("to_bf16(the bits " + hex(bits) + "), " + what);
    gives(part, hex(to_bf16(std::bit_cast<float>(bits))));
  };
  to("to_bf16", 0x3f800000, "which is 1 and has no lower bits");
  to("to_bf16", 0x3f807fff, "below the middle");
  to("to_bf16", 0x3f808001, "above the middle");
  to("to_bf16", 0x3f808000, "in the middle: to the even one");
  to("to_bf16", 0x3f818000, "in the middle: to the even one");
  to("to_bf16", 0xbf818000, "the same below 0");
  to("to_bf16", 0x3fffffff, "where the carry reaches the exponent: this is 2");
  to("to_bf16", 0x7f7fffff, "the largest f32, which becomes infinite");
  to("to_bf16", 0x7f800000, "infinity");
  to("to_bf16", 0x80000000, "minus zero");
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xffffffffu}) {
    asks("to_bf16(the NaN " + hex(bits) +
         "): a NaN has all ones in its exponent and a fraction that is not 0");
    gives("to_bf16", (to_bf16(std::bit_cast<float>(bits)) & 0x7fffu) > 0x7f80u ? "a NaN" : "no NaN");
  }
  for (const std::uint16_t bits : {0x3f80, 0x3fc0, 0xc2f7, 0x4040, 0xff80}) {
    asks("from_bf16(" + hex(bits) + ")");
    gives("from_bf16", from_bf16(bits));
  }
}

}  // namespace eddy_learn
