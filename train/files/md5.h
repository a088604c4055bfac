// MD5, because the publishers of some data give no other checksum of them. It finds damage, no forgery.
// Source: RFC 1321, section 3.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "train/files/hash_blocks.h"

namespace eddy::training {

// Hashes bytes given in pieces; where the pieces are cut does not matter.
class Md5 {
 public:
  void update(std::string_view bytes);
  // The digest as 32 lower-case hexadecimal digits. Call once, last.
  std::string hex_digest();

 private:
  void compress(const unsigned char* block);

  std::array<std::uint32_t, 4> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  HashBlocks blocks_;
};

// The MD5 digest of `bytes` as 32 lower-case hexadecimal digits.
std::string md5_hex(std::string_view bytes);

}  // namespace eddy::training
