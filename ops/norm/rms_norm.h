// Root-mean-square normalisation of the last axis: y = x / sqrt(mean(x^2) + eps) * weight.
// source: Zhang, Sennrich, "Root mean square layer normalization" (2019), equation 4.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "ops/norm/layer_norm.h"
#include "tensor/tensor.h"

namespace eddy {

// x with each row brought to a mean square of 1, then scaled.
// shapes: x [..., width] -> the same; weight [width] or undefined (1).
// dtypes: f32, f64, bf16, one for all; beside bf16 the weight may be f32. A row of zeros stays zero for eps >
// 0. Size 0 gives an empty result.
// errors: ShapeError for a scalar or a weight of another width; ValueError unless eps is finite and >= 0;
// DtypeError; DeviceError.
// grad: with g = dy weight and n = x rstd: dx = rstd (g - n mean(g n)), dweight = sum of dy n over rows.
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-5);

// rms_norm of x plus a table, such as a vector for every place.
// shapes: table of the last axes of x, [..., width], repeated over the leading ones; weight as above.
// dtypes: as above; beside bf16 the table may be f32.
// errors: as above; ShapeError for a table of other sizes.
// grad: as above; dtable = the sum of dy over what repeats.
Tensor rms_norm_add(const Tensor& x, const Tensor& weight, const Tensor& table, double eps = 1e-5);

// x + delta and rms_norm of it, with the bits of add and rms_norm; else as add_layer_norm.
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, double eps = 1e-5);

// Row r of x starts at x + r * x_stride elements, of y at y + r * y_stride. width >= 1.
// aliasing: y may be x with the same stride (no gradient is possible then).
struct RmsNormArgs {
  Dtype dtype;  // of x and y, dy and dx; everything else is f32 where it is bf16
  std::int64_t rows, width;
  const void* x;
  std::int64_t x_stride;
  const void* weight;  // [width] or null
  void* y;
  std::int64_t y_stride;
  void* rstd;  // [rows], kept for the gradient, or null
  double eps;
  // As in LayerNormArgs.
  const void* delta = nullptr;
  std::int64_t delta_stride = 0;
  void* sum = nullptr;
  // Row r of y is the norm plus row r % table_rows of the table, row-major, where there is one.
  const void* table = nullptr;
  std::int64_t table_rows = 1;
};
extern Slot<RmsNormArgs> rms_norm_forward_slot;

// dx and partial sums of dweight, as LayerNormBackwardArgs says.
struct RmsNormBackwardArgs {
  Dtype dtype;
  std::int64_t rows, width;
  const void* dy;
  std::int64_t dy_stride;
  const void* x;
  std::int64_t x_stride;
  const void* weight;  // [width] or null
  const void* rstd;
  void* dx;  // null where it is not wanted
  std::int64_t dx_stride;
  float dx_beta;
  void* dweight_partials;  // [norm_blocks(rows), width], or null
  float partial_beta;
  const void* dsum = nullptr;  // as in LayerNormBackwardArgs
};
extern Slot<RmsNormBackwardArgs> rms_norm_backward_slot;

std::vector<OpSpec> rms_norm_specs();

}  // namespace eddy
