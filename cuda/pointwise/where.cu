// A choice between two tensors by a mask, over their broadcast shape. It moves bits, so one instantiation per
// element size serves all types.
//
//   mapping        one thread per element of the result
//   shared memory  none
//   bytes moved    the mask, the result, and the chosen elements of each operand in whole sectors: at most
//                  one read of each operand
#include "cuda/core/launch.cuh"
#include "cuda/core/walk.h"
#include "ops/pointwise/where.h"
#include "tensor/convert.h"

namespace eddy::cuda {
namespace {

template <class T>
struct WhereLaunch {
  Walk<3> walk;  // over the mask, a and b
  const std::uint8_t* mask;
  const T *a, *b;
  T* y;
};

template <class T>
__global__ void where_kernel(WhereLaunch<T> args) {
  for (std::int64_t i = first_item(); i < args.walk.elements; i += item_step()) {
    std::int64_t at[3] = {};
    args.walk.add_offsets(static_cast<std::uint32_t>(i), at);
    args.y[i] = args.mask[at[0]] != 0 ? args.a[at[1]] : args.b[at[2]];
  }
}

template <class T>
void where(const WhereArgs& args) {
  WalkShape<3> shape;
  for (int i = 0; i < args.rank; ++i)
    shape.add_axis(args.shape[i], {args.stride_mask[i], args.stride_a[i], args.stride_b[i]});
  T* y = static_cast<T*>(args.y);
  shape.for_parts([&](const Walk<3>& walk, const std::int64_t* at) {
    launch("where", where_kernel<T>, grid_for(walk.elements, kThreads), kThreads,
           {walk, args.mask + at[0], static_cast<const T*>(args.a) + at[1],
            static_cast<const T*>(args.b) + at[2], y});
    y += walk.elements;
  });
}

}  // namespace

void where(const WhereArgs& args) {
  dispatch_by_size(args.dtype, [&](auto bits) { where<decltype(bits)>(args); });
}

}  // namespace eddy::cuda
