// SGD with momentum, Lion and the two halves of Muon over flat arenas.
//
//   mapping        as Adam's (optimizer.cu): a block per 4096 elements in turn, four neighbours for each thread if all
//                  addresses are aligned
//   shared memory  24 bytes: the factors that all elements share
//   bytes moved    p and m read and written, g read: 20 bytes an element, the least for SGD and Lion; 2 more with p in
//                  bf16. Muon's halves need 16 and 12: what a rule does not read is moved all the same
#include "cuda/optimizer/arena.cuh"
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
    step.lr = args.scalars->lr;
    step.skipped = skips_step(args.norm);
    step.factor = static_cast<float>(momentum_clipping<Rule>(args.norm, args.scalars->clip));
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
  update_arena(args, step.lr, launched.by_four, update, static_cast<float*>(args.m));
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
