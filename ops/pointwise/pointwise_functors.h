// The pointwise ops: one row each, with the function and its derivative side by side. The public functions, the
// CPU loops, the CUDA kernels, the nodes, the tests and the docs follow from these lists.
#pragma once

#include "ops/cpu/vec_math.h"
#include "tensor/base/host_device.h"

namespace eddy::pointwise {

enum class Saves { input, output, nothing };

// Slopes of more than one line.
template <class T>
EDDY_HD_INLINE T silu_slope(T x) {
  const T s = vec::sigmoid(x);
  return s + x * s * (T(1) - s);
}
template <class T>
EDDY_HD_INLINE T gelu_tanh_inner(T x) {
  return T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
}
// Where the sigmoid is exactly 0 or 1, the slope of a huge x may be infinite and does not count.
template <class T>
EDDY_HD_INLINE T gelu_tanh_vjp(T dy, T x) {
  const T s = vec::sigmoid(T(2) * gelu_tanh_inner(x));
  const T slope = T(0.79788456080286535588) * (T(1) + T(3 * 0.044715) * x * x);
  const T bend = s * (T(1) - s) * T(2) * x, rest = bend * slope;
  return dy * (s + (bend == T(0) ? T(0) : rest));
}

// clang-format off

// OP(Name, name, formula, saves, forward, vjp): y = forward of x, and dx = vjp of dy and of x or y, whichever
// it saves. T is the type of the numbers. Where dy is 0, dx is 0, even if the derivative is infinite or NaN there:
// what where() does not choose stays without effect.
//
//   relu       NaN stays NaN
//   gelu       d/dx x Phi(x) = Phi(x) + x phi(x), phi the normal density; the two share one exp
//   gelu_tanh  (1 + tanh u) / 2 is sigmoid(2u), which keeps its relative precision where tanh u is near -1
//   abs        -0 + 0 is 0; the derivative is NaN at NaN
//   expm1      saves x: from y near -1 nothing of a small slope is left
#define EDDY_UNARY_OPS(OP) \
  OP(Neg, neg, "-x", nothing, -x, -dy) \
  OP(Exp, exp, "e^x", output, vec::exp(x), dy * y) \
  OP(Log, log, "ln x", input, vec::log(x), dy / x) \
  OP(Tanh, tanh, "tanh x", output, vec::tanh(x), dy * (T(1) - y * y)) \
  OP(Sigmoid, sigmoid, "1 / (1 + e^-x)", output, vec::sigmoid(x), dy * y * (T(1) - y)) \
  OP(Relu, relu, "max(x, 0); derivative 0 at 0", output, \
     x > T(0) ? x : (x == x ? T(0) : x), \
     y > T(0) ? dy : T(0)) \
  OP(Silu, silu, "x sigmoid(x)", input, x * vec::sigmoid(x), dy * silu_slope(x)) \
  OP(Gelu, gelu, "x Phi(x), Phi the normal distribution (exact, by erf)", input, \
     x * vec::normal_cdf(x), \
     dy * (vec::normal_cdf(x) + x * vec::normal_pdf(x))) \
  OP(GeluTanh, gelu_tanh, "x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))", input, \
     x * vec::sigmoid(T(2) * gelu_tanh_inner(x)), \
     gelu_tanh_vjp(dy, x)) \
  OP(Sqrt, sqrt, "x^(1/2)", output, vec::sqrt(x), dy / (T(2) * y)) \
  OP(Rsqrt, rsqrt, "x^(-1/2)", output, T(1) / vec::sqrt(x), T(-0.5) * dy * y * y * y) \
  OP(Abs, abs, "|x|; derivative 0 at 0", input, \
     x < T(0) ? -x : x + T(0), \
     x > T(0) ? dy : (x < T(0) ? -dy : x * T(0))) \
  OP(Sin, sin, "sin x, x in radians", input, vec::sin(x), dy * vec::cos(x)) \
  OP(Cos, cos, "cos x, x in radians", input, vec::cos(x), -dy * vec::sin(x)) \
  OP(Log1p, log1p, "ln(1 + x), exact for small x", input, vec::log1p(x), dy / (T(1) + x)) \
  OP(Expm1, expm1, "e^x - 1, exact for small x", input, vec::expm1(x), dy * vec::exp(x)) \
  OP(Softplus, softplus, "ln(1 + e^x)", input, vec::softplus(x), dy * vec::sigmoid(x))

// OP(Name, name, formula, forward): y = forward of a and b. Their gradients are dy and -dy, without a kernel of
// their own.
#define EDDY_SUMS(OP) \
  OP(Add, add, "a + b", a + b) \
  OP(Sub, sub, "a - b", a - b)

// OP(Name, name, formula, forward, vjp_a, vjp_b): y = forward of a and b; da and db = vjp_a and vjp_b of dy, a
// and b.
#define EDDY_BINARY_OPS(OP) \
  OP(Mul, mul, "a b", a * b, dy * b, dy * a) \
  OP(Div, div, "a / b", a / b, dy / b, -(dy / b) * (a / b)) \
  OP(Pow, pow, "a^b; the derivative by b is 0 where a <= 0", \
     vec::pow(a, b), \
     b == T(0) ? T(0) : dy * b * vec::pow(a, b - T(1)), \
     a > T(0) ? dy * vec::pow(a, b) * vec::log(a) : T(0)) \
  OP(Swiglu, swiglu, "silu(gate) up", \
     Silu::forward(a) * b, Silu::vjp(dy * b, a), dy * Silu::forward(a))

// OP(Name, name, sign): 1 where a sign b holds, 0 elsewhere. The public functions return u8 and record no
// gradient.
#define EDDY_COMPARISONS(OP) \
  OP(Greater, greater, >) \
  OP(GreaterEqual, greater_equal, >=) \
  OP(Equal, equal, ==) \
  OP(NotEqual, not_equal, !=)

// clang-format on

#define EDDY_UNARY(Name, name, formula, saves, forward_of, vjp_of) \
  struct Name {                                                    \
    static constexpr const char* kName = #name;                    \
    static constexpr const char* kFormula = formula;               \
    static constexpr Saves kSaves = Saves::saves;                  \
    template <class T>                                             \
    EDDY_HD_INLINE static T forward(T x) {                         \
      return forward_of;                                           \
    }                                                              \
    template <class T>                                             \
    EDDY_HD_INLINE static T vjp(T dy, T saved) {                   \
      [[maybe_unused]] const T x = saved, y = saved;               \
      const T dx = vjp_of;                                         \
      return dy == T(0) ? dy : dx;                                 \
    }                                                              \
  };
EDDY_UNARY_OPS(EDDY_UNARY)
#undef EDDY_UNARY

#define EDDY_BINARY(Name, name, formula, forward_of, vjp_a_of, vjp_b_of)                               \
  struct Name {                                                                                        \
    static constexpr const char* kName = #name;                                                        \
    static constexpr const char* kFormula = formula;                                                   \
    template <class T>                                                                                 \
    EDDY_HD_INLINE static T forward(T a, T b) {                                                        \
      return forward_of;                                                                               \
    }                                                                                                  \
    template <class T>                                                                                 \
    EDDY_HD_INLINE static T vjp_a([[maybe_unused]] T dy, [[maybe_unused]] T a, [[maybe_unused]] T b) { \
      const T da = vjp_a_of;                                                                           \
      return dy == T(0) ? dy : da;                                                                     \
    }                                                                                                  \
    template <class T>                                                                                 \
    EDDY_HD_INLINE static T vjp_b([[maybe_unused]] T dy, [[maybe_unused]] T a, [[maybe_unused]] T b) { \
      const T db = vjp_b_of;                                                                           \
      return dy == T(0) ? dy : db;                                                                     \
    }                                                                                                  \
  };
EDDY_BINARY_OPS(EDDY_BINARY)
#undef EDDY_BINARY

#define EDDY_FORWARD(Name, name, formula, forward_of) \
  struct Name {                                       \
    static constexpr const char* kName = #name;       \
    static constexpr const char* kFormula = formula;  \
    template <class T>                                \
    EDDY_HD_INLINE static T forward(T a, T b) {       \
      return forward_of;                              \
    }                                                 \
  };
#define EDDY_COMPARISON(Name, name, sign) EDDY_FORWARD(Name, name, "a " #sign " b", a sign b ? T(1) : T(0))
EDDY_SUMS(EDDY_FORWARD)
EDDY_COMPARISONS(EDDY_COMPARISON)
#undef EDDY_FORWARD
#undef EDDY_COMPARISON

// Whether an op has kernels for the gradients of its operands.
template <class Op>
inline constexpr bool kHasGradients = requires(float x) {
  Op::vjp_a(x, x, x);
};

// All ops. The index in the list is the number of the kernel.
template <class... Ops>
struct OpList {};
template <class, class... Ops>
OpList<Ops...> op_list();
#define EDDY_NEXT(Name, ...) , Name
using UnaryOps = decltype(op_list<void EDDY_UNARY_OPS(EDDY_NEXT)>());
using BinaryOps =
    decltype(op_list<void EDDY_SUMS(EDDY_NEXT) EDDY_BINARY_OPS(EDDY_NEXT) EDDY_COMPARISONS(EDDY_NEXT)>());
#undef EDDY_NEXT

template <class Op, class List>
struct IndexOf;
template <class Op, class... Rest>
struct IndexOf<Op, OpList<Op, Rest...>> {
  static constexpr int value = 0;
};
template <class Op, class First, class... Rest>
struct IndexOf<Op, OpList<First, Rest...>> {
  static constexpr int value = 1 + IndexOf<Op, OpList<Rest...>>::value;
};
inline constexpr int kReluIndex = IndexOf<Relu, UnaryOps>::value;

}  // namespace eddy::pointwise
