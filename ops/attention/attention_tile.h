// Building blocks of the CPU's attention kernels: a register tile of a matrix product, the packing of its
// operands, and dropout masks of rows and of lanes. Operands are in scratch memory with rows padded to whole vectors,
// so the product has no tails. Only *.isa.cpp files include this header: everything is in the namespace of the
// instruction set.
//
// The factors of a product are of type F: T, or with AVX512-BF16 pairs of neighbours along the inner axis,
// rounded to bf16 (ops/cpu/bf16_pairs.h). Sums are of type T.
#pragma once

#include <string.h>

#include <cstdint>

#include "ops/cpu/bf16_pairs.h"
#include "ops/cpu/philox_words.h"
#include "ops/cpu/transpose.h"
#include "tensor/base/host_device.h"
#include "tensor/random/philox.h"

namespace eddy::EDDY_ISA::attention_tile {

// C's register tile: AVX-512 and NEON have 32 registers (6 x 4 of C, 4 of B, 1 of A), the others 16 (6 x 2, 2, 1).
#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64, kVectors = 4;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32, kVectors = 2;
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16, kVectors = 4;
#else
inline constexpr int kVectorBytes = 16, kVectors = 2;
#endif
inline constexpr std::int64_t kRows = 6;

template <class T>
struct Vector {
  static constexpr int lanes = kVectorBytes / static_cast<int>(sizeof(T));
  typedef T type __attribute__((vector_size(kVectorBytes), may_alias));
  typedef T loose __attribute__((vector_size(kVectorBytes), aligned(sizeof(T)), may_alias));
  using Unsigned = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  typedef Unsigned index __attribute__((vector_size(kVectorBytes)));
};
template <class T>
inline constexpr std::int64_t kLanes = Vector<T>::lanes;
// Calls body(lane) for the lanes of a vector, a loop to vectorise. GCC would unroll the 4 or 8 lanes of SSE2 and AVX2
// first and then see no loop any more: with AVX2 forward attention took 1.6 times as long.
template <class T, class Body>
EDDY_INLINE void each_lane(Body&& body) {
#pragma GCC unroll 1
  for (std::int64_t lane = 0; lane < kLanes<T>; ++lane) body(lane);
}

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

#if defined(__AVX512F__)
// 2^x, 0 below 2^-126: with n = floor(x) it is 2^n p(x - n). The coefficients, of the highest power first, are those of
// a minimax polynomial on [0, 1] with p(0) = 1.
template <class... Coefficient>
EDDY_INLINE __m512 power_of_two_by(__m512 x, float highest, Coefficient... others) {
  const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126), _CMP_NLT_UQ);
  const __m512 f = _mm512_maskz_reduce_ps(0xffff, x, _MM_FROUND_TO_NEG_INF);
  __m512 p = _mm512_set1_ps(highest);
  ((p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(others))), ...);
  return _mm512_maskz_scalef_ps(normal, p, x);
}
#endif

// Columns of a panel of a transposed operand.
template <class T>
inline constexpr std::int64_t kPanel = kLanes<T>* kVectors;

#if defined(__AVX512F__)
EDDY_TARGET_BEGIN("avx512bf16")
#endif

template <class T>
EDDY_INLINE void multiply_add(typename Vector<T>::type& sum, T left, typename Vector<T>::type right) {
  sum += left * right;
}
#if defined(__AVX512F__)
EDDY_INLINE void multiply_add(Vector<float>::type& sum, Pair left, Vector<Pair>::type right) {
  sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(left))),
                         reinterpret_cast<__m512bh>(right));
}
#endif

// C = A B, or C += A B: kRows rows by Vectors vectors. A is [rows, inner], or with kInnerMajor [inner, rows]
// (a transposed product without a transposed copy), both in factors. Each element is one accumulation over
// `inner` in rising order.
template <class T, class F, int Vectors, bool kInnerMajor>
__attribute__((noinline)) void tile(std::int64_t inner, const F* a, std::int64_t a_stride, const F* b,
                                    std::int64_t b_stride, T* c, std::int64_t c_stride, bool accumulate) {
  using Vec = typename Vector<T>::type;
  using Loose = typename Vector<T>::loose;
  // Without the pragmas the loops are unrolled too late for `sum` to stay in registers from start to end.
  Vec sum[kRows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) sum[r][v] = Vec{};
  if (accumulate) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v)
        sum[r][v] = *reinterpret_cast<const Loose*>(c + r * c_stride + v * kLanes<T>);
  }
  for (std::int64_t i = 0; i < inner; ++i) {
    typename Vector<F>::type right[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v)
      right[v] = *reinterpret_cast<const typename Vector<F>::loose*>(b + v * kLanes<T>);
    b += b_stride;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F left = kInnerMajor ? a[r] : a[r * a_stride];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) multiply_add(sum[r][v], left, right[v]);
    }
    a += kInnerMajor ? a_stride : 1;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) *reinterpret_cast<Loose*>(c + r * c_stride + v * kLanes<T>) = sum[r][v];
}

#if defined(__AVX512F__)
EDDY_TARGET_END
#endif

// The same for `columns` columns, rounded up to whole vectors.
template <bool kInnerMajor, class T, class F>
EDDY_INLINE void product(std::int64_t inner, std::int64_t columns, const F* a, std::int64_t a_stride,
                         const F* b, std::int64_t b_stride, T* c, std::int64_t c_stride, bool accumulate) {
  for (std::int64_t at = 0; at < columns; at += kPanel<T>) {
    const std::int64_t vectors = (columns - at + kLanes<T> - 1) / kLanes<T>;
    if (vectors == 1) {
      tile<T, F, 1, kInnerMajor>(inner, a, a_stride, b + at, b_stride, c + at, c_stride, accumulate);
    } else if (kVectors == 2 || vectors == 2) {
      tile<T, F, 2, kInnerMajor>(inner, a, a_stride, b + at, b_stride, c + at, c_stride, accumulate);
    } else if (vectors == 3) {
      tile<T, F, (kVectors < 3 ? 2 : 3), kInnerMajor>(inner, a, a_stride, b + at, b_stride, c + at, c_stride,
                                                      accumulate);
    } else {
      tile<T, F, kVectors, kInnerMajor>(inner, a, a_stride, b + at, b_stride, c + at, c_stride, accumulate);
    }
  }
}

// Packs `count` rows of x transposed, as panels: column t of panel p is row p kPanel + t. A panel is
// [inner][kPanel]; rows past `count` are zeros up to the next whole vector. `inner` is `size`; for pairs, so many
// pairs, of which those past the end are zeros.
template <class T>
__attribute__((noinline)) void pack_transposed(const T* x, std::int64_t stride, std::int64_t count,
                                               std::int64_t size, std::int64_t inner, T* packed) {
  using Vec = typename Vector<T>::type;
  using Loose = typename Vector<T>::loose;
  constexpr std::int64_t lanes = kLanes<T>;
  for (std::int64_t t = 0; t < count; t += lanes) {
    T* out = packed + t / kPanel<T> * kPanel<T> * inner + t % kPanel<T>;
    const T* from = x + t * stride;
    const std::int64_t here = count - t < lanes ? count - t : lanes;
    std::int64_t i = 0;
    for (; here == lanes && i + lanes <= size; i += lanes) {
      Vec rows[lanes];
      for (std::int64_t r = 0; r < lanes; ++r)
        rows[r] = *reinterpret_cast<const Loose*>(from + r * stride + i);
      transpose_square<kLanes<T>>(rows);
      for (std::int64_t r = 0; r < lanes; ++r) *reinterpret_cast<Loose*>(out + (i + r) * kPanel<T>) = rows[r];
    }
    for (; i < size; ++i)
      for (std::int64_t r = 0; r < lanes; ++r)
        out[i * kPanel<T> + r] = r < here ? from[r * stride + i] : T(0);
  }
}

// Packs `count` rows of `size` elements into rows of `row` factors: a row for each, the rest zeros. `inner` is `count`;
// for pairs, so many rows of pairs, of which those past the end are zeros.
template <class T>
EDDY_INLINE void pack_rows(const T* x, std::int64_t stride, std::int64_t count, std::int64_t size,
                           std::int64_t /*inner*/, T* packed, std::int64_t row) {
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t i = 0; i < size; ++i) packed[t * row + i] = x[t * stride + i];
    for (std::int64_t i = size; i < row; ++i) packed[t * row + i] = T(0);
  }
}

#if defined(__AVX512F__)
EDDY_TARGET_BEGIN("avx512bf16")
// The same with pairs: the inner axis of pack_transposed is that of the elements, that of pack_rows the rows.
__attribute__((noinline)) inline void pack_transposed(const float* x, std::int64_t stride, std::int64_t count,
                                                      std::int64_t size, std::int64_t inner, Pair* packed) {
  constexpr std::int64_t lanes = kLanes<float>, panel = kPanel<float>;
  for (std::int64_t t = 0; t < count; t += lanes)
    for (std::int64_t i = 0; i < inner; i += lanes) {
      bf16::PairVector rows[lanes];
      for (std::int64_t r = 0; r < lanes; ++r)
        rows[r] = t + r < count ? bf16::pairs_along(x + (t + r) * stride + 2 * i, size - 2 * i)
                                : bf16::PairVector{};
      transpose_square<lanes>(rows);
      Pair* const out = packed + t / panel * panel * inner + i * panel + t % panel;
      for (std::int64_t r = 0; r < lanes && i + r < inner; ++r) bf16::store(out + r * panel, rows[r]);
    }
}
// Pairs two rows of `size` elements; `second` may be null, for zeros. The pairs may overwrite the first row.
__attribute__((noinline)) inline void pair_rows(const float* first, const float* second, std::int64_t size,
                                                Pair* pairs) {
  for (std::int64_t i = 0; i < size; i += kLanes<float>)
    bf16::store(pairs + i, bf16::pairs_across(first + i, second == nullptr ? nullptr : second + i, size - i));
}
__attribute__((noinline)) inline void pack_rows(const float* x, std::int64_t stride, std::int64_t count,
                                                std::int64_t size, std::int64_t inner, Pair* packed,
                                                std::int64_t row) {
  for (std::int64_t t = 0; t < count; t += 2)
    pair_rows(x + t * stride, t + 1 < count ? x + (t + 1) * stride : nullptr, size, packed + t / 2 * row);
  for (std::int64_t i = factors<Pair>(count) * row; i < inner * row; ++i) packed[i] = 0;
}
// Rounds two rows of `size` elements: each to pairs of neighbours and, unless `across` is null, both to pairs of the
// two. The second may be null, for zeros.
__attribute__((noinline)) inline void round_two_rows(const float* first, const float* second,
                                                     std::int64_t size, Pair* first_along, Pair* second_along,
                                                     Pair* across) {
  const __m512 zeros = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < size; i += 2 * kLanes<float>) {
    const __mmask16 low = bf16::mask_of(size - i), high = bf16::mask_of(size - i - kLanes<float>);
    const __m512 a0 = _mm512_maskz_loadu_ps(low, first + i),
                 a1 = _mm512_maskz_loadu_ps(high, first + i + kLanes<float>),
                 b0 = second == nullptr ? zeros : _mm512_maskz_loadu_ps(low, second + i),
                 b1 = second == nullptr ? zeros : _mm512_maskz_loadu_ps(high, second + i + kLanes<float>);
    bf16::store(first_along + i / 2, reinterpret_cast<bf16::PairVector>(_mm512_cvtne2ps_pbh(a1, a0)));
    bf16::store(second_along + i / 2, reinterpret_cast<bf16::PairVector>(_mm512_cvtne2ps_pbh(b1, b0)));
    if (across == nullptr) continue;
    bf16::store(across + i, bf16::pairs_of(a0, b0));
    if (high != 0) bf16::store(across + i + kLanes<float>, bf16::pairs_of(a1, b1));
  }
}
// Rounds a row of `size` elements to pairs of neighbours. The pairs may overwrite the row.
__attribute__((noinline)) inline void round_row(const float* x, std::int64_t size, Pair* pairs) {
  for (std::int64_t i = 0; i < factors<Pair>(size); i += kLanes<float>)
    bf16::store(pairs + i, bf16::pairs_along(x + 2 * i, size - 2 * i));
}
EDDY_TARGET_END
#endif

// x in the lanes of the keys from t on that lie in [begin, end), `other` in the rest.
template <class T>
EDDY_INLINE typename Vector<T>::type seen(typename Vector<T>::type x, std::int64_t t, std::int64_t begin,
                                          std::int64_t end, T other) {
  using Index = typename Vector<T>::index;
  using Unsigned = typename Vector<T>::Unsigned;
  Index keys;
  for (int lane = 0; lane < Vector<T>::lanes; ++lane) keys[lane] = static_cast<Unsigned>(lane);
  keys += static_cast<Unsigned>(t - begin);  // those before `begin` wrap
  return keys < static_cast<Unsigned>(end > begin ? end - begin : 0) ? x : typename Vector<T>::type{} + other;
}

// Prefetches a row of `size` elements, with locality 3 into the first-level cache, with 2 into the second-level one.
template <int Locality = 3, class T>
EDDY_INLINE void prefetch_row(const T* row, std::int64_t size) {
  for (std::int64_t i = 0; i < size; i += static_cast<std::int64_t>(64 / sizeof(T)))
    __builtin_prefetch(row + i, 0, Locality);
}

// Returns the dropout factors, 0 or keep_scale, of the elements first .. first + count - 1 of a stream: a
// pointer into `buffer`, which holds count + kPhiloxWords + 3 elements, since words are drawn in whole groups
// from the block of four that holds `first`.
template <class T>
__attribute__((noinline)) const T* keep_row(const RandomKey& key, std::uint64_t first, std::int64_t count,
                                            std::uint32_t drop_below, T keep_scale, T* buffer) {
  const std::int64_t offset = static_cast<std::int64_t>(first & 3);
  for (std::int64_t at = 0; at < offset + count; at += kPhiloxWords) {
    std::uint32_t words[kPhiloxWords];
    philox_words(key, (first >> 2) + static_cast<std::uint64_t>(at / 4), words);
    for (std::int64_t i = 0; i < kPhiloxWords; ++i)
      buffer[at + i] = (words[i] >> 8) < drop_below ? T(0) : keep_scale;
  }
  return buffer + offset;
}

// Writes dropout factors of probabilities that lie side by side in lanes, `count` of each lane: those of a lane have
// the numbers from first[lane] on in the stream of dropout draws. `keep` holds count + 4 vectors: one counter gives
// four words, and where a lane does not begin at a counter, up to three of the row before are drawn, too.
template <class T>
__attribute__((noinline)) void keep_columns(const RandomKey& key, const std::uint64_t* first,
                                            std::int64_t count, std::uint32_t drop_below, T keep_scale,
                                            typename Vector<T>::type* keep) {
  using Vec = typename Vector<T>::type;
  std::uint64_t blocks[kLanes<T>];
  Vec before;
  std::int64_t most_before = 0;
  for (std::int64_t lane = 0; lane < kLanes<T>; ++lane) {
    const std::int64_t words_before = static_cast<std::int64_t>(first[lane] & 3);
    blocks[lane] = first[lane] >> 2;
    reinterpret_cast<T*>(&before)[lane] = static_cast<T>(words_before);
    most_before = words_before > most_before ? words_before : most_before;
  }
  std::uint32_t words[4 * kLanes<T>];
  for (std::int64_t t = 0; t < count + most_before; t += 4) {
    philox_columns<kLanes<T>>(key, blocks, words);
    for (std::int64_t lane = 0; lane < kLanes<T>; ++lane) ++blocks[lane];
    T* const to = reinterpret_cast<T*>(keep + t);
    for (std::int64_t i = 0; i < 4 * kLanes<T>; ++i)
      to[i] = (words[i] >> 8) >= drop_below ? keep_scale : T(0);
  }
  if (most_before == 0) return;
  for (std::int64_t t = 0; t < count; ++t) {
    const Vec later = before == Vec{} + T(2) ? keep[t + 2] : keep[t + 3],
              sooner = before == Vec{} ? keep[t] : keep[t + 1];
    keep[t] = before < Vec{} + T(2) ? sooner : later;
  }
}

// Combines all lanes of a vector, halves first.
template <class T, class Combine>
EDDY_INLINE T fold(typename Vector<T>::type x, Combine combine) {
  T lanes[kLanes<T>];
  if constexpr (kLanes<T> == 16)
    x = combine(x, __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  if constexpr (kLanes<T> == 16)
    x = combine(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3));
  if constexpr (kLanes<T> == 8) x = combine(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3));
  memcpy(lanes, &x, sizeof lanes);
  for (int half = kLanes<T> < 4 ? 1 : 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] = combine(lanes[lane], lanes[lane + half]);
  return lanes[0];
}

// The sum of a[i] b[i].
template <class T>
EDDY_INLINE T dot(const T* a, const T* b, std::int64_t size) {
  using Loose = typename Vector<T>::loose;
  typename Vector<T>::type sum{};
  std::int64_t i = 0;
  for (; i + kLanes<T> <= size; i += kLanes<T>)
    sum += *reinterpret_cast<const Loose*>(a + i) * *reinterpret_cast<const Loose*>(b + i);
  T result = fold<T>(sum, [](auto x, auto y) { return x + y; });
  for (; i < size; ++i) result += a[i] * b[i];
  return result;
}

}  // namespace eddy::EDDY_ISA::attention_tile
