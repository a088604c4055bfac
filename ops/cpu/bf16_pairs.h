// Factors of products in bf16: two neighbouring factors of a sum lie side by side in a pair of 32 bits, as
// VDPBF16PS and TDPBF16PS read them. Rounding to bf16 takes denormals as zeros. Only *.isa.cpp files include this
// header, and only levels with AVX-512 have the functions: a caller is compiled for avx512bf16, too.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tensor/base/host_device.h"

namespace eddy::EDDY_ISA {

using Pair = std::uint32_t;

// Elements of a sum in a factor of type F: a number or a pair.
template <class F>
inline constexpr std::int64_t kInner = 1;
template <>
inline constexpr std::int64_t kInner<Pair> = 2;
// The factors that hold `elements` of a sum; the last one may be padded with a zero.
template <class F>
EDDY_INLINE std::int64_t factors(std::int64_t elements) {
  return (elements + kInner<F> - 1) / kInner<F>;
}

// The factors of f32 products that round, where this level has them; else T.
#if defined(__AVX512F__)
template <class T>
using RoundedFactor = std::conditional_t<sizeof(T) == sizeof(Pair), Pair, T>;
#else
template <class T>
using RoundedFactor = T;
#endif

}  // namespace eddy::EDDY_ISA

#if defined(__AVX512F__)
#include <immintrin.h>

EDDY_TARGET_BEGIN("avx512bf16")
namespace eddy::EDDY_ISA::bf16 {

inline constexpr std::int64_t kPairs = 16;  // of a vector
typedef int PairVector __attribute__((vector_size(64)));

EDDY_INLINE __mmask16 mask_of(std::int64_t count) {
  return static_cast<__mmask16>(count >= kPairs ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
}
// Rounds up to 32 neighbouring floats; the rest are zeros.
EDDY_INLINE PairVector pairs_along(const float* x, std::int64_t count) {
  const __m512 low = _mm512_maskz_loadu_ps(mask_of(count), x),
               high = _mm512_maskz_loadu_ps(mask_of(count - kPairs), x + kPairs);
  return reinterpret_cast<PairVector>(_mm512_cvtne2ps_pbh(high, low));
}
// Rounds the elements of two vectors and pairs them.
EDDY_INLINE PairVector pairs_of(__m512 first, __m512 second) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return reinterpret_cast<PairVector>(
      _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first))));
}
// The same for two rows of up to 16 floats; `second` may be null, for zeros.
EDDY_INLINE PairVector pairs_across(const float* first, const float* second, std::int64_t count) {
  const __mmask16 mask = mask_of(count);
  return pairs_of(_mm512_maskz_loadu_ps(mask, first),
                  second == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, second));
}
EDDY_INLINE void store(Pair* to, PairVector x) {
  _mm512_storeu_si512(to, reinterpret_cast<__m512i>(x));
}

}  // namespace eddy::EDDY_ISA::bf16
EDDY_TARGET_END
#endif
