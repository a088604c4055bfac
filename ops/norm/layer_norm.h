// Layer normalisation of the last axis, with the biased variance:
//   y = (x - mean) / sqrt(variance + eps) * weight + bias
// Source: Ba, Kiros, Hinton, "Layer normalization" (2016), equation 4.
#pragma once

#include "ops/norm/row_norm.h"
#include "ops/product/linear.h"

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

// Returns x + delta and layer_norm(x + delta), bit-identical to add and layer_norm.
// shapes: delta as x.
// dtypes: as add and layer_norm.
// errors: as add and layer_norm; ShapeError when the shapes differ.
// grad: both summands get dsum + the dx of layer_norm.
SumAndNorm add_layer_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, const Tensor& bias = {},
                          double eps = 1e-5);

// The same for a linear layer's result: where the product can add it to x, the norm reads the sum alone.
SumAndNorm add_layer_norm(const Tensor& x, const LinearTerm& delta, const Tensor& weight,
                          const Tensor& bias = {}, double eps = 1e-5);

namespace detail {
extern Slot<RowNormArgs> layer_norm_forward_slot;
extern Slot<RowNormBackwardArgs> layer_norm_backward_slot;
}  // namespace detail

}  // namespace eddy
