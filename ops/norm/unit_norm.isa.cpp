// CPU kernels of unit_norm. A row is the query or key of one head and stays in the L1 cache for both passes.
#include "ops/norm/unit_norm.h"

#include <math.h>

#include "ops/cpu/isa.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/vec_math.h"

namespace eddy::EDDY_ISA {
namespace {

// The factor of a row whose squares overflow; eps does not count beside them.
template <class T>
__attribute__((noinline, cold)) T factor_of_huge(const T* x, std::int64_t width) {
  const T squares = lane_sum<T>(width, [x](auto reader, std::int64_t i) {
    const auto value = kShrink<T> * reader.load(x + i);
    return value * value;
  });
  return kShrink<T> / vec::sqrt(squares);
}

template <class T>
void forward_kernel(const UnitNormArgs& args) {
  const std::int64_t width = args.width;
  const T eps = static_cast<T>(args.eps);
  parallel_for_rows(args.rows, width, [=, &args](std::int64_t row) {
    const T* const x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* const y = static_cast<T*>(args.y) + row * width;
    const T squares = lane_sum<T>(width, [x](auto reader, std::int64_t i) {
      const auto value = reader.load(x + i);
      return value * value;
    });
    const T scale = unit_norm_plain(args, row) ? T(1)
                    : squares < T(INFINITY)    ? T(1) / vec::sqrt(squares + eps)
                                               : factor_of_huge(x, width);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) y[i] = x[i] * scale;
    static_cast<T*>(args.scale)[row] = scale;
  });
}

template <class T>
void backward_kernel(const UnitNormBackwardArgs& args) {
  const std::int64_t width = args.width;
  const T beta = static_cast<T>(args.beta);
  parallel_for_rows(args.rows, width, [=, &args](std::int64_t row) {
    const T* const dy = static_cast<const T*>(args.dy) + row * args.dy_stride;
    const T* const y = static_cast<const T*>(args.y) + row * width;
    T* const dx = static_cast<T*>(args.dx) + row * width;
    const T scale = static_cast<const T*>(args.scale)[row];
    const T dy_y = unit_norm_plain(args, row) ? T(0) : lane_sum<T>(width, [=](auto reader, std::int64_t i) {
      return reader.load(dy + i) * reader.load(y + i);
    });
    if (beta == T(0)) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < width; ++i) dx[i] = scale * (dy[i] - y[i] * dy_y);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < width; ++i) dx[i] = beta * dx[i] + scale * (dy[i] - y[i] * dy_y);
    }
  });
}

}  // namespace

EDDY_CPU_KERNEL(unit_norm_forward, forward_kernel)
EDDY_CPU_KERNEL(unit_norm_backward, backward_kernel)

}  // namespace eddy::EDDY_ISA
