// Entries picked along an axis, each by an index, and the gradient.
//
//   mapping        forward: one thread per entry of the result. Backward, over columns of x (all entries of the
//                  axis at one place of the other axes): where picks are few, one thread per column goes through
//                  its picks in order. Where many picks fall on few entries, as those of a table by distance, one
//                  block per column: each thread goes through all picks and sums those of its own entries. No
//                  atomics, and the same order: that of the picks.
//   shared memory  backward with a block per column: 256 picks and their gradients
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

__global__ void crowded_backward_kernel(GatherArgs args) {
  __shared__ std::int32_t picks[kThreads];
  __shared__ float gradients[kThreads];
  const float* const dy = static_cast<const float*>(args.from);
  float* const dx = static_cast<float*>(args.to);
  const std::int64_t outer = blockIdx.x / args.inner, column = blockIdx.x % args.inner;
  const int thread = static_cast<int>(threadIdx.x);
  for (int first = 0; first < args.size; first += kThreads) {  // entries of this round
    const int own = first + thread;
    float* const to = dx + (outer * args.size + own) * args.inner + column;
    float sum = own < args.size ? *to : 0.0f;
    for (std::int64_t start = 0; start < args.picks; start += kThreads) {
      const int count = static_cast<int>(min(std::int64_t{kThreads}, args.picks - start));
      __syncthreads();  // the picks before have been read
      if (thread < count) {
        const std::int64_t from = (outer * args.picks + start + thread) * args.inner + column,
                           pick = args.index[from];
        picks[thread] = pick >= 0 && pick < args.size ? static_cast<std::int32_t>(pick) : -1;
        gradients[thread] = dy[from];
      }
      __syncthreads();
      for (int i = 0; i < count; ++i)
        if (picks[i] == own) sum += gradients[i];
    }
    if (own < args.size) *to = sum;
  }
}

// Whether many picks of a column fall on entries that a block has in few rounds. With more columns a thread for each
// fills the GPU.
bool crowded(const GatherArgs& args) {
  constexpr std::int64_t kFewColumns = 4096;
  return args.outer * args.inner <= kFewColumns && args.size <= 4 * kThreads && args.picks >= 64 &&
         args.picks >= args.size;
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
  if (crowded(args))
    launch("gather_backward", crowded_backward_kernel, args.outer * args.inner, kThreads, args);
  else
    launch("gather_backward", backward_kernel, grid_for(args.outer * args.inner, kThreads), kThreads, args);
}

}  // namespace eddy::cuda
