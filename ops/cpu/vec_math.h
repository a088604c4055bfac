// Elementary functions for kernels: vec::exp, expm1, log, log1p, tanh, sigmoid, softplus, sin, cos, erf,
// normal_cdf, normal_pdf, sqrt, pow. The float versions, except pow, have no branch, table or call, so GCC vectorises a
// loop over them (with the flags of *.isa.cpp files); a * b + c becomes a fused multiply-add where the processor has
// one. The double versions call libm and are the reference for the float versions. Device code uses CUDA's
// functions.
//
// If two conditions choose a result, the code uses one comparison of bits instead. GCC 12 turns `a & b` into
// a branch if it knows something about a, and then it does not vectorise the loop.
//
// Errors against libm in double, in units in the last place: the bound that the tests hold, and the worst
// seen over every 61st float on three instruction sets.
//   exp 2 (1.0)      log 2 (0.8)    tanh 3 (2.6)         sigmoid 3 (2.4)
//   expm1 2 (1.5)    log1p 2 (1.4)  softplus 3 (1.6)      sin, cos 3 (2.1), to |x| = 2^27
//   erf 2 (1.5)                     normal_cdf 8 (6.3)   normal_pdf 3 (2.1)
// NaN gives NaN; infinities, both zeros and overflow give what libm gives. Results below 2^-125 may become 0;
// log takes denormal numbers.
//
// Nanoseconds per element, 64 Ki floats, one Emerald Rapids core, AVX-512 / AVX2 / SSE2 (a copy takes 0.10):
//   exp 0.28 / 0.49 / 1.4   log 0.50 / 0.93 / 3.1   tanh 0.32 / 0.50 / 1.4   sigmoid 0.32 / 0.51 / 1.6
//   erf 0.71 / 1.9 / 4.0    x normal_cdf(x) 0.58 / 1.2 / 3.3
//
// The polynomials are minimax fits made for this file (iteratively reweighted least squares in 40 digits);
// each comment gives the interval and the error before rounding.
// Source: W. Cody, W. Waite, Software Manual for the Elementary Functions (1980), for the range reductions.
#pragma once

#include <math.h>

#include <cstdint>

#include "tensor/base/host_device.h"

namespace eddy::vec {
namespace detail {

inline constexpr float kInfinity = __builtin_inff();
inline constexpr float kLog2E = 1.44269504088896340736f;
// ln 2 in two parts: the first has 16 bits, so that its product with an exponent is exact.
inline constexpr float kLog2ELow = static_cast<float>(1.44269504088896340736 - 1.44269502162933349609);
inline constexpr float kLn2High = 0x1.62e4p-1f;
inline constexpr float kLn2Low = static_cast<float>(0.69314718055994530942 - 0x1.62e4p-1);

EDDY_HD_INLINE std::uint32_t bits_of(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}
EDDY_HD_INLINE float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

// |x|, and |x| with the sign of another.
EDDY_HD_INLINE float magnitude(float x) {
  return float_of(bits_of(x) & 0x7fffffffu);
}
EDDY_HD_INLINE float with_sign(float x, float sign) {
  return float_of((bits_of(x) & 0x7fffffffu) | (bits_of(sign) & 0x80000000u));
}
// The smaller and the larger of x and a bound; NaN stays NaN.
EDDY_HD_INLINE float at_most(float x, float bound) {
  return bound < x ? bound : x;
}
EDDY_HD_INLINE float at_least(float x, float bound) {
  return bound > x ? bound : x;
}

// x = n ln 2 + rest with |rest| <= 0.347. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low
// bits.
struct Reduced {
  float n;
  float rest;
  std::uint32_t n_bits;  // n in the low 9 bits, as two's complement
};
EDDY_HD_INLINE Reduced reduce(float x) {
  constexpr float kRound = 12582912.0f;
  const float rounded = x * kLog2E + kRound;
  const float n = rounded - kRound;
  return {n, (x - n * kLn2High) - n * kLn2Low, bits_of(rounded)};
}
// The same for x + x_low.
EDDY_HD_INLINE Reduced reduce(float x, float x_low) {
  constexpr float kRound = 12582912.0f;
  const float rounded = (x + x_low) * kLog2E + kRound;
  const float n = rounded - kRound;
  return {n, ((x - n * kLn2High) + x_low) - n * kLn2Low, bits_of(rounded)};
}

// e^r - 1 - r on |r| <= 0.347; error 3.1e-9 of e^r.
EDDY_HD_INLINE float exp_tail(float r) {
  float p = 0x1.6a23dap-10f;
  p = p * r + 0x1.123a64p-7f;
  p = p * r + 0x1.5558f4p-5f;
  p = p * r + 0x1.55549p-3f;
  p = p * r + 0x1.fffffcp-2f;
  return p * (r * r);
}

// 2^n e^rest. The power of 2 is built as 2 * 2^(n - 1): n = 128 still has finite results, and n = -126 gives a factor
// of 0.
EDDY_HD_INLINE float exp_of(const Reduced& reduced) {
  const float twice = 2.0f + 2.0f * (reduced.rest + exp_tail(reduced.rest));
  return twice * float_of((reduced.n_bits << 23) + (126u << 23));
}
// e^(x + x_low), for |x_low| below some 2^-7 of |x|.
EDDY_HD_INLINE float exp_of_sum(float x, float x_low) {
  return exp_of(reduce(at_least(at_most(x, 89.0f), -87.5f), x_low));
}

// e^(-a^2 / 2) for a in [0, 14]. The square is the exact square of the leading 12 bits of a plus the rest:
// rounded as a whole it would cost 42 units in the last place at a = 13.
EDDY_HD_INLINE float exp_of_half_square(float a) {
#if defined(__CUDA_ARCH__)
  // 2^(n + f) with |f| <= 1/2, of which one instruction computes 2^f. As below 0 where it is smaller than a normal
  // number. Conversions would take as long as that instruction, four times as long as a sum.
  constexpr float kRound = 12582912.0f, kScale = -0.5f * kLog2E, kScaleLow = -0.5f * kLog2ELow;
  const float square = a * a, low = ::fmaf(a, a, -square), rounded = ::fmaf(square, kScale, kRound);
  const float f = ::fmaf(square, kScale, kRound - rounded) + ::fmaf(square, kScaleLow, low * kScale);
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(f));
  return a > 13.1f ? 0.0f : power * float_of((bits_of(rounded) << 23) + (127u << 23));
#else
  const float high = float_of(bits_of(a) & 0xfffff000u);
  return exp_of_sum(-0.5f * (high * high), -0.5f * ((a - high) * (a + high)));
#endif
}

// e ln 2 + ln(1 + f), for 1 + f in [sqrt(1/2), sqrt(2)).
EDDY_HD_INLINE float log_of_parts(float e, float f) {
  // (ln(1 + f) - f + f^2 / 2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1]; error 7.4e-10 of ln(1 + f).
  float p = 0x1.146612p-4f;
  p = p * f + -0x1.de4948p-4f;
  p = p * f + 0x1.e6f08ep-4f;
  p = p * f + -0x1.fc1f6cp-4f;
  p = p * f + 0x1.233732p-3f;
  p = p * f + -0x1.555c62p-3f;
  p = p * f + 0x1.99a4bap-3f;
  p = p * f + -0x1.000006p-2f;
  p = p * f + 0x1.555548p-2f;
  const float square = f * f;
  const float low = (p * f) * square + e * kLn2Low;
  return e * kLn2High + (f + (low - 0.5f * square));
}
// `result` for a positive, finite x; else the logarithm of x: -inf at both zeros, NaN below, x itself for
// +inf and NaN.
EDDY_HD_INLINE float log_or_limit(float result, float x) {
  const float limit = x == 0.0f ? -kInfinity : (x < 0.0f ? __builtin_nanf("") : x);
  return bits_of(x) - 1u < 0x7f7fffffu ? result : limit;
}
// e of x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), for the bits of a positive x that is not denormal.
EDDY_HD_INLINE std::int32_t exponent_of(std::uint32_t bits) {
  constexpr std::uint32_t kSqrtHalf = 0x3f3504f3u;
  return static_cast<std::int32_t>(bits - kSqrtHalf) >> 23;
}

// The normal distribution's upper tail: 1 - Phi(a) for a in [0, 14], as e^(-a^2 / 2) times a rational
// function; error 5.5e-9 relative on [0, 13.6].
EDDY_HD_INLINE float normal_tail(float a) {
  float p = 0.004015758633613586f;
  p = p * a + 0.03996875882148743f;
  p = p * a + 0.18128271400928497f;
  p = p * a + 0.43568816781044006f;
  p = p * a + 0.5f;
  float q = 0.010065875016152859f;
  q = q * a + 0.10019408911466599f;
  q = q * a + 0.4643104672431946f;
  q = q * a + 1.1944395303726196f;
  q = q * a + 1.66926109790802f;
  q = q * a + 1.0f;
#if defined(__CUDA_ARCH__)
  float inverse;  // 1 <= q
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(q));
  return exp_of_half_square(a) * (p * inverse);
#else
  return exp_of_half_square(a) * (p / q);
#endif
}

// sin(k pi + r) = (-1)^k sin r for a whole k, and with `half` = 1/2 cos((k + 1/2) pi + r) = -(-1)^k sin r, without the
// sign; |r| <= pi / 2. Returns sin r with the sign of (-1)^k. x - (k + half) pi is computed in f64, with pi in three
// parts of 26 bits or fewer, so that their products with a number of 27 bits are exact: beyond |x| = 2^27, where
// neighbouring floats are 16 apart, results lie between -1 and 1 and mean nothing.
EDDY_HD_INLINE float sine_of_parts(float x, double half) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it leaves an integer in the low bits
  const double wide = static_cast<double>(x);
  const double rounded = (wide * 0x1.45f306dc9c883p-2 - half) + kRound, n = (rounded - kRound) + half;
  const double rest = ((wide - n * 0x1.921fb5p+1) - n * 0x1.110b46p-25) - n * 0x1.1a62633145c07p-53;
  const float r = at_least(at_most(static_cast<float>(rest), 1.6f), -1.6f), square = r * r;
  // (sin r / r - 1) / r^2 on |r| <= pi / 2; error 4.6e-10 of sin r.
  float p = -0x1.b71084p-26f;
  p = p * square + 0x1.72d4aap-19f;
  p = p * square + -0x1.a023e4p-13f;
  p = p * square + 0x1.111136p-7f;
  p = p * square + -0x1.555556p-3f;
  const std::uint32_t odd = static_cast<std::uint32_t>(__builtin_bit_cast(std::uint64_t, rounded)) << 31;
  return float_of(bits_of(with_sign(r + r * (square * p), r)) ^ odd);
}

}  // namespace detail

// e^x.
EDDY_HD_INLINE float exp(float x) {
#if defined(__CUDA_ARCH__)
  return ::expf(x);
#else
  return detail::exp_of(detail::reduce(detail::at_least(detail::at_most(x, 89.0f), -87.5f)));
#endif
}

// ln x: -inf at both zeros, NaN below. x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); denormals are
// scaled first.
EDDY_HD_INLINE float log(float x) {
#if defined(__CUDA_ARCH__)
  return ::logf(x);
#else
  const bool tiny = x < 0x1p-126f;
  const std::uint32_t bits = detail::bits_of(tiny ? x * 0x1p23f : x);
  const std::int32_t exponent = detail::exponent_of(bits);
  const float f = detail::float_of(bits - (static_cast<std::uint32_t>(exponent) << 23)) - 1.0f;
  const float e = static_cast<float>(exponent) + (tiny ? -23.0f : 0.0f);
  return detail::log_or_limit(detail::log_of_parts(e, f), x);
#endif
}

// ln(1 + x), with the same relative precision for small x: -inf at -1, NaN below. With 1 + x = 2^e (1 + f):
//   f = 2^-e x + (2^-e - 1)
// has one rounding, where 1 + x would lose the low bits of x. From 2^64 on they do not matter.
EDDY_HD_INLINE float log1p(float x) {
#if defined(__CUDA_ARCH__)
  return ::log1pf(x);
#else
  const float sum = 1.0f + x;
  const std::uint32_t bits = detail::bits_of(sum);
  const std::int32_t exponent = detail::exponent_of(bits);
  const std::uint32_t shift = static_cast<std::uint32_t>(exponent) << 23;
  const float power = detail::float_of((127u << 23) - shift);
  const float f = exponent < 64 ? power * x + (power - 1.0f) : detail::float_of(bits - shift) - 1.0f;
  const float result = detail::log_of_parts(static_cast<float>(exponent), f);
  return detail::with_sign(detail::log_or_limit(result, sum), x);
#endif
}

// e^x - 1, with the same relative precision for small x, where x = n ln 2 + r:
//   e^x - 1 = 2^n (e^r - 1) + (2^n - 1)
// in halves, because n = 128 still has finite results.
EDDY_HD_INLINE float expm1(float x) {
#if defined(__CUDA_ARCH__)
  return ::expm1f(x);
#else
  const detail::Reduced reduced = detail::reduce(detail::at_least(detail::at_most(x, 89.0f), -87.5f));
  const float half = detail::float_of((reduced.n_bits << 23) + (126u << 23));
  const float half_result = half * (reduced.rest + detail::exp_tail(reduced.rest)) + (half - 0.5f);
  return detail::with_sign(2.0f * half_result, x);
#endif
}

// tanh x, with a = |x| and 2a = n ln 2 + r:
//   tanh a   = (e^2a - 1) / (e^2a + 1)
//   e^2a - 1 = 2^n (e^r - 1) + (2^n - 1)      keeps its relative precision near 0
EDDY_HD_INLINE float tanh(float x) {
#if defined(__CUDA_ARCH__)
  return ::tanhf(x);
#else
  const detail::Reduced reduced = detail::reduce(2.0f * detail::at_most(detail::magnitude(x), 10.0f));
  const float power = detail::float_of((reduced.n_bits << 23) + (127u << 23));
  const float less_one = power * (reduced.rest + detail::exp_tail(reduced.rest)) + (power - 1.0f);
  return detail::with_sign(less_one / (less_one + 2.0f), x);
#endif
}

// 1 / (1 + e^-x).
EDDY_HD_INLINE float sigmoid(float x) {
  return 1.0f / (1.0f + vec::exp(-x));
}

// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), which neither overflows nor loses a small result.
EDDY_HD_INLINE float softplus(float x) {
  return (x < 0.0f ? 0.0f : x) + vec::log1p(vec::exp(-detail::magnitude(x)));
}

// sin x and cos x; NaN for infinities.
EDDY_HD_INLINE float sin(float x) {
#if defined(__CUDA_ARCH__)
  return ::sinf(x);
#else
  return detail::sine_of_parts(x, 0.0);
#endif
}
EDDY_HD_INLINE float cos(float x) {
#if defined(__CUDA_ARCH__)
  return ::cosf(x);
#else
  return -detail::sine_of_parts(x, 0.5);
#endif
}

// The error function:
//   erf x = x + x P(x^2)                          |x| < 1, relative error 1.2e-9
//   erf x = 1 - 2 normal_tail(x sqrt(2))          x >= 1, and odd
EDDY_HD_INLINE float erf(float x) {
#if defined(__CUDA_ARCH__)
  return ::erff(x);
#else
  const float square = x * x;
  float p = 0x1.497688p-14f;
  p = p * square + -0x1.a3fb4ap-11f;
  p = p * square + 0x1.54063ep-8f;
  p = p * square + -0x1.b7f91ep-6f;
  p = p * square + 0x1.ce2cf8p-4f;
  p = p * square + -0x1.81273ep-2f;
  p = p * square + 0x1.06eba8p-3f;
  const float a = detail::magnitude(x);
  const float far = 1.0f - 2.0f * detail::normal_tail(detail::at_most(a * 1.41421356237309504880f, 14.0f));
  return a < 1.0f ? x + x * p : detail::with_sign(far, x);
#endif
}

// Phi(x), the probability that a standard normal number is below x; its left tail keeps its relative
// precision.
EDDY_HD_INLINE float normal_cdf(float x) {
  const float tail = detail::normal_tail(detail::at_most(detail::magnitude(x), 14.0f));
  return x > 0.0f ? 1.0f - tail : tail;
}

// The density e^(-x^2 / 2) / sqrt(2 pi).
EDDY_HD_INLINE float normal_pdf(float x) {
  return 0.39894228040143267794f * detail::exp_of_half_square(detail::at_most(detail::magnitude(x), 14.0f));
}

EDDY_HD_INLINE float sqrt(float x) {
  return ::sqrtf(x);
}
// x^y by libm; not vectorised.
EDDY_HD_INLINE float pow(float x, float y) {
  return ::powf(x, y);
}

EDDY_HD_INLINE double exp(double x) {
  return ::exp(x);
}
EDDY_HD_INLINE double expm1(double x) {
  return ::expm1(x);
}
EDDY_HD_INLINE double log(double x) {
  return ::log(x);
}
EDDY_HD_INLINE double log1p(double x) {
  return ::log1p(x);
}
EDDY_HD_INLINE double tanh(double x) {
  return ::tanh(x);
}
EDDY_HD_INLINE double sigmoid(double x) {
  return 1.0 / (1.0 + ::exp(-x));
}
EDDY_HD_INLINE double softplus(double x) {
  return (x < 0.0 ? 0.0 : x) + ::log1p(::exp(-::fabs(x)));
}
EDDY_HD_INLINE double sin(double x) {
  return ::sin(x);
}
EDDY_HD_INLINE double cos(double x) {
  return ::cos(x);
}
EDDY_HD_INLINE double erf(double x) {
  return ::erf(x);
}
EDDY_HD_INLINE double normal_cdf(double x) {
  return 0.5 * ::erfc(x * -0.70710678118654752440);
}
EDDY_HD_INLINE double normal_pdf(double x) {
  return 0.39894228040143267794 * ::exp(-0.5 * x * x);
}
EDDY_HD_INLINE double sqrt(double x) {
  return ::sqrt(x);
}
EDDY_HD_INLINE double pow(double x, double y) {
  return ::pow(x, y);
}

}  // namespace eddy::vec
