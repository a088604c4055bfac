// Checks and formulas of the elementwise losses; their gradients are those of the ops.
#include "ops/loss/elementwise_loss.h"

#include <limits>

#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

void check_loss_pair(const char* op, const Tensor& x, const Tensor& target) {
  if (!is_bf16(x)) checks::floating(op, x);
  checks::defined(op, target, "target");
  checks::same_kind(op, x, target);
  if (x.shape() != target.shape())
    fail<ShapeError>("{}: {} and targets {} (one shape for both; reshape one of them)", op,
                     to_string(x.shape()), to_string(target.shape()));
  if (x.elements() == 0)
    fail<ShapeError>("{}: an average of no elements: {} (at least one)", op, to_string(x.shape()));
}

// The logarithm of a probability, cut off.
Tensor bounded_logarithm(const Tensor& logarithm) {
  return clamp(logarithm, -100, std::numeric_limits<double>::infinity());
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target) {
  check_loss_pair("mse_loss", x, target);
  const Tensor difference = upcast(x) - upcast(target);
  return mean(difference * difference);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets) {
  check_loss_pair("binary_cross_entropy_with_logits", logits, targets);
  const Tensor x = upcast(logits);
  return mean(softplus(x) - x * upcast(targets));
}

Tensor binary_cross_entropy(const Tensor& probabilities, const Tensor& targets) {
  check_loss_pair("binary_cross_entropy", probabilities, targets);
  const Tensor p = upcast(probabilities), t = upcast(targets);
  return -mean(t * bounded_logarithm(log(p)) + (1 - t) * bounded_logarithm(log1p(-p)));
}

Tensor kl_div(const Tensor& log_probabilities, const Tensor& target) {
  check_loss_pair("kl_div", log_probabilities, target);
  const Tensor t = upcast(target);
  return mean(where(t == 0, 0.0, t * (log(t) - upcast(log_probabilities))));
}

}  // namespace eddy
