// Unit vectors: each row of the last axis divided by its length, x (sum x^2 + eps)^(-1/2). The queries and
// keys of cosine attention.
// source: Hutchins et al., "Block-recurrent transformers" (2022), section 3.4, and the authors' code for the
// place of eps.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "tensor/base/host_device.h"
#include "tensor/tensor.h"

namespace eddy {

// x with each row of the last axis brought to a length of 1; a row of zeros stays zero for eps > 0.
// shapes: x [..., width] -> the same; rows may lie anywhere as long as they are evenly spaced, else x is
// copied once. Size 0 gives an empty result.
// dtypes: f32, f64, bf16.
// errors: ShapeError for a scalar; ValueError unless eps is finite and >= 0; DtypeError.
// grad: with r = (sum x^2 + eps)^(-1/2) and n = x r: dx = r (dy - n sum(dy n)).
Tensor unit_norm(const Tensor& x, double eps = 1e-6);

// Entries of an axis: `count` from `first` on.
struct AxisRange {
  std::int64_t first = 0, count = 0;
};
// The same for the heads of one projection, of which those in `plain` stay as they are: its queries and keys
// become unit vectors beside its values.
// shapes: x [..., heads, width] -> the same. dtypes, errors: as unit_norm; ShapeError for fewer axes than two
// or heads that x does not have.
// grad: as unit_norm; dy for plain heads.
Tensor unit_norm_heads(const Tensor& x, double eps, AxisRange plain);

// Row r of x starts at x + r * x_stride elements; y is row-major. width >= 1.
struct UnitNormArgs {
  Dtype dtype;
  std::int64_t rows, width;
  const void* x;
  std::int64_t x_stride;
  void* y;
  void* scale;  // [rows]: r above, kept for the gradient; f32 where the dtype is bf16
  double eps;
  // Rows come in groups of `heads`; those of heads plain_first .. plain_end - 1 are copied, with a scale
  // of 1.
  std::int64_t heads, plain_first, plain_end;
};
// Whether row r is one of those that stay as they are.
template <class Args>
EDDY_HD_INLINE bool unit_norm_plain(const Args& args, std::int64_t row) {
  const std::int64_t head = row % args.heads;
  return head >= args.plain_first && head < args.plain_end;
}
extern Slot<UnitNormArgs> unit_norm_forward_slot;

// dx = beta * dx + its gradient; dx is row-major and is not read when beta is 0.
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

struct OpSpec;
std::vector<OpSpec> unit_norm_specs();

}  // namespace eddy
