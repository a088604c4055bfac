// Cross-entropy of a softmax with class numbers, fused: loss = log(sum exp(x - max x)) - (x[target] - max x)
// per row, in nats. The probabilities are never stored: the gradient computes them again from the logits and
// two numbers per row.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// The mean loss over the rows whose target is not `ignore`, a scalar [].
// shapes: logits [..., classes], targets [...] (i32 or i64).
// dtypes: f32, f64, and bf16, whose loss is f32; the mean is summed in f64, in row order. Without any scored
// target the loss is 0 and the gradient zero, so a batch of padding changes nothing.
// errors: ValueError when a target is neither `ignore` nor in [0, classes), naming row, value and classes
// (CPU; on another device such a row's loss is NaN, since looking would wait for the device); ShapeError;
// DtypeError; DeviceError.
// grad: dlogits = dy (softmax - [class = target]) / scored rows; rows that are ignored get 0.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, std::int64_t ignore = -1);

// Each row's loss, untracked; 0 where the target is `ignore`. For evaluation. shapes and errors: as
// cross_entropy; the result has the targets' shape.
Tensor cross_entropy_rows(const Tensor& logits, const Tensor& targets, std::int64_t ignore = -1);

// The targets as kernels read them: i64, row-major, of shape `rows`. Of classes on a device; `op` is for
// errors, which are those of cross_entropy.
Tensor class_numbers(const char* op, const Tensor& targets, const Shape& rows, std::int64_t classes,
                     Device device, std::int64_t ignore);

// The loss of each row. All row-major. logits [rows, classes].
struct CrossEntropyArgs {
  Dtype dtype;  // of logits and dlogits; everything else is f32 where it is bf16
  std::int64_t rows, classes, ignore;
  const void* logits;
  const std::int64_t* targets;
  void* row_loss;  // [rows]; 0 for ignored rows
  void *row_max,
      *row_inverse;  // [rows] or both null: max x and 1 / sum exp(x - max x); unset for ignored rows
};
extern Slot<CrossEntropyArgs> cross_entropy_forward_slot;

// The mean of the losses of scored rows, and 1 / scored rows; both 0 without any.
struct CrossEntropyMeanArgs {
  Dtype dtype;  // of row_loss, loss and inverse_scored: f32 or f64
  std::int64_t rows, ignore;
  const std::int64_t* targets;
  const void* row_loss;
  void *loss, *inverse_scored;  // [1]
};
extern Slot<CrossEntropyMeanArgs> cross_entropy_mean_slot;

// dlogits = beta * dlogits + dy * inverse_scored * (softmax - [class = target]); not read when beta is 0.
struct CrossEntropyBackwardArgs {
  Dtype dtype;
  std::int64_t rows, classes, ignore;
  const void* dy;  // [1]
  const void* logits;
  const std::int64_t* targets;
  const void *row_max, *row_inverse, *inverse_scored;
  void* dlogits;  // may be the logits, with beta 0
  float beta;
};
extern Slot<CrossEntropyBackwardArgs> cross_entropy_backward_slot;

// Each row's loss and its gradient, softmax - [class = target], while the row is at hand: the two slots above
// with dy and inverse_scored of 1, for who has the logits for a moment only.
struct CrossEntropyRowsArgs {
  Dtype dtype;
  std::int64_t rows, classes, ignore;
  const void* logits;
  const std::int64_t* targets;
  void* row_loss;             // [rows]; 0 for ignored rows
  void* dlogits;              // 0 in ignored rows; may be the logits
  bool bf16_dlogits = false;  // with dtype f32: dlogits is bf16, and not the logits. Not on the CPU
};
extern Slot<CrossEntropyRowsArgs> cross_entropy_rows_slot;

struct OpSpec;
std::vector<OpSpec> cross_entropy_specs();

}  // namespace eddy
