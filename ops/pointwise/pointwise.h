// Elementwise functions with gradients; the list and the formulas are in pointwise_functors.h.
//
// shapes: unary ops keep the shape; binary ops broadcast, aligned at the end.
// dtypes: f32, f64 and bf16, equal for both operands.
// errors: ShapeError if shapes do not broadcast; DtypeError; DeviceError if operands are on two devices.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// Of each element; gelu is the exact one, gelu_tanh its approximation by tanh.
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
// Angles are in radians; f32 results mean something up to |x| = 2^27.
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
// ln(1 + x), e^x - 1 and ln(1 + e^x), which keep their relative precision where they are small.
Tensor log1p(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor softplus(const Tensor& x);

// Of two elements, whose tensors broadcast.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, const Tensor& b);
// Returns silu(gate) up, the activation of a gated MLP, in one pass.
Tensor swiglu(const Tensor& gate, const Tensor& up);

// The same with a number as one operand, which gets no gradient.
Tensor add(const Tensor& a, double b);
Tensor add(double a, const Tensor& b);
Tensor sub(const Tensor& a, double b);
Tensor sub(double a, const Tensor& b);
Tensor mul(const Tensor& a, double b);
Tensor mul(double a, const Tensor& b);
Tensor div(const Tensor& a, double b);
Tensor div(double a, const Tensor& b);
Tensor pow(const Tensor& a, double b);

// 1 where the comparison holds and 0 elsewhere, as u8: a mask for where(). False beside NaN, but for not_equal.
// dtypes: any, equal for both operands; on a GPU floating ones.
// errors: as above.
// grad: none.
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);

// Returns a scalar tensor of x's dtype and device.
Tensor number_like(const Tensor& x, double value);

// Operators, with a tensor or a number on either side. `a += b` means a = a + b: it makes a new tensor, and
// other handles keep the old one.
template <class T>
concept Number = std::is_arithmetic_v<T>;

#define EDDY_ARITHMETIC(sign, name)                               \
  inline Tensor operator sign(const Tensor& a, const Tensor& b) { \
    return name(a, b);                                            \
  }                                                               \
  template <Number N>                                             \
  Tensor operator sign(const Tensor& a, N b) {                    \
    return name(a, static_cast<double>(b));                       \
  }                                                               \
  template <Number N>                                             \
  Tensor operator sign(N a, const Tensor& b) {                    \
    return name(static_cast<double>(a), b);                       \
  }                                                               \
  template <class Operand>                                        \
  Tensor& operator sign##=(Tensor& a, const Operand& b) {         \
    return a = a sign b;                                          \
  }
EDDY_ARITHMETIC(+, add)
EDDY_ARITHMETIC(-, sub)
EDDY_ARITHMETIC(*, mul)
EDDY_ARITHMETIC(/, div)
#undef EDDY_ARITHMETIC

#define EDDY_COMPARE(sign, result)                                \
  inline Tensor operator sign(const Tensor& a, const Tensor& b) { \
    return result;                                                \
  }                                                               \
  template <Number N>                                             \
  Tensor operator sign(const Tensor& a, N b) {                    \
    return a sign number_like(a, static_cast<double>(b));         \
  }                                                               \
  template <Number N>                                             \
  Tensor operator sign(N a, const Tensor& b) {                    \
    return number_like(b, static_cast<double>(a)) sign b;         \
  }
EDDY_COMPARE(>, greater(a, b))
EDDY_COMPARE(>=, greater_equal(a, b))
EDDY_COMPARE(<, greater(b, a))
EDDY_COMPARE(<=, greater_equal(b, a))
EDDY_COMPARE(==, equal(a, b))
EDDY_COMPARE(!=, not_equal(a, b))
#undef EDDY_COMPARE

// -a
inline Tensor operator-(const Tensor& a) {
  return neg(a);
}

namespace detail {
// Forward: y[i] = f(x[i]). Backward: dx[i] = vjp(dy[i], saved[i]). All are contiguous.
struct UnaryArgs {
  int op;  // index in pointwise::UnaryOps
  Dtype dtype;
  std::int64_t elements;
  const void* x;   // forward: x; backward: x or y, whichever the op saves
  const void* dy;  // backward only
  void* y;         // forward: y; backward: dx. May alias an input.
};
extern Slot<UnaryArgs> unary_forward_slot, unary_backward_slot;

// What a binary kernel computes.
enum class BinaryPart : std::uint8_t { forward, gradient_a, gradient_b };

// One result over a broadcast shape: y = f(a, b), or da or db before the sum over broadcast axes. y and dy
// are contiguous; a and b have stride 0 on the axes where they repeat.
struct BinaryArgs {
  int op;  // index in pointwise::BinaryOps
  BinaryPart part;
  Dtype dtype;
  int rank;
  std::int64_t shape[6];
  std::int64_t stride_a[6], stride_b[6];
  const void *a, *b, *dy;
  void* y;
};
extern Slot<BinaryArgs> binary_slot;

// y[i] = factor x[i].
struct ScaleArgs {
  Dtype dtype, y_dtype;  // of x and y: equal, or on a GPU f32 and bf16
  std::int64_t n;
  const void* x;
  void* y;  // may be x
  double factor;
  const void* device_factor =
      nullptr;  // another factor in device memory, [1], of dtype (f32 for bf16); or null
};
extern Slot<ScaleArgs> scale_slot;
}  // namespace detail

}  // namespace eddy
