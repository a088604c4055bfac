// Adafactor over flat arenas: an optimizer that keeps the second moments of a matrix as one number for each
// row and each column, and scales its steps by the size of the parameter. Not differentiable.
//
// Step t = 0, 1, ... of one parameter w with the gradient g (times the clipping factor):
//   beta2 = 1 - (t + 1)^-0.8                       0 at the first step
//   g2 = g^2 + 1e-30
//   factored:  r = beta2 r + (1 - beta2) (mean of g2 over a row)
//              c = beta2 c + (1 - beta2) (mean of g2 over a column)
//              u = g / sqrt(r c / mean(r))
//   else:      v = beta2 v + (1 - beta2) g2
//              u = g / sqrt(v)
//   u = u / max(1, RMS(u))                         clipping of the update
//   u = u lr max(RMS(w), 1e-3)                     w before the step
//   m = 0.9 m + 0.1 u                              the mean of the scaled updates, not bias-corrected
//   w = w - m
//
// A parameter is factored if it is a matrix with both sides 128 or more. Matrices here are [out, in], those
// of the authors [in, out], so rows and columns swap roles. Because mean(r) = mean(c) and RMS ignores the
// order, the update is the transpose of theirs. A fused matrix is one parameter, with one RMS and one set of
// statistics.
// Source: Shazeer, Stern, "Adafactor" (ICML 2018), algorithms 4 and 5, with the momentum and the constants of
// the authors' code of Hutchins et al., "Block-recurrent transformers" (2022).
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "ops/optimizer/optimizer.h"
#include "tensor/tensor.h"

namespace eddy::detail {

// The constants of a run.
struct AdafactorOptions {
  double momentum = 0.9;        // decay of the running mean of the update
  double decay_exponent = 0.8;  // of beta2
  double update_clip = 1.0;     // the largest RMS of u
  double square_eps = 1e-30;    // added to squares of the gradient
  double least_scale = 1e-3;    // for the RMS of w
};

// The numbers that change from step to step, as in Adam, but `step` (t above) counts from 0.
using AdafactorScalars = AdamScalars;

// One parameter in the arenas.
struct AdafactorTensor {
  std::int64_t begin = 0;                    // its first element in params, grads and momentum
  std::int64_t rows = 0, columns = 1;        // of the matrix; not factored: all elements, and 1
  bool factored = false;                     // whether the second moment is that of rows and columns
  std::int64_t second = 0;                   // its offset in the second moments: r then c, or v
  std::int64_t first_block = 0, blocks = 0;  // of the plan, in a row
  std::int64_t scratch = 0;                  // factored: its offset in column_sums
};

// Some rows of a parameter: the unit of work and of partial sums. Its borders depend only on the shapes.
struct AdafactorBlock {
  std::int64_t tensor = 0, begin = 0, end = 0;  // its number, and rows of it; not factored: elements
};

// The layout of a set of parameters, made once.
struct AdafactorPlan {
  std::vector<AdafactorTensor> tensors;  // in the order of the arenas
  std::vector<AdafactorBlock> blocks;    // of all of them
  std::int64_t arena_elements = 0;       // the minimum size of the arenas
  std::int64_t second_elements = 0;      // of the second moments
  std::int64_t scratch_elements = 0;     // of the working memory
};

// A parameter to make room for.
struct AdafactorParameter {
  std::int64_t begin = 0;  // in the arenas
  Shape shape;             // a matrix may be factored
};

// Returns the layout for these parameters.
// errors: ValueError for parameters that overlap or are not in rising order.
AdafactorPlan adafactor_plan(const std::vector<AdafactorParameter>& parameters);

// Whether a parameter's second moments are factored.
constexpr std::int64_t kAdafactorLeastSide = 128;
inline bool adafactor_factored(const Shape& shape) {
  return shape.rank() == 2 && shape[0] >= kAdafactorLeastSide && shape[1] >= kAdafactorLeastSide;
}

// Runs one step in place on params, momentum and second. Elements of the arenas that belong to no parameter
// stay unchanged. `norm` is the result of l2_norm over the gradients; it is needed when scalars.clip > 0 and
// may be undefined otherwise. If the norm is not finite, nothing changes.
// shapes: params, grads and momentum of one shape; second [plan.second_elements].
// dtypes: all f32 or all f64; sums in f64.
// aliasing: no two of the four overlap.
// errors: ShapeError, DtypeError, DeviceError; ValueError for options or scalars out of range, arenas that
// are not contiguous, or a missing norm; GraphError when params is the result of a tracked operation.
void adafactor_step(const Tensor& params, const Tensor& grads, const Tensor& momentum, const Tensor& second,
                    const AdafactorPlan& plan, const AdafactorOptions& options,
                    const AdafactorScalars& scalars, const Tensor& norm = {});

// The tables of a plan in device memory, as bytes.
struct AdafactorTables {
  Tensor tensors, blocks;  // u8
};
// Sends a plan to a device.
AdafactorTables adafactor_tables(const AdafactorPlan& plan, Device device);
// The same as adafactor_step, with tables and scalars already in the memory of the arenas' device: `tables`
// are those of the plan, `scalars` the bytes of one AdafactorScalars, which kernels read without a check.
// errors: as adafactor_step; ShapeError for tables or scalars of another size.
void adafactor_step_on_device(const Tensor& params, const Tensor& grads, const Tensor& momentum,
                              const Tensor& second, const AdafactorPlan& plan, const AdafactorTables& tables,
                              const AdafactorOptions& options, const Tensor& scalars, const Tensor& norm);

// One step. All pointers are device memory. The passes, with a sum over blocks between them:
//   1. each block:           r (sums of g2 over rows), partial column sums of g2; v; sums of u^2 and w^2
//   2. each factored tensor: c from the partial sums, mean(r)
//   3. each factored block:  the sum of u^2
//   4. each tensor:          its rate lr max(RMS(w), least_scale) / max(1, RMS(u) / update_clip)
//   5. each block:           momentum and params
struct AdafactorArgs {
  Dtype dtype;
  void* p;
  const void* g;
  void *m, *second;
  const AdafactorTensor* tensors;
  std::int64_t tensor_count;
  const AdafactorBlock* blocks;
  std::int64_t block_count;
  AdafactorOptions options;
  const AdafactorScalars* scalars;
  const double* norm;  // null for no clipping
  // Scratch. Column sums of a factored tensor's block b: [columns] from scratch + tensor.scratch + b columns;
  // after pass 2 those of block 0 hold c^(-1/2).
  double* column_sums;    // [plan.scratch_elements]
  double* block_sums;     // [block_count, 2]: of u^2 and w^2
  double* tensor_values;  // [tensor_count, 2]: mean(r) and the rate
};
extern Slot<AdafactorArgs> adafactor_slot;
}  // namespace eddy::detail
