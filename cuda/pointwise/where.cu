// A choice between two tensors by a mask, over their broadcast shape: a map (cuda/core/map.cuh). It moves bits,
// so one instantiation per element size serves all types.
#include "cuda/core/map.cuh"
#include "ops/pointwise/where.h"
#include "tensor/convert.h"

namespace eddy::cuda {
namespace {

struct Choice {
  template <class T>
  __device__ T operator()(std::uint8_t mask, T a, T b) const {
    return mask != 0 ? a : b;
  }
};

template <class T>
void where(const WhereArgs& args) {
  WalkShape<4> shape;
  for (int i = 0; i < args.rank; ++i) {
    std::int64_t row_major_stride = 1;
    for (int k = i + 1; k < args.rank; ++k) row_major_stride *= args.shape[k];
    shape.add_axis(args.shape[i],
                   {row_major_stride, args.stride_mask[i], args.stride_a[i], args.stride_b[i]});
  }
  launch_map("where", Choice{}, shape, static_cast<T*>(args.y), args.mask, static_cast<const T*>(args.a),
             static_cast<const T*>(args.b));
}

}  // namespace

void where(const WhereArgs& args) {
  dispatch_by_size(args.dtype, [&](auto bits) { where<decltype(bits)>(args); });
}

}  // namespace eddy::cuda
