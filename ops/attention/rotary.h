// Rotary position embedding: pairs of neighbouring entries of a head turn by an angle that grows with the
// position, so that the product of a query and a key depends on their distance alone.
// source: Su et al., "RoFormer" (2021), equation 34; the pairs are interleaved as there: (0, 1), (2, 3), ...
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// x with the pair (2i, 2i + 1) of every head at position p turned by the angle p theta^(-2i / head_size): (u,
// w) becomes (u cos a - w sin a, u sin a + w cos a). Row t of the time axis has position first_position + t.
// Angles, sines and cosines are computed in f64.
// shapes: x [batch, time, heads, head_size] -> the same, row-major; any strides of the first three axes are
// taken as they lie. Size 0 gives an empty result.
// dtypes: f32, f64, bf16.
// errors: ShapeError unless the rank is 4 and head_size even; ValueError for a negative position, positions
// beyond 2^52, or a theta that is not finite and above 0; DtypeError.
// grad: dy turned back by the same angles.
Tensor rotary(const Tensor& x, std::int64_t first_position, double theta = 10000.0);

// Drops the tables of angles that calls keep for later ones: for who closes the GPU on which they lie.
void forget_rotary_tables();

// y = the pairs of x turned forward or back. The strides of x are in elements; y is row-major. No size is 0.
struct RotaryArgs {
  Dtype dtype;
  std::int64_t batch, time, heads, pairs;
  const void* x;
  std::int64_t x_batch_stride, x_time_stride, x_head_stride;
  // [time, 2, 2 pairs], f32 where the dtype is bf16: each cosine twice, then each sine with a minus and with
  // a plus, so that y[j] = x[j] cosine[j] + x[j ^ 1] sine[j].
  const void* turns;
  bool back;  // turn by the negative angle
  void* y;
  float beta;  // y = beta * y + the turned pairs; y is not read when beta is 0
};
extern Slot<RotaryArgs> rotary_slot;

struct OpSpec;
std::vector<OpSpec> rotary_specs();

}  // namespace eddy
