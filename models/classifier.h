// The last layer of every model, before it is computed: what reads the logits asks for them, and what wants
// their loss alone gets it without them.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace eddy {

struct Classifier {
  Tensor x;             // [batch, rows, width], or [rows, batch, width] when time_major
  Tensor weight, bias;  // [n_out, width]; [n_out] or undefined
  bool time_major = false;

  // Classes from which the losses are computed in chunks of rows, without logits as a whole: with fewer, two
  // tensors of logits are no burden, and chunks pay for gradients of which they make and scale copies.
  // Measured: docs/performance.md.
  static constexpr std::int64_t kManyClasses = 4096;

  // How many positions of each sequence are read.
  std::int64_t rows() const { return x.dim(time_major ? 0 : 1); }
  // x weight^T + bias as [batch, rows, n_out].
  Tensor logits() const;
  // The mean cross-entropy over targets [batch, rows] that are not `ignore`.
  // errors: those of cross_entropy.
  Tensor loss(const Tensor& targets, std::int64_t ignore) const;
  // The cross-entropy of each target, untracked; 0 for `ignore`.
  Tensor losses(const Tensor& targets, std::int64_t ignore) const;
};

}  // namespace eddy
