// SGD with momentum, Lion and the two halves of Muon over flat arenas.
//
//   mapping        as Adam's (optimizer.cu): a block per 4096 elements in turn, four neighbours for each thread if all
//                  addresses are aligned
//   shared memory  24 bytes: the factors that all elements share
//   bytes moved    p and m read and written, g read: 20 bytes an element, the least; 2 more with p in bf16
#include "cuda/core/map.cuh"
#include "cuda/optimizer/decay.cuh"
#include "ops/optimizer/momentum.h"

namespace eddy::cuda {
namespace {

struct MomentumLaunch {
  MomentumArgs args;
  bool by_four;
};

// The factors of a step that all elements share.
struct MomentumStep {
  double lr;
  float factor;  // clipping
  bool skipped;  // the norm of the gradient is not finite
};

template <MomentumRule Rule>
__global__ void momentum_kernel(MomentumLaunch launched) {
  const MomentumArgs& args = launched.args;
  __shared__ MomentumStep step;
  if (threadIdx.x == 0) {
    const double norm = args.norm == nullptr ? 0 : *args.norm;
    step.lr = args.scalars->lr;
    step.skipped = !(norm - norm == 0);
    step.factor = static_cast<float>(clipping_of<Rule>(args.norm, args.scalars->clip));
  }
  __syncthreads();
  if (step.skipped) return;
  const float beta1 = static_cast<float>(args.options.beta1),
              rest1 = static_cast<float>(1 - args.options.beta1),
              beta2 = static_cast<float>(args.options.beta2),
              rest2 = static_cast<float>(1 - args.options.beta2), rate = static_cast<float>(step.lr);
  const auto update = [&](float keep, float g, float& p, float& m) {
    p = momentum_update<Rule>(beta1, rest1, beta2, rest2, rate, keep, step.factor * g, p, m);
  };
  float* const p = static_cast<float*>(args.p);
  const float* const g = static_cast<const float*>(args.g);
  float* const m = static_cast<float*>(args.m);
  bf16* const rounded = static_cast<bf16*>(args.rounded);
  for (std::int64_t start = blockIdx.x * kOptimizerChunk; start < args.n;
       start += gridDim.x * kOptimizerChunk) {
    const std::int64_t end = min(start + kOptimizerChunk, args.n);
    const std::int64_t last_four = launched.by_four ? start + (end - start) / 4 * 4 : start;
    Decay<MomentumArgs> decay(args, step.lr, start);
    for (std::int64_t i = start + 4 * threadIdx.x; i < last_four; i += 4 * kThreads) {
      const Group<float> gradients = read_group(g + i);
      Neighbours<float, 4> ps = read_neighbours<4>(p + i, 4, false);
      Group<float> ms = read_group(m + i);
#pragma unroll
      for (int j = 0; j < 4; ++j) update(decay.keep(i + j), gradients.at[j], ps.at[j], ms.at[j]);
      *reinterpret_cast<Neighbours<float, 4>*>(p + i) = ps;
      if (rounded != nullptr) *reinterpret_cast<Neighbours<bf16, 4>*>(rounded + i) = as_stored<bf16>(ps);
      write_group(m + i, ms);
    }
    for (std::int64_t i = last_four + threadIdx.x; i < end; i += kThreads) {
      update(decay.keep(i), g[i], p[i], m[i]);
      if (rounded != nullptr) rounded[i] = static_cast<bf16>(p[i]);
    }
  }
}

}  // namespace

void momentum(const MomentumArgs& args) {
  require_f32("momentum", args.dtype);
  const bool by_four = aligned(args.p) && aligned(args.g) && aligned(args.m) && aligned(args.rounded, 8);
  const auto kernel_of = [](MomentumRule rule) {
    switch (rule) {
      case MomentumRule::sgd:
        return momentum_kernel<MomentumRule::sgd>;
      case MomentumRule::lion:
        return momentum_kernel<MomentumRule::lion>;
      case MomentumRule::nesterov:
        return momentum_kernel<MomentumRule::nesterov>;
      default:
        return momentum_kernel<MomentumRule::given>;
    }
  };
  launch("momentum", kernel_of(args.options.rule), grid_for(args.n, kOptimizerChunk, 64), kThreads,
         {args, by_four});
}

}  // namespace eddy::cuda
