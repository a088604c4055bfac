// Muon: matrices step along an orthogonal direction, all else by AdamW, at the same learning rate.
//
// With G the gradient of a hidden matrix W [rows, columns] times the clipping factor:
//
//   M = momentum M + G
//   U = orthogonal(G + momentum M)                                   Nesterov
//   W = W (1 - lr decay) - lr rate 0.2 sqrt(max(rows, columns)) U
//
//   orthogonal(D):  X = D / (|D| + 1e-7)                             the Frobenius norm: no singular value above 1
//                   5 times  A = X X^T,  X = 3.4445 X + (-4.7750 A + 2.0315 A A) X
//
// If D = P S Q^T is the singular value decomposition, X tends to P Q^T roughly: an iteration takes each singular value
// s to 3.4445 s - 4.7750 s^3 + 2.0315 s^5. After five, those that were 0.002 or more of the norm lie between 0.68 and
// 1.21, and smaller ones below 1.21. The matrix U has then a root mean square of about 1 / sqrt(max(rows, columns)),
// and the factor makes it 0.2, as the step of AdamW has: so one learning rate and one weight decay suit both.
//
// A hidden matrix is a parameter with two axes that multiplies activations: its name ends in "weight", or as an LSTM's
// in "w_ih" or "w_hh", and it is not that of "embed", "pos_embed" or "head". Tables, heads, learned states, norms and
// biases go by AdamW. What holds several matrices one above the other (queries, keys and values of "wqkv", the four
// gates of an LSTM) is orthogonalised matrix by matrix, where its rows divide into them.
//
// Products are those of ops/product/, in f32 (f64 for f64) whatever the activations have, on every device. Bits do not
// depend on the number of threads.
// Sources: Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), for the iteration, its
// coefficients and Nesterov's momentum; Liu et al., "Muon is scalable for LLM training" (2025), section 2.2, for the
// factor and the weight decay.
#pragma once

#include <cstdint>

#include "models/optimizer/adam.h"
#include "models/optimizer/decaying_optimizer.h"

namespace eddy {

// Muon with AdamW for all else, as above. A step skips parameters that no gradient reached.
class Muon final : public DecayingOptimizer {
 public:
  // errors: ConfigError for a constant out of its range; ValueError as Optimizer.
  Muon(ParamStore& params, const OptimizerOptions& options, const ParameterMask& held = {});

 private:
  void update(const Tensor& numbers, const Tensor& norm) override;
  // "momentum.<parameter>" of matrices, "m.<parameter>" and "v.<parameter>" of all else.
  std::vector<Part> parts() const override;

  double momentum_, rate_;
  Adam rest_;
  Tensor momenta_;
};

// The number of hidden matrices that a parameter holds, one above the other; 0: it is none.
std::int64_t hidden_matrices(const Parameter& parameter);

// Returns a matrix with the singular vectors of `direction` and singular values near 1, as above.
// shapes: [rows, columns], contiguous.
// dtypes: f32, f64.
Tensor orthogonal(const Tensor& direction);

}  // namespace eddy
