// Rotary position embedding: pairs of neighbours rotated by angles from a table.
//
//   mapping        a thread for each pair, in the order of the result; a Walk finds the pair in x and in the
//                  table
//   shared memory  none
//   bytes moved    x and y once, the least; a row of the table serves all heads and sequences from the cache
#include "cuda/core/numbers.cuh"
#include "cuda/core/walk.h"
#include "ops/attention/rotary.h"

namespace eddy::cuda {
namespace {

template <class T>
struct RotaryLaunch {
  Walk<2> walk;  // over pairs, of x and of the table
  const T* x;
  const float* turns;
  T* y;
  std::int64_t sines;  // offset from the cosines of a position to its sines
  float sign;          // of the angle
  float beta;
};

template <class T>
__global__ void rotary_kernel(RotaryLaunch<T> args) {
  for (std::int64_t i = first_item(); i < args.walk.elements; i += item_step()) {
    std::int64_t at[2] = {};
    args.walk.add_offsets(static_cast<std::uint32_t>(i), at);
    const float u = static_cast<float>(args.x[at[0]]), w = static_cast<float>(args.x[at[0] + 1]);
    const float *const cosines = args.turns + at[1], *const sines = cosines + args.sines;
    const float first = u * cosines[0] + w * (sines[0] * args.sign);
    const float second = w * cosines[1] + u * (sines[1] * args.sign);
    add_to(args.y[2 * i], args.beta, first);
    add_to(args.y[2 * i + 1], args.beta, second);
  }
}

template <class T>
void rotary(const RotaryArgs& args) {
  const std::int64_t width = 2 * args.pairs;
  WalkShape<2> shape;
  shape.add_axis(args.batch, {args.x_batch_stride, 0});
  shape.add_axis(args.time, {args.x_time_stride, 2 * width});
  shape.add_axis(args.heads, {args.x_head_stride, 0});
  shape.add_axis(args.pairs, {2, 2});
  RotaryLaunch<T> launched;
  launched.sines = width;
  launched.sign = args.back ? -1.0f : 1.0f;
  launched.beta = args.beta;
  launched.y = static_cast<T*>(args.y);
  shape.for_parts([&](const Walk<2>& walk, const std::int64_t* at) {
    launched.walk = walk;
    launched.x = static_cast<const T*>(args.x) + at[0];
    launched.turns = static_cast<const float*>(args.turns) + at[1];
    launch("rotary", rotary_kernel<T>, grid_for(walk.elements, kThreads), kThreads, launched);
    launched.y += 2 * std::int64_t{walk.elements};
  });
}

}  // namespace

void rotary(const RotaryArgs& args) {
  for_activations("rotary", args.dtype, [&](auto* type) { rotary<StoredIn<decltype(type)>>(args); });
}

}  // namespace eddy::cuda
