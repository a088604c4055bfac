// Elementwise functions with gradients; the list and the formulas are in pointwise_functors.h.
//
// shapes: unary ops keep the shape; binary ops broadcast, aligned at the end.
// dtypes: f32, f64 and bf16, equal for both operands.
// errors: ShapeError when shapes do not broadcast; DtypeError; DeviceError when operands are on two devices.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

Tensor neg(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor silu(const Tensor& x);
Tensor gelu(const Tensor& x);
Tensor gelu_tanh(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor abs(const Tensor& x);

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, const Tensor& b);
// silu(gate) up, the middle of a gated MLP in one pass.
Tensor swiglu(const Tensor& gate, const Tensor& up);

// The same with a number for the second operand; the number gets no gradient.
Tensor add(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);
Tensor pow(const Tensor& a, double b);

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator-(const Tensor& a) {
  return neg(a);
}
inline Tensor operator*(const Tensor& a, double b) {
  return mul(a, b);
}
inline Tensor operator*(double a, const Tensor& b) {
  return mul(b, a);
}
inline Tensor operator+(const Tensor& a, double b) {
  return add(a, b);
}

// y[i] = f(x[i]) or, in the gradient, dx[i] = f'(dy[i], saved[i]); contiguous, `elements` of them.
struct UnaryArgs {
  int op;  // place in pointwise::UnaryOps
  Dtype dtype;
  std::int64_t elements;
  const void* x;   // forward: x; gradient: x or y, as the op saves
  const void* dy;  // gradient only
  void* y;         // forward: y; gradient: dx. May alias an input.
};
extern Slot<UnaryArgs> unary_forward_slot, unary_backward_slot;

enum class BinaryPart : std::uint8_t { forward, gradient_a, gradient_b };

// One result over a broadcast shape: y = f(a, b), or da or db before the sum over repeated entries. y and dy
// are contiguous; a and b have a stride of 0 where they repeat.
struct BinaryArgs {
  int op;  // place in pointwise::BinaryOps
  BinaryPart part;
  Dtype dtype;
  int rank;
  std::int64_t shape[6];
  std::int64_t stride_a[6], stride_b[6];
  const void *a, *b, *dy;
  void* y;
};
extern Slot<BinaryArgs> binary_slot;

struct OpSpec;
std::vector<OpSpec> pointwise_specs();

}  // namespace eddy
