// Optimizer steps over arenas: parameters, gradients and moments are flat buffers with equal offsets. One
// kernel passes over all of them once (read p, g, m, v; write p, m, v). Not differentiable.
//
// Clipping by the global norm, the square root of the sum of all squares:
//   factor = min(1, clip / (norm + 1e-6))
// Adam, step t = 1, 2, ..., with g the gradient times the clipping factor:
//   m = beta1 m + (1 - beta1) g          m^ = m / (1 - beta1^t)
//   v = beta2 v + (1 - beta2) g^2        v^ = v / (1 - beta2^t)
//   p = p (1 - lr decay) - lr m^ / (sqrt(v^) + eps)
// The weight decay is decoupled from the gradient (AdamW): it shrinks p first, is scaled by lr, and never
// enters m or v.
// Sources: Kingma, Ba, "Adam" (ICLR 2015), algorithm 1; Loshchilov, Hutter, "Decoupled weight decay
// regularization" (ICLR 2019), algorithm 2 with schedule and lr in one number; Pascanu, Mikolov, Bengio, "On
// the difficulty of training recurrent neural networks" (ICML 2013), for the clipping.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "ops/core/slot.h"
#include "tensor/base/host_device.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns the square root of the sum of squares of all elements, as an f64 tensor of one element on the
// device of x. It sums in f64, in blocks of a fixed size and order, so bits do not depend on the threads.
// before: a norm of an earlier step, one f64 on that device; if it is not finite, the result is NaN. So a step that was
// enqueued behind one that changed nothing changes nothing either.
// dtypes: f32 and f64.
// errors: DtypeError; ValueError unless x is contiguous (an arena is).
Tensor l2_norm(const Tensor& x, const Tensor& before = {});

namespace detail {

// The elements begin .. end - 1 of the arena share a weight decay.
struct DecaySegment {
  std::int64_t begin = 0, end = 0;  // in elements
  double decay = 0;                 // multiplied by the learning rate
};

// The constants of a run, as above. They have no defaults; OptimizerOptions has (models/optimizer/optimizer.h).
struct AdamConstants {
  double beta1, beta2, eps;  // decays of the two means, and what is added to the root
};

// The numbers that change from step to step. Kernels read them from device memory, so that a captured step
// can be replayed with new numbers.
struct AdamScalars {
  double lr = 0;          // the learning rate
  std::int64_t step = 1;  // t above, counted from 1
  double clip = 0;        // the largest global norm allowed; 0 for no clipping
};

// Runs one AdamW step in place on params, m and v. `segments` are disjoint and in rising order; elements
// outside them do not decay. `norm` is the result of l2_norm over the gradients; it is needed when
// scalars.clip > 0 and may be undefined otherwise. If the norm is not finite, nothing changes: one bad batch
// must not ruin the moments.
// shapes: all of one shape.
// dtypes: all f32 or all f64.
// aliasing: no two of the four overlap.
// errors: ShapeError, DtypeError, DeviceError; ValueError for options or scalars out of range, segments that
// overlap or leave the arena, arenas that are not contiguous, or a missing norm; GraphError when params is
// the result of a tracked operation.
void adamw_step(const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
                const std::vector<DecaySegment>& segments, const AdamConstants& options,
                const AdamScalars& scalars, const Tensor& norm = {});

// Returns the table of segments in device memory, as bytes, for arenas of `elements`.
// errors: ValueError for segments that overlap or leave the arena.
Tensor decay_table(const std::vector<DecaySegment>& segments, std::int64_t elements, Device device);
// The same as adamw_step, with table and scalars already in the memory of the arenas' device: `segments` is a
// decay_table, `scalars` the bytes of one AdamScalars, which the kernel reads without a check.
// errors: as adamw_step; ShapeError for a table or scalars of another size.
void adamw_step_on_device(const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
                          const Tensor& segments, const AdamConstants& options, const Tensor& scalars,
                          const Tensor& norm);

// Returns the factor that scales gradients to a norm of at most `clip`; 1 when clip is 0.
EDDY_HD_INLINE double clip_factor(double norm, double clip) {
  const double factor = clip / (norm + 1e-6);
  return clip > 0 && !(factor > 1) ? factor : 1.0;
}

// An arena with its name in errors.
struct NamedArena {
  const Tensor& tensor;  // the arena
  const char* name;      // "grads"
};
// Checks of all optimizers: arenas of the kind of `params` and, but for one named "second", of its shape; a
// norm, which may be undefined; the scalars of a step, counted from `first_step`, in host or device memory.
// errors: those of adamw_step.
void check_arenas(const char* op, const Tensor& params, std::initializer_list<NamedArena> others,
                  const Tensor& norm);
void check_scalars(const char* op, const AdamScalars& scalars, std::int64_t first_step);
void check_scalars(const char* op, const Tensor& scalars);
void check_clip(const char* op, const AdamScalars& scalars, const Tensor& norm);  // which clipping needs
void check_decay_table(const char* op, const Tensor& segments);

// Marks the parameters as written by a step. Returns the memory of their copy in bf16 that the step must write too, or
// null: on a GPU a copy that was equal before a step is so after it.
void* write_params(const Tensor& params, const char* op);

// One Adam step over n elements. All pointers are device memory.
struct AdamArgs {
  Dtype dtype;
  std::int64_t n;
  void* p;
  const void* g;
  void *m, *v;
  const DecaySegment* segments;
  std::int64_t segment_count;
  AdamConstants options;
  const AdamScalars* scalars;
  const double* norm;       // null for no clipping
  void* rounded = nullptr;  // on a GPU: receives p in bf16; or null
};
extern Slot<AdamArgs> adam_slot;

// Returns the first segment that ends after `element`, of the arguments of a kernel.
template <class Args>
EDDY_HD_INLINE std::int64_t segment_after(const Args& args, std::int64_t element) {
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

// norm[0] = the 2-norm of x; `partial` holds one number for each block of kNormBlock elements. n > 0.
struct NormArgs {
  Dtype dtype;
  std::int64_t n;
  const void* x;
  double* partial;
  double* norm;
  const double* before = nullptr;  // if that is not finite, norm[0] = NaN; null: nothing came before
};
// Elements that one partial sum of the norm covers.
inline constexpr std::int64_t kNormBlock = 1 << 14;
extern Slot<NormArgs> l2_norm_slot;
}  // namespace detail

}  // namespace eddy
