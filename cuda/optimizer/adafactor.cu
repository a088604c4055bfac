// Adafactor in the five passes of ops/optimizer/adafactor.h, one launch each. The tables of tensors and
// blocks and the scalars of the step are read from GPU memory. Sums are in f64, in a fixed order.
//
//   mapping        passes 1, 3, 5   a thread block for each block of the plan; thread t takes columns t, t +
//                                   256, ..., or, for the sums of rows, warp w takes rows w, w + 8, ...
//                  pass 2           kColumnParts thread blocks for each tensor, a thread for each column
//                  pass 4           a warp for each tensor
//   shared memory  at most 2.1 KiB
//   bytes moved    of a factored matrix the gradient four times (the second from the cache, as a block is at
//                  most some 64 KiB), the parameter read twice and written once, the momentum read and
//                  written; the least is the gradient three times
#include "cuda/core/team.cuh"
#include "cuda/optimizer/arena.cuh"
#include "ops/optimizer/adafactor.h"
#include "ops/optimizer/optimizer.h"

namespace eddy::cuda {
namespace {

using Block = Team<kThreads>;

constexpr std::int64_t kColumnParts = 16;

// The scalars of one step, and where the parts of a tensor are.
struct Step {
  const AdafactorArgs& args;
  double factor, beta2;  // clipping of the gradient; decay of the second moments
  bool skipped;          // the norm of the gradient is not finite

  // All threads of the block must call it; one computes.
  __device__ explicit Step(const AdafactorArgs& a) : args(a), skipped(skips_step(a.norm)) {
    __shared__ double numbers[2];
    if (threadIdx.x == 0) {
      numbers[0] = clipping_of(args);
      numbers[1] = 1 - pow(static_cast<double>(args.scalars->step) + 1, -args.options.decay_exponent);
    }
    __syncthreads();
    factor = numbers[0];
    beta2 = numbers[1];
  }

  __device__ float* params(const AdafactorTensor& tensor) const {
    return static_cast<float*>(args.p) + tensor.begin;
  }
  __device__ const float* grads(const AdafactorTensor& tensor) const {
    return static_cast<const float*>(args.g) + tensor.begin;
  }
  __device__ float* momentum(const AdafactorTensor& tensor) const {
    return static_cast<float*>(args.m) + tensor.begin;
  }
  __device__ float* second(const AdafactorTensor& tensor) const {
    return static_cast<float*>(args.second) + tensor.second;
  }
  __device__ double square(float g) const {
    const double value = factor * static_cast<double>(g);
    return value * value + args.options.square_eps;
  }
  __device__ float decayed(float second, double mean) const {
    return static_cast<float>(beta2 * static_cast<double>(second) + (1 - beta2) * mean);
  }
};

// Calls body(row, scale) for the rows of a block of a factored tensor:
//
//   u     = g scale c^(-1/2)
//   scale = clipping factor * (mean(r) / r)^(1/2)
//
// Each root is computed once, by one thread.
template <class Body>
__device__ void for_rows_of_block(const Step& step, const AdafactorTensor& tensor,
                                  const AdafactorBlock& block, Body&& body) {
  __shared__ double scales[kThreads];
  const double mean = step.args.tensor_values[2 * block.tensor];
  const float* const r = step.second(tensor);
  for (std::int64_t first = block.begin; first < block.end; first += kThreads) {
    const std::int64_t count = min(std::int64_t{kThreads}, block.end - first);
    __syncthreads();  // all threads have read the former scales
    if (threadIdx.x < count)
      scales[threadIdx.x] = step.factor * sqrt(mean / static_cast<double>(r[first + threadIdx.x]));
    __syncthreads();
    for (std::int64_t i = 0; i < count; ++i) body(first + i, scales[i]);
  }
}

// Pass 1: second moments, and the sums of squares of each block.
__global__ void sums_kernel(AdafactorArgs args) {
  const Step step(args);
  if (step.skipped) return;
  const std::int64_t number = blockIdx.x;
  const AdafactorBlock block = args.blocks[number];
  const AdafactorTensor tensor = args.tensors[block.tensor];
  const std::int64_t columns = tensor.columns, begin = block.begin * columns, end = block.end * columns;
  const float *const g = step.grads(tensor), *const p = step.params(tensor);
  float* const second = step.second(tensor);
  if (tensor.factored) {
    double* const sums = args.column_sums + tensor.scratch + (number - tensor.first_block) * columns;
    for (std::int64_t column = threadIdx.x; column < columns; column += kThreads) {
      double sum = 0;
      for (std::int64_t row = block.begin; row < block.end; ++row)
        sum += step.square(g[row * columns + column]);
      sums[column] = sum;
    }
    using Warp = Team<32>;
    for (std::int64_t row = block.begin + threadIdx.x / 32; row < block.end; row += Warp::kRowsPerBlock) {
      const double sum =
          Warp::sum(0, columns, [&](std::int64_t column) { return step.square(g[row * columns + column]); });
      if (Warp::lane() == 0) second[row] = step.decayed(second[row], sum / static_cast<double>(columns));
    }
  } else {
    const double update_squares = Block::sum(begin, end, [&](std::int64_t i) {
      second[i] = step.decayed(second[i], step.square(g[i]));
      const double value = step.factor * static_cast<double>(g[i]);
      return value * value / static_cast<double>(second[i]);
    });
    if (threadIdx.x == 0) args.block_sums[2 * number] = update_squares;
  }
  const double squares = Block::sum(begin, end, [p](std::int64_t i) {
    const double value = static_cast<double>(p[i]);
    return value * value;
  });
  if (threadIdx.x == 0) args.block_sums[2 * number + 1] = squares;
}

// Pass 2.
__global__ void columns_kernel(AdafactorArgs args) {
  const Step step(args);
  const std::int64_t number = blockIdx.x / kColumnParts, part = blockIdx.x % kColumnParts;
  const AdafactorTensor tensor = args.tensors[number];
  if (step.skipped || !tensor.factored) return;
  const std::int64_t columns = tensor.columns;
  double* const sums = args.column_sums + tensor.scratch;
  float* const second = step.second(tensor);
  for (std::int64_t column = part * kThreads + threadIdx.x; column < columns;
       column += kColumnParts * kThreads) {
    double sum = 0;
    for (std::int64_t block = 0; block < tensor.blocks; ++block) sum += sums[block * columns + column];
    float& c = second[tensor.rows + column];
    c = step.decayed(c, sum / static_cast<double>(tensor.rows));
    sums[column] = 1 / sqrt(static_cast<double>(c));
  }
  if (part != 0) return;
  const double total =
      Block::sum(0, tensor.rows, [second](std::int64_t row) { return static_cast<double>(second[row]); });
  if (threadIdx.x == 0) args.tensor_values[2 * number] = total / static_cast<double>(tensor.rows);
}

// Pass 3.
__global__ void update_squares_kernel(AdafactorArgs args) {
  const Step step(args);
  const std::int64_t number = blockIdx.x;
  const AdafactorBlock block = args.blocks[number];
  const AdafactorTensor tensor = args.tensors[block.tensor];
  if (step.skipped || !tensor.factored) return;
  const float* const g = step.grads(tensor);
  const double* const column_scale = args.column_sums + tensor.scratch;
  double sum = 0;
  for_rows_of_block(step, tensor, block, [&](std::int64_t row, double scale) {
    for (std::int64_t column = threadIdx.x; column < tensor.columns; column += kThreads) {
      const double value =
          scale * static_cast<double>(g[row * tensor.columns + column]) * column_scale[column];
      sum += value * value;
    }
  });
  sum = Block::reduce(sum, Plus{});
  if (threadIdx.x == 0) args.block_sums[2 * number] = sum;
}

// Pass 4.
__global__ void rates_kernel(AdafactorArgs args) {
  using Warp = Team<32>;
  const Step step(args);
  if (step.skipped) return;
  for (std::int64_t number = Warp::first_row(); number < args.tensor_count; number += Warp::row_step()) {
    const AdafactorTensor tensor = args.tensors[number];
    double update_squares = 0, param_squares = 0;
    for (std::int64_t block = Warp::lane(); block < tensor.blocks; block += 32) {
      update_squares += args.block_sums[2 * (tensor.first_block + block)];
      param_squares += args.block_sums[2 * (tensor.first_block + block) + 1];
    }
    update_squares = Warp::reduce(update_squares, Plus{});
    param_squares = Warp::reduce(param_squares, Plus{});
    if (Warp::lane() != 0) continue;
    const double elements = static_cast<double>(tensor.rows) * static_cast<double>(tensor.columns);
    const double excess = sqrt(update_squares / elements) / args.options.update_clip;
    const double size = sqrt(param_squares / elements), least = args.options.least_scale;
    args.tensor_values[2 * number + 1] =
        args.scalars->lr * (size > least ? size : least) / (excess > 1 ? excess : 1);
  }
}

// Pass 5.
__global__ void apply_kernel(AdafactorArgs args) {
  const Step step(args);
  if (step.skipped) return;
  const AdafactorBlock block = args.blocks[blockIdx.x];
  const AdafactorTensor tensor = args.tensors[block.tensor];
  const float keep = static_cast<float>(args.options.momentum);
  const float take =
      static_cast<float>((1 - args.options.momentum) * args.tensor_values[2 * block.tensor + 1]);
  float *const p = step.params(tensor), *const m = step.momentum(tensor);
  const float* const g = step.grads(tensor);
  const auto apply = [=](std::int64_t i, float update) {
    m[i] = keep * m[i] + take * update;
    p[i] -= m[i];
  };
  if (!tensor.factored) {
    const float* const v = step.second(tensor);
    const float scale = static_cast<float>(step.factor);
    for (std::int64_t i = block.begin + threadIdx.x; i < block.end; i += kThreads)
      apply(i, scale * g[i] / sqrtf(v[i]));
    return;
  }
  const double* const column_scale = args.column_sums + tensor.scratch;
  for_rows_of_block(step, tensor, block, [&](std::int64_t row, double scale) {
    for (std::int64_t column = threadIdx.x; column < tensor.columns; column += kThreads) {
      const std::int64_t i = row * tensor.columns + column;
      apply(i, static_cast<float>(scale * static_cast<double>(g[i]) * column_scale[column]));
    }
  });
}

}  // namespace

void adafactor(const AdafactorArgs& args) {
  require_f32("adafactor", args.dtype);
  launch("adafactor_sums", sums_kernel, args.block_count, kThreads, args);
  launch("adafactor_columns", columns_kernel, args.tensor_count * kColumnParts, kThreads, args);
  launch("adafactor_update_squares", update_squares_kernel, args.block_count, kThreads, args);
  launch("adafactor_rates", rates_kernel, grid_for(args.tensor_count, Team<32>::kRowsPerBlock), kThreads,
         args);
  launch("adafactor_apply", apply_kernel, args.block_count, kThreads, args);
}

}  // namespace eddy::cuda
