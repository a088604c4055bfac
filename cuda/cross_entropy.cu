// Cross-entropy of rows, its mean, and the gradient, which is softmax and difference in one pass.
//
// Mapping: a warp per row of up to 1024 classes, a block per longer row; the mean by one block over the rows'
// losses. Shared memory: 8 numbers per block, 8 KiB for the mean. Bytes moved: forward reads the logits once
// from memory (the sum finds the row in the cache) and writes three numbers per row; the gradient reads them
// once and writes dlogits once: the least, as the probabilities are computed twice and never stored.
//
// A target that is no class and not ignored makes its row's loss and gradient NaN: to refuse it the host
// would have to wait for the GPU.
#include "cuda/install.h"
#include "cuda/numbers.cuh"
#include "cuda/team.cuh"
#include "ops/cross_entropy.h"

namespace eddy::cuda {
namespace {

__device__ float not_a_number() {
  return __int_as_float(0x7fffffff);
}

template <int Threads, class T>
__global__ void rows_kernel(CrossEntropyArgs args) {
  using Rows = Team<Threads>;
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const std::int64_t target = args.targets[row];
    const bool first = Rows::lane() == 0;
    float* const loss = static_cast<float*>(args.row_loss) + row;
    if (target == args.ignore || target < 0 || target >= args.classes) {
      if (first) *loss = target == args.ignore ? 0.0f : not_a_number();
      continue;
    }
    const T* const x = static_cast<const T*>(args.logits) + row * args.classes;
    float top = static_cast<float>(x[0]);
    for (std::int64_t i = Rows::lane(); i < args.classes; i += Threads)
      top = NanMax{}(top, static_cast<float>(x[i]));
    top = Rows::reduce(top, NanMax{});
    float sum = 0;
    for (std::int64_t i = Rows::lane(); i < args.classes; i += Threads)
      sum += expf(static_cast<float>(x[i]) - top);
    sum = Rows::reduce(sum, Plus{});
    if (!first) continue;
    *loss = logf(sum) - (static_cast<float>(x[target]) - top);
    if (args.row_max != nullptr) {
      static_cast<float*>(args.row_max)[row] = top;
      static_cast<float*>(args.row_inverse)[row] = 1.0f / sum;
    }
  }
}

constexpr int kMeanThreads = 512;

// The mean over the scored rows, in f64: thread t adds rows t, t + 512, ..., and the sums are folded in
// halves.
__global__ void mean_kernel(CrossEntropyMeanArgs args) {
  __shared__ double totals[kMeanThreads];
  __shared__ long long counts[kMeanThreads];
  const int thread = static_cast<int>(threadIdx.x);
  double total = 0;
  long long scored = 0;
  for (std::int64_t row = thread; row < args.rows; row += kMeanThreads) {
    if (args.targets[row] == args.ignore) continue;
    total += static_cast<double>(static_cast<const float*>(args.row_loss)[row]);
    ++scored;
  }
  totals[thread] = total;
  counts[thread] = scored;
  for (int half = kMeanThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) {
      totals[thread] += totals[thread + half];
      counts[thread] += counts[thread + half];
    }
  }
  if (thread != 0) return;
  const double inverse = counts[0] > 0 ? 1.0 / static_cast<double>(counts[0]) : 0.0;
  *static_cast<float*>(args.loss) = static_cast<float>(totals[0] * inverse);
  *static_cast<float*>(args.inverse_scored) = static_cast<float>(inverse);
}

template <int Threads, class T, class Gradient>
__global__ void backward_kernel(CrossEntropyBackwardArgs args) {
  using Rows = Team<Threads>;
  const float scale = *static_cast<const float*>(args.dy) * *static_cast<const float*>(args.inverse_scored);
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const std::int64_t target = args.targets[row];
    const bool ignored = target == args.ignore, known = target >= 0 && target < args.classes;
    const T* const x = static_cast<const T*>(args.logits) + row * args.classes;
    Gradient* const dx = static_cast<Gradient*>(args.dlogits) + row * args.classes;
    const float top = known && !ignored ? static_cast<const float*>(args.row_max)[row] : 0.0f;
    const float factor = known && !ignored ? scale * static_cast<const float*>(args.row_inverse)[row] : 0.0f;
    for (std::int64_t i = Rows::lane(); i < args.classes; i += Threads) {
      float share = 0;
      if (!ignored)
        share = known ? factor * expf(static_cast<float>(x[i]) - top) - (i == target ? scale : 0.0f)
                      : not_a_number();
      add_to(dx[i], args.beta, share);
    }
  }
}

void forward(const CrossEntropyArgs& args) {
  for_activations("cross_entropy", args.dtype, [&](auto* type) {
    using T = StoredIn<decltype(type)>;
    launch_rows("cross_entropy", rows_kernel<32, T>, rows_kernel<kThreads, T>, args.rows, args.classes, args);
  });
}

template <class T, class Gradient>
void backward(const CrossEntropyBackwardArgs& args) {
  launch_rows("cross_entropy_backward", backward_kernel<32, T, Gradient>,
              backward_kernel<kThreads, T, Gradient>, args.rows, args.classes, args);
}

}  // namespace

void install_cross_entropy() {
  constexpr int kCuda = static_cast<int>(DeviceType::cuda);
  cross_entropy_forward_slot.function[kCuda] = forward;
  cross_entropy_mean_slot.function[kCuda] = [](const CrossEntropyMeanArgs& args) {
    launch("cross_entropy_mean", mean_kernel, 1, kMeanThreads, args);
  };
  cross_entropy_backward_slot.function[kCuda] = [](const CrossEntropyBackwardArgs& args) {
    if (args.dtype == Dtype::f32 && args.bf16_dlogits) return backward<float, bf16>(args);
    for_activations("cross_entropy", args.dtype, [&](auto* type) {
      using T = StoredIn<decltype(type)>;
      backward<T, T>(args);
    });
  };
}

}  // namespace eddy::cuda
