// Philox4x32-10: a counter-based generator. Word i of a stream is a pure function of (seed, stream, step, i),
// so the CPU and the GPU draw the same numbers, and masks need not be stored because recomputation draws them
// again.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <cstdint>

#include "tensor/base/host_device.h"

namespace eddy {

// Four random words, or the counter that they are made from.
struct Philox4 {
  // The lowest first.
  std::uint32_t word[4];
};

// Ten rounds over a 128-bit counter with a 64-bit key.
EDDY_HD_INLINE Philox4 philox4x32(Philox4 counter, std::uint32_t key0, std::uint32_t key1) {
  std::uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = static_cast<std::uint64_t>(c0) * 0xD2511F53u;
    const std::uint64_t b = static_cast<std::uint64_t>(c2) * 0xCD9E8D57u;
    c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ key0;
    c1 = static_cast<std::uint32_t>(b);
    c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ key1;
    c3 = static_cast<std::uint32_t>(a);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// One sequence of random words. The seed and the stream's name make the key; the step and the element's
// number make the counter. Example: `random_key(seed, "layers.0.mlp.dropout", step)`.
struct RandomKey {
  // The 64 bits of the key in two halves; the step.
  std::uint32_t key0 = 0, key1 = 0;
  std::uint64_t step = 0;
  // A number in device memory that is added to `step` when a word is drawn; null for none. Captured work
  // reads the current step from it at each replay.
  const std::uint64_t* step_base = nullptr;

  // The step, with what step_base adds.
  EDDY_HD_INLINE std::uint64_t current_step() const {
    return step_base == nullptr ? step : step + *step_base;
  }
  // Returns the words of the elements 4 * block .. 4 * block + 3.
  EDDY_HD_INLINE Philox4 words(std::uint64_t block) const {
    const std::uint64_t now = current_step();
    return philox4x32({{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                        static_cast<std::uint32_t>(now), static_cast<std::uint32_t>(now >> 32)}},
                      key0, key1);
  }
  // Returns the word of one element.
  EDDY_HD_INLINE std::uint32_t word(std::uint64_t element) const {
    return words(element >> 2).word[element & 3];
  }
};

// Returns a key whose 64 bits mix the seed with the stream's name (FNV-1a, then splitmix64's finaliser).
RandomKey random_key(std::uint64_t seed, const char* stream, std::uint64_t step);
// The same for a stream with a number in its name, such as a time step or a call count.
RandomKey random_key(std::uint64_t seed, const char* stream, std::uint64_t index, std::uint64_t step);

// Returns a uniform number in [0, 1) of 24 bits: exact in f32, so the same on every device.
EDDY_HD_INLINE float uniform01(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

}  // namespace eddy
