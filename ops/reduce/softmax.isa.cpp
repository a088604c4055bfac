// CPU kernels of softmax. A row stays in the L1 cache for its three passes (maximum, exp and sum, scale), so
// memory sees one read and one write. The backward pass reads dy and y twice from the cache.
#include "ops/reduce/softmax.h"

#include <math.h>

#include "ops/cpu/isa.h"
#include "ops/cpu/row_exp.h"
#include "ops/cpu/rows.h"

namespace eddy::EDDY_ISA {
namespace {

// y = exp(x - max) / sum over n >= 1 entries; hidden entries are 0. x may be y.
template <class T>
EDDY_INLINE void softmax_row(const T* x, T* y, std::int64_t n) {
  const T top = lane_max(x, n);
  if (top == T(-INFINITY)) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = T(0);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) y[i] = vec::exp(x[i] - top);
  const T sum = lane_sum<T>(n, [y](auto reader, std::int64_t i) { return reader.load(y + i); });
  const T scale = T(1) / sum;
  for (std::int64_t i = 0; i < n; ++i) y[i] *= scale;
}

template <class T>
void softmax_kernel(const SoftmaxArgs& args) {
  const T* const all_x = static_cast<const T*>(args.x);
  T* const all_y = static_cast<T*>(args.y);
  parallel_for_rows(args.rows, args.width, [=, &args](std::int64_t row) {
    const SoftmaxSpan seen = softmax_span(args.band, row, args.width);
    const std::int64_t visible = seen.end - seen.begin;
    T* const whole_y = all_y + row * args.width;
    for (std::int64_t i = 0; i < seen.begin; ++i) whole_y[i] = T(0);
    for (std::int64_t i = seen.end; i < args.width; ++i) whole_y[i] = T(0);
    if (visible == 0) return;
    const T* scores = all_x + row * args.width + seen.begin;
    T* const y = whole_y + seen.begin;
    if (args.bias != nullptr) {
      const T* const bias =
          static_cast<const T*>(args.bias) + softmax_row_offset(args, args.bias_strides, row) + seen.begin;
      for (std::int64_t i = 0; i < visible; ++i) y[i] = scores[i] + bias[i];
      scores = y;
    }
    if (args.mask == nullptr) {
      softmax_row(scores, y, visible);
      return;
    }
    const std::uint8_t* const mask =
        args.mask + softmax_row_offset(args, args.mask_strides, row) + seen.begin;
    for (std::int64_t i = 0; i < visible; ++i) y[i] = mask[i] != 0 ? scores[i] : T(-INFINITY);
    softmax_row(y, y, visible);
    // A visible +inf or NaN makes the row NaN; hidden entries stay 0 even then.
    for (std::int64_t i = 0; i < visible; ++i) y[i] = mask[i] != 0 ? y[i] : T(0);
  });
}

template <class T>
void softmax_backward_kernel(const SoftmaxBackwardArgs& args) {
  const T* const all_dy = static_cast<const T*>(args.dy);
  const T* const all_y = static_cast<const T*>(args.y);
  T* const all_dx = static_cast<T*>(args.dx);
  const T beta = static_cast<T>(args.beta);
  parallel_for_rows(args.rows, args.width, [=, &args](std::int64_t row) {
    const SoftmaxSpan seen = softmax_span(args.band, row, args.width);
    const std::int64_t visible = seen.end - seen.begin;
    const T* const dy = all_dy + row * args.width + seen.begin;
    const T* const y = all_y + row * args.width + seen.begin;
    T* const whole_dx = all_dx + row * args.width;
    T* const dx = whole_dx + seen.begin;
    // Testing y keeps an infinite dy of a hidden entry out of the sum.
    const T inner = lane_sum<T>(visible, [dy, y](auto reader, std::int64_t i) {
      const auto weight = reader.load(y + i);
      const auto product = weight * reader.load(dy + i);
      return weight == T(0) ? weight : product;
    });
    if (beta == T(0)) {
      for (std::int64_t i = 0; i < seen.begin; ++i) whole_dx[i] = T(0);
      for (std::int64_t i = 0; i < visible; ++i) dx[i] = y[i] == T(0) ? T(0) : y[i] * (dy[i] - inner);
      for (std::int64_t i = seen.end; i < args.width; ++i) whole_dx[i] = T(0);
    } else {
      for (std::int64_t i = 0; i < seen.begin; ++i) whole_dx[i] *= beta;
      for (std::int64_t i = 0; i < visible; ++i)
        dx[i] = beta * dx[i] + (y[i] == T(0) ? T(0) : y[i] * (dy[i] - inner));
      for (std::int64_t i = seen.end; i < args.width; ++i) whole_dx[i] *= beta;
    }
  });
}

template <class T>
void log_softmax_kernel(const LogSoftmaxArgs& args) {
  const std::int64_t width = args.width;
  const T* const all_x = static_cast<const T*>(args.x);
  T* const all_y = static_cast<T*>(args.y);
  parallel_for_rows(args.rows, width, [=](std::int64_t row) {
    const T* const x = all_x + row * width;
    T* const y = all_y + row * width;
    const T top = lane_max(x, width);
    const T log_sum = vec::log(sum_of_exp(x, width, top));
    for (std::int64_t i = 0; i < width; ++i) y[i] = (x[i] - top) - log_sum;
  });
}

template <class T>
void log_softmax_backward_kernel(const LogSoftmaxBackwardArgs& args) {
  const std::int64_t width = args.width;
  const T* const all_dy = static_cast<const T*>(args.dy);
  const T* const all_y = static_cast<const T*>(args.y);
  T* const all_dx = static_cast<T*>(args.dx);
  const T beta = static_cast<T>(args.beta);
  parallel_for_rows(args.rows, width, [=](std::int64_t row) {
    const T* const dy = all_dy + row * width;
    const T* const y = all_y + row * width;
    T* const dx = all_dx + row * width;
    const T total = lane_sum<T>(width, [dy](auto reader, std::int64_t i) { return reader.load(dy + i); });
    if (beta == T(0)) {
      for (std::int64_t i = 0; i < width; ++i) dx[i] = dy[i] - vec::exp(y[i]) * total;
    } else {
      for (std::int64_t i = 0; i < width; ++i) dx[i] = beta * dx[i] + (dy[i] - vec::exp(y[i]) * total);
    }
  });
}

}  // namespace

EDDY_CPU_KERNEL(softmax_forward, softmax_kernel)
EDDY_CPU_KERNEL(softmax_backward, softmax_backward_kernel)
EDDY_CPU_KERNEL(log_softmax_forward, log_softmax_kernel)
EDDY_CPU_KERNEL(log_softmax_backward, log_softmax_backward_kernel)

}  // namespace eddy::EDDY_ISA
