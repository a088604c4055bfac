// Losses that compare two tensors element by element, averaged over all elements. They are compositions of other ops.
//
// All take operands of one shape: [n, 1] beside [n] would broadcast to [n, n] and train on pairs that do not belong
// together, so it is refused. bf16 gives a loss of f32.
#pragma once

#include "tensor/tensor.h"

namespace eddy {

// Returns the average of (x - target)^2, a scalar [].
// shapes: x and target of one shape.
// dtypes: f32, f64 and bf16, one for both.
// errors: ShapeError when shapes differ or there are no elements; DtypeError; DeviceError.
// grad: dx = 2 dy (x - target) / count; dtarget = -dx.
Tensor mse_loss(const Tensor& x, const Tensor& target);

// Returns the average cross-entropy, in nats, of events with the probability sigmoid(logits), a scalar []:
//   loss = log(1 + e^x) - x target
// shapes: logits and targets of one shape.
// dtypes: as mse_loss; targets are floating, 0 or 1 or between.
// errors: as mse_loss.
// grad: dlogits = dy (sigmoid(logits) - targets) / count; dtargets = -dy logits / count.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets);

// The same of probabilities in [0, 1], with logarithms of at least -100; NaN outside. From logits the other form is
// more exact.
//   loss = -(target log p + (1 - target) log(1 - p))
// shapes: as mse_loss.
// dtypes: as mse_loss.
// errors: as mse_loss.
// grad: dp = -dy (target / p - (1 - target) / (1 - p)) / count, without a term whose logarithm is cut off.
Tensor binary_cross_entropy(const Tensor& probabilities, const Tensor& targets);

// Returns the average over all elements of the pointwise Kullback-Leibler divergence of the probabilities `target` from
// those whose logarithms are given, a scalar []:
//   target (log(target) - log_probabilities)         0 where the target is 0
// Times the number of classes it is the average divergence of a row.
// shapes: as mse_loss.
// dtypes: as mse_loss.
// errors: as mse_loss.
// grad: -dy target / count of the logarithms; dy (log(target) + 1 - log_probabilities) / count of the target.
Tensor kl_div(const Tensor& log_probabilities, const Tensor& target);

}  // namespace eddy
