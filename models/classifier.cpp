// Logits and losses of the last layer.
#include "models/classifier.h"

#include "autograd/scope.h"
#include "ops/ops.h"

namespace eddy {
namespace {

// The targets in the order of x. Transposing the targets is cheaper than transposing the logits.
Tensor in_order(const Classifier& classifier, const Tensor& targets) {
  return classifier.time_major ? raw::transpose(targets, 0, 1) : targets;
}

}  // namespace

Tensor Classifier::logits() const {
  const ScopeGuard scope("head");
  const Tensor rows = linear(x, weight, bias);
  return time_major ? transpose(rows, 0, 1) : rows;
}

Tensor Classifier::loss(const Tensor& targets, std::int64_t ignore) const {
  const ScopeGuard scope("head");
  return linear_cross_entropy(x, weight, bias, in_order(*this, targets), ignore);
}

Tensor Classifier::losses(const Tensor& targets, std::int64_t ignore) const {
  const ScopeGuard scope("head");
  const Tensor rows = linear_cross_entropy_rows(x, weight, bias, in_order(*this, targets), ignore);
  return time_major ? raw::transpose(rows, 0, 1) : rows;
}

}  // namespace eddy
