// Adafactor over flat arenas: an optimizer whose second moments of a matrix are kept as one number for each
// row and each column, and whose steps are scaled by the size of the parameter. Not differentiable.
//
// Step t = 0, 1, ... of one parameter w with the gradient g (times the clipping factor):
//   beta2 = 1 - (t + 1)^-0.8                       0 at the first step
//   g2 = g^2 + 1e-30
//   factored:  r = beta2 r + (1 - beta2) (mean of g2 over a row), c the same over a column,
//              u = g / sqrt(r c / mean(r))
//   else:      v = beta2 v + (1 - beta2) g2,  u = g / sqrt(v)
//   u = u / max(1, RMS(u))                         clipping of the update
//   u = u lr max(RMS(w), 1e-3)                     w before the step
//   m = 0.9 m + 0.1 u,  w = w - m                  the mean of the scaled updates, not bias-corrected
//
// A parameter is factored when it is a matrix with both sides 128 or more. Matrices here are [out, in] where
// the authors' are [in, out]: rows and columns change their roles, and since mean(r) = mean(c) and RMS does
// not see the order, the update is the transpose of theirs. What is declared as one parameter is treated as
// one: a fused matrix has one RMS and one set of statistics.
// source: Shazeer, Stern, "Adafactor" (ICML 2018), algorithms 4 and 5, with the momentum and the constants of
// the authors' code of Hutchins et al., "Block-recurrent transformers" (2022).
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "ops/optimizer/optimizer.h"
#include "tensor/tensor.h"

namespace eddy {

struct AdafactorOptions {
  double momentum = 0.9;
  double decay_exponent = 0.8;  // of beta2
  double update_clip = 1.0;     // the largest RMS of u
  double square_eps = 1e-30;
  double least_scale = 1e-3;  // for the RMS of w
};

// What changes from step to step, as in Adam; but `step`, t above, is counted from 0.
using AdafactorScalars = AdamScalars;

// One parameter in the arenas.
struct AdafactorTensor {
  std::int64_t begin = 0;              // its first element in params, grads and momentum
  std::int64_t rows = 0, columns = 1;  // of the matrix; not factored: all elements, and 1
  bool factored = false;
  std::int64_t second = 0;  // its place among the second moments: r then c, or v
  std::int64_t first_block = 0, blocks = 0;
  std::int64_t scratch = 0;  // factored: its place in the scratch of column numbers
};

// Some rows of a parameter: the unit of work, and of partial sums. Borders follow from the shapes alone.
struct AdafactorBlock {
  std::int64_t tensor = 0, begin = 0, end = 0;  // rows; not factored: elements
};

// Where everything of a set of parameters lies. Made once.
struct AdafactorPlan {
  std::vector<AdafactorTensor> tensors;
  std::vector<AdafactorBlock> blocks;
  std::int64_t arena_elements = 0;   // the least the arenas must hold
  std::int64_t second_elements = 0;  // of the second moments
  std::int64_t scratch_elements = 0;
};

struct AdafactorParameter {
  std::int64_t begin = 0;  // in the arenas
  Shape shape;
};

// Returns the layout for these parameters.
// errors: ValueError for parameters that overlap or do not rise.
AdafactorPlan adafactor_plan(const std::vector<AdafactorParameter>& parameters);

// Whether a parameter's second moments are factored.
constexpr std::int64_t kAdafactorLeastSide = 128;
inline bool adafactor_factored(const Shape& shape) {
  return shape.rank() == 2 && shape[0] >= kAdafactorLeastSide && shape[1] >= kAdafactorLeastSide;
}

// One step in place on params, momentum and second. Elements of the arenas that belong to no parameter are
// left alone. `norm` is the result of l2_norm over the gradients, needed when scalars.clip > 0; may be
// undefined otherwise. A norm that is not finite leaves everything as it is.
// shapes: params, grads and momentum of one shape; second [plan.second_elements].
// dtypes: all f32 or all f64; sums in f64.
// aliasing: no two of the four overlap.
// errors: ShapeError, DtypeError, DeviceError; ValueError for options or scalars out of range, arenas that
// are not contiguous, or a missing norm; GraphError when params is the result of a tracked operation.
void adafactor_step(const Tensor& params, const Tensor& grads, const Tensor& momentum, const Tensor& second,
                    const AdafactorPlan& plan, const AdafactorOptions& options,
                    const AdafactorScalars& scalars, const Tensor& norm = {});

// The plan's tables in the memory of a device, as bytes.
struct AdafactorTables {
  Tensor tensors, blocks;
};
AdafactorTables adafactor_tables(const AdafactorPlan& plan, Device device);
// adafactor_step whose tables and numbers lie in the memory of the arenas' device: `tables` are those of the
// plan, `scalars` the bytes of one AdafactorScalars, read when the kernels run and not checked. Nothing is
// uploaded.
// errors: as adafactor_step; ShapeError for bytes that are no such record.
void adafactor_step_on_device(const Tensor& params, const Tensor& grads, const Tensor& momentum,
                              const Tensor& second, const AdafactorPlan& plan, const AdafactorTables& tables,
                              const AdafactorOptions& options, const Tensor& scalars, const Tensor& norm);

// One step. All pointers are memory of the device. The passes, with a sum over blocks between them:
//   1. each block: sums of g2 over rows (into r) and, in part, over columns; v; sums of u^2 and w^2;
//   2. each factored tensor: c from the partial sums, mean(r);
//   3. each factored block: the sum of u^2;
//   4. each tensor: its rate lr max(RMS(w), least_scale) / max(1, RMS(u) / update_clip);
//   5. each block: momentum and params.
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

struct OpSpec;
std::vector<OpSpec> adafactor_specs();

}  // namespace eddy
