// CPU kernels of root-mean-square normalisation. A row stays in the L1 cache for its passes, as in
// layer_norm.isa.cpp.
#include "ops/norm/rms_norm.h"

#include "ops/cpu/isa.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/vec_math.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
void install_rms_norm();

namespace {

constexpr std::int64_t kChunk = 1 << 14;  // elements that pay for handing a chunk to a thread

EDDY_INLINE std::int64_t items_per_chunk(std::int64_t elements_per_item) {
  return elements_per_item >= kChunk ? 1 : kChunk / elements_per_item;
}

template <class T>
void forward_kernel(const RmsNormArgs& args) {
  const T* const weight = static_cast<const T*>(args.weight);
  T* const rstds = static_cast<T*>(args.rstd);
  const std::int64_t width = args.width;
  const T count = static_cast<T>(width), eps = static_cast<T>(args.eps);
  parallel_for(args.rows, items_per_chunk(width), [=, &args](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
      if (args.delta != nullptr) {
        const T *const first = x, *const second = static_cast<const T*>(args.delta) + row * args.delta_stride;
        T* const sum = static_cast<T*>(args.sum) + row * width;
#pragma GCC ivdep
        for (std::int64_t i = 0; i < width; ++i) sum[i] = first[i] + second[i];
        x = sum;
      }
      T* const y = static_cast<T*>(args.y) + row * args.y_stride;
      const T squares = lane_sum<T>(width, [x](auto reader, std::int64_t i) {
        const auto value = reader.load(x + i);
        return value * value;
      });
      const T rstd = T(1) / vec::sqrt(squares / count + eps);
      if (weight != nullptr) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < width; ++i) y[i] = x[i] * rstd * weight[i];
      } else {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < width; ++i) y[i] = x[i] * rstd;
      }
      if (args.table != nullptr) {
        const T* const place = static_cast<const T*>(args.table) + row % args.table_rows * width;
#pragma GCC ivdep
        for (std::int64_t i = 0; i < width; ++i) y[i] += place[i];
      }
      if (rstds != nullptr) rstds[row] = rstd;
    }
  });
}

template <class T, bool HasWeight>
EDDY_INLINE void dx_row(const T* dy, const T* x, const T* weight, T rstd, T* dx, T beta, std::int64_t width) {
  const T sum_gx = lane_sum<T>(width, [=](auto reader, std::int64_t i) {
    const auto product = reader.load(dy + i) * reader.load(x + i);
    if constexpr (HasWeight)
      return product * reader.load(weight + i);
    else
      return product;
  });
  const T mean_gn = sum_gx * rstd / static_cast<T>(width);
  const auto gradient = [=](std::int64_t i) __attribute__((always_inline)) {
    const T scaled = HasWeight ? dy[i] * weight[i] : dy[i];
    return rstd * (scaled - x[i] * rstd * mean_gn);
  };
  if (beta == T(0)) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dx[i] = gradient(i);
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dx[i] = beta * dx[i] + gradient(i);
  }
}

template <class T>
void backward_kernel(const RmsNormBackwardArgs& args) {
  const std::int64_t width = args.width;
  const T dx_beta = static_cast<T>(args.dx_beta), partial_beta = static_cast<T>(args.partial_beta);
  const T* const weight = static_cast<const T*>(args.weight);
  const auto run_block = [=, &args](std::int64_t block) {
    T* const dweight =
        args.dweight_partials == nullptr ? nullptr : static_cast<T*>(args.dweight_partials) + block * width;
    if (dweight != nullptr && partial_beta != T(1)) {
      for (std::int64_t i = 0; i < width; ++i)
        dweight[i] = partial_beta == T(0) ? T(0) : partial_beta * dweight[i];
    }
    const std::int64_t first = block * kNormBlockRows;
    const std::int64_t last = first + kNormBlockRows < args.rows ? first + kNormBlockRows : args.rows;
    for (std::int64_t row = first; row < last; ++row) {
      const T* const dy = static_cast<const T*>(args.dy) + row * args.dy_stride;
      const T* const x = static_cast<const T*>(args.x) + row * args.x_stride;
      const T rstd = static_cast<const T*>(args.rstd)[row];
      // Before dx: it may overwrite dy.
      if (dweight != nullptr) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < width; ++i) dweight[i] += dy[i] * (x[i] * rstd);
      }
      if (args.dx == nullptr) continue;
      T* const dx = static_cast<T*>(args.dx) + row * args.dx_stride;
      T beta = dx_beta;
      if (args.dsum != nullptr) {  // the gradient is added to it
        const T* const dsum = static_cast<const T*>(args.dsum) + row * width;
        for (std::int64_t i = 0; i < width; ++i) dx[i] = dsum[i];
        beta = T(1);
      }
      weight != nullptr ? dx_row<T, true>(dy, x, weight, rstd, dx, beta, width)
                        : dx_row<T, false>(dy, x, weight, rstd, dx, beta, width);
    }
  };
  parallel_for(norm_blocks(args.rows), items_per_chunk(kNormBlockRows * width),
               [&run_block](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t block = begin; block < end; ++block) run_block(block);
               });
}

}  // namespace

void install_rms_norm() {
  install_cpu(rms_norm_forward_slot, forward_kernel<float>, EDDY_F64(forward_kernel<double>));
  install_cpu(rms_norm_backward_slot, backward_kernel<float>, EDDY_F64(backward_kernel<double>));
}

}  // namespace eddy::EDDY_ISA
