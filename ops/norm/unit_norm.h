// Unit vectors: each row of the last axis is divided by its length, for the queries and keys of cosine
// attention.
//   y = x (sum(x^2) + eps)^(-1/2)
// Source: Hutchins et al., "Block-recurrent transformers" (2022), section 3.4, and the authors' code for the
// place of eps.
#pragma once

#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/base/host_device.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns x with each row of the last axis scaled to length 1. A row of zeros stays zero for eps > 0. Size 0
// gives an empty result. Rows that are not evenly spaced are copied once. A row of huge entries, whose squares
// overflow, is scaled first on the CPU and gives zeros on a GPU.
// shapes: x [..., width] -> the same.
// dtypes: f32, f64, bf16.
// errors: ShapeError for a scalar; ValueError unless eps is finite and >= 0; DtypeError.
// grad: with r = (sum(x^2) + eps)^(-1/2) and y = x r,
//   dx = r (dy - y sum(dy y))
Tensor unit_norm(const Tensor& x, double eps = 1e-6);

// A range of an axis: `count` entries from `first`.
struct AxisRange {
  std::int64_t first = 0, count = 0;  // entries
};
// The same for the heads of a fused projection, except the heads in `plain`, which are copied. So queries and
// keys become unit vectors, and values stay.
// shapes: x [..., heads, width] -> the same.
// dtypes: as unit_norm.
// errors: as unit_norm; ShapeError for fewer than two axes or heads that x does not have.
// grad: as unit_norm; dy for plain heads.
Tensor unit_norm_heads(const Tensor& x, double eps, AxisRange plain);

namespace detail {
// Unit vectors without a node, and the factor r of each.
// shapes: y as x, row-major; scale [rows].
// errors: those of unit_norm, naming `op`.
struct UnitRows {
  Tensor y, scale;
};
UnitRows unit_rows(const char* op, const Tensor& x, double eps, std::int64_t heads = 1, AxisRange plain = {});

// Row r of x starts at x + r * x_stride elements; y is row-major. width >= 1.
struct UnitNormArgs {
  Dtype dtype;
  std::int64_t rows, width;
  const void* x;
  std::int64_t x_stride;
  void* y;
  void* scale;  // [rows]: r above, saved for backward; f32 if the dtype is bf16
  double eps;
  // Rows come in groups of `heads`; heads plain_first .. plain_end - 1 are copied, with a scale of 1.
  std::int64_t heads, plain_first, plain_end;
};
// Whether the row belongs to a plain head.
template <class Args>
EDDY_HD_INLINE bool unit_norm_plain(const Args& args, std::int64_t row) {
  const std::int64_t head = row % args.heads;
  return head >= args.plain_first && head < args.plain_end;
}
extern Slot<UnitNormArgs> unit_norm_forward_slot;

// Computes dx = beta * dx + the gradient of x; dx is row-major and is not read when beta is 0.
struct UnitNormBackwardArgs {
  Dtype dtype;
  std::int64_t rows, width;
  const void* dy;
  std::int64_t dy_stride;
  const void* y;  // row-major
  const void* scale;
  void* dx;
  float beta;
  std::int64_t heads, plain_first, plain_end;  // as in UnitNormArgs
};
extern Slot<UnitNormBackwardArgs> unit_norm_backward_slot;
}  // namespace detail

}  // namespace eddy
