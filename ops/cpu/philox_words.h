// Many Philox words at once, for kernels that draw one word for each element. A 64-bit lane holds one 32-bit
// word of a counter; what is left in its upper half never matters, because the multiplication reads lower
// halves only: a round is two multiplications, two shifts and four exclusive ors for all lanes, with nothing
// to pack or unpack. The words are those of RandomKey::words, in the same order.
#pragma once

#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "tensor/philox.h"

namespace eddy::EDDY_ISA {

// Elements that philox_words writes words for: 16 counters of 4 words.
inline constexpr std::int64_t kPhiloxWords = 64;

#if defined(__SSE2__)

#if defined(__AVX512F__)
typedef std::uint64_t PhiloxLanes __attribute__((vector_size(64)));
inline constexpr int kPhiloxLanes = 8;
#elif defined(__AVX2__)
typedef std::uint64_t PhiloxLanes __attribute__((vector_size(32)));
inline constexpr int kPhiloxLanes = 4;
#else
typedef std::uint64_t PhiloxLanes __attribute__((vector_size(16)));
inline constexpr int kPhiloxLanes = 2;
#endif

// The products of the lanes' lower halves, 64 bits each.
EDDY_INLINE PhiloxLanes multiply_low_halves(PhiloxLanes a, PhiloxLanes b) {
#if defined(__AVX512F__)
  // The form with a mask of ones: GCC 12 warns of an uninitialised variable inside _mm512_mul_epu32.
  return reinterpret_cast<PhiloxLanes>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<PhiloxLanes>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return reinterpret_cast<PhiloxLanes>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
}

// Writes the words of the counters block .. block + kPhiloxLanes - 1, four for each.
EDDY_INLINE void philox_lanes(const RandomKey& key, std::uint64_t block, std::uint32_t* words) {
#if defined(__AVX512F__)
  PhiloxLanes c0 = PhiloxLanes{0, 1, 2, 3, 4, 5, 6, 7} + block;
#elif defined(__AVX2__)
  PhiloxLanes c0 = PhiloxLanes{0, 1, 2, 3} + block;
#else
  PhiloxLanes c0 = PhiloxLanes{0, 1} + block;
#endif
  PhiloxLanes c1 = c0 >> 32;
  PhiloxLanes c2 = PhiloxLanes{} + key.current_step();
  PhiloxLanes c3 = c2 >> 32;
  const PhiloxLanes factor0 = PhiloxLanes{} + std::uint64_t{0xD2511F53u};
  const PhiloxLanes factor2 = PhiloxLanes{} + std::uint64_t{0xCD9E8D57u};
  std::uint32_t key0 = key.key0, key1 = key.key1;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const PhiloxLanes a = multiply_low_halves(c0, factor0);
    const PhiloxLanes b = multiply_low_halves(c2, factor2);
    c0 = (b >> 32) ^ c1 ^ std::uint64_t{key0};
    c1 = b;
    c2 = (a >> 32) ^ c3 ^ std::uint64_t{key1};
    c3 = a;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  // Words 0 and 1, and 2 and 3, of each counter side by side; then the pairs of one counter next to each
  // other.
  const std::uint64_t lower = 0xffffffffu;
  const PhiloxLanes first = (c0 & lower) | (c1 << 32);
  const PhiloxLanes second = (c2 & lower) | (c3 << 32);
#if defined(__AVX512F__)
  const PhiloxLanes low = __builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
  const PhiloxLanes high = __builtin_shufflevector(first, second, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(__AVX2__)
  const PhiloxLanes low = __builtin_shufflevector(first, second, 0, 4, 1, 5);
  const PhiloxLanes high = __builtin_shufflevector(first, second, 2, 6, 3, 7);
#else
  const PhiloxLanes low = __builtin_shufflevector(first, second, 0, 2);
  const PhiloxLanes high = __builtin_shufflevector(first, second, 1, 3);
#endif
  memcpy(words, &low, sizeof low);
  memcpy(words + 2 * kPhiloxLanes, &high, sizeof high);
}

// Writes the words of the elements 4 * block .. 4 * block + kPhiloxWords - 1.
EDDY_INLINE void philox_words(const RandomKey& key, std::uint64_t block, std::uint32_t* words) {
  for (int lane = 0; lane < kPhiloxWords / 4; lane += kPhiloxLanes)
    philox_lanes(key, block + static_cast<std::uint64_t>(lane), words + 4 * lane);
}

#else

EDDY_INLINE void philox_words(const RandomKey& key, std::uint64_t block, std::uint32_t* words) {
  for (int lane = 0; lane < kPhiloxWords / 4; ++lane) {
    const Philox4 four = key.words(block + static_cast<std::uint64_t>(lane));
    for (int i = 0; i < 4; ++i) words[4 * lane + i] = four.word[i];
  }
}

#endif

}  // namespace eddy::EDDY_ISA
