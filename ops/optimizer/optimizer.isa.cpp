// CPU kernels over flat arenas. All are memory-bound: per f32 element Adam moves 28 bytes, the norm 4.
#include "ops/optimizer/optimizer.h"

#include <math.h>

#include "ops/cpu/isa.h"
#include "ops/cpu/lanes.h"
#include "ops/optimizer/decay_runs.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements per chunk

EDDY_INLINE float square_root(float x) {
  return sqrtf(x);
}
[[maybe_unused]] EDDY_INLINE double square_root(double x) {
  return sqrt(x);
}

// The numbers of one step that all elements share.
template <class T>
struct AdamStep {
  T beta1, one_minus_beta1, beta2, one_minus_beta2;
  T factor;         // clipping
  T inverse_root2;  // 1 / sqrt(1 - beta2^t)
  T rate;           // lr / (1 - beta1^t)
  T eps;
};

// A run of elements with one factor `keep` = 1 - lr decay.
template <class T>
EDDY_INLINE void adam_run(const AdamStep<T>& step, T keep, std::int64_t n, T* __restrict p,
                          const T* __restrict g, T* __restrict m, T* __restrict v) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T gradient = step.factor * g[i];
    const T first = step.beta1 * m[i] + step.one_minus_beta1 * gradient;
    const T second = step.beta2 * v[i] + step.one_minus_beta2 * gradient * gradient;
    m[i] = first;
    v[i] = second;
    p[i] = keep * p[i] - step.rate * first / (square_root(second) * step.inverse_root2 + step.eps);
  }
}

template <class T>
void adam(const AdamArgs& args) {
  const AdamScalars scalars = *args.scalars;
  double factor = 1;
  if (args.norm != nullptr) {
    if (!(*args.norm - *args.norm == 0)) return;  // NaN or infinite
    factor = clip_factor(*args.norm, scalars.clip);
  }
  const double t = static_cast<double>(scalars.step), beta1 = args.options.beta1, beta2 = args.options.beta2;
  const AdamStep<T> step = {static_cast<T>(beta1),
                            static_cast<T>(1 - beta1),
                            static_cast<T>(beta2),
                            static_cast<T>(1 - beta2),
                            static_cast<T>(factor),
                            static_cast<T>(1 / sqrt(1 - pow(beta2, t))),
                            static_cast<T>(scalars.lr / (1 - pow(beta1, t))),
                            static_cast<T>(args.options.eps)};
  T* const p = static_cast<T*>(args.p);
  const T* const g = static_cast<const T*>(args.g);
  T* const m = static_cast<T*>(args.m);
  T* const v = static_cast<T*>(args.v);
  parallel_for(args.n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for_decay_runs<T>(args, scalars.lr, begin, end, [&](T keep, std::int64_t first, std::int64_t count) {
      adam_run(step, keep, count, p + first, g + first, m + first, v + first);
    });
  });
}

template <class T>
double sum_of_squares(const T* x, std::int64_t n) {
  return sum_in_order<16>(n, [x](std::int64_t i) {
    const double value = static_cast<double>(x[i]);
    return value * value;
  });
}

template <class T>
void l2_norm(const NormArgs& args) {
  const T* const x = static_cast<const T*>(args.x);
  const std::int64_t n = args.n, blocks = (n + kNormBlock - 1) / kNormBlock;
  double* const partial = args.partial;
  parallel_for(blocks, 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t start = block * kNormBlock;
      partial[block] = sum_of_squares(x + start, n - start < kNormBlock ? n - start : kNormBlock);
    }
  });
  double sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += partial[block];
  *args.norm = sqrt(sum);
  if (args.before != nullptr) *args.norm += *args.before - *args.before;
}

}  // namespace

EDDY_CPU_KERNEL(adam, adam)
EDDY_CPU_KERNEL(l2_norm, l2_norm)

}  // namespace eddy::EDDY_ISA
