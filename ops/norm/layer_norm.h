// Layer normalisation of the last axis: y = (x - mean) / sqrt(variance + eps) * weight + bias, with the
// biased variance.
// source: Ba, Kiros, Hinton, "Layer normalization" (2016), equation 4.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// x with each row brought to mean 0 and variance 1, then scaled and shifted.
// shapes: x [..., width] -> the same; weight and bias [width], either may be undefined (1 and 0).
// dtypes: f32, f64, bf16, one for all; beside bf16 weight and bias may be f32. A row of equal elements gives
// the bias for eps > 0. Size 0 gives an empty result.
// errors: ShapeError for a scalar or for a weight or bias of another width; ValueError unless eps is finite
// and >= 0; DtypeError; DeviceError.
// grad: with g = dy weight and n = (x - mean) rstd: dx = rstd (g - mean(g)
// - n mean(g n)), dweight = sum of dy n over rows, dbias = sum of dy over rows.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, double eps = 1e-5);

// x + delta, and its norm: the residual stream and what the next part of a layer reads, in one pass.
struct SumAndNorm {
  Tensor sum, norm;  // of x's shape
};

// x + delta and layer_norm of it, with the bits of add and layer_norm.
// shapes: delta as x. dtypes, errors: those of add and layer_norm; ShapeError when the shapes differ.
// grad: both summands get dsum + the gradient that layer_norm passes on.
SumAndNorm add_layer_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, const Tensor& bias = {},
                          double eps = 1e-5);

// Rows that share one partial sum of dweight and dbias: enough to make the last sum cheap, few enough to
// share out.
constexpr std::int64_t kNormBlockRows = 64;
constexpr std::int64_t norm_blocks(std::int64_t rows) {
  return (rows + kNormBlockRows - 1) / kNormBlockRows;
}

// Row r of x starts at x + r * x_stride elements, of y at y + r * y_stride; so the rows of one time step of
// [batch, time, width] need no copy. width >= 1.
// aliasing: y may be x with the same stride (no gradient is possible then).
struct LayerNormArgs {
  Dtype dtype;  // of x and y, dy and dx; everything else is f32 where it is bf16
  std::int64_t rows, width;
  const void* x;
  std::int64_t x_stride;
  const void *weight, *bias;  // [width] or null
  void* y;
  std::int64_t y_stride;
  void *mean, *rstd;  // [rows], kept for the gradient; both null where none is wanted
  double eps;
  // With delta, the rows normalised are x + delta, which are written to sum [rows, width].
  const void* delta = nullptr;
  std::int64_t delta_stride = 0;
  void* sum = nullptr;
};
extern Slot<LayerNormArgs> layer_norm_forward_slot;

// dx = dx_beta * dx + its gradient, and one partial sum of dweight and dbias for each kNormBlockRows rows:
// partial[b] = partial_beta * partial[b] + the sum over the rows of block b. Finish with sum_into(dweight,
// partials, beta). A recurrence calls this once per time step with the same partials, partial_beta 0 at its
// first call and 1 after.
// aliasing: dx may be dy with the same stride; else outputs overlap nothing.
struct LayerNormBackwardArgs {
  Dtype dtype;
  std::int64_t rows, width;
  const void* dy;
  std::int64_t dy_stride;
  const void* x;
  std::int64_t x_stride;
  const void* weight;  // [width] or null
  const void *mean, *rstd;
  void* dx;  // null where it is not wanted
  std::int64_t dx_stride;
  float dx_beta;
  void *dweight_partials,
      *dbias_partials;  // [norm_blocks(rows), width]; each null where not wanted
  float partial_beta;
  const void* dsum = nullptr;  // [rows, width] or null: dx = dsum + its gradient, with dx_beta 0
};
extern Slot<LayerNormBackwardArgs> layer_norm_backward_slot;

struct OpSpec;
std::vector<OpSpec> layer_norm_specs();

}  // namespace eddy
