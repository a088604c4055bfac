// Root-mean-square normalisation of the last axis:
//   y = x / sqrt(mean(x^2) + eps) * weight
// Source: Zhang, Sennrich, "Root mean square layer normalization" (2019), equation 4.
#pragma once

#include "ops/norm/row_norm.h"
#include "ops/product/linear.h"

namespace eddy {

// Returns x with each row normalised to a mean square of 1, then scaled. For eps > 0 a row of zeros stays
// zero. Size 0 gives an empty result.
// shapes: x [..., width] -> the same; weight [width] or undefined (1).
// dtypes: f32, f64, bf16, one for all; beside bf16 the weight may be f32.
// errors: ShapeError for a scalar or a weight of another width; ValueError unless eps is finite and >= 0;
// DtypeError; DeviceError.
// grad: with g = dy weight and n = x rstd,
//   dx      = rstd (g - n mean(g n))
//   dweight = sum of dy n over rows
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-5);

// Returns rms_norm(x) + table. The table can have, for example, one vector for each position.
// shapes: table has the last axes of x, [..., width], and repeats over the leading axes; weight as rms_norm.
// dtypes: as rms_norm; beside bf16 the table may be f32.
// errors: as rms_norm; ShapeError for a table of other sizes.
// grad: as rms_norm; dtable = the sum of dy over the leading axes.
Tensor rms_norm_add(const Tensor& x, const Tensor& weight, const Tensor& table, double eps = 1e-5);

// Returns x + delta and rms_norm(x + delta), bit-identical to add and rms_norm. Otherwise as add_layer_norm.
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, double eps = 1e-5);

// The same for a linear layer's result, as for add_layer_norm.
SumAndNorm add_rms_norm(const Tensor& x, const LinearTerm& delta, const Tensor& weight, double eps = 1e-5);

namespace detail {
extern Slot<RowNormArgs> rms_norm_forward_slot;
extern Slot<RowNormBackwardArgs> rms_norm_backward_slot;
}  // namespace detail

}  // namespace eddy
