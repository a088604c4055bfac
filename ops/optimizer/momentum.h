// Optimizers with one moment, over arenas as in optimizer.h: SGD with momentum, Lion, and the two halves of Muon,
// between which models/optimizer/muon.h makes matrices orthogonal. Not differentiable.
//
// With g the gradient times the clipping factor, and decoupled weight decay as in AdamW:
//
//   sgd    m = beta1 m + g                       p = p (1 - lr decay) - lr m
//   lion   u = sign(beta1 m + (1 - beta1) g)     p = p (1 - lr decay) - lr u      m = beta2 m + (1 - beta2) g
//
//   nesterov   m = beta1 m + g     p = g + beta1 m            p is not read: it receives a direction
//   given      p = p (1 - lr decay) - lr g                    m is not read; g is taken as it is, without clipping
//
// sign(0) is 0. With beta1 0, sgd is plain gradient descent. PyTorch's SGD adds decay * p to the gradient before the
// momentum; the two agree where one of them is 0.
// Sources: Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in deep learning" (ICML
// 2013), section 2, with the learning rate outside the moment; Loshchilov, Hutter, "Decoupled weight decay
// regularization" (ICLR 2019), algorithm 1; Chen et al., "Symbolic discovery of optimization algorithms" (NeurIPS
// 2023), algorithm 2. Nesterov's momentum in this form: Sutskever et al., section 2.1, as PyTorch's SGD has it.
#pragma once

#include <cstdint>

#include "ops/optimizer/optimizer.h"

namespace eddy::detail {

// Which of them.
enum class MomentumRule : std::uint8_t { sgd, lion, nesterov, given };

// The constants of a run.
struct MomentumConstants {
  MomentumRule rule;    // which update
  double beta1, beta2;  // as above; sgd and nesterov read the first alone, given none
};

// Runs one step in place on params and m. `segments` is a decay_table, `scalars` the bytes of one AdamScalars, both on
// the device of the arenas; the kernel reads them without a check, and no step number. `norm` is the result of l2_norm
// over the gradients, needed where scalars.clip > 0. If it is not finite, nothing changes.
// shapes: all arenas of one shape.
// dtypes: all f32 or all f64.
// aliasing: no two of the three overlap.
// errors: as adamw_step_on_device.
void momentum_step_on_device(const Tensor& params, const Tensor& grads, const Tensor& m,
                             const Tensor& segments, const MomentumConstants& options, const Tensor& scalars,
                             const Tensor& norm);

// One step over n elements. All pointers are device memory.
struct MomentumArgs {
  Dtype dtype;
  std::int64_t n;
  void* p;
  const void* g;
  void* m;
  const DecaySegment* segments;
  std::int64_t segment_count;
  MomentumConstants options;
  const AdamScalars* scalars;
  const double* norm;  // null for no clipping
  void* rounded;       // on a GPU: receives p in bf16; or null
};
extern Slot<MomentumArgs> momentum_slot;

// The factor of clipping that a rule applies to its gradient.
template <MomentumRule Rule>
EDDY_HD_INLINE double momentum_clipping(const double* norm, double clip) {
  return Rule == MomentumRule::given || norm == nullptr ? 1.0 : clip_factor(*norm, clip);
}

// Updates one element, and returns its new parameter. `rest1` and `rest2` are 1 - beta1 and 1 - beta2; `gradient` is
// that times momentum_clipping.
template <MomentumRule Rule, class T>
EDDY_HD_INLINE T momentum_update(T beta1, T rest1, T beta2, T rest2, T rate, T keep, T gradient, T p, T& m) {
  if constexpr (Rule == MomentumRule::sgd) {
    m = beta1 * m + gradient;
    return keep * p - rate * m;
  } else if constexpr (Rule == MomentumRule::nesterov) {
    m = beta1 * m + gradient;
    return gradient + beta1 * m;
  } else if constexpr (Rule == MomentumRule::given) {
    return keep * p - rate * gradient;
  } else {
    const T direction = beta1 * m + rest1 * gradient;
    m = beta2 * m + rest2 * gradient;
    const T step = direction > T(0) ? rate : T(0), back = direction < T(0) ? rate : T(0);
    return keep * p - (step - back);
  }
}
}  // namespace eddy::detail
