// CPU kernels of the optimizers with one moment. Memory-bound: 20 bytes per f32 element.
#include "ops/optimizer/momentum.h"

#include "ops/cpu/isa.h"
#include "ops/optimizer/decay_runs.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

constexpr std::int64_t kMomentumGrain = 1 << 14;  // elements per chunk

template <MomentumRule Rule, class T>
void momentum_of(const MomentumArgs& args) {
  const AdamScalars scalars = *args.scalars;
  if (args.norm != nullptr && !(*args.norm - *args.norm == 0)) return;  // NaN or infinite
  const T beta1 = static_cast<T>(args.options.beta1), rest1 = static_cast<T>(1 - args.options.beta1);
  const T beta2 = static_cast<T>(args.options.beta2), rest2 = static_cast<T>(1 - args.options.beta2);
  const T factor = static_cast<T>(momentum_clipping<Rule>(args.norm, scalars.clip)),
          rate = static_cast<T>(scalars.lr);
  parallel_for(args.n, kMomentumGrain, [&](std::int64_t begin, std::int64_t end) {
    for_decay_runs<T>(args, scalars.lr, begin, end, [&](T keep, std::int64_t first, std::int64_t count) {
      T* const p = static_cast<T*>(args.p) + first;
      const T* const g = static_cast<const T*>(args.g) + first;
      T* const m = static_cast<T*>(args.m) + first;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) {
        T moment = m[i];
        p[i] = momentum_update<Rule>(beta1, rest1, beta2, rest2, rate, keep, factor * g[i], p[i], moment);
        m[i] = moment;
      }
    });
  });
}

template <class T>
void momentum(const MomentumArgs& args) {
  switch (args.options.rule) {
    case MomentumRule::sgd:
      return momentum_of<MomentumRule::sgd, T>(args);
    case MomentumRule::lion:
      return momentum_of<MomentumRule::lion, T>(args);
    case MomentumRule::nesterov:
      return momentum_of<MomentumRule::nesterov, T>(args);
    case MomentumRule::given:
      return momentum_of<MomentumRule::given, T>(args);
  }
}

}  // namespace

EDDY_CPU_KERNEL(momentum, momentum)

}  // namespace eddy::EDDY_ISA
