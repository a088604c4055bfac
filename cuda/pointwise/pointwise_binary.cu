// Pointwise functions of two tensors over their broadcast shape, and the gradient for each of the two. There
// is one kernel for each functor of ops/pointwise/pointwise_functors.h, part and form.
//
//   mapping        one thread per element of the result, or, in the form by four, per four neighbours of the
//                  last axis, accessed as 16 bytes (8 of bf16). The form by four serves operands whose last
//                  axis is contiguous or one repeated number, which covers every case that matters.
//   shared memory  none
//   bytes moved    the result and dy once; a broadcast operand comes from the cache after its first use, so
//                  memory sees each operand once, the least
#include "cuda/core/numbers.cuh"
#include "cuda/core/walk.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"

namespace eddy::cuda {
namespace {

using namespace pointwise;

template <class T>
struct BinaryLaunch {
  Walk<2> walk;  // over a and b, by elements or by groups of four
  const T *a, *b, *dy;
  T* y;
  bool a_repeats, b_repeats;  // by four: the operand is one number along the last axis
};

template <class Op, BinaryPart Part>
__device__ float apply(float dy, float a, float b) {
  if constexpr (Part == BinaryPart::forward)
    return Op::forward(a, b);
  else if constexpr (Part == BinaryPart::gradient_a)
    return Op::vjp_a(dy, a, b);
  else
    return Op::vjp_b(dy, a, b);
}

template <class Op, BinaryPart Part, class T>
__global__ void single_kernel(BinaryLaunch<T> args) {
  constexpr bool kGradient = Part != BinaryPart::forward;
  for (std::int64_t i = first_item(); i < args.walk.elements; i += item_step()) {
    std::int64_t at[2] = {};
    args.walk.add_offsets(static_cast<std::uint32_t>(i), at);
    const float dy = kGradient ? static_cast<float>(args.dy[i]) : 0.0f;
    args.y[i] = static_cast<T>(
        apply<Op, Part>(dy, static_cast<float>(args.a[at[0]]), static_cast<float>(args.b[at[1]])));
  }
}

template <class Op, BinaryPart Part, class T>
__global__ void four_kernel(BinaryLaunch<T> args) {
  constexpr bool kGradient = Part != BinaryPart::forward;
  for (std::int64_t i = first_item(); i < args.walk.elements; i += item_step()) {
    std::int64_t at[2] = {};
    args.walk.add_offsets(static_cast<std::uint32_t>(i), at);
    const Four a = args.a_repeats ? repeat_four(args.a + at[0]) : read_four(args.a + at[0]);
    const Four b = args.b_repeats ? repeat_four(args.b + at[1]) : read_four(args.b + at[1]);
    const Four dy = kGradient ? read_four(args.dy + 4 * i) : Four{};
    Four y;
    for (int j = 0; j < 4; ++j) y.at[j] = apply<Op, Part>(dy.at[j], a.at[j], b.at[j]);
    write_four(args.y + 4 * i, y);
  }
}

// Returns whether an operand can be read four at a time: contiguous and aligned, or repeated.
bool by_four(const void* data, std::uintptr_t bytes, const std::int64_t* strides, int rank) {
  const std::int64_t step = strides[rank - 1];
  if (step == 0) return true;
  bool fits = step == 1 && aligned(data, bytes);
  for (int i = 0; i + 1 < rank; ++i) fits = fits && strides[i] % 4 == 0;
  return fits;
}

template <class Op, BinaryPart Part, class T>
void run(const BinaryArgs& args) {
  constexpr std::uintptr_t kBytes = sizeof(StoredFour<T>);
  const int last = args.rank - 1;
  const bool fours = args.shape[last] % 4 == 0 && aligned(args.y, kBytes) && aligned(args.dy, kBytes) &&
                     by_four(args.a, kBytes, args.stride_a, args.rank) &&
                     by_four(args.b, kBytes, args.stride_b, args.rank);
  // The op has merged the axes. By four, the last one counts groups.
  WalkShape<2> shape;
  for (int i = 0; i < args.rank; ++i) {
    const bool grouped = fours && i == last;
    const std::int64_t width = grouped ? 4 : 1;
    shape.add_axis(args.shape[i] / width, {args.stride_a[i] * width, args.stride_b[i] * width});
  }
  BinaryLaunch<T> launched;
  launched.a_repeats = args.stride_a[last] == 0;
  launched.b_repeats = args.stride_b[last] == 0;
  const T* dy = static_cast<const T*>(args.dy);
  T* y = static_cast<T*>(args.y);
  shape.for_parts([&](const Walk<2>& walk, const std::int64_t* at) {
    launched.walk = walk;
    launched.a = static_cast<const T*>(args.a) + at[0];
    launched.b = static_cast<const T*>(args.b) + at[1];
    launched.dy = dy;
    launched.y = y;
    launch(Op::kName, fours ? four_kernel<Op, Part, T> : single_kernel<Op, Part, T>,
           grid_for(walk.elements, kThreads), kThreads, launched);
    const std::int64_t done = std::int64_t{walk.elements} * (fours ? 4 : 1);
    if (dy != nullptr) dy += done;
    y += done;
  });
}

template <class Op, class T>
void run_part(const BinaryArgs& args) {
  switch (args.part) {
    case BinaryPart::forward:
      return run<Op, BinaryPart::forward, T>(args);
    case BinaryPart::gradient_a:
      return run<Op, BinaryPart::gradient_a, T>(args);
    case BinaryPart::gradient_b:
      return run<Op, BinaryPart::gradient_b, T>(args);
  }
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
