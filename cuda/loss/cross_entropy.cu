// Cross-entropy of rows, its mean, and the gradient, which computes softmax and difference in one pass.
//
// Loss, mean and gradient as separate kernels.
//   mapping        a warp per row of up to 1024 classes, a block per longer row; one block for the mean over
//                  the rows' losses
//   shared memory  8 numbers (32 bytes) per block; 8 KiB (8,192 bytes) for the mean
//   bytes moved    forward reads the logits once from memory (the sum finds the row in the cache) and writes
//                  three numbers per row; the gradient reads them once and writes dlogits once: the least, as
//                  the probabilities are computed twice and never stored
//
// Loss and gradient in one kernel.
//   mapping        a warp, a block of 256 or a block of 1024 threads per row, by its length. A thread goes
//                  through the same groups of a row twice, 16 bytes each: first it updates a running maximum
//                  and sum, then it computes the gradient. Only the last group may have fewer classes, and stands
//                  apart, so that nothing is tested for a logit.
//   shared memory  the row between the two passes, as far as it goes: 226 KiB on 9.0, 115,000 classes in bf16,
//                  two rows of 57,000 to a multiprocessor. The rest is read again and should be in the L2
//                  cache: with 98 KiB of shared memory (8.6) 84 multiprocessors have 84 (100 - 98) KiB in
//                  flight with rows of 50,257 in bf16, and 8.4 MB of f32.
//   bytes moved    the logits once, dlogits once
//
// A target that is neither a class nor ignored makes its row's loss and gradient NaN: to reject it the host
// would have to wait for the GPU.
#include <algorithm>
#include <cfloat>

#include "cuda/core/numbers.cuh"
#include "cuda/core/resident_launch.cuh"
#include "cuda/core/shared_launch.cuh"
#include "cuda/core/team.cuh"
#include "cuda/core/warp_matrix.cuh"
#include "ops/loss/cross_entropy.h"
#include "tensor/base/error.h"

namespace eddy::cuda {
namespace {

__device__ float not_a_number() {
  return __int_as_float(0x7fffffff);
}

template <int Threads, class T>
__global__ void rows_kernel(CrossEntropyArgs args) {
  using RowTeam = Team<Threads>;
  for (std::int64_t row = RowTeam::first_row(); row < args.rows; row += RowTeam::row_step()) {
    const std::int64_t target = args.targets[row];
    const bool first = RowTeam::lane() == 0;
    float* const loss = static_cast<float*>(args.row_loss) + row;
    if (target == args.ignore || target < 0 || target >= args.classes) {
      if (first) *loss = target == args.ignore ? 0.0f : not_a_number();
      continue;
    }
    const T* const x = static_cast<const T*>(args.logits) + row * args.stride;
    float top = static_cast<float>(x[0]);
    for (std::int64_t i = RowTeam::lane(); i < args.classes; i += Threads)
      top = NanMax{}(top, static_cast<float>(x[i]));
    top = RowTeam::reduce(top, NanMax{});
    const float sum =
        RowTeam::sum(0, args.classes, [=](std::int64_t i) { return expf(static_cast<float>(x[i]) - top); });
    if (!first) continue;
    *loss = logf(sum) - (static_cast<float>(x[target]) - top);
    if (args.row_max != nullptr) {
      static_cast<float*>(args.row_max)[row] = top;
      static_cast<float*>(args.row_inverse)[row] = 1.0f / sum;
    }
  }
}

constexpr int kMeanThreads = 512;

// The mean over the scored rows, in f64: thread t adds rows t, t + 512, ..., then a tree adds the threads'
// sums.
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

template <int Threads, class T>
__global__ void backward_kernel(CrossEntropyBackwardArgs args) {
  using RowTeam = Team<Threads>;
  const float scale = *static_cast<const float*>(args.dy) * *static_cast<const float*>(args.inverse_scored);
  for (std::int64_t row = RowTeam::first_row(); row < args.rows; row += RowTeam::row_step()) {
    const std::int64_t target = args.targets[row];
    const bool ignored = target == args.ignore, known = target >= 0 && target < args.classes;
    const T* const x = static_cast<const T*>(args.logits) + row * args.stride;
    T* const dx = static_cast<T*>(args.dlogits) + row * args.stride;
    const float top = known && !ignored ? static_cast<const float*>(args.row_max)[row] : 0.0f;
    const float factor = known && !ignored ? scale * static_cast<const float*>(args.row_inverse)[row] : 0.0f;
    for (std::int64_t i = RowTeam::lane(); i < args.classes; i += Threads) {
      float share = 0;
      if (!ignored)
        share = known ? factor * expf(static_cast<float>(x[i]) - top) - (i == target ? scale : 0.0f)
                      : not_a_number();
      add_to(dx[i], args.beta, share);
    }
  }
}

// e^x for x <= 0 by one instruction that computes a power of 2: within 2 units of the last place near 0, and within
// |x| units elsewhere. Results below 2^-126 are 0.
__device__ float share_of(float x) {
  return fast_exp2(x * kLog2OfE);
}

// A row's largest logit so far, and the sum of exponentials relative to it. A NaN makes the sum NaN.
struct RunningSum {
  float top = -FLT_MAX, sum = 0;  // finite, so that -infinity adds 0 also in a thread that has nothing else

  template <class T>
  __device__ void add(const Group<T>& group) {
    float largest = top;
#pragma unroll
    for (const float x : group.at) largest = fmaxf(largest, x);
    if (largest > top) {
      sum *= share_of(top - largest);
      top = largest;
    }
#pragma unroll
    for (const float x : group.at) sum += share_of(x - top);
  }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct RowsLaunch {
  CrossEntropyRowsArgs args;
  int groups;         // of a row
  int shared_groups;  // groups in shared memory
};

constexpr int kLongRowThreads = 1024;

template <int Threads, class T>
__global__ void __launch_bounds__(Team<Threads>::kBlock) loss_and_gradient_kernel(RowsLaunch launched) {
  using RowTeam = Team<Threads>;
  constexpr int kAtOnce = 4;  // loads in flight: 64 KiB for the block of a long row
  const CrossEntropyRowsArgs& args = launched.args;
  const int groups = launched.groups, shared_groups = launched.shared_groups,
            classes = static_cast<int>(args.classes), whole = classes / kGroup<T>;
  auto* const kept =
      reinterpret_cast<StoredGroup<T>*>(shared_memory()) + threadIdx.x / Threads * shared_groups;
  for (std::int64_t row = RowTeam::first_row(); row < args.rows; row += RowTeam::row_step()) {
    const std::int64_t target = args.targets[row];
    T* const x = static_cast<T*>(args.logits) + row * args.stride;
    auto* const of_row = reinterpret_cast<StoredGroup<T>*>(x);
    float* const loss = static_cast<float*>(args.row_loss) + row;
    if (target == args.ignore || target < 0 || target >= classes) {
      const float value = target == args.ignore ? 0.0f : not_a_number();
      if (RowTeam::lane() == 0) *loss = value;
      for (int i = RowTeam::lane(); i < classes; i += Threads) x[i] = static_cast<T>(value);
      continue;
    }
    // The numbers of the group that the last class is in; -infinity after it. All groups before are whole.
    const auto last_numbers = [&](const StoredGroup<T>& stored) {
      Group<T> numbers = computed(stored);
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j)
        if (j >= classes - whole * kGroup<T>) numbers.at[j] = -INFINITY;
      return numbers;
    };
    const bool has_last = whole < groups && whole % Threads == RowTeam::lane();
    RunningSum own;
    int first = RowTeam::lane();
    for (; first + (kAtOnce - 1) * Threads < whole; first += kAtOnce * Threads) {
      StoredGroup<T> read[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) read[k] = of_row[first + k * Threads];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k * Threads < shared_groups) kept[first + k * Threads] = read[k];
        own.add(computed(read[k]));
      }
    }
    // Up to kAtOnce groups are left, the last one of the row among them.
    StoredGroup<T> rest[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int group = first + k * Threads;
      rest[k] = of_row[group < groups ? group : 0];  // not behind a branch, so that all are in flight
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int group = first + k * Threads;
      if (group >= groups) break;
      if (group < shared_groups) kept[group] = rest[k];
      own.add(group < whole ? computed(rest[k]) : last_numbers(rest[k]));
    }
    const float top = RowTeam::reduce(own.top, Largest{});
    const float sum = RowTeam::reduce(own.sum * share_of(own.top - top), Plus{}), inverse = 1.0f / sum;
    // The gradient takes the place of the logits: a thread reads and writes the same groups and no others.
    const bool has_target = RowTeam::lane() == target / kGroup<T> % Threads;
    const float of_target = has_target ? static_cast<float>(x[target]) - top : 0.0f;
    const auto shares = [&](Group<T> group) {
#pragma unroll
      for (float& value : group.at) value = inverse * share_of(value - top);
      return stored(group);
    };
    // Not of one address that is in either memory, from which the compiler loads number by number.
    int group = RowTeam::lane();
#pragma unroll 4
    for (; group < min(whole, shared_groups); group += Threads) {
      const StoredGroup<T> read = kept[group];
      of_row[group] = shares(computed(read));
    }
#pragma unroll 4
    for (; group < whole; group += Threads) {
      const StoredGroup<T> read = of_row[group];
      of_row[group] = shares(computed(read));
    }
    if (has_last) of_row[whole] = shares(last_numbers(whole < shared_groups ? kept[whole] : of_row[whole]));
    if (!has_target) continue;
    *loss = logf(sum) - of_target;
    x[target] = static_cast<T>(inverse * share_of(of_target) - 1.0f);
  }
}

template <int Threads, class T>
void loss_and_gradient(const CrossEntropyRowsArgs& args) {
  constexpr int kRows = Team<Threads>::kRowsPerBlock, kBytes = 16;
  constexpr int kOfTeam = 1024;  // bytes; more than a team uses for its sums
  if (args.classes >> 30 != 0) throw ValueError("cross_entropy: 2^30 classes or more (cuda takes fewer)");
  if (!aligned(args.logits) || args.stride % kGroup<T> != 0)
    throw ValueError("cross_entropy: rows that do not begin at multiples of 16 bytes");
  const int groups = static_cast<int>((args.classes + kGroup<T> - 1) / kGroup<T>),
            shared_groups = std::min(groups, (most_shared_bytes() - kOfTeam) / (kRows * kBytes));
  launch_shared("cross_entropy_rows", loss_and_gradient_kernel<Threads, T>, grid_for(args.rows, kRows, 64),
                Team<Threads>::kBlock, shared_groups * kRows * kBytes, {args, groups, shared_groups});
}

}  // namespace

void cross_entropy_forward(const CrossEntropyArgs& args) {
  for_activations("cross_entropy", args.dtype, [&](auto* type) {
    using T = StoredIn<decltype(type)>;
    launch_rows("cross_entropy", rows_kernel<32, T>, rows_kernel<kThreads, T>, args.rows, args.classes, args);
  });
}

void cross_entropy_mean(const CrossEntropyMeanArgs& args) {
  launch("cross_entropy_mean", mean_kernel, 1, kMeanThreads, args);
}

void cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  for_activations("cross_entropy", args.dtype, [&](auto* type) {
    using T = StoredIn<decltype(type)>;
    launch_rows("cross_entropy_backward", backward_kernel<32, T>, backward_kernel<kThreads, T>, args.rows,
                args.classes, args);
  });
}

void cross_entropy_rows(const CrossEntropyRowsArgs& args) {
  if (args.rows == 0) return;
  constexpr std::int64_t kShortRow = 8192;  // a block of kThreads loads it in two rounds
  for_activations("cross_entropy_rows", args.dtype, [&](auto* type) {
    using T = StoredIn<decltype(type)>;
    if (args.classes <= kWarpRow)
      loss_and_gradient<32, T>(args);
    else if (args.classes <= kShortRow)
      loss_and_gradient<kThreads, T>(args);
    else
      loss_and_gradient<kLongRowThreads, T>(args);
  });
}

}  // namespace eddy::cuda
