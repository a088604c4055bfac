// A classifier and its loss as one op: the cross-entropy of the logits x W^T + b, of which only a chunk of
// rows exists at a time. With a large vocabulary the logits and their gradient are by far the largest tensors
// of a training step; here neither is ever whole.
//
//   for each chunk of rows:   z = x W^T + b          losses, softmax(z) - [class = target] in z's place
//                             dx = dz W,  dW += dz^T x,  db += sum of dz
//
// The gradients are those of the sum of losses and are made in the forward pass, while a chunk's logits are
// there: to compute them again in the backward pass would be a fourth product beside three. The backward pass
// multiplies them by what arrives, over the number of scored rows.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// The mean over the rows whose target is not `ignore` of the cross-entropy of linear(x, weight, bias), a
// scalar []: cross_entropy(linear(x, weight, bias), targets, ignore) up to rounding.
// shapes: x [..., in], weight [classes, in], bias [classes] or undefined, targets [...] (i32 or i64).
// dtypes: f32, f64, bf16; beside x of bf16, weight and bias may be f32. Logits of bf16 products, the loss and
// all sums are f32. memory: `chunk` rows of logits, and, where a gradient is wanted, x and weight once more
// (f32 for bf16); chunk 0: chosen by the sizes and the device.
// errors: those of linear and of cross_entropy; ValueError for a negative chunk.
// grad: of x, weight and bias, for any cotangent.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            std::int64_t ignore = -1, std::int64_t chunk = 0);

// Each row's loss, untracked; 0 where the target is `ignore`. For evaluation. shapes and errors: as
// linear_cross_entropy; the result has the targets' shape.
Tensor linear_cross_entropy_rows(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 const Tensor& targets, std::int64_t ignore = -1, std::int64_t chunk = 0);

struct OpSpec;
std::vector<OpSpec> linear_cross_entropy_specs();

}  // namespace eddy
