// What the emulated driver writes into a CUtensorMap, whose contents CUDA leaves to the driver. tests/ptx/ reads it
// too: recorded launches have it among their arguments.
#pragma once

#include <cstdint>
#include <cstring>

namespace emulation {

struct EncodedMap {
  static constexpr std::uint64_t kMagic = 0x70616d726f736e74u;
  std::uint64_t magic = kMagic, start = 0;  // of the tensor, whose elements have two bytes
  std::uint64_t strides[3] = {};            // bytes between neighbours along axes 1 .. 3
  std::uint32_t sizes[4] = {}, box[4] = {};

  std::uint32_t box_bytes() const { return 2 * box[0] * box[1] * box[2] * box[3]; }
};
static_assert(sizeof(EncodedMap) <= 128);

// Calls put(place, address) for each element of the box at these coordinates: `place` is where it comes, in bytes from
// the box's start without a swizzle; `address` is where it is, or 0 outside of the tensor.
template <class Put>
void each_of_box(const EncodedMap& map, const std::int32_t (&at)[4], Put&& put) {
  std::uint32_t place = 0;
  std::int64_t index[4];
  const auto axis = [&](auto& self, int i, std::uint64_t address, bool inside) -> void {
    for (std::uint32_t step = 0; step < map.box[i]; ++step) {
      index[i] = std::int64_t{at[i]} + step;
      const bool within = inside && index[i] >= 0 && index[i] < std::int64_t{map.sizes[i]};
      const std::uint64_t here =
          within ? address + static_cast<std::uint64_t>(index[i]) * (i == 0 ? 2 : map.strides[i - 1]) : 0;
      if (i > 0) {
        self(self, i - 1, here, within);
        continue;
      }
      put(place, within ? here : 0);
      place += 2;
    }
  };
  axis(axis, 3, map.start, true);
}

// Where a byte of a box with the swizzle of 128 bytes comes, by its address in shared memory: bits 4 .. 6 are XORed
// with bits 7 .. 9.
inline std::uint64_t swizzled(std::uint64_t address) {
  return address ^ (address >> 7 & 7) << 4;
}

}  // namespace emulation
