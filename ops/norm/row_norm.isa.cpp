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
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
  } else if (weight != nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * rstd * weight[i];
  } else if (bias != nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * rstd + bias[i];
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * rstd;
  }
}

template <class T>
struct Statistics {
  T mean, squares, rstd;  // squares: their sum, of x - mean or of that times kShrink
};

// The statistics of one row. `Huge`: of one whose squares would overflow, summed of kShrink x.
template <class T, bool Centred, bool Huge>
EDDY_INLINE Statistics<T> statistics(const T* x, std::int64_t width, T eps) {
  constexpr T by = Huge ? kShrink<T> : T(1);
  const T count = static_cast<T>(width);
  const auto entry = [x](auto reader, std::int64_t i) __attribute__((always_inline)) {
    if constexpr (Huge)
      return by * reader.load(x + i);
    else
      return reader.load(x + i);
  };
  T mean = 0;
  if constexpr (Centred) mean = lane_sum<T>(width, entry) / count;
  const T squares = lane_sum<T>(width, [=](auto reader, std::int64_t i) {
    const auto distance = entry(reader, i) - mean;
    return distance * distance;
  });
  return {mean / by, squares, by / vec::sqrt(squares / count + by * by * eps)};
}

template <class T, bool Centred>
__attribute__((noinline, cold)) Statistics<T> statistics_of_huge(const T* x, std::int64_t width, T eps) {
  return statistics<T, Centred, true>(x, width, eps);
}

template <class T, bool Centred>
void forward_rows(const RowNormArgs& args) {
  const T *const weight = static_cast<const T*>(args.weight), *const bias = static_cast<const T*>(args.bias);
  T *const means = static_cast<T*>(args.mean), *const rstds = static_cast<T*>(args.rstd);
  const std::int64_t width = args.width;
  const T eps = static_cast<T>(args.eps);
  parallel_for_rows(args.rows, width, [=, &args](std::int64_t row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    if (args.delta != nullptr) {
      const T *const first = x, *const second = static_cast<const T*>(args.delta) + row * args.delta_stride;
      T* const sum = static_cast<T*>(args.sum) + row * width;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < width; ++i) sum[i] = first[i] + second[i];
      x = sum;
    }
    Statistics<T> of_row = statistics<T, Centred, false>(x, width, eps);
    if (!(of_row.squares < T(INFINITY))) of_row = statistics_of_huge<T, Centred>(x, width, eps);
    const T mean = of_row.mean, rstd = of_row.rstd;
    T* const y = static_cast<T*>(args.y) + row * args.y_stride;
    scale_row(x, mean, rstd, weight, Centred ? bias : nullptr, y, width);
    if (!Centred && args.table != nullptr) {
      const T* const place = static_cast<const T*>(args.table) + row % args.table_rows * width;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < width; ++i) y[i] += place[i];
    }
    if (Centred && means != nullptr) means[row] = mean;
    if (rstds != nullptr) rstds[row] = rstd;
  });
}

// What the backward loops over one row share.
template <class T>
struct BackwardRow {
  const T *dy, *x, *weight;
  T mean, rstd;
};

template <class T, bool Centred, bool HasWeight>
EDDY_INLINE void dx_row(const BackwardRow<T>& row, T* dx, T beta, std::int64_t width) {
  const T *const dy = row.dy, *const x = row.x, *const weight = row.weight;
  const T mean = row.mean, rstd = row.rstd;
  const auto g = [=](auto reader, std::int64_t i) {
    if constexpr (HasWeight)
      return reader.load(dy + i) * reader.load(weight + i);
    else
      return reader.load(dy + i);
  };
  T mean_g = 0, mean_gn = 0, factor = rstd;
  if constexpr (Centred) {
    const TwoSums<T> sums = lane_two_sums<T>(width, g, [=](auto reader, std::int64_t i) {
      return g(reader, i) * ((reader.load(x + i) - mean) * rstd);
    });
    mean_g = sums.first / static_cast<T>(width);
    mean_gn = sums.second / static_cast<T>(width);
    // A row of one element is its own mean: dx is exactly 0, where rounding would leave g - g times a large
    // rstd.
    if (width == 1) factor = T(0);
  } else {
    const T sum_gx = lane_sum<T>(width, [=](auto reader, std::int64_t i) {
      const auto product = reader.load(dy + i) * reader.load(x + i);
      if constexpr (HasWeight)
        return product * reader.load(weight + i);
      else
        return product;
    });
    mean_gn = sum_gx * rstd / static_cast<T>(width);
  }
  const auto gradient = [=](std::int64_t i) __attribute__((always_inline)) {
    const T scaled = HasWeight ? dy[i] * weight[i] : dy[i];
    return factor * (scaled - mean_g - (x[i] - mean) * rstd * mean_gn);
  };
  if (beta == T(0)) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dx[i] = gradient(i);
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dx[i] = beta * dx[i] + gradient(i);
  }
}

// With dsum, copies its row r to dx and returns beta 1, which adds the gradient to it.
template <class T>
EDDY_INLINE T start_dx(const T* dsum, std::int64_t r, T* dx, T beta, std::int64_t width) {
  if (dsum == nullptr) return beta;
  for (std::int64_t i = 0; i < width; ++i) dx[i] = dsum[r * width + i];
  return T(1);
}

// partial = beta * partial; with beta 0 it is not read.
template <class T>
EDDY_INLINE void start_partial(T* partial, T beta, std::int64_t width) {
  if (partial == nullptr || beta == T(1)) return;
  for (std::int64_t i = 0; i < width; ++i) partial[i] = beta == T(0) ? T(0) : beta * partial[i];
}

template <class T>
EDDY_INLINE void add_partials(const BackwardRow<T>& row, T* dweight, T* dbias, std::int64_t width) {
  const T *const dy = row.dy, *const x = row.x;
  const T mean = row.mean, rstd = row.rstd;
  if (dweight != nullptr && dbias != nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      dweight[i] += dy[i] * ((x[i] - mean) * rstd);
      dbias[i] += dy[i];
    }
  } else if (dweight != nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dweight[i] += dy[i] * ((x[i] - mean) * rstd);
  } else if (dbias != nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dbias[i] += dy[i];
  }
}

template <class T, bool Centred>
void backward_rows(const RowNormBackwardArgs& args) {
  const std::int64_t width = args.width;
  const T dx_beta = static_cast<T>(args.dx_beta), partial_beta = static_cast<T>(args.partial_beta);
  const T* const weight = static_cast<const T*>(args.weight);
  const std::int64_t each = norm_block_rows(false, args.rows);
  parallel_for_rows(norm_blocks(kCpu, args.rows), each * width, [=, &args](std::int64_t block) {
    T* const dweight =
        args.dweight_partials == nullptr ? nullptr : static_cast<T*>(args.dweight_partials) + block * width;
    T* const dbias =
        args.dbias_partials == nullptr ? nullptr : static_cast<T*>(args.dbias_partials) + block * width;
    start_partial(dweight, partial_beta, width);
    start_partial(dbias, partial_beta, width);
    const std::int64_t first = block * each;
    const std::int64_t last = first + each < args.rows ? first + each : args.rows;
    for (std::int64_t r = first; r < last; ++r) {
      const BackwardRow<T> row{static_cast<const T*>(args.dy) + r * args.dy_stride,
                               static_cast<const T*>(args.x) + r * args.x_stride, weight,
                               Centred ? static_cast<const T*>(args.mean)[r] : T(0),
                               static_cast<const T*>(args.rstd)[r]};
      // Before dx: it may overwrite dy.
      add_partials(row, dweight, dbias, width);
      if (args.dx == nullptr) continue;
      T* const dx = static_cast<T*>(args.dx) + r * args.dx_stride;
      const T beta = start_dx(static_cast<const T*>(args.dsum), r, dx, dx_beta, width);
      weight != nullptr ? dx_row<T, Centred, true>(row, dx, beta, width)
                        : dx_row<T, Centred, false>(row, dx, beta, width);
    }
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
