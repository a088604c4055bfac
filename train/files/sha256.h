// SHA-256, to check that a downloaded file is the expected one, and to recognise a run's data and weights.
// Source: FIPS 180-4, sections 4.1.2, 5.1.1, 6.2.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "train/files/hash_blocks.h"

namespace eddy::training {

// Hashes bytes given in pieces; where the pieces are cut does not matter.
class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  // The digest as 64 lower-case hexadecimal digits. Call once, last.
  std::string hex_digest();

 private:
  void compress(const unsigned char* block);

  std::array<std::uint32_t, 8> state_;
  HashBlocks blocks_;
};

// The SHA-256 digest of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace eddy::training
