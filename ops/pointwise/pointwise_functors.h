// The pointwise ops: one struct each, with the function and its derivative side by side. The CPU loops, the
// CUDA kernels, the nodes, the tests and the docs are generated from this list.
//
//   unary:   forward(x)      vjp(dy, x or y)                      kSaves: which of x and y the vjp needs
//   binary:  forward(a, b)   vjp_a(dy, a, b)   vjp_b(dy, a, b)
#pragma once

#include "ops/cpu/vec_math.h"
#include "tensor/base/host_device.h"

namespace eddy::pointwise {

enum class Saves { input, output, nothing };

#define EDDY_UNARY(Name, op_name, formula_text, saves)  \
  static constexpr const char* kName = op_name;         \
  static constexpr const char* kFormula = formula_text; \
  static constexpr Saves kSaves = Saves::saves;

struct Neg {
  EDDY_UNARY(Neg, "neg", "-x", nothing)
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return -x;
  }
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T) {
    return -dy;
  }
};
struct Exp {
  EDDY_UNARY(Exp, "exp", "e^x", output)
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return vec::exp(x);
  }
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T y) {
    return dy * y;
  }
};
struct Log {
  EDDY_UNARY(Log, "log", "ln x", input)
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return vec::log(x);
  }
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T x) {
    return dy / x;
  }
};
struct Tanh {
  EDDY_UNARY(Tanh, "tanh", "tanh x", output)
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return vec::tanh(x);
  }
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T y) {
    return dy * (T(1) - y * y);
  }
};
struct Sigmoid {
  EDDY_UNARY(Sigmoid, "sigmoid", "1 / (1 + e^-x)", output)
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return vec::sigmoid(x);
  }
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T y) {
    return dy * y * (T(1) - y);
  }
};
struct Relu {
  EDDY_UNARY(Relu, "relu", "max(x, 0); derivative 0 at 0", output)
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return x > T(0) ? x : (x == x ? T(0) : x);
  }
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T y) {
    return y > T(0) ? dy : T(0);
  }
};
struct Silu {
  EDDY_UNARY(Silu, "silu", "x sigmoid(x)", input)
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return x * vec::sigmoid(x);
  }
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T x) {
    const T s = vec::sigmoid(x);
    return dy * (s + x * s * (T(1) - s));
  }
};
struct Gelu {
  EDDY_UNARY(Gelu, "gelu", "x Phi(x), Phi the normal distribution (exact, by erf)", input)
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return x * vec::normal_cdf(x);
  }
  // d/dx x Phi(x) = Phi(x) + x phi(x), phi the normal density; the two share one exp.
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T x) {
    return dy * (vec::normal_cdf(x) + x * vec::normal_pdf(x));
  }
};
// (1 + tanh u) / 2 is sigmoid(2u), which keeps its relative precision where tanh u is near -1.
struct GeluTanh {
  EDDY_UNARY(GeluTanh, "gelu_tanh", "x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))", input)
  template <class T>
  EDDY_HD_INLINE static T inner(T x) {
    return T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
  }
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return x * vec::sigmoid(T(2) * inner(x));
  }
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T x) {
    const T s = vec::sigmoid(T(2) * inner(x));
    const T slope = T(0.79788456080286535588) * (T(1) + T(3 * 0.044715) * x * x);
    return dy * (s + T(2) * x * s * (T(1) - s) * slope);
  }
};
struct Sqrt {
  EDDY_UNARY(Sqrt, "sqrt", "x^(1/2)", output)
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return vec::sqrt(x);
  }
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T y) {
    return dy / (T(2) * y);
  }
};
struct Rsqrt {
  EDDY_UNARY(Rsqrt, "rsqrt", "x^(-1/2)", output)
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return T(1) / vec::sqrt(x);
  }
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T y) {
    return T(-0.5) * dy * y * y * y;
  }
};
struct Abs {
  EDDY_UNARY(Abs, "abs", "|x|; derivative 0 at 0", input)
  template <class T>
  EDDY_HD_INLINE static T forward(T x) {
    return x < T(0) ? -x : x + T(0);  // -0 + 0 is 0
  }
  // NaN at NaN.
  template <class T>
  EDDY_HD_INLINE static T vjp(T dy, T x) {
    return x > T(0) ? dy : (x < T(0) ? -dy : x * T(0));
  }
};
#undef EDDY_UNARY

struct Add {
  static constexpr const char* kName = "add";
  static constexpr const char* kFormula = "a + b";
  template <class T>
  EDDY_HD_INLINE static T forward(T a, T b) {
    return a + b;
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_a(T dy, T, T) {
    return dy;
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_b(T dy, T, T) {
    return dy;
  }
};
struct Sub {
  static constexpr const char* kName = "sub";
  static constexpr const char* kFormula = "a - b";
  template <class T>
  EDDY_HD_INLINE static T forward(T a, T b) {
    return a - b;
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_a(T dy, T, T) {
    return dy;
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_b(T dy, T, T) {
    return -dy;
  }
};
struct Mul {
  static constexpr const char* kName = "mul";
  static constexpr const char* kFormula = "a b";
  template <class T>
  EDDY_HD_INLINE static T forward(T a, T b) {
    return a * b;
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_a(T dy, T, T b) {
    return dy * b;
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_b(T dy, T a, T) {
    return dy * a;
  }
};
struct Div {
  static constexpr const char* kName = "div";
  static constexpr const char* kFormula = "a / b";
  template <class T>
  EDDY_HD_INLINE static T forward(T a, T b) {
    return a / b;
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_a(T dy, T, T b) {
    return dy / b;
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_b(T dy, T a, T b) {
    return -dy * a / (b * b);
  }
};
struct Pow {
  static constexpr const char* kName = "pow";
  static constexpr const char* kFormula = "a^b; the derivative by b is 0 where a <= 0";
  template <class T>
  EDDY_HD_INLINE static T forward(T a, T b) {
    return vec::pow(a, b);
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_a(T dy, T a, T b) {
    return b == T(0) ? T(0) : dy * b * vec::pow(a, b - T(1));
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_b(T dy, T a, T b) {
    return a > T(0) ? dy * vec::pow(a, b) * vec::log(a) : T(0);
  }
};
struct Swiglu {
  static constexpr const char* kName = "swiglu";
  static constexpr const char* kFormula = "silu(gate) up";
  template <class T>
  EDDY_HD_INLINE static T forward(T gate, T up) {
    return Silu::forward(gate) * up;
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_a(T dy, T gate, T up) {
    return Silu::vjp(dy * up, gate);
  }
  template <class T>
  EDDY_HD_INLINE static T vjp_b(T dy, T gate, T) {
    return dy * Silu::forward(gate);
  }
};

// 1 where the comparison holds, 0 elsewhere. The public functions return u8 and record no gradient, so the
// vjps are never called.
#define EDDY_COMPARISON(Name, op_name, sign)                 \
  struct Name {                                              \
    static constexpr const char* kName = op_name;            \
    static constexpr const char* kFormula = "a " #sign " b"; \
    template <class T>                                       \
    EDDY_HD_INLINE static T forward(T a, T b) {              \
      return a sign b ? T(1) : T(0);                         \
    }                                                        \
    template <class T>                                       \
    EDDY_HD_INLINE static T vjp_a(T, T, T) {                 \
      return T(0);                                           \
    }                                                        \
    template <class T>                                       \
    EDDY_HD_INLINE static T vjp_b(T, T, T) {                 \
      return T(0);                                           \
    }                                                        \
  };
EDDY_COMPARISON(Greater, "greater", >)
EDDY_COMPARISON(GreaterEqual, "greater_equal", >=)
EDDY_COMPARISON(Equal, "equal", ==)
EDDY_COMPARISON(NotEqual, "not_equal", !=)
#undef EDDY_COMPARISON

// The lists of all ops. The index in the list is the number of the kernel.
template <class... Ops>
struct OpList {};
using UnaryOps = OpList<Neg, Exp, Log, Tanh, Sigmoid, Relu, Silu, Gelu, GeluTanh, Sqrt, Rsqrt, Abs>;
using BinaryOps = OpList<Add, Sub, Mul, Div, Pow, Swiglu, Greater, GreaterEqual, Equal, NotEqual>;

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

}  // namespace eddy::pointwise
