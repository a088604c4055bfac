// A classifier and its loss as one op: the cross-entropy of the logits x W^T + b. With a large vocabulary the
// logits and their gradient are by far the largest tensors of a training step. Then this op stores only one
// chunk of rows of them at a time. For each chunk:
//
//   z   = x W^T + b
//   dz  = softmax(z) - [class = target]      in place of z, with the losses
//   dx  = dz W
//   dW += dz^T x
//   db += sum of dz over rows
//
// These are the gradients of the sum of losses. The forward pass computes them while a chunk's logits exist.
// To recompute the logits in the backward pass would take a fourth product besides these three. The backward
// pass scales the gradients by the incoming gradient over the number of scored rows.
//
// With few classes the logits are small, and chunks would cost more, because they copy and scale gradients:
// the op is linear and cross_entropy. On a GPU rows of logits are padded to a multiple of 64 elements: products
// run at full speed only on rows that begin at multiples of 16 bytes.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace eddy {

// With at least this number of classes the op chooses chunks. Measured on a CPU: docs/choices.md.
inline constexpr std::int64_t kManyClasses = 4096;

// Returns cross_entropy(linear(x, weight, bias), targets, ignore) up to rounding: the mean loss over the rows
// whose target is not `ignore`, a scalar []. In chunks it needs memory for `chunk` rows of logits and, if
// gradients are wanted, for copies of x and weight (f32 for bf16). With chunk 0 the op chooses by sizes and
// device.
// shapes: x [..., in], weight [classes, in], bias [classes] or undefined, targets [...] (i32 or i64).
// dtypes: f32, f64, bf16; with x in bf16, weight and bias may be f32, and the loss and all sums are f32. Logits
// have x's dtype; f32 in chunks on a CPU.
// errors: those of linear and of cross_entropy; ValueError for a negative chunk.
// grad: for x, weight and bias, with any incoming gradient.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            std::int64_t ignore = -1, std::int64_t chunk = 0);

// Returns each row's loss, 0 where the target is `ignore`. Where a gradient is wanted it is cross_entropy_rows of
// linear as a whole, without chunks and in f32 for bf16.
// shapes: as linear_cross_entropy; the result has the targets' shape.
// errors: as linear_cross_entropy.
// grad: for x, weight and bias.
Tensor linear_cross_entropy_rows(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 const Tensor& targets, std::int64_t ignore = -1, std::int64_t chunk = 0);

}  // namespace eddy
