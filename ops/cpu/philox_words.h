// Vectorised Philox, for kernels that draw one word for each element. On x86-64 each 64-bit lane holds one 32-bit word
// of a counter. The upper half of a lane may hold anything, because the multiplication reads only lower
// halves; so a round is two multiplications, two shifts and four exclusive ors for all lanes, without
// packing. The words are those of RandomKey::words, in the same order.
#pragma once

#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "tensor/random/philox.h"

namespace eddy::EDDY_ISA {

// The number of words that philox_words writes: 16 counters of 4 words.
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
typedef std::uint32_t PhiloxHalves __attribute__((vector_size(sizeof(PhiloxLanes) / 2)));

// Returns the 64-bit products of the lanes' lower halves.
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

// Moves the upper half of each lane into the lower one.
EDDY_INLINE PhiloxLanes upper_halves(PhiloxLanes x) {
#if defined(__AVX512F__)
  // A shuffle, since the unit that multiplies also shifts, but does not shuffle.
  return reinterpret_cast<PhiloxLanes>(
      _mm512_maskz_shuffle_epi32(0xffff, reinterpret_cast<__m512i>(x), _MM_PERM_DDBB));
#else
  return x >> 32;
#endif
}

// Ten rounds. `counters` holds words 0 and 1 of each counter; the results are the lower halves of c[0] to
// c[3].
EDDY_INLINE void philox_rounds(const RandomKey& key, PhiloxLanes counters, PhiloxLanes* c) {
  c[0] = counters;
  c[1] = counters >> 32;
  c[2] = PhiloxLanes{} + key.current_step();
  c[3] = c[2] >> 32;
  const PhiloxLanes factor0 = PhiloxLanes{} + std::uint64_t{0xD2511F53u};
  const PhiloxLanes factor2 = PhiloxLanes{} + std::uint64_t{0xCD9E8D57u};
  std::uint32_t key0 = key.key0, key1 = key.key1;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const PhiloxLanes a = multiply_low_halves(c[0], factor0);
    const PhiloxLanes b = multiply_low_halves(c[2], factor2);
    c[0] = upper_halves(b) ^ c[1] ^ std::uint64_t{key0};
    c[1] = b;
    c[2] = upper_halves(a) ^ c[3] ^ std::uint64_t{key1};
    c[3] = a;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

// Writes the words of the counters block .. block + kPhiloxLanes - 1, four for each.
EDDY_INLINE void philox_lanes(const RandomKey& key, std::uint64_t block, std::uint32_t* words) {
#if defined(__AVX512F__)
  const PhiloxLanes counters = PhiloxLanes{0, 1, 2, 3, 4, 5, 6, 7} + block;
#elif defined(__AVX2__)
  const PhiloxLanes counters = PhiloxLanes{0, 1, 2, 3} + block;
#else
  const PhiloxLanes counters = PhiloxLanes{0, 1} + block;
#endif
  PhiloxLanes c[4];
  philox_rounds(key, counters, c);
  // Pack words 0 and 1, and words 2 and 3, of each counter; then interleave the pairs of each counter.
  const std::uint64_t lower = 0xffffffffu;
  const PhiloxLanes first = (c[0] & lower) | (c[1] << 32);
  const PhiloxLanes second = (c[2] & lower) | (c[3] << 32);
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

// Writes the words of any Count counters, a multiple of kPhiloxLanes: words[i Count + n] is word i of
// blocks[n].
template <int Count>
EDDY_INLINE void philox_columns(const RandomKey& key, const std::uint64_t* blocks, std::uint32_t* words) {
  static_assert(Count % kPhiloxLanes == 0);
  for (int n = 0; n < Count; n += kPhiloxLanes) {
    PhiloxLanes counters, c[4];
    memcpy(&counters, blocks + n, sizeof counters);
    philox_rounds(key, counters, c);
    for (int i = 0; i < 4; ++i) {
      const auto low = __builtin_convertvector(c[i], PhiloxHalves);
      memcpy(words + i * Count + n, &low, sizeof low);
    }
  }
}

#elif defined(__aarch64__)

// NEON multiplies the lower and the upper half of a vector, and unzips and interleaves words: so a word of each of four
// counters fills a vector, and a round is four multiplications, four unzippings and four exclusive ors for all of them.
inline constexpr int kPhiloxLanes = 4;

// Ten rounds for the counters blocks[0] to blocks[3].
EDDY_INLINE uint32x4x4_t philox_rounds(const RandomKey& key, const std::uint64_t* blocks) {
  const uint32x4_t first = vreinterpretq_u32_u64(vld1q_u64(blocks)),
                   second = vreinterpretq_u32_u64(vld1q_u64(blocks + 2));
  const std::uint64_t step = key.current_step();
  uint32x4x4_t c = {{vuzp1q_u32(first, second), vuzp2q_u32(first, second),
                     vdupq_n_u32(static_cast<std::uint32_t>(step)),
                     vdupq_n_u32(static_cast<std::uint32_t>(step >> 32))}};
  std::uint32_t key0 = key.key0, key1 = key.key1;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint32x4_t factor0 = vdupq_n_u32(0xD2511F53u), factor2 = vdupq_n_u32(0xCD9E8D57u);
    const auto multiply = [](uint32x4_t x, uint32x4_t factor, uint32x4_t & lower, uint32x4_t & upper)
        __attribute__((always_inline)) {
      const uint32x4_t low = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(x), vget_low_u32(factor))),
                       high = vreinterpretq_u32_u64(vmull_high_u32(x, factor));
      lower = vuzp1q_u32(low, high);
      upper = vuzp2q_u32(low, high);
    };
    uint32x4_t lower0, upper0, lower2, upper2;
    multiply(c.val[0], factor0, lower0, upper0);
    multiply(c.val[2], factor2, lower2, upper2);
    c.val[0] = upper2 ^ c.val[1] ^ vdupq_n_u32(key0);
    c.val[1] = lower2;
    c.val[2] = upper0 ^ c.val[3] ^ vdupq_n_u32(key1);
    c.val[3] = lower0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

EDDY_INLINE void philox_words(const RandomKey& key, std::uint64_t block, std::uint32_t* words) {
  for (std::uint64_t lane = 0; lane < kPhiloxWords / 4; lane += kPhiloxLanes) {
    const std::uint64_t first = block + lane, blocks[kPhiloxLanes] = {first, first + 1, first + 2, first + 3};
    vst4q_u32(words + 4 * lane, philox_rounds(key, blocks));
  }
}

template <int Count>
EDDY_INLINE void philox_columns(const RandomKey& key, const std::uint64_t* blocks, std::uint32_t* words) {
  constexpr int kColumns = Count < kPhiloxLanes ? Count : kPhiloxLanes;
  static_assert(Count % kColumns == 0);
  for (int n = 0; n < Count; n += kColumns) {
    std::uint64_t some[kPhiloxLanes] = {};
    memcpy(some, blocks + n, kColumns * sizeof *some);
    const uint32x4x4_t c = philox_rounds(key, some);
    for (int i = 0; i < 4; ++i) memcpy(words + i * Count + n, &c.val[i], kColumns * sizeof *words);
  }
}

#else

EDDY_INLINE void philox_words(const RandomKey& key, std::uint64_t block, std::uint32_t* words) {
  for (int lane = 0; lane < kPhiloxWords / 4; ++lane) {
    const Philox4 four = key.words(block + static_cast<std::uint64_t>(lane));
    for (int i = 0; i < 4; ++i) words[4 * lane + i] = four.word[i];
  }
}

template <int Count>
EDDY_INLINE void philox_columns(const RandomKey& key, const std::uint64_t* blocks, std::uint32_t* words) {
  for (int n = 0; n < Count; ++n) {
    const Philox4 four = key.words(blocks[n]);
    for (int i = 0; i < 4; ++i) words[i * Count + n] = four.word[i];
  }
}

#endif

}  // namespace eddy::EDDY_ISA
