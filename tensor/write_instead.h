// Methods that users of libtorch, MLX or NumPy type first. Eddy has free functions for most, so the compiler
// answers with what to write. Included inside the class of tensor.h; functions of this kind are in
// ops/write_instead.h.

// M(name, text)
#define EDDY_METHODS_INSTEAD(M)                                                      \
  M(sum, "write sum(x) or sum(x, axis)")                                             \
  M(mean, "write mean(x) or mean(x, axis)")                                          \
  M(max, "write max(x, axis)")                                                       \
  M(min, "write -max(-x, axis)")                                                     \
  M(argmax, "write argmax(x) or argmax(x, axis)")                                    \
  M(argmin, "write argmax(-x, axis)")                                                \
  M(matmul, "write matmul(x, y)")                                                    \
  M(mm, "write matmul(x, y)")                                                        \
  M(exp, "write exp(x)")                                                             \
  M(log, "write log(x)")                                                             \
  M(sqrt, "write sqrt(x)")                                                           \
  M(abs, "write abs(x)")                                                             \
  M(pow, "write pow(x, exponent)")                                                   \
  M(square, "write x * x")                                                           \
  M(norm, "write sqrt(sum(x * x))")                                                  \
  M(var, "write mean(x * x) - mean(x) * mean(x)")                                    \
  M(std, "write sqrt(mean(x * x) - mean(x) * mean(x))")                              \
  M(tanh, "write tanh(x)")                                                           \
  M(relu, "write relu(x)")                                                           \
  M(sigmoid, "write sigmoid(x)")                                                     \
  M(softmax, "write softmax(x): it is over the last axis")                           \
  M(log_softmax, "write log_softmax(x): it is over the last axis")                   \
  M(clamp, "write where(x < low, low, where(x > high, high, x))")                    \
  M(clip, "write where(x < low, low, where(x > high, high, x))")                     \
  M(isnan, "write x != x")                                                           \
  M(any, "write sum(cast(x, Dtype::f32)).item() > 0")                                \
  M(all, "write sum(cast(x, Dtype::f32)).item() == x.elements()")                    \
  M(t, "write transpose(x, 0, 1)")                                                   \
  M(transpose, "write transpose(x, axis_a, axis_b)")                                 \
  M(permute, "write transpose(x, axis_a, axis_b), once for each pair of axes")       \
  M(view, "write x.reshape({sizes})")                                                \
  M(flatten, "write x.reshape({-1})")                                                \
  M(squeeze, "write x.reshape({sizes})")                                             \
  M(unsqueeze, "write x.reshape({sizes})")                                           \
  M(expand, "write expand(x, shape)")                                                \
  M(slice, "write narrow(x, axis, start, length)")                                   \
  M(narrow, "write narrow(x, axis, start, length)")                                  \
  M(select, "write select(x, axis, index), or x[index]")                             \
  M(index, "write x[index], narrow(x, axis, start, length) or gather(x, axis, ids)") \
  M(to, "write cast(x, dtype) or raw::to_device(x, device)")                         \
  M(astype, "write cast(x, dtype)")                                                  \
  M(cpu, "write raw::to_device(x, kCpu)")                                            \
  M(cuda, "write raw::to_device(x, cuda_device())")                                  \
  M(clone, "write raw::copy(x)")                                                     \
  M(detach, "write detach(x)")                                                       \
  M(sizes, "write x.shape()")                                                        \
  M(size, "write x.dim(axis), or x.elements() for the number of elements")           \
  M(len, "write x.dim(0)")                                                           \
  M(numel, "write x.elements()")                                                     \
  M(ndim, "write x.rank()")                                                          \
  M(data_ptr, "write x.data<T>() to read and x.mutable_data<T>() to write")          \
  M(zero_, "write zeros_like(x), or x.mutable_data<T>() to write")                   \
  M(fill_, "write full(x.shape(), value), or x.mutable_data<T>() to write")          \
  M(copy_, "write x = y, or x.mutable_data<T>() to write")                           \
  M(add_, "write x += y, which makes a new tensor")                                  \
  M(set_requires_grad, "write require_grad(x)")                                      \
  M(requires_grad_, "write require_grad(x)")                                         \
  M(requires_grad, "write require_grad(x); requires_grad(x) asks")                   \
  M(backward, "write backward(x)")                                                   \
  M(grad, "write grad(x)")

// The condition is false for every use, and depends on the arguments so that it is checked only then.
#define EDDY_METHOD_INSTEAD(name, text)                            \
  template <class Type = void, class... Args>                      \
  Tensor name(const Args&...) const {                              \
    static_assert(sizeof...(Args) > 1000, text);                   \
    return *this;                                                  \
  }                                                                \
  template <class Type = void, class... Args>                      \
  Tensor name(std::initializer_list<Type>, const Args&...) const { \
    static_assert(sizeof...(Args) > 1000, text);                   \
    return *this;                                                  \
  }
