// Pointwise functions of one tensor and their gradients: a map (cuda/core/map.cuh) for each functor of
// ops/pointwise/pointwise_functors.h and direction.
#include "cuda/core/map.cuh"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"

namespace eddy::cuda {
namespace {

using namespace pointwise;

template <class Op>
struct Forward {
  template <class T>
  __device__ float operator()(T x) const {
    return Op::forward(static_cast<float>(x));
  }
};

template <class Op>
struct Gradient {
  template <class T>
  __device__ float operator()(T dy, T saved) const {
    return Op::vjp(static_cast<float>(dy), static_cast<float>(saved));
  }
};

template <class T, class F>
void run(const char* name, const F& f, const UnaryArgs& args) {
  const auto read = [](const void* from) { return static_cast<const T*>(from); };
  T* const y = static_cast<T*>(args.y);
  if constexpr (std::is_invocable_v<F, T, T>)
    launch_flat_map(name, f, args.elements, y, read(args.dy), read(args.x));
  else
    launch_flat_map(name, f, args.elements, y, read(args.x));
}

// Finds the op by its place in the list.
template <class T, class... Ops>
void forward(const UnaryArgs& args, OpList<Ops...>) {
  int place = 0;
  ((place++ == args.op ? run<T>(Ops::kName, Forward<Ops>{}, args) : void()), ...);
}
template <class T, class... Ops>
void backward(const UnaryArgs& args, OpList<Ops...>) {
  int place = 0;
  ((place++ == args.op ? run<T>(Ops::kName, Gradient<Ops>{}, args) : void()), ...);
}

// With a second factor in the GPU's memory, or null.
struct Times {
  float factor;
  const float* device_factor;
  template <class T>
  __device__ float operator()(T x) const {
    return (device_factor != nullptr ? factor * *device_factor : factor) * static_cast<float>(x);
  }
};
template <class Y, class X>
void multiply(const ScaleArgs& args) {
  const Times factor{static_cast<float>(args.factor), static_cast<const float*>(args.device_factor)};
  launch_flat_map("scale", factor, args.n, static_cast<Y*>(args.y), static_cast<const X*>(args.x));
}

}  // namespace

void unary_forward(const UnaryArgs& args) {
  for_activations("pointwise", args.dtype,
                  [&](auto* type) { forward<StoredIn<decltype(type)>>(args, UnaryOps{}); });
}

void unary_backward(const UnaryArgs& args) {
  for_activations("pointwise", args.dtype,
                  [&](auto* type) { backward<StoredIn<decltype(type)>>(args, UnaryOps{}); });
}

void scale(const ScaleArgs& args) {
  for_activations("scale", args.dtype, [&](auto* type) {
    using T = StoredIn<decltype(type)>;
    if (args.y_dtype == args.dtype) return multiply<T, T>(args);
    require_f32("scale", args.dtype);
    multiply<bf16, float>(args);
  });
}

}  // namespace eddy::cuda
