// MD5 after RFC 1321. The constant of step i is floor(2^32 |sin(i + 1)|), i in radians (section 3.4).
#include "train/files/md5.h"

#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <cstddef>

namespace eddy::training {
namespace {

constexpr std::array<int, 16> kShifts = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};

std::array<std::uint32_t, 64> make_constants() {
  std::array<std::uint32_t, 64> constants{};
  for (std::size_t i = 0; i < 64; ++i)
    constants[i] =
        static_cast<std::uint32_t>(std::floor(std::abs(std::sin(static_cast<double>(i + 1))) * 0x1p32));
  return constants;
}

std::uint32_t little_endian(const unsigned char* p) {
  return static_cast<std::uint32_t>(p[0]) | (static_cast<std::uint32_t>(p[1]) << 8) |
         (static_cast<std::uint32_t>(p[2]) << 16) | (static_cast<std::uint32_t>(p[3]) << 24);
}

}  // namespace

void Md5::compress(const unsigned char* block) {
  static const std::array<std::uint32_t, 64> kConstants = make_constants();
  std::array<std::uint32_t, 16> words;
  for (std::size_t t = 0; t < 16; ++t) words[t] = little_endian(block + 4 * t);
  auto [a, b, c, d] = state_;  // the standard's working variables
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t round = i / 16;
    const std::uint32_t mixed = round == 0   ? (b & c) | (~b & d)
                                : round == 1 ? (b & d) | (c & ~d)
                                : round == 2 ? b ^ c ^ d
                                             : c ^ (b | ~d);
    constexpr std::array<std::size_t, 4> kFactor = {1, 5, 3, 7}, kOffset = {0, 1, 5, 0};
    const std::uint32_t word = words[(kFactor[round] * i + kOffset[round]) % 16];
    const std::uint32_t turned = std::rotl(a + mixed + kConstants[i] + word, kShifts[4 * round + i % 4]);
    a = d;
    d = c;
    c = b;
    b += turned;
  }
  const std::array<std::uint32_t, 4> add = {a, b, c, d};
  for (std::size_t i = 0; i < 4; ++i) state_[i] += add[i];
}

void Md5::update(std::string_view bytes) {
  blocks_.update(bytes, [this](const unsigned char* block) { compress(block); });
}

std::string Md5::hex_digest() {
  // Padding: section 3.1.
  blocks_.finish(std::endian::little, [this](const unsigned char* block) { compress(block); });
  std::array<std::uint32_t, 4> digest;
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint32_t word = state_[i];
    digest[i] = (word >> 24) | ((word >> 8) & 0xff00) | ((word << 8) & 0xff0000) | (word << 24);
  }
  return fmt::format("{:08x}", fmt::join(digest, ""));
}

std::string md5_hex(std::string_view bytes) {
  Md5 hash;
  hash.update(bytes);
  return hash.hex_digest();
}

}  // namespace eddy::training
