// Sums and maxima over one contiguous row, for *.isa.cpp files only. Element i of the row goes to lane i mod
// 32, and the 32 lanes are folded in halves, so the order of additions is the same for every vector width and
// any number of threads. The lanes are several vector registers (32 floats are two AVX-512 or four AVX2
// registers), so that an addition need not wait for the one before.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

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

// Access to one element and to one vector of elements, so that the code of a term serves both.
template <class T>
struct OneElement {
  EDDY_INLINE static T load(const T* from) { return *from; }
  EDDY_INLINE static void store(T* to, T value) { *to = value; }
};
template <class T>
struct OneVector {
  EDDY_INLINE static typename LaneVector<T>::type load(const T* from) {
    return *reinterpret_cast<const typename LaneVector<T>::loose*>(from);
  }
  EDDY_INLINE static void store(T* to, typename LaneVector<T>::type value) {
    *reinterpret_cast<typename LaneVector<T>::loose*>(to) = value;
  }
};

// Calls body(access, i) for vectors that begin at elements i of [0, n), and then for single elements.
template <class T, class Body>
EDDY_INLINE void for_vectors(std::int64_t n, Body body) {
  const std::int64_t whole = n / LaneVector<T>::width * LaneVector<T>::width;
  for (std::int64_t i = 0; i < whole; i += LaneVector<T>::width) body(OneVector<T>{}, i);
  for (std::int64_t i = whole; i < n; ++i) body(OneElement<T>{}, i);
}

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

// Folds lanes 16..31 onto 0..15, and so on, until one vector is left. Changes `lanes`.
template <class T, class Combine>
EDDY_INLINE typename LaneVector<T>::type fold_to_vector(typename LaneVector<T>::type* lanes,
                                                        Combine combine) {
  using Vector = LaneVector<T>;
  for (std::int64_t half = Vector::count / 2; half > 0; half /= 2)
    for (std::int64_t v = 0; v < half; ++v) lanes[v] = combine(lanes[v], lanes[v + half]);
  return lanes[0];
}

// Folds lanes 16..31 onto 0..15, then 8..15 onto 0..7, and so on. Changes `lanes`.
template <class T, class Combine>
EDDY_INLINE T fold_lanes(typename LaneVector<T>::type* lanes, Combine combine) {
  return fold_vector<T, LaneVector<T>::width>(fold_to_vector<T>(lanes, combine), combine);
}

// Folds the vectors of as many rows as a vector has elements: element r of the result is what fold_vector gives for
// row r. Two rows share each addition, so it takes as many for all as for four alone. Changes `rows`.
template <class T, std::int64_t Groups = 1, std::size_t... kLane>
EDDY_INLINE typename LaneVector<T>::type fold_rows(typename LaneVector<T>::type* rows,
                                                   std::index_sequence<kLane...> lanes) {
  // A vector holds the lanes of `Groups` rows, `size` each; half of them are left.
  constexpr std::int64_t width = LaneVector<T>::width, size = width / Groups, half = size / 2;
  if constexpr (size == 1) {
    return rows[0];
  } else {
    constexpr auto lower = [](std::int64_t lane) {
      return static_cast<int>(lane / half * size + lane % half);
    };
    for (std::int64_t v = 0; v < size / 2; ++v) {
      const auto first = rows[2 * v], second = rows[2 * v + 1];
      rows[v] = __builtin_shufflevector(first, second, lower(kLane)...) +
                __builtin_shufflevector(first, second, lower(kLane) + static_cast<int>(half)...);
    }
    return fold_rows<T, 2 * Groups>(rows, lanes);
  }
}
template <class T>
EDDY_INLINE typename LaneVector<T>::type fold_rows(typename LaneVector<T>::type* rows) {
  return fold_rows<T>(rows, std::make_index_sequence<static_cast<std::size_t>(LaneVector<T>::width)>{});
}

struct Plus {
  template <class V>
  EDDY_INLINE V operator()(V a, V b) const {
    return a + b;
  }
};

// The sums of some terms, each as a vector whose fold is the sum.
template <class T, std::size_t Terms>
struct LaneSums {
  typename LaneVector<T>::type of[Terms];
};

// Returns the sum over i in [0, n) of each term(reader, i), in one pass; a term reads its operands with
// reader.load(pointer + i).
template <class T, class... Term>
EDDY_INLINE LaneSums<T, sizeof...(Term)> lane_sums(std::int64_t n, Term... term) {
  using Vector = LaneVector<T>;
  constexpr std::size_t terms = sizeof...(Term);
  LaneSums<T, terms> result;
  if (n < kShortRow) {
    T sums[terms] = {};
    for (std::int64_t i = 0; i < n; ++i) {
      std::size_t t = 0;
      ((sums[t++] += term(OneElement<T>{}, i)), ...);
    }
    for (std::size_t t = 0; t < terms; ++t) result.of[t] = typename Vector::type{sums[t]};
    return result;
  }
  typename Vector::type sums[terms][Vector::count] = {};
  const auto add_vector = [&](std::int64_t i, std::int64_t v) __attribute__((always_inline)) {
    std::size_t t = 0;
    ((sums[t++][v] += term(OneVector<T>{}, i)), ...);
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t v = 0; v < Vector::count; ++v) add_vector(i + v * Vector::width, v);
  const std::int64_t whole = i;
  for (std::int64_t v = 0; v < Vector::count; ++v)
    if (i + Vector::width <= n) {
      add_vector(i, v);
      i += Vector::width;
    }
  if (i < n) {
    alignas(64) T lanes[terms][kLanes];
    std::memcpy(lanes, sums, sizeof lanes);
    for (; i < n; ++i) {
      std::size_t t = 0;
      ((lanes[t++][i - whole] += term(OneElement<T>{}, i)), ...);
    }
    std::memcpy(sums, lanes, sizeof lanes);
  }
  for (std::size_t t = 0; t < terms; ++t) result.of[t] = fold_to_vector<T>(sums[t], Plus{});
  return result;
}

// Returns the sum over i in [0, n) of term(reader, i).
template <class T, class Term>
EDDY_INLINE T lane_sum(std::int64_t n, Term term) {
  return fold_vector<T, LaneVector<T>::width>(lane_sums<T>(n, term).of[0], Plus{});
}

// Times this, the squares of a row overflow no more, whatever its finite entries are.
template <class T>
constexpr T kShrink = sizeof(T) == 4 ? T(0x1p-80) : T(0x1p-560);

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
