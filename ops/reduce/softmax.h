// Softmax and log-softmax over the last axis:
//   softmax(x)     = exp(x - max x) / sum(exp(x - max x))
//   log_softmax(x) = x - max x - log(sum(exp(x - max x)))
// Subtracting the maximum prevents overflow. Softmax can add a bias to the scores, and can hide entries by a
// band mask (such as a causal mask), by a mask tensor, or by both. Hidden entries enter no sum, so even a NaN
// there is harmless.
#pragma once

#include <cstdint>

#include "ops/core/attention_band.h"
#include "ops/core/slot.h"
#include "tensor/base/host_device.h"
#include "tensor/tensor.h"

namespace eddy {

// With a band or `causal`, the last two axes of x are [queries, keys].
struct SoftmaxOptions {
  bool causal = false;      // the same as band.least = 0
  AttentionBand band = {};  // hides the keys at other distances
  Tensor mask = {};         // may be undefined; u8, broadcasts to x's shape, 1 = allowed
  Tensor bias = {};         // may be undefined; added to x, broadcasts to x's shape, differentiable
};

// Returns the softmax of x + bias over the last axis. A hidden entry is exactly 0. A row without visible
// entries, or with only -inf, gives zeros and passes no gradient.
// shapes: x [..., width] -> the same.
// dtypes: f32, f64 and bf16; beside bf16 the bias may be f32.
// errors: ShapeError for a scalar, for a band with one axis, for a mask or a bias that does not broadcast;
// ValueError for a band that holds no distance; DtypeError; DeviceError.
// grad: dx = y (dy - sum(dy y)); dbias = dx summed over the broadcast axes; none for the mask.
Tensor softmax(const Tensor& x, const SoftmaxOptions& options = {});

// Returns the logarithm of softmax over the last axis.
// shapes: x [..., width] -> the same.
// dtypes: f32, f64 and bf16, which is computed in f32.
// errors: ShapeError for a scalar; DtypeError.
// grad: dx = dy - exp(y) sum(dy).
Tensor log_softmax(const Tensor& x);

namespace detail {
// A band over [rows, width]: row r is query j = r mod queries and sees the entries j + first .. j + end - 1.
// Without a band, queries is 1, first 0 and end width.
struct SoftmaxBand {
  std::int64_t queries, first, end;  // as above
};
// The entries of a row that are visible.
struct SoftmaxSpan {
  std::int64_t begin, end;  // begin <= end
};
// Returns what row `row` sees of a band; begin and end are 0 if that is nothing.
EDDY_HD_INLINE SoftmaxSpan softmax_span(const SoftmaxBand& band, std::int64_t row, std::int64_t width) {
  const std::int64_t query = band.queries == 1 ? 0 : row % band.queries;
  const std::int64_t begin = query + band.first, end = query + band.end;
  const SoftmaxSpan span{begin < 0 ? 0 : begin, end > width ? width : end};
  return span.begin < span.end ? span : SoftmaxSpan{0, 0};
}

// All row-major, [rows, width].
struct SoftmaxArgs {
  Dtype dtype;
  std::int64_t rows, width;
  SoftmaxBand band;
  const void* x;
  const std::uint8_t* mask;  // 1 = allowed, or null
  const void* bias;          // or null
  // Where row r of mask and bias is: its entries are adjacent, and its offset follows from the leading axes
  // of x, with stride 0 on axes where it repeats.
  int leading;  // axes
  std::int64_t shape[6], mask_strides[6], bias_strides[6];
  void* y;
};
// Returns where a row of the mask or the bias begins.
EDDY_HD_INLINE std::int64_t softmax_row_offset(const SoftmaxArgs& args, const std::int64_t* strides,
                                               std::int64_t row) {
  std::int64_t offset = 0;
  for (int i = args.leading - 1; i >= 0; --i) {
    offset += row % args.shape[i] * strides[i];
    row /= args.shape[i];
  }
  return offset;
}
extern Slot<SoftmaxArgs> softmax_forward_slot;

// dx = beta * dx + y (dy - sum(dy y)), where only entries with y != 0 count; dx is not read when beta is 0.
struct SoftmaxBackwardArgs {
  Dtype dtype;
  std::int64_t rows, width;
  SoftmaxBand band;  // to skip the arithmetic of hidden entries
  const void *dy, *y;
  void* dx;
  float beta;
};
extern Slot<SoftmaxBackwardArgs> softmax_backward_slot;

struct LogSoftmaxArgs {
  Dtype dtype;
  std::int64_t rows, width;
  const void* x;
  void* y;
};
extern Slot<LogSoftmaxArgs> log_softmax_forward_slot;

// dx = beta * dx + dy - exp(y) sum(dy).
struct LogSoftmaxBackwardArgs {
  Dtype dtype;
  std::int64_t rows, width;
  const void *dy, *y;
  void* dx;
  float beta;
};
extern Slot<LogSoftmaxBackwardArgs> log_softmax_backward_slot;
}  // namespace detail

}  // namespace eddy
