// Rotary position embedding: rotates each pair of neighbouring elements of a head by an angle proportional to
// the position, so that the dot product of a query and a key depends on their distance alone.
//
// Source: Su et al., "RoFormer" (2021), equation 34; the pairs are interleaved as there: (0, 1), (2, 3), ...
// Weights of Hugging Face's models have the pairs (0, n / 2), (1, n / 2 + 1), ... in a head of n numbers. The two forms
// have the same scores where the numbers of q and k are put into this order before:
//   x = x.reshape({batch, time, heads, 2, n / 2}).transpose(3, 4).reshape({batch, time, heads, n});
#pragma once

#include <concepts>
#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns x [batch, time, heads, head_size] with the pair (u, w) at (2i, 2i + 1) of every head rotated. At position p,
// with row t of the time axis at position first_position + t:
//
//   a  = p theta^(-2i / head_size)
//   u' = u cos a - w sin a
//   w' = u sin a + w cos a
//
// Angles, sines and cosines are computed in f64.
// shapes: x [batch, time, heads, head_size] -> the same, row-major; the first three axes of x may have any
// strides. Size 0 gives an empty result.
// dtypes: f32, f64, bf16.
// errors: ShapeError unless the rank is 4 and head_size even; ValueError for a negative position, positions
// beyond 2^52, or a theta that is not finite and positive; DtypeError.
// grad: dy rotated by the negative angles.
Tensor rotary_bthd(const Tensor& x, std::int64_t first_position, double theta = 10000.0);
// Without the position, as rotary_bthd(x, theta), theta would be taken for it: the compiler asks for both.
template <std::floating_point Theta>
Tensor rotary_bthd(const Tensor&, Theta, double = 0) {
  static_assert(sizeof(Theta) == 0, "write the first position before theta: rotary_bthd(x, 0, theta)");
  return {};
}

// Frees the cached tables of angles. It is called before the GPU with the tables is closed.
void clear_rotary_cache();

namespace detail {
// y = the rotated pairs of x. The strides of x are in elements; y is row-major. No size is 0.
struct RotaryArgs {
  Dtype dtype;
  std::int64_t batch, time, heads, pairs;
  const void* x;
  std::int64_t x_batch_stride, x_time_stride, x_head_stride;
  // [time, 2, 2 pairs], f32 if the dtype is bf16: each cosine twice, then each sine with minus and with plus,
  // so that
  //   y[j] = x[j] cosine[j] + x[j ^ 1] sine[j]
  const void* turns;
  bool back;  // rotate by the negative angle
  void* y;
  float beta;  // y = beta * y + the rotated pairs; y is not read if beta is 0
};
extern Slot<RotaryArgs> rotary_slot;
}  // namespace detail

}  // namespace eddy
