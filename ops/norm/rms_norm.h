// Root-mean-square normalisation of the last axis:
//   y = x / sqrt(mean(x^2) + eps) * weight
// Source: Zhang, Sennrich, "Root mean square layer normalization" (2019), equation 4.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "ops/norm/layer_norm.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns x with each row normalised to a mean square of 1, then scaled. A row of zeros stays zero for eps >
// 0. Size 0 gives an empty result.
// shapes: x [..., width] -> the same; weight [width] or undefined (1).
// dtypes: f32, f64, bf16, one for all; beside bf16 the weight may be f32.
// errors: ShapeError for a scalar or a weight of another width; ValueError unless eps is finite and >= 0;
// DtypeError; DeviceError.
// grad: with g = dy weight and n = x rstd,
//   dx      = rstd (g - n mean(g n))
//   dweight = sum of dy n over rows
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-5);

// Returns rms_norm(x) + table, for example with one vector of the table for each position.
// shapes: table has the last axes of x, [..., width], and repeats over the leading axes; weight as rms_norm.
// dtypes: as rms_norm; beside bf16 the table may be f32.
// errors: as rms_norm; ShapeError for a table of other sizes.
// grad: as rms_norm; dtable = the sum of dy over the leading axes.
Tensor rms_norm_add(const Tensor& x, const Tensor& weight, const Tensor& table, double eps = 1e-5);

// Returns x + delta and rms_norm(x + delta), with the same bits as add and rms_norm; else as add_layer_norm.
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, double eps = 1e-5);

// Row r of x starts at x + r * x_stride elements, of y at y + r * y_stride. width >= 1.
// aliasing: y may be x with the same stride (then without a gradient).
struct RmsNormArgs {
  Dtype dtype;  // of x, y, delta, sum and their gradients; if bf16, everything else is f32
  std::int64_t rows, width;
  const void* x;
  std::int64_t x_stride;
  const void* weight;  // [width] or null
  void* y;
  std::int64_t y_stride;
  void* rstd;  // [rows], saved for backward, or null
  double eps;
  // As in LayerNormArgs.
  const void* delta = nullptr;
  std::int64_t delta_stride = 0;
  void* sum = nullptr;
  // With a table (row-major), adds its row r % table_rows to row r of y.
  const void* table = nullptr;
  std::int64_t table_rows = 1;
};
extern Slot<RmsNormArgs> rms_norm_forward_slot;

// Computes dx and partial sums of dweight, as LayerNormBackwardArgs.
struct RmsNormBackwardArgs {
  Dtype dtype;
  std::int64_t rows, width;
  const void* dy;
  std::int64_t dy_stride;
  const void* x;
  std::int64_t x_stride;
  const void* weight;  // [width] or null
  const void* rstd;
  void* dx;  // null if not needed
  std::int64_t dx_stride;
  float dx_beta;
  void* dweight_partials;  // [norm_blocks(rows), width], or null
  float partial_beta;
  const void* dsum = nullptr;  // as in LayerNormBackwardArgs
};
extern Slot<RmsNormBackwardArgs> rms_norm_backward_slot;

std::vector<OpSpec> rms_norm_specs();

}  // namespace eddy
