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
#include "cuda/core/map.cuh"
#include "cuda/core/team.cuh"
#include "cuda/optimizer/decay.cuh"
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
  double factor = 1;
  if (args.norm != nullptr) {
    step.skipped = !(*args.norm - *args.norm == 0);  // NaN or infinite
    factor = clip_factor(*args.norm, scalars.clip);
  }
  const double t = static_cast<double>(scalars.step);
  step.factor = static_cast<float>(factor);
  step.inverse_root2 = static_cast<float>(1 / sqrt(1 - pow(args.options.beta2, t)));
  step.rate = static_cast<float>(scalars.lr / (1 - pow(args.options.beta1, t)));
  step.lr = scalars.lr;
  return step;
}

struct Rates {
  float beta1, beta2, rest1, rest2, eps;
};

// Updates one element: p, m and v in place.
__device__ void update(const Step& step, const Rates& rates, float keep, float g, float& p, float& m,
                       float& v) {
  const float gradient = step.factor * g;
  m = rates.beta1 * m + rates.rest1 * gradient;
  v = rates.beta2 * v + rates.rest2 * gradient * gradient;
  p = keep * p - step.rate * m / (sqrtf(v) * step.inverse_root2 + rates.eps);
}

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
  float* const p = static_cast<float*>(args.p);
  const float* const g = static_cast<const float*>(args.g);
  float* const m = static_cast<float*>(args.m);
  float* const v = static_cast<float*>(args.v);
  bf16* const rounded = static_cast<bf16*>(args.rounded);
  for (std::int64_t start = blockIdx.x * kOptimizerChunk; start < args.n;
       start += gridDim.x * kOptimizerChunk) {
    const std::int64_t end = min(start + kOptimizerChunk, args.n);
    const std::int64_t last_four = launched.by_four ? start + (end - start) / 4 * 4 : start;
    Decay<AdamArgs> decay(args, step.lr, start);
    for (std::int64_t i = start + 4 * threadIdx.x; i < last_four; i += 4 * kThreads) {
      const Group<float> gradients = read_group(g + i);
      Neighbours<float, 4> ps = read_neighbours<4>(p + i, 4, false);
      Group<float> ms = read_group(m + i), vs = read_group(v + i);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        update(step, rates, decay.keep(i + j), gradients.at[j], ps.at[j], ms.at[j], vs.at[j]);
      *reinterpret_cast<Neighbours<float, 4>*>(p + i) = ps;
      if (rounded != nullptr) *reinterpret_cast<Neighbours<bf16, 4>*>(rounded + i) = as_stored<bf16>(ps);
      write_group(m + i, ms);
      write_group(v + i, vs);
    }
    // The remainder, fewer than four elements or all: after the fours, so the index still increases.
    for (std::int64_t i = last_four + threadIdx.x; i < end; i += kThreads) {
      update(step, rates, decay.keep(i), g[i], p[i], m[i], v[i]);
      if (rounded != nullptr) rounded[i] = static_cast<bf16>(p[i]);
    }
  }
}

__global__ void squares_kernel(NormArgs args) {
  using Block = Team<kThreads>;
  const float* const x = static_cast<const float*>(args.x);
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
  if (threadIdx.x == 0) *args.norm = sqrt(sum);
}

}  // namespace

void adam(const AdamArgs& args) {
  require_f32("adam", args.dtype);
  const bool by_four =
      aligned(args.p) && aligned(args.g) && aligned(args.m) && aligned(args.v) && aligned(args.rounded, 8);
  launch("adam", adam_kernel, grid_for(args.n, kOptimizerChunk, 64), kThreads, {args, by_four});
}

void l2_norm(const NormArgs& args) {
  require_f32("l2_norm", args.dtype);
  launch("l2_norm", squares_kernel, grid_for(args.n, kNormBlock, 8), kThreads, args);
  launch("l2_norm", norm_kernel, 1, kThreads, args);
}

}  // namespace eddy::cuda
