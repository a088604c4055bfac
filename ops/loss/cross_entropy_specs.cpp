// Samples and references of the ops in cross_entropy.h.
#include <algorithm>
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/loss/cross_entropy.h"

namespace eddy {
namespace {

// Each row's loss in f64; -1 ignores.
std::vector<double> reference_losses(const Tensors& inputs) {
  const std::vector<double> x = inputs[0].to_vector<double>();
  const std::vector<std::int64_t> targets = raw::cast(inputs[1], Dtype::i64).to_vector<std::int64_t>();
  const std::size_t classes = static_cast<std::size_t>(inputs[0].dim(-1));
  std::vector<double> losses;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    double top = -INFINITY, sum = 0;
    for (std::size_t c = 0; c < classes; ++c) top = std::max(top, x[row * classes + c]);
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(x[row * classes + c] - top);
    losses.push_back(targets[row] < 0
                         ? 0
                         : top + std::log(sum) - x[row * classes + static_cast<std::size_t>(targets[row])]);
  }
  return losses;
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
    double total = 0, scored = 0;
    for (const double loss : reference_losses(x)) total += loss;
    for (const std::int64_t target : raw::cast(x[1], Dtype::i64).to_vector<std::int64_t>())
      scored += target >= 0;
    return Tensor::full({}, scored > 0 ? total / scored : 0, Dtype::f64);
  };
  mean.samples = samples();
  mean.roundings = 32;
  mean.bench = [] { return sample({4096}, 512); };

  OpSpec rows = mean;
  rows.name = "cross_entropy_rows";
  rows.formula = "log(sum exp(x)) - x[target] of each row";
  rows.run = [](const Tensors& x) { return cross_entropy_rows(x[0], x[1]); };
  rows.reference = [](const Tensors& x) { return Tensor::from(reference_losses(x), x[1].shape()); };
  for (OpSample& sample_of_rows : rows.samples) sample_of_rows.gradcheck = false;
  return {mean, rows};
}

}  // namespace eddy
