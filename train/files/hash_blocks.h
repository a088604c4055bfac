// What hashes of blocks of 64 bytes share: cutting bytes into blocks, and the padding of the last one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace eddy::training {

class HashBlocks {
 public:
  // Calls compress(block) for each block that the bytes complete.
  template <class Compress>
  void update(std::string_view bytes, Compress&& compress) {
    while (!bytes.empty()) {
      const auto held = static_cast<std::size_t>(bytes_ % kSize);
      if (held == 0 && bytes.size() >= kSize) {
        compress(reinterpret_cast<const unsigned char*>(bytes.data()));
        bytes_ += kSize;
        bytes.remove_prefix(kSize);
        continue;
      }
      const std::size_t taken = std::min(bytes.size(), kSize - held);
      std::memcpy(block_.data() + held, bytes.data(), taken);
      bytes_ += taken;
      bytes.remove_prefix(taken);
      if (held + taken == kSize) compress(block_.data());
    }
  }
  // Completes the last block by a one bit, zeros, and the length in bits as a 64-bit number of this byte order.
  template <class Compress>
  void finish(std::endian order, Compress&& compress) {
    const std::uint64_t bits = bytes_ * 8;
    const auto held = static_cast<std::size_t>(bytes_ % kSize);
    std::string padding((held < kSize - 8 ? kSize - 8 : 2 * kSize - 8) - held, '\0');
    padding[0] = static_cast<char>(0x80);
    for (int i = 0; i < 8; ++i)
      padding.push_back(static_cast<char>(bits >> 8 * (order == std::endian::big ? 7 - i : i) & 0xff));
    update(padding, compress);
  }

 private:
  static constexpr std::size_t kSize = 64;
  std::array<unsigned char, kSize> block_{};
  std::uint64_t bytes_ = 0;
};

}  // namespace eddy::training
