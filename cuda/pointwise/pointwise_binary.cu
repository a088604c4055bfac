// Pointwise functions of two tensors over their broadcast shape, and the gradients of the two of ops that have
// kernels for them: a map (cuda/core/map.cuh) for each functor of ops/pointwise/pointwise_functors.h and part. A
// broadcast operand comes from the cache after its first use.
#include "cuda/core/map.cuh"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"

namespace eddy::cuda {
namespace {

using namespace pointwise;

template <class Op>
struct Forward {
  template <class T>
  __device__ float operator()(T a, T b) const {
    return Op::forward(static_cast<float>(a), static_cast<float>(b));
  }
};

template <class Op, BinaryPart Part>
struct Gradient {
  template <class T>
  __device__ float operator()(T dy, T a, T b) const {
    const float of_y = static_cast<float>(dy), x = static_cast<float>(a), z = static_cast<float>(b);
    return Part == BinaryPart::gradient_a ? Op::vjp_a(of_y, x, z) : Op::vjp_b(of_y, x, z);
  }
};

// y and dy are row-major.
template <class Op, BinaryPart Part, class T>
void run(const BinaryArgs& args) {
  constexpr bool kForward = Part == BinaryPart::forward;
  WalkShape<kForward ? 3 : 4> shape;
  for (int i = 0; i < args.rank; ++i) {
    std::int64_t row_major_stride = 1;
    for (int k = i + 1; k < args.rank; ++k) row_major_stride *= args.shape[k];
    if constexpr (kForward)
      shape.add_axis(args.shape[i], {row_major_stride, args.stride_a[i], args.stride_b[i]});
    else
      shape.add_axis(args.shape[i], {row_major_stride, row_major_stride, args.stride_a[i], args.stride_b[i]});
  }
  const T *const a = static_cast<const T*>(args.a), *const b = static_cast<const T*>(args.b);
  T* const y = static_cast<T*>(args.y);
  if constexpr (kForward)
    launch_map(Op::kName, Forward<Op>{}, shape, y, a, b);
  else
    launch_map(Op::kName, Gradient<Op, Part>{}, shape, y, static_cast<const T*>(args.dy), a, b);
}

template <class Op, class T>
void run_part(const BinaryArgs& args) {
  if (args.part == BinaryPart::forward) return run<Op, BinaryPart::forward, T>(args);
  if constexpr (kHasGradients<Op>)
    args.part == BinaryPart::gradient_a ? run<Op, BinaryPart::gradient_a, T>(args)
                                        : run<Op, BinaryPart::gradient_b, T>(args);
}

// Finds the op by its place in the list.
template <class T, class... Ops>
void run_op(const BinaryArgs& args, OpList<Ops...>) {
  int place = 0;
  ((place++ == args.op ? run_part<Ops, T>(args) : void()), ...);
}

}  // namespace

void binary(const BinaryArgs& args) {
  for_activations("pointwise", args.dtype,
                  [&](auto* type) { run_op<StoredIn<decltype(type)>>(args, BinaryOps{}); });
}

}  // namespace eddy::cuda
