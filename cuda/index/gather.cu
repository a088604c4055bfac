// Entries picked along an axis, each by an index, and the gradient.
//
//   mapping        forward: one thread per entry of the result. Backward: one thread per column of x (all
//                  entries of the axis at one place of the other axes), which goes through the picks of its
//                  column in order and accumulates into its own entries: no atomics, a fixed order.
//   shared memory  none
//   bytes moved    index, picks and result once; the picked entries in whole sectors of 32 bytes, which for
//                  inner = 1 can be 8 times what is used
//
// An index outside the axis gives an entry with all bits set (NaN of a floating type) forward and nothing
// backward.
#include "cuda/core/launch.cuh"
#include "ops/index/gather.h"
#include "tensor/convert.h"

namespace eddy::cuda {
namespace {

template <class T>
__global__ void forward_kernel(GatherArgs args) {
  const T* const x = static_cast<const T*>(args.from);
  T* const y = static_cast<T*>(args.to);
  for (std::int64_t i = first_item(); i < args.outer * args.picks * args.inner; i += item_step()) {
    const std::int64_t outer = i / (args.picks * args.inner), pick = args.index[i];
    const bool known = pick >= 0 && pick < args.size;
    y[i] = known ? x[(outer * args.size + pick) * args.inner + i % args.inner] : static_cast<T>(~T{0});
  }
}

__global__ void backward_kernel(GatherArgs args) {
  const float* const dy = static_cast<const float*>(args.from);
  float* const dx = static_cast<float*>(args.to);
  for (std::int64_t i = first_item(); i < args.outer * args.inner; i += item_step()) {
    const std::int64_t outer = i / args.inner, column = i % args.inner;
    for (std::int64_t j = 0; j < args.picks; ++j) {
      const std::int64_t from = (outer * args.picks + j) * args.inner + column, pick = args.index[from];
      if (pick >= 0 && pick < args.size) dx[(outer * args.size + pick) * args.inner + column] += dy[from];
    }
  }
}

template <class T>
void forward(const GatherArgs& args) {
  launch("gather", forward_kernel<T>, grid_for(args.outer * args.picks * args.inner, kThreads), kThreads,
         args);
}

}  // namespace

void gather_forward(const GatherArgs& args) {
  dispatch_by_size(args.dtype, [&](auto bits) { forward<decltype(bits)>(args); });
}

void gather_backward(const GatherArgs& args) {
  require_f32("gather", args.dtype);
  launch("gather_backward", backward_kernel, grid_for(args.outer * args.inner, kThreads), kThreads, args);
}

}  // namespace eddy::cuda
