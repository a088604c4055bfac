// CPU kernels of layer norm and RMS norm. A row stays in the L1 cache for its passes (forward: sum, squared
// distances, write; backward: two sums, then the write together with the partial sums of dweight and dbias).
// So memory moves x and y once in the forward pass, and dy, x and dx once in the backward pass. The variance
// takes two passes because sum(x^2) - n mean^2 cancels. `Centred` kernels are those of layer norm; without it
// the mean is the constant 0.
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"

#include <math.h>

#include "ops/cpu/isa.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/vec_math.h"

namespace eddy::EDDY_ISA {
namespace {

// Writes y = n weight + bias for one row.
template <class T>
EDDY_INLINE void scale_row(const T* x, T mean, T rstd, const T* weight, const T* bias, T* y,
                           std::int64_t width) {
  if (weight != nullptr && bias != nullptr) {
    for_vectors<T>(width, [=](auto at, std::int64_t i) {
      at.store(y + i, (at.load(x + i) - mean) * rstd * at.load(weight + i) + at.load(bias + i));
    });
  } else if (weight != nullptr) {
    for_vectors<T>(width, [=](auto at, std::int64_t i) {
      at.store(y + i, (at.load(x + i) - mean) * rstd * at.load(weight + i));
    });
  } else if (bias != nullptr) {
    for_vectors<T>(width, [=](auto at, std::int64_t i) {
      at.store(y + i, (at.load(x + i) - mean) * rstd + at.load(bias + i));
    });
  } else {
    for_vectors<T>(width, [=](auto at, std::int64_t i) { at.store(y + i, (at.load(x + i) - mean) * rstd); });
  }
}

// The mean and 1 / sqrt(variance + eps) of a row whose squares overflow: both are summed of kShrink x.
template <class T>
struct Statistics {
  T mean, rstd;
};
template <class T, bool Centred>
__attribute__((noinline, cold)) Statistics<T> statistics_of_huge(const T* x, std::int64_t width, T eps) {
  constexpr T by = kShrink<T>;
  const T count = static_cast<T>(width);
  const auto entry = [x](auto reader, std::int64_t i) __attribute__((always_inline)) {
    return by * reader.load(x + i);
  };
  T mean = 0;
  if constexpr (Centred) mean = lane_sum<T>(width, entry) / count;
  const T squares = lane_sum<T>(width, [=](auto reader, std::int64_t i) {
    const auto distance = entry(reader, i) - mean;
    return distance * distance;
  });
  return {mean / by, by / vec::sqrt(squares / count + by * by * eps)};
}

// Rows that are normed together. A narrow row is soon done, so a vector's number of them is taken at once: their sums
// are folded together (fold_rows), and their roots and quotients are vectors. A width that is known when the kernel is
// compiled needs no loops. A row of 32 floats takes 6.4 ns forward so, and 15.7 alone (docs/choices.md).
template <class T, std::int64_t Rows, std::int64_t Width>
struct RowGroup {
  static constexpr std::int64_t rows = Rows;
  EDDY_INLINE static std::int64_t width(std::int64_t given) { return Width > 0 ? Width : given; }
  // results[r] = the fold of sums[r]. Changes `sums`.
  EDDY_INLINE static void fold(typename LaneVector<T>::type* sums, T* results) {
    if constexpr (Rows == 1)
      results[0] = fold_vector<T, LaneVector<T>::width>(sums[0], Plus{});
    else
      OneVector<T>::store(results, fold_rows<T>(sums));
  }
};

// Calls body(group, first row) for groups of the rows [begin, end) of this width.
template <class T, class Body>
EDDY_INLINE void for_groups(std::int64_t width, std::int64_t begin, std::int64_t end, Body body) {
  constexpr std::int64_t together = LaneVector<T>::width;
  std::int64_t row = begin;
  if (width == kLanes)
    for (; row + together <= end; row += together) body(RowGroup<T, together, kLanes>{}, row);
  else if (width == 2 * kLanes)
    for (; row + together <= end; row += together) body(RowGroup<T, together, 2 * kLanes>{}, row);
  for (; row < end; ++row) body(RowGroup<T, 1, 0>{}, row);
}

template <class T, bool Centred, class Group>
void forward_group(const RowNormArgs& args, std::int64_t first) {
  const T *const weight = static_cast<const T*>(args.weight), *const bias = static_cast<const T*>(args.bias);
  const std::int64_t width = Group::width(args.width);
  const T eps = static_cast<T>(args.eps), elements = static_cast<T>(width);
  const T* x = static_cast<const T*>(args.x) + first * args.x_stride;
  std::int64_t x_stride = args.x_stride;
  if (args.delta != nullptr) {
    T* const sum = static_cast<T*>(args.sum) + first * width;
    for (std::int64_t r = 0; r < Group::rows; ++r) {
      const T *const one = x + r * x_stride, *const other = static_cast<const T*>(args.delta) +
                                                            (first + r) * args.delta_stride;
      for_vectors<T>(width, [to = sum + r * width, one, other](auto at, std::int64_t i) {
        at.store(to + i, at.load(one + i) + at.load(other + i));
      });
    }
    x = sum;
    x_stride = width;
  }
  typename LaneVector<T>::type sums[Group::rows];
  T mean[Group::rows] = {}, squares[Group::rows], rstd[Group::rows];
  if constexpr (Centred) {
    for (std::int64_t r = 0; r < Group::rows; ++r)
      sums[r] = lane_sums<T>(width, [row = x + r * x_stride](auto at, std::int64_t i) {
                  return at.load(row + i);
                }).of[0];
    Group::fold(sums, mean);
    for (std::int64_t r = 0; r < Group::rows; ++r) mean[r] /= elements;
  }
  for (std::int64_t r = 0; r < Group::rows; ++r)
    sums[r] = lane_sums<T>(width, [row = x + r * x_stride, of_row = mean[r]](auto at, std::int64_t i) {
                const auto distance = at.load(row + i) - of_row;
                return distance * distance;
              }).of[0];
  Group::fold(sums, squares);
  for (std::int64_t r = 0; r < Group::rows; ++r) rstd[r] = T(1) / vec::sqrt(squares[r] / elements + eps);
  for (std::int64_t r = 0; r < Group::rows; ++r) {
    const T* const from = x + r * x_stride;
    if (!(squares[r] < T(INFINITY))) {
      const Statistics<T> of_row = statistics_of_huge<T, Centred>(from, width, eps);
      mean[r] = of_row.mean;
      rstd[r] = of_row.rstd;
    }
    T* const y = static_cast<T*>(args.y) + (first + r) * args.y_stride;
    scale_row(from, mean[r], rstd[r], weight, Centred ? bias : nullptr, y, width);
    if (!Centred && args.table != nullptr) {
      const T* const place = static_cast<const T*>(args.table) + (first + r) % args.table_rows * width;
      for_vectors<T>(width, [y, place](auto at, std::int64_t i) {
        at.store(y + i, at.load(y + i) + at.load(place + i));
      });
    }
  }
  if (Centred && args.mean != nullptr)
    for (std::int64_t r = 0; r < Group::rows; ++r) static_cast<T*>(args.mean)[first + r] = mean[r];
  if (args.rstd != nullptr)
    for (std::int64_t r = 0; r < Group::rows; ++r) static_cast<T*>(args.rstd)[first + r] = rstd[r];
}

template <class T, bool Centred>
void forward_rows(const RowNormArgs& args) {
  parallel_for(args.rows, items_per_chunk(args.width), [&args](std::int64_t begin, std::int64_t end) {
    for_groups<T>(args.width, begin, end, [&args](auto group, std::int64_t first) {
      forward_group<T, Centred, decltype(group)>(args, first);
    });
  });
}

// What the backward loops over one row share.
template <class T>
struct BackwardRow {
  const T *dy, *x, *weight;
  T mean, rstd;
};

// The sums of a row that dx needs, as vectors: of g and g n, or for an RMS norm of g x; g = dy weight.
template <class T, bool Centred, bool HasWeight>
EDDY_INLINE auto gradient_sums(const BackwardRow<T>& row, std::int64_t width) {
  const auto g = [row](auto at, std::int64_t i) __attribute__((always_inline)) {
    if constexpr (HasWeight)
      return at.load(row.dy + i) * at.load(row.weight + i);
    else
      return at.load(row.dy + i);
  };
  if constexpr (Centred) {
    return lane_sums<T>(width, g, [row, g](auto at, std::int64_t i) {
      return g(at, i) * ((at.load(row.x + i) - row.mean) * row.rstd);
    });
  } else {
    return lane_sums<T>(width, [row](auto at, std::int64_t i) {
      const auto product = at.load(row.dy + i) * at.load(row.x + i);
      if constexpr (HasWeight)
        return product * at.load(row.weight + i);
      else
        return product;
    });
  }
}

template <class T, bool HasWeight>
EDDY_INLINE void dx_row(const BackwardRow<T>& row, T mean_g, T mean_gn, T factor, T* dx, T beta,
                        std::int64_t width) {
  const auto gradient = [=](auto at, std::int64_t i) __attribute__((always_inline)) {
    const auto n = (at.load(row.x + i) - row.mean) * row.rstd;
    if constexpr (HasWeight)
      return factor * (at.load(row.dy + i) * at.load(row.weight + i) - mean_g - n * mean_gn);
    else
      return factor * (at.load(row.dy + i) - mean_g - n * mean_gn);
  };
  if (beta == T(0)) {
    for_vectors<T>(width, [=](auto at, std::int64_t i) { at.store(dx + i, gradient(at, i)); });
  } else {
    for_vectors<T>(
        width, [=](auto at, std::int64_t i) { at.store(dx + i, beta * at.load(dx + i) + gradient(at, i)); });
  }
}

// With dsum, copies its row r to dx and returns beta 1, which adds the gradient to it.
template <class T>
EDDY_INLINE T start_dx(const T* dsum, std::int64_t r, T* dx, T beta, std::int64_t width) {
  if (dsum == nullptr) return beta;
  for_vectors<T>(
      width, [from = dsum + r * width, dx](auto at, std::int64_t i) { at.store(dx + i, at.load(from + i)); });
  return T(1);
}

// partial = beta * partial; with beta 0 it is not read.
template <class T>
EDDY_INLINE void start_partial(T* partial, T beta, std::int64_t width) {
  if (partial == nullptr || beta == T(1)) return;
  for (std::int64_t i = 0; i < width; ++i) partial[i] = beta == T(0) ? T(0) : beta * partial[i];
}

// Adds what the rows of a group give to the partial sums.
template <class T, class Group, bool HasWeight, bool HasBias>
EDDY_INLINE void add_partials(const BackwardRow<T>* rows, T* dweight, T* dbias, std::int64_t width) {
  for_vectors<T>(width, [=](auto at, std::int64_t i) {
    decltype(at.load(dweight)) of_weight{}, of_bias{};
    if constexpr (HasWeight) of_weight = at.load(dweight + i);
    if constexpr (HasBias) of_bias = at.load(dbias + i);
    for (std::int64_t r = 0; r < Group::rows; ++r) {
      const auto dy = at.load(rows[r].dy + i);
      if constexpr (HasWeight) of_weight += dy * ((at.load(rows[r].x + i) - rows[r].mean) * rows[r].rstd);
      if constexpr (HasBias) of_bias += dy;
    }
    if constexpr (HasWeight) at.store(dweight + i, of_weight);
    if constexpr (HasBias) at.store(dbias + i, of_bias);
  });
}

template <class T, bool Centred, bool HasWeight, class Group>
void gradient_group(const RowNormBackwardArgs& args, std::int64_t first, T* dweight, T* dbias) {
  const std::int64_t width = Group::width(args.width);
  const T elements = static_cast<T>(width);
  BackwardRow<T> rows[Group::rows];
  for (std::int64_t r = 0; r < Group::rows; ++r)
    rows[r] = {static_cast<const T*>(args.dy) + (first + r) * args.dy_stride,
               static_cast<const T*>(args.x) + (first + r) * args.x_stride,
               static_cast<const T*>(args.weight),
               Centred ? static_cast<const T*>(args.mean)[first + r] : T(0),
               static_cast<const T*>(args.rstd)[first + r]};
  // Before dx: it may overwrite dy.
  if (dweight != nullptr && dbias != nullptr)
    add_partials<T, Group, true, true>(rows, dweight, dbias, width);
  else if (dweight != nullptr)
    add_partials<T, Group, true, false>(rows, dweight, dbias, width);
  else if (dbias != nullptr)
    add_partials<T, Group, false, true>(rows, dweight, dbias, width);
  if (args.dx == nullptr) return;
  typename LaneVector<T>::type of_g[Group::rows], of_gn[Group::rows];
  T mean_g[Group::rows] = {}, mean_gn[Group::rows];
  for (std::int64_t r = 0; r < Group::rows; ++r) {
    const auto sums = gradient_sums<T, Centred, HasWeight>(rows[r], width);
    if constexpr (Centred) of_g[r] = sums.of[0];
    of_gn[r] = sums.of[Centred ? 1 : 0];
  }
  Group::fold(of_gn, mean_gn);
  if constexpr (Centred) {
    Group::fold(of_g, mean_g);
    for (std::int64_t r = 0; r < Group::rows; ++r) {
      mean_g[r] /= elements;
      mean_gn[r] /= elements;
    }
  } else {
    for (std::int64_t r = 0; r < Group::rows; ++r) mean_gn[r] = mean_gn[r] * rows[r].rstd / elements;
  }
  for (std::int64_t r = 0; r < Group::rows; ++r) {
    T* const dx = static_cast<T*>(args.dx) + (first + r) * args.dx_stride;
    const T beta =
        start_dx(static_cast<const T*>(args.dsum), first + r, dx, static_cast<T>(args.dx_beta), width);
    // A row of one element is its own mean: dx is exactly 0, where rounding would leave g - g times a large rstd.
    const T factor = Centred && width == 1 ? T(0) : rows[r].rstd;
    dx_row<T, HasWeight>(rows[r], mean_g[r], mean_gn[r], factor, dx, beta, width);
  }
}

template <class T, bool Centred>
void backward_rows(const RowNormBackwardArgs& args) {
  const std::int64_t width = args.width;
  const T partial_beta = static_cast<T>(args.partial_beta);
  const std::int64_t each = norm_block_rows(false, args.rows);
  parallel_for_rows(norm_blocks(kCpu, args.rows), each * width, [=, &args](std::int64_t block) {
    T* const dweight =
        args.dweight_partials == nullptr ? nullptr : static_cast<T*>(args.dweight_partials) + block * width;
    T* const dbias =
        args.dbias_partials == nullptr ? nullptr : static_cast<T*>(args.dbias_partials) + block * width;
    start_partial(dweight, partial_beta, width);
    start_partial(dbias, partial_beta, width);
    const std::int64_t begin = block * each, end = begin + each < args.rows ? begin + each : args.rows;
    for_groups<T>(width, begin, end, [&](auto group, std::int64_t first) {
      args.weight != nullptr
          ? gradient_group<T, Centred, true, decltype(group)>(args, first, dweight, dbias)
          : gradient_group<T, Centred, false, decltype(group)>(args, first, dweight, dbias);
    });
  });
}

template <class T>
constexpr auto layer_norm = forward_rows<T, true>;
template <class T>
constexpr auto layer_norm_gradient = backward_rows<T, true>;
template <class T>
constexpr auto rms_norm = forward_rows<T, false>;
template <class T>
constexpr auto rms_norm_gradient = backward_rows<T, false>;

}  // namespace

EDDY_CPU_KERNEL(layer_norm_forward, layer_norm)
EDDY_CPU_KERNEL(layer_norm_backward, layer_norm_gradient)
EDDY_CPU_KERNEL(rms_norm_forward, rms_norm)
EDDY_CPU_KERNEL(rms_norm_backward, rms_norm_gradient)

}  // namespace eddy::EDDY_ISA
