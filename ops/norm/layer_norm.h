// Layer normalisation of the last axis, with the biased variance:
//   y = (x - mean) / sqrt(variance + eps) * weight + bias
// Source: Ba, Kiros, Hinton, "Layer normalization" (2016), equation 4.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns x with each row normalised to mean 0 and variance 1, then scaled and shifted. A row of equal
// elements gives the bias for eps > 0. Size 0 gives an empty result.
// shapes: x [..., width] -> the same; weight and bias [width], either may be undefined (1 and 0).
// dtypes: f32, f64, bf16, one for all; beside bf16 weight and bias may be f32.
// errors: ShapeError for a scalar or for a weight or bias of another width; ValueError unless eps is finite
// and >= 0; DtypeError; DeviceError.
// grad: with g = dy weight and n = (x - mean) rstd,
//   dx      = rstd (g - mean(g) - n mean(g n))
//   dweight = sum of dy n over rows
//   dbias   = sum of dy over rows
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, double eps = 1e-5);

// x + delta and its norm, computed in one pass: the residual stream and the input of the next sublayer.
struct SumAndNorm {
  Tensor sum, norm;  // of x's shape
};

// Returns x + delta and layer_norm(x + delta), with the same bits as add and layer_norm.
// shapes: delta as x.
// dtypes: as add and layer_norm.
// errors: as add and layer_norm; ShapeError when the shapes differ.
// grad: both summands get dsum + the dx of layer_norm.
SumAndNorm add_layer_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, const Tensor& bias = {},
                          double eps = 1e-5);

// Rows in one partial sum of dweight and dbias: many enough to make the final sum cheap, few enough to give
// every thread some.
constexpr std::int64_t kNormBlockRows = 64;
constexpr std::int64_t norm_blocks(std::int64_t rows) {
  return (rows + kNormBlockRows - 1) / kNormBlockRows;
}

// Row r of x starts at x + r * x_stride elements, of y at y + r * y_stride, so the rows of one time step of
// [batch, time, width] need no copy. width >= 1.
// aliasing: y may be x with the same stride (then without a gradient).
struct LayerNormArgs {
  Dtype dtype;  // of x, y, delta, sum and their gradients; if bf16, everything else is f32
  std::int64_t rows, width;
  const void* x;
  std::int64_t x_stride;
  const void *weight, *bias;  // [width] or null
  void* y;
  std::int64_t y_stride;
  void *mean, *rstd;  // [rows], saved for backward; both null without a gradient
  double eps;
  // With delta, normalises x + delta, which is written to sum [rows, width].
  const void* delta = nullptr;
  std::int64_t delta_stride = 0;
  void* sum = nullptr;
};
extern Slot<LayerNormArgs> layer_norm_forward_slot;

// Computes dx, and one partial sum of dweight and dbias for each block b of kNormBlockRows rows:
//   dx         = dx_beta * dx + the gradient of x
//   partial[b] = partial_beta * partial[b] + the sum over the rows of block b
// sum_into(dweight, partials, beta) completes dweight. A recurrence calls this once per time step with the
// same partials, with partial_beta 0 at the first call and 1 afterwards.
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
  void* dx;  // null if not needed
  std::int64_t dx_stride;
  float dx_beta;
  void *dweight_partials, *dbias_partials;  // [norm_blocks(rows), width]; each null if not needed
  float partial_beta;
  const void* dsum = nullptr;  // [rows, width] or null: dx = dsum + the gradient of x, with dx_beta 0
};
extern Slot<LayerNormBackwardArgs> layer_norm_backward_slot;

struct OpSpec;
std::vector<OpSpec> layer_norm_specs();

}  // namespace eddy
