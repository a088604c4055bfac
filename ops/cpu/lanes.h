// Sums and maxima over one contiguous row, for *.isa.cpp files only. Element i of the row goes to lane i mod
// 32, and the 32 lanes are folded in halves, so the order of additions is the same for every vector width and
// any number of threads. The lanes are several vector registers (32 floats are two AVX-512 or four AVX2
// registers), so that an addition need not wait for the one before.
#pragma once

#include <cstdint>
#include <cstring>

#include "tensor/base/host_device.h"

namespace eddy::EDDY_ISA {
namespace {

#if defined(__AVX512F__)
constexpr std::int64_t kLaneVectorBytes = 64;
#elif defined(__AVX2__)
constexpr std::int64_t kLaneVectorBytes = 32;
#else
constexpr std::int64_t kLaneVectorBytes = 16;
#endif
constexpr std::int64_t kLanes = 32;
constexpr std::int64_t kShortRow = 8;  // below this, a scalar sum is cheaper than folding the lanes

template <class T, std::int64_t Width>
struct LaneBlock {
  typedef T type __attribute__((vector_size(Width * static_cast<std::int64_t>(sizeof(T)))));
};

// A vector of T, and the same for memory that is aligned to one element only.
template <class T>
struct LaneVector {
  static constexpr std::int64_t width = kLaneVectorBytes / static_cast<std::int64_t>(sizeof(T));
  static constexpr std::int64_t count = kLanes / width;
  typedef T type __attribute__((vector_size(kLaneVectorBytes)));
  typedef T loose __attribute__((vector_size(kLaneVectorBytes), aligned(sizeof(T)), may_alias));
};

// Readers of one element and of one vector of elements, so that the code of a term serves both.
template <class T>
struct OneElement {
  EDDY_INLINE static T load(const T* from) { return *from; }
};
template <class T>
struct OneVector {
  EDDY_INLINE static typename LaneVector<T>::type load(const T* from) {
    return *reinterpret_cast<const typename LaneVector<T>::loose*>(from);
  }
};

// Folds the upper half of a vector onto the lower one until one element is left.
template <class T, std::int64_t Width, class Combine>
EDDY_INLINE T fold_vector(const typename LaneBlock<T, Width>::type& lanes, Combine combine) {
  if constexpr (Width == 1) {
    return lanes[0];
  } else {
    typename LaneBlock<T, Width / 2>::type lower, upper;
    std::memcpy(&lower, &lanes, sizeof lower);
    std::memcpy(&upper, reinterpret_cast<const char*>(&lanes) + sizeof lower, sizeof upper);
    return fold_vector<T, Width / 2>(combine(lower, upper), combine);
  }
}

// Folds lanes 16..31 onto 0..15, then 8..15 onto 0..7, and so on. Changes `lanes`.
template <class T, class Combine>
EDDY_INLINE T fold_lanes(typename LaneVector<T>::type* lanes, Combine combine) {
  using Vector = LaneVector<T>;
  for (std::int64_t half = Vector::count / 2; half > 0; half /= 2)
    for (std::int64_t v = 0; v < half; ++v) lanes[v] = combine(lanes[v], lanes[v + half]);
  return fold_vector<T, Vector::width>(lanes[0], combine);
}

struct Plus {
  template <class V>
  EDDY_INLINE V operator()(V a, V b) const {
    return a + b;
  }
};

// Returns the sum over i in [0, n) of term(reader, i); term reads its operands with reader.load(pointer + i).
template <class T, class Term>
EDDY_INLINE T lane_sum(std::int64_t n, Term term) {
  using Vector = LaneVector<T>;
  if (n < kShortRow) {
    T sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += term(OneElement<T>{}, i);
    return sum;
  }
  typename Vector::type sums[Vector::count] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t v = 0; v < Vector::count; ++v) sums[v] += term(OneVector<T>{}, i + v * Vector::width);
  const std::int64_t whole = i;
  for (std::int64_t v = 0; v < Vector::count; ++v)
    if (i + Vector::width <= n) {
      sums[v] += term(OneVector<T>{}, i);
      i += Vector::width;
    }
  if (i < n) {
    alignas(64) T lanes[kLanes];
    std::memcpy(lanes, sums, sizeof lanes);
    for (; i < n; ++i) lanes[i - whole] += term(OneElement<T>{}, i);
    std::memcpy(sums, lanes, sizeof lanes);
  }
  return fold_lanes<T>(sums, Plus{});
}

// Times this, the squares of a row overflow no more, whatever its finite entries are.
template <class T>
constexpr T kShrink = sizeof(T) == 4 ? T(0x1p-80) : T(0x1p-560);

template <class T>
struct TwoSums {
  T first, second;
};

// Returns two such sums, of term_a and of term_b, in one pass.
template <class T, class TermA, class TermB>
EDDY_INLINE TwoSums<T> lane_two_sums(std::int64_t n, TermA term_a, TermB term_b) {
  using Vector = LaneVector<T>;
  typename Vector::type sums_a[Vector::count] = {}, sums_b[Vector::count] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t v = 0; v < Vector::count; ++v) {
      sums_a[v] += term_a(OneVector<T>{}, i + v * Vector::width);
      sums_b[v] += term_b(OneVector<T>{}, i + v * Vector::width);
    }
  const std::int64_t whole = i;
  for (std::int64_t v = 0; v < Vector::count; ++v)
    if (i + Vector::width <= n) {
      sums_a[v] += term_a(OneVector<T>{}, i);
      sums_b[v] += term_b(OneVector<T>{}, i);
      i += Vector::width;
    }
  if (i < n) {
    alignas(64) T lanes_a[kLanes], lanes_b[kLanes];
    std::memcpy(lanes_a, sums_a, sizeof lanes_a);
    std::memcpy(lanes_b, sums_b, sizeof lanes_b);
    for (; i < n; ++i) {
      lanes_a[i - whole] += term_a(OneElement<T>{}, i);
      lanes_b[i - whole] += term_b(OneElement<T>{}, i);
    }
    std::memcpy(sums_a, lanes_a, sizeof lanes_a);
    std::memcpy(sums_b, lanes_b, sizeof lanes_b);
  }
  return {fold_lanes<T>(sums_a, Plus{}), fold_lanes<T>(sums_b, Plus{})};
}

// Returns the same sum of term(i), with element i in lane i mod Lanes and the lanes added in order.
template <std::int64_t Lanes, class Term>
EDDY_INLINE double sum_in_order(std::int64_t n, Term term) {
  double lanes[Lanes] = {};
  std::int64_t i = 0;
  for (; i + Lanes <= n; i += Lanes)
    for (std::int64_t lane = 0; lane < Lanes; ++lane) lanes[lane] += term(i + lane);
  for (std::int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] += term(i);
  double sum = 0;
  for (std::int64_t lane = 0; lane < Lanes; ++lane) sum += lanes[lane];
  return sum;
}

// The larger of two, or NaN if one is NaN. For elements and vectors.
struct NanMax {
  template <class V>
  EDDY_INLINE V operator()(V a, V b) const {
    return ((b <= a) | (a != a)) ? a : b;
  }
};

// Returns the largest of n >= 1 elements, or NaN if one is NaN.
template <class T>
EDDY_INLINE T lane_max(const T* x, std::int64_t n) {
  using Vector = LaneVector<T>;
  constexpr NanMax larger;
  if (n < kLanes) {
    T best = x[0];
    for (std::int64_t i = 1; i < n; ++i) best = larger(best, x[i]);
    return best;
  }
  typename Vector::type best[Vector::count];
  std::memcpy(best, x, sizeof best);
  std::int64_t i = kLanes;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t v = 0; v < Vector::count; ++v)
      best[v] = larger(best[v], OneVector<T>::load(x + i + v * Vector::width));
  // The tail reads the last kLanes elements: reading some twice does not change a maximum.
  if (i < n)
    for (std::int64_t v = 0; v < Vector::count; ++v)
      best[v] = larger(best[v], OneVector<T>::load(x + (n - kLanes) + v * Vector::width));
  return fold_lanes<T>(best, larger);
}

}  // namespace
}  // namespace eddy::EDDY_ISA
