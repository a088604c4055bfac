// Functions that users of libtorch, MLX or NumPy type first and Eddy lacks: the compiler answers with what to
// write. Methods of this kind are in tensor/write_instead.h.
#pragma once

#include <concepts>
#include <initializer_list>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// `First` is the type of the first argument.
#define EDDY_FUNCTION_INSTEAD(First, name, text) \
  template <class... Args>                       \
  Tensor name(First, const Args&...) {           \
    static_assert(sizeof...(Args) > 1000, text); \
    return {};                                   \
  }
#define EDDY_WRITE_INSTEAD(name, text) EDDY_FUNCTION_INSTEAD(const Tensor&, name, text)
#define EDDY_NO_SUCH_OP(name) \
  EDDY_WRITE_INSTEAD(name, "Eddy has no " #name ": examples/03_own_op.cpp shows how to write an op")
EDDY_WRITE_INSTEAD(maximum, "write where(a > b, a, b)")
EDDY_WRITE_INSTEAD(minimum, "write where(a < b, a, b)")
EDDY_WRITE_INSTEAD(clamp, "write where(x < low, low, where(x > high, high, x))")
EDDY_WRITE_INSTEAD(clip, "write where(x < low, low, where(x > high, high, x))")
EDDY_WRITE_INSTEAD(min, "write -max(-x, axis)")
EDDY_WRITE_INSTEAD(argmin, "write argmax(-x, axis)")
EDDY_WRITE_INSTEAD(square, "write x * x")
EDDY_WRITE_INSTEAD(norm, "write sqrt(sum(x * x))")
EDDY_WRITE_INSTEAD(var, "write mean(x * x) - mean(x) * mean(x)")
EDDY_WRITE_INSTEAD(isnan, "write x != x")
EDDY_WRITE_INSTEAD(any, "write sum(cast(x, Dtype::f32)).item() > 0")
EDDY_WRITE_INSTEAD(all, "write sum(cast(x, Dtype::f32)).item() == x.elements()")
EDDY_WRITE_INSTEAD(allclose, "write max(abs(x - y).reshape({-1}), 0).item() < tolerance")
EDDY_WRITE_INSTEAD(mm, "write matmul(x, y)")
EDDY_WRITE_INSTEAD(bmm, "write matmul(x, y)")
EDDY_WRITE_INSTEAD(dot, "write sum(x * y)")
EDDY_WRITE_INSTEAD(astype, "write cast(x, dtype)")
EDDY_WRITE_INSTEAD(permute, "write transpose(x, axis_a, axis_b), once for each pair of axes")
EDDY_WRITE_INSTEAD(flatten, "write x.reshape({-1})")
EDDY_WRITE_INSTEAD(squeeze, "write x.reshape({sizes})")
EDDY_WRITE_INSTEAD(unsqueeze, "write x.reshape({sizes})")
EDDY_WRITE_INSTEAD(expand_dims, "write x.reshape({sizes})")
EDDY_WRITE_INSTEAD(broadcast_to, "write expand(x, shape)")
EDDY_WRITE_INSTEAD(slice, "write narrow(x, axis, start, length)")
EDDY_WRITE_INSTEAD(take, "write select(x, axis, index), or gather(x, axis, ids)")
EDDY_WRITE_INSTEAD(randn_like, "write randn(x.shape())")
EDDY_WRITE_INSTEAD(save, "write save_safetensors(path, {{name, x}})")
EDDY_FUNCTION_INSTEAD(const std::vector<Tensor>&, cat, "write concat({x, y}, axis)")
EDDY_FUNCTION_INSTEAD(const std::vector<Tensor>&, concatenate, "write concat({x, y}, axis)")
EDDY_FUNCTION_INSTEAD(const std::vector<Tensor>&, stack,
                      "reshape each to {1, ...} and write concat({x, y}, 0)")
EDDY_FUNCTION_INSTEAD(const Shape&, empty, "write zeros({sizes}), or Tensor::empty({sizes})")
EDDY_FUNCTION_INSTEAD(const char*, einsum, "write matmul(x, y), with transpose and reshape")
EDDY_NO_SUCH_OP(sin)
EDDY_NO_SUCH_OP(cos)
EDDY_NO_SUCH_OP(cumsum)
EDDY_NO_SUCH_OP(sort)
EDDY_NO_SUCH_OP(topk)
#undef EDDY_NO_SUCH_OP
#undef EDDY_WRITE_INSTEAD
#undef EDDY_FUNCTION_INSTEAD

// Forms of functions that Eddy has.
#define EDDY_FORM_INSTEAD(declaration, text)            \
  template <class X>                                    \
  requires std::same_as<X, Tensor> Tensor declaration { \
    static_assert(sizeof(X) == 0, text);                \
    return {};                                          \
  }
EDDY_FORM_INSTEAD(softmax(const X&, int), "write softmax(x): it is over the last axis")
EDDY_FORM_INSTEAD(log_softmax(const X&, int), "write log_softmax(x): it is over the last axis")
EDDY_FORM_INSTEAD(transpose(const X&), "write transpose(x, 0, 1)")
EDDY_FORM_INSTEAD(max(const X&), "write max(x.reshape({-1}), 0)")
EDDY_FORM_INSTEAD(operator&(const X&, const Tensor&), "write where(a, b, 0) for two masks")
EDDY_FORM_INSTEAD(operator|(const X&, const Tensor&), "write where(a, 1, b) for two masks")
EDDY_FORM_INSTEAD(operator&&(const X&, const Tensor&), "write where(a, b, 0) for two masks")
EDDY_FORM_INSTEAD(operator||(const X&, const Tensor&), "write where(a, 1, b) for two masks")
EDDY_FORM_INSTEAD(operator!(const X&), "write mask == 0")
#undef EDDY_FORM_INSTEAD
template <class... Args>
Tensor einsum(const char*, std::initializer_list<Tensor>, const Args&...) {
  static_assert(sizeof...(Args) > 1000, "write matmul(x, y), with transpose and reshape");
  return {};
}

}  // namespace eddy
