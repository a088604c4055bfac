// Samples and references of the ops in cross_entropy.h.
#include <algorithm>

#include "ops/cast/cast.h"
#include "ops/core/op_spec.h"
#include "ops/index/gather.h"
#include "ops/loss/cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/softmax.h"
#include "ops/views/views.h"

namespace eddy {
namespace {

// Each row's loss; -1 ignores.
Tensor reference_losses(const Tensors& x) {
  const Tensor targets = raw::cast(x[1], Dtype::i64), scored = targets >= 0;
  const Tensor index = reshape(where(scored, targets, 0), targets.shape().inserted(targets.rank(), 1));
  return where(scored, -reshape(gather(log_softmax(x[0]), -1, index), targets.shape()), 0);
}

Tensors sample(const Shape& rows, std::int64_t classes, double scale = 1) {
  return {sample_normal(rows.inserted(rows.rank(), classes), "logits", scale),
          sample_indices(rows, "targets", std::max<std::int64_t>(classes, 1))};
}

std::vector<OpSample> samples() {
  const Tensors odd = sample({5}, 7);
  const Tensor some = Tensor::from(std::vector<std::int64_t>{3, -1, 0, 6, -1}, {5});
  const Tensor none = Tensor::full({5}, -1, Dtype::i64);
  return {{"size_0", sample({0}, 4)},       {"size_1", sample({1}, 1)},
          {"odd_tail", sample({3}, 37)},    {"many_classes", sample({2}, 1031), false},
          {"rank_3", sample({2, 3}, 9)},    {"i32_targets", {odd[0], raw::cast(odd[1], Dtype::i32)}},
          {"ignored", {odd[0], some}},      {"all_ignored", {odd[0], none}},
          {"strided", strided_copies(odd)}, {"large", sample({3}, 33, 1e4), false}};
}

}  // namespace

std::vector<OpSpec> cross_entropy_specs() {
  OpSpec mean{"cross_entropy", "mean over rows of log(sum exp(x)) - x[target]"};
  mean.run = [](const Tensors& x) { return cross_entropy(x[0], x[1]); };
  mean.reference = [](const Tensors& x) {
    const double scored = sum(cast(raw::cast(x[1], Dtype::i64) >= 0, Dtype::f64)).item<double>();
    return sum(reference_losses(x)) / std::max(scored, 1.0);
  };
  mean.samples = samples();
  mean.roundings = 32;
  mean.bench = [] { return sample({4096}, 512); };

  OpSpec rows = mean;
  rows.name = "cross_entropy_rows";
  rows.formula = "log(sum exp(x)) - x[target] of each row";
  rows.run = [](const Tensors& x) { return cross_entropy_rows(x[0], x[1]); };
  rows.reference = reference_losses;
  return {mean, rows};
}

}  // namespace eddy
