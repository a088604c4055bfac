// The last layer of every model, not yet computed. The caller asks it for the logits, or for their loss,
// which with many classes needs no tensor of all logits (ops/loss/linear_cross_entropy.h).
//
//   logits = x weight^T + bias
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace eddy {

// The last hidden layer and the head of a model, whose product is the logits.
struct Classifier {
  Tensor x;                 // [batch, rows, width], or [rows, batch, width] when time_major
  Tensor weight, bias;      // [n_out, width]; [n_out] or undefined
  bool time_major = false;  // the order of the axes of x

  // The number of positions of each sequence.
  std::int64_t rows() const { return x.dim(time_major ? 0 : 1); }
  // The logits [batch, rows, n_out].
  Tensor logits() const;
  // The mean cross-entropy over targets [batch, rows] that are not `ignore`.
  // errors: those of cross_entropy.
  Tensor loss(const Tensor& targets, std::int64_t ignore) const;
  // The cross-entropy of each target, without a graph; 0 for `ignore`.
  // shapes: [batch, rows], as the targets.
  Tensor losses(const Tensor& targets, std::int64_t ignore) const;
};

}  // namespace eddy
