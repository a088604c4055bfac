// Adam over flat arenas, and the norm of an arena.
//
// Adam.
//   mapping        a block per 4096 elements in turn; thread t takes four elements from 4 t, 4 (t + 256), ...
//                  on, as 16 bytes, if all addresses are aligned, else elements t, t + 256, .... One thread
//                  of a block computes the shared factors, in f64, from scalars in GPU memory.
//   shared memory  32 bytes
//   bytes moved    p, m, v read and written, g read: 28 bytes an element, the least; 2 more with p in bf16
//   estimate       for 150 M elements on an H100 SXM: 4.2 GB at 3.35 TB/s are 1.25 ms, or 1.4 ms at the 90 %
//                  that copies reach. 56 registers allow 4 blocks on a multiprocessor: 64 KiB of loads in
//                  flight, where hiding latency needs some 20. 64 blocks for each are 16 rounds, so a block
//                  that ends late costs little, and the factors, some 2 us of one thread per block, are
//                  hidden by the other blocks.
//
// Norm.
//   mapping        a block per kNormBlock elements sums squares in f64, thread t those of elements t, t +
//                  256, ...; then one block sums the partial results in the same way
//   shared memory  64 bytes
//   bytes moved    x once, the least
#include "cuda/core/team.cuh"
#include "cuda/optimizer/arena.cuh"
#include "ops/optimizer/optimizer.h"

namespace eddy::cuda {
namespace {

// The scalars of one step that all elements share.
struct Step {
  float factor;         // clipping
  float inverse_root2;  // 1 / sqrt(1 - beta2^t)
  float rate;           // lr / (1 - beta1^t)
  double lr;
  bool skipped;  // the norm of the gradient is not finite
};

__device__ Step step_of(const AdamArgs& args) {
  const AdamScalars scalars = *args.scalars;
  Step step{};
  step.skipped = skips_step(args.norm);
  step.factor = static_cast<float>(clipping_of(args));
  const double t = static_cast<double>(scalars.step);
  step.inverse_root2 = static_cast<float>(1 / sqrt(1 - pow(args.options.beta2, t)));
  step.rate = static_cast<float>(scalars.lr / (1 - pow(args.options.beta1, t)));
  step.lr = scalars.lr;
  return step;
}

struct Rates {
  float beta1, beta2, rest1, rest2, eps;
};

struct AdamLaunch {
  AdamArgs args;
  bool by_four;
};

__global__ void adam_kernel(AdamLaunch launched) {
  const AdamArgs& args = launched.args;
  __shared__ Step step;
  if (threadIdx.x == 0) step = step_of(args);
  __syncthreads();
  if (step.skipped) return;
  const Rates rates{static_cast<float>(args.options.beta1), static_cast<float>(args.options.beta2),
                    static_cast<float>(1 - args.options.beta1), static_cast<float>(1 - args.options.beta2),
                    static_cast<float>(args.options.eps)};
  const auto update = [&](float keep, float g, float& p, float& m, float& v) {
    const float gradient = step.factor * g;
    m = rates.beta1 * m + rates.rest1 * gradient;
    v = rates.beta2 * v + rates.rest2 * gradient * gradient;
    p = keep * p - step.rate * m / (sqrtf(v) * step.inverse_root2 + rates.eps);
  };
  update_arena(args, step.lr, launched.by_four, update, static_cast<float*>(args.m),
               static_cast<float*>(args.v));
}

template <class T>
__global__ void squares_kernel(NormArgs args) {
  using Block = Team<kThreads>;
  const T* const x = static_cast<const T*>(args.x);
  const std::int64_t blocks = (args.n + kNormBlock - 1) / kNormBlock;
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t end = min((block + 1) * kNormBlock, args.n);
    const double sum = Block::sum(block * kNormBlock, end, [x](std::int64_t i) {
      const double value = static_cast<double>(x[i]);
      return value * value;
    });
    if (threadIdx.x == 0) args.partial[block] = sum;
  }
}

__global__ void norm_kernel(NormArgs args) {
  const std::int64_t blocks = (args.n + kNormBlock - 1) / kNormBlock;
  const double sum = Team<kThreads>::sum(0, blocks, [&](std::int64_t block) { return args.partial[block]; });
  // What is not finite less itself is NaN.
  const double before = args.before == nullptr ? 0 : *args.before;
  if (threadIdx.x == 0) *args.norm = sqrt(sum) + (before - before);
}

}  // namespace

void adam(const AdamArgs& args) {
  require_f32("adam", args.dtype);
  const bool by_four =
      aligned(args.p) && aligned(args.g) && aligned(args.m) && aligned(args.v) && aligned(args.rounded, 8);
  launch("adam", adam_kernel, grid_for(args.n, kOptimizerChunk, 64), kThreads, {args, by_four});
}

// Of f64 too: the norm of norms (train/step/reducer.cpp).
void l2_norm(const NormArgs& args) {
  if (args.dtype != Dtype::f64) require_f32("l2_norm", args.dtype);
  launch("l2_norm", args.dtype == Dtype::f64 ? squares_kernel<double> : squares_kernel<float>,
         grid_for(args.n, kNormBlock, 8), kThreads, args);
  launch("l2_norm", norm_kernel, 1, kThreads, args);
}

}  // namespace eddy::cuda
