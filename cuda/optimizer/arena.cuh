// What kernels of optimizers share: clipping by the norm of the gradient, the weight decay of an element, and the loop
// over an arena.
#pragma once

#include <cstdint>

#include "cuda/core/map.cuh"
#include "ops/optimizer/optimizer.h"

namespace eddy::cuda {

inline constexpr std::int64_t kOptimizerChunk = 4096;  // elements that a block takes at a time

// Whether a step changes nothing: the norm of the gradient is NaN or infinite. Null: it is not looked at.
__device__ inline bool skips_step(const double* norm) {
  return norm != nullptr && !(*norm - *norm == 0);
}

// What a step multiplies its gradient by.
template <class Args>
__device__ double clipping_of(const Args& args) {
  return args.norm == nullptr ? 1.0 : clip_factor(*args.norm, args.scalars->clip);
}

// The weight decay at an element index that only increases: its f64 is computed once per segment that a
// thread meets.
template <class Args>
class Decay {
 public:
  __device__ Decay(const Args& args, double lr, std::int64_t element)
      : args_(args), lr_(lr), segment_(segment_after(args, element)) {
    enter();
  }
  // Returns the factor 1 - lr decay of an element, which must not be before the last one passed in.
  __device__ float keep(std::int64_t element) {
    while (end_ <= element) {
      ++segment_;
      enter();
    }
    return begin_ <= element ? keep_ : 1.0f;
  }

 private:
  __device__ void enter() {
    const bool there = segment_ < args_.segment_count;
    begin_ = there ? args_.segments[segment_].begin : args_.n;
    end_ = there ? args_.segments[segment_].end : args_.n;
    keep_ = there ? static_cast<float>(1 - lr_ * args_.segments[segment_].decay) : 1.0f;
  }

  const Args& args_;
  double lr_;
  std::int64_t segment_, begin_, end_;
  float keep_;
};

// Updates the elements of an arena in place: a block takes chunks in turn, and with `by_four` a thread four neighbours
// at a time as 16 bytes, for which all addresses are aligned. update(keep, g, p, m...) computes one element, p and its
// `moments`; `keep` is the factor of its weight decay. The copy of the parameters in bf16 follows them.
template <class Args, class Update, class... Moment>
__device__ void update_arena(const Args& args, double lr, bool by_four, const Update& update,
                             Moment* const... moments) {
  float* const p = static_cast<float*>(args.p);
  const float* const g = static_cast<const float*>(args.g);
  bf16* const rounded = static_cast<bf16*>(args.rounded);
  for (std::int64_t start = blockIdx.x * kOptimizerChunk; start < args.n;
       start += gridDim.x * kOptimizerChunk) {
    const std::int64_t end = min(start + kOptimizerChunk, args.n);
    const std::int64_t last_four = by_four ? start + (end - start) / 4 * 4 : start;
    Decay<Args> decay(args, lr, start);
    for (std::int64_t i = start + 4 * threadIdx.x; i < last_four; i += 4 * kThreads) {
      const Group<float> gradients = read_group(g + i);
      Neighbours<float, 4> ps = read_neighbours<4>(p + i, 4, false);
      const auto update_four = [&](Group<Moment>... ms) {
#pragma unroll
        for (int j = 0; j < 4; ++j) update(decay.keep(i + j), gradients.at[j], ps.at[j], ms.at[j]...);
        (write_group(moments + i, ms), ...);
      };
      update_four(read_group(moments + i)...);
      *reinterpret_cast<Neighbours<float, 4>*>(p + i) = ps;
      if (rounded != nullptr) *reinterpret_cast<Neighbours<bf16, 4>*>(rounded + i) = as_stored<bf16>(ps);
    }
    // The remainder, fewer than four elements or all: after the fours, so the index still increases.
    for (std::int64_t i = last_four + threadIdx.x; i < end; i += kThreads) {
      update(decay.keep(i), g[i], p[i], moments[i]...);
      if (rounded != nullptr) rounded[i] = static_cast<bf16>(p[i]);
    }
  }
}

}  // namespace eddy::cuda
