// Softmax and log-softmax over the last axis: y = exp(x - max x) / sum exp(x - max x). The maximum is
// subtracted first, so nothing overflows. Scores may be hidden by a causal rule, by a mask, or both; hidden
// entries are never read into a sum, so even a NaN there does no harm.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/slot.h"
#include "tensor/tensor.h"

namespace eddy {

enum class SoftmaxMode : std::uint8_t {
  plain,
  causal,  // the last two axes are [queries, keys]: query j sees the keys k <= j + (keys - queries)
};

// The weights that sum to 1 over the last axis.
// shapes: x [..., width] -> the same; mask (may be undefined) u8, broadcasts to x's shape, 1 = allowed.
// A hidden entry is exactly 0, and a row with nothing visible, or with -inf only, is all 0 and passes no
// gradient. dtypes: f32, f64. errors: ShapeError for a scalar, for causal mode with one axis, for a mask that
// does not broadcast; DtypeError; DeviceError. grad: dx = y (dy - sum(dy y)); none for the mask.
Tensor softmax(const Tensor& x, SoftmaxMode mode = SoftmaxMode::plain, const Tensor& mask = {});

// The logarithm of softmax over the last axis, x - max x - log(sum exp(x - max x)).
// shapes: x [..., width] -> the same. dtypes: f32, f64. errors: ShapeError for a scalar; DtypeError.
// grad: dx = dy - exp(y) sum(dy).
Tensor log_softmax(const Tensor& x);

// All row-major, [rows, width]. With `causal`, row r is query r mod queries and sees its first
// r mod queries + 1 + width - queries entries.
struct SoftmaxArgs {
  Dtype dtype;
  bool causal;
  std::int64_t rows, width, queries;
  const void* x;
  // 1 = allowed, or null. Row r's entries lie side by side; the leading axes give its place, 0 strides where
  // it repeats.
  const std::uint8_t* mask;
  int mask_rank;  // leading axes
  std::int64_t mask_shape[6], mask_strides[6];
  void* y;
};
extern Slot<SoftmaxArgs> softmax_forward_slot;

// dx = beta * dx + y (dy - sum(dy y)), where only entries with y != 0 count; dx is not read when beta is 0.
struct SoftmaxBackwardArgs {
  Dtype dtype;
  bool causal;  // leaves out the hidden entries' arithmetic
  std::int64_t rows, width, queries;
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

struct OpSpec;
std::vector<OpSpec> softmax_specs();

}  // namespace eddy
