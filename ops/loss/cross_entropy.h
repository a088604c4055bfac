// Cross-entropy of a softmax with class indices, fused. Per row, in nats:
//
//   loss = log(sum exp(x - max x)) - (x[target] - max x)
//
// Probabilities are never stored: the gradient recomputes them from the logits and two numbers per row.
#pragma once

#include <concepts>
#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns the mean loss over the scored rows (whose target is not `ignore`), a scalar []. Without scored rows
// the loss and the gradient are 0, so a batch of padding changes nothing.
// shapes: logits [..., classes], targets [...] (i32 or i64).
// dtypes: f32, f64, and bf16, whose loss is f32; the mean is summed in f64, in row order.
// errors: ValueError if a target is neither `ignore` nor in [0, classes), with row, value and classes (not on
// a GPU, where a check would wait for the device: there the row's loss is NaN); ShapeError; DtypeError;
// DeviceError.
// grad: dlogits = dy (softmax - [class = target]) / scored rows; 0 in ignored rows.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, std::int64_t ignore = -1);
// A number there would be a class, and no share of label smoothing.
void cross_entropy(const Tensor&, const Tensor&, std::floating_point auto) = delete;

// Returns each row's loss, 0 where the target is `ignore`.
// shapes: as cross_entropy; the result has the targets' shape.
// errors: as cross_entropy.
// grad: dlogits = dy (softmax - [class = target]) of each row; 0 in ignored rows.
Tensor cross_entropy_rows(const Tensor& logits, const Tensor& targets, std::int64_t ignore = -1);

namespace detail {
// Returns the targets as kernels read them: i64, row-major, of shape `rows`, on `device`.
// errors: those of cross_entropy, naming `op`.
Tensor class_indices(const char* op, const Tensor& targets, const Shape& rows, std::int64_t classes,
                     Device device, std::int64_t ignore);

// Computes the loss of each row. The logits are [rows, classes], `stride` elements from row to row.
struct CrossEntropyArgs {
  Dtype dtype;  // of logits and dlogits; if it is bf16, everything else is f32
  std::int64_t rows, classes, stride, ignore;
  const void* logits;
  const std::int64_t* targets;
  void* row_loss;  // [rows]; 0 for ignored rows
  // [rows], or both null: max x and 1 / sum exp(x - max x); unset for ignored rows.
  void *row_max, *row_inverse;
};
extern Slot<CrossEntropyArgs> cross_entropy_forward_slot;

// Computes the mean of the losses of scored rows, and 1 / scored rows; both 0 without any.
struct CrossEntropyMeanArgs {
  Dtype dtype;  // of row_loss, loss and inverse_scored: f32 or f64
  std::int64_t rows, ignore;
  const std::int64_t* targets;
  const void* row_loss;
  void *loss, *inverse_scored;  // [1]
};
extern Slot<CrossEntropyMeanArgs> cross_entropy_mean_slot;

// dlogits = beta * dlogits + dy * inverse_scored * (softmax - [class = target]); dlogits is not read if beta
// is 0. Its rows are `stride` elements apart, as those of the logits.
struct CrossEntropyBackwardArgs {
  Dtype dtype;
  std::int64_t rows, classes, stride, ignore;
  const void* dy;  // [1]
  const void* logits;
  const std::int64_t* targets;
  const void *row_max, *row_inverse, *inverse_scored;
  void* dlogits;  // may be the logits, with beta 0
  float beta;
};
extern Slot<CrossEntropyBackwardArgs> cross_entropy_backward_slot;

// Computes each row's loss, and in place of the logits its gradient, softmax - [class = target], in one pass:
// the forward and backward slots above with dy = inverse_scored = 1, for callers that keep the logits only
// briefly. On a GPU rows begin at multiples of 16 bytes, and what follows the classes up to such a multiple is
// overwritten.
struct CrossEntropyRowsArgs {
  Dtype dtype;
  std::int64_t rows, classes, stride, ignore;
  void* logits;  // dlogits in the end: 0 in ignored rows
  const std::int64_t* targets;
  void* row_loss;  // [rows]; 0 for ignored rows
};
extern Slot<CrossEntropyRowsArgs> cross_entropy_rows_slot;
}  // namespace detail

}  // namespace eddy
