// Pointwise functions of one tensor and their gradients. There is one kernel for each functor of
// ops/pointwise/pointwise_functors.h and direction.
//
//   mapping        one thread per four neighbouring elements (eight of bf16), accessed as 16 bytes, if all
//                  addresses are aligned, else per element; a grid-stride loop over the tensor
//   shared memory  none
//   bytes moved    each operand once, the least
//
// The result may be in the place of an operand, so no pointer is __restrict__.
#include "cuda/core/numbers.cuh"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"

namespace eddy::cuda {
namespace {

using namespace pointwise;

template <class T>
struct UnaryLaunch {
  std::int64_t elements;
  std::int64_t groups;  // full groups; the remaining elements go one by one
  const T *x, *dy;
  T* y;
};

template <class Op, class T>
__global__ void forward_kernel(UnaryLaunch<T> args) {
  for (std::int64_t i = first_item(); i < args.groups; i += item_step()) {
    const Group<T> x = read_group(args.x + kGroup<T> * i);
    Group<T> y;
#pragma unroll
    for (int j = 0; j < kGroup<T>; ++j) y.at[j] = Op::forward(x.at[j]);
    write_group(args.y + kGroup<T> * i, y);
  }
  for (std::int64_t i = kGroup<T> * args.groups + first_item(); i < args.elements; i += item_step())
    args.y[i] = static_cast<T>(Op::forward(static_cast<float>(args.x[i])));
}

template <class Op, class T>
__global__ void backward_kernel(UnaryLaunch<T> args) {
  for (std::int64_t i = first_item(); i < args.groups; i += item_step()) {
    const Group<T> saved = read_group(args.x + kGroup<T> * i), dy = read_group(args.dy + kGroup<T> * i);
    Group<T> dx;
#pragma unroll
    for (int j = 0; j < kGroup<T>; ++j) dx.at[j] = Op::vjp(dy.at[j], saved.at[j]);
    write_group(args.y + kGroup<T> * i, dx);
  }
  for (std::int64_t i = kGroup<T> * args.groups + first_item(); i < args.elements; i += item_step())
    args.y[i] = static_cast<T>(Op::vjp(static_cast<float>(args.dy[i]), static_cast<float>(args.x[i])));
}

template <class T>
void run(const char* name, void (*kernel)(UnaryLaunch<T>), const UnaryArgs& args) {
  const bool by_group = aligned(args.x) && aligned(args.dy) && aligned(args.y);
  const UnaryLaunch<T> launched{args.elements, by_group ? args.elements / kGroup<T> : 0,
                                static_cast<const T*>(args.x), static_cast<const T*>(args.dy),
                                static_cast<T*>(args.y)};
  launch(name, kernel, grid_for(args.elements, kThreads * (by_group ? kGroup<T> : 1)), kThreads, launched);
}

// Finds the op by its place in the list.
template <class T, class... Ops>
void forward(const UnaryArgs& args, OpList<Ops...>) {
  int place = 0;
  ((place++ == args.op ? run<T>(Ops::kName, forward_kernel<Ops, T>, args) : void()), ...);
}
template <class T, class... Ops>
void backward(const UnaryArgs& args, OpList<Ops...>) {
  int place = 0;
  ((place++ == args.op ? run<T>(Ops::kName, backward_kernel<Ops, T>, args) : void()), ...);
}

// y = factor x, with x and y of any dtypes: one thread per four elements.
struct ScaleLaunch {
  ScaleArgs args;
  std::int64_t fours;  // groups of four, loaded and stored as one
};

template <class X, class Y>
__global__ void scale_kernel(ScaleLaunch launched) {
  const ScaleArgs& args = launched.args;
  const X* const x = static_cast<const X*>(args.x);
  Y* const y = static_cast<Y*>(args.y);
  float factor = static_cast<float>(args.factor);
  if (args.device_factor != nullptr) factor *= *static_cast<const float*>(args.device_factor);
  for (std::int64_t i = first_item(); i < launched.fours; i += item_step()) {
    Four four = read_four(x + 4 * i);
#pragma unroll
    for (float& value : four.at) value *= factor;
    write_four(y + 4 * i, four);
  }
  for (std::int64_t i = 4 * launched.fours + first_item(); i < args.n; i += item_step())
    y[i] = static_cast<Y>(factor * static_cast<float>(x[i]));
}

template <class X, class Y>
void scale(const ScaleArgs& args) {
  const bool by_four = aligned(args.x, sizeof(StoredFour<X>)) && aligned(args.y, sizeof(StoredFour<Y>));
  launch("scale", scale_kernel<X, Y>, grid_for(args.n, 4 * kThreads), kThreads,
         {args, by_four ? args.n / 4 : 0});
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
  for_activations("scale", args.dtype, [&](auto* x) {
    for_activations("scale", args.y_dtype,
                    [&](auto* y) { scale<StoredIn<decltype(x)>, StoredIn<decltype(y)>>(args); });
  });
}

}  // namespace eddy::cuda
