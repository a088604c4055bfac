// What kernels of optimizers share: the weight decay of an element, and the chunk of a block.
#pragma once

#include <cstdint>

#include "cuda/core/launch.cuh"
#include "ops/optimizer/optimizer.h"

namespace eddy::cuda {

inline constexpr std::int64_t kOptimizerChunk = 4096;  // elements that a block takes at a time

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

}  // namespace eddy::cuda
