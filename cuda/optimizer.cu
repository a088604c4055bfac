// Adam over flat arenas, the norm of an arena, and scaling.
//
// Adam, mapping: a block per 4096 elements in turn; thread t takes elements t, t + 256, ...; one thread of a
// block computes the factors that all share, in f64, from scalars in the GPU's memory. Shared memory: 48
// bytes. Bytes moved: p, m, v read and written, g read: 28 bytes an element, the least. Norm, mapping: a
// block per kNormBlock elements sums squares in f64, thread t those of elements t, t + 256, ...; then one
// block sums the partial results the same way. Shared memory: 64 bytes. Bytes moved: x once, the least.
// Scale: one thread per element; x read and written once.
#include "cuda/install.h"
#include "cuda/team.cuh"
#include "ops/optimizer.h"

namespace eddy::cuda {
namespace {

constexpr std::int64_t kChunk = 4096;

// The numbers of one step that all elements share.
struct Step {
  float factor;         // clipping
  float inverse_root2;  // 1 / sqrt(1 - beta2^t)
  float rate;           // lr / (1 - beta1^t)
  double lr;
  bool skipped;  // the norm is not finite
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

// The first segment that ends after `element`.
__device__ std::int64_t segment_after(const AdamArgs& args, std::int64_t element) {
  std::int64_t low = 0, high = args.segment_count;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (args.segments[middle].end > element)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

__global__ void adam_kernel(AdamArgs args) {
  __shared__ Step step;
  if (threadIdx.x == 0) step = step_of(args);
  __syncthreads();
  if (step.skipped) return;
  const float beta1 = static_cast<float>(args.options.beta1), beta2 = static_cast<float>(args.options.beta2);
  const float rest1 = static_cast<float>(1 - args.options.beta1),
              rest2 = static_cast<float>(1 - args.options.beta2);
  const float eps = static_cast<float>(args.options.eps);
  float* const p = static_cast<float*>(args.p);
  const float* const g = static_cast<const float*>(args.g);
  float* const m = static_cast<float*>(args.m);
  float* const v = static_cast<float*>(args.v);
  for (std::int64_t start = blockIdx.x * kChunk; start < args.n; start += gridDim.x * kChunk) {
    const std::int64_t end = min(start + kChunk, args.n);
    std::int64_t segment = segment_after(args, start);
    for (std::int64_t i = start + threadIdx.x; i < end; i += kThreads) {
      while (segment < args.segment_count && args.segments[segment].end <= i) ++segment;
      const bool decays = segment < args.segment_count && args.segments[segment].begin <= i;
      const float keep = decays ? static_cast<float>(1 - step.lr * args.segments[segment].decay) : 1.0f;
      const float gradient = step.factor * g[i];
      const float first = beta1 * m[i] + rest1 * gradient;
      const float second = beta2 * v[i] + rest2 * gradient * gradient;
      m[i] = first;
      v[i] = second;
      p[i] = keep * p[i] - step.rate * first / (sqrtf(second) * step.inverse_root2 + eps);
    }
  }
}

__global__ void squares_kernel(NormArgs args) {
  using Block = Team<kThreads>;
  const float* const x = static_cast<const float*>(args.x);
  const std::int64_t blocks = (args.n + kNormBlock - 1) / kNormBlock;
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t end = min((block + 1) * kNormBlock, args.n);
    double sum = 0;
    for (std::int64_t i = block * kNormBlock + threadIdx.x; i < end; i += kThreads) {
      const double value = static_cast<double>(x[i]);
      sum += value * value;
    }
    sum = Block::reduce(sum, Plus{});
    if (threadIdx.x == 0) args.partial[block] = sum;
  }
}

__global__ void norm_kernel(NormArgs args) {
  const std::int64_t blocks = (args.n + kNormBlock - 1) / kNormBlock;
  double sum = 0;
  for (std::int64_t block = threadIdx.x; block < blocks; block += kThreads) sum += args.partial[block];
  sum = Team<kThreads>::reduce(sum, Plus{});
  if (threadIdx.x == 0) *args.norm = sqrt(sum);
}

__global__ void scale_kernel(ScaleArgs args) {
  float* const x = static_cast<float*>(args.x);
  float factor = static_cast<float>(args.factor);
  if (args.by != nullptr) factor *= *static_cast<const float*>(args.by);
  for (std::int64_t i = first_item(); i < args.n; i += item_step()) x[i] *= factor;
}

}  // namespace

void install_optimizer() {
  constexpr int kCuda = static_cast<int>(DeviceType::cuda);
  adam_slot.function[kCuda] = [](const AdamArgs& args) {
    require_f32("adam", args.dtype);
    launch("adam", adam_kernel, grid_for(args.n, kChunk, 8), kThreads, args);
  };
  l2_norm_slot.function[kCuda] = [](const NormArgs& args) {
    require_f32("l2_norm", args.dtype);
    launch("l2_norm", squares_kernel, grid_for(args.n, kNormBlock, 8), kThreads, args);
    launch("l2_norm", norm_kernel, 1, kThreads, args);
  };
  scale_slot.function[kCuda] = [](const ScaleArgs& args) {
    require_f32("scale", args.dtype);
    launch("scale", scale_kernel, grid_for(args.n, kThreads), kThreads, args);
  };
}

}  // namespace eddy::cuda
