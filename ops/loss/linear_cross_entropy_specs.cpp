// Samples and references of the ops in linear_cross_entropy.h.
#include <algorithm>

#include "ops/core/op_spec.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/product/linear.h"

namespace eddy {
namespace {

// Inputs x, weight, targets and, if there is one, bias; -1 ignores.
Tensor logits_of(const Tensors& x) {
  return linear(x[0], x[1], optional_input(x, 3));
}

Tensors linear_sample(const Shape& rows, std::int64_t width, std::int64_t classes, double scale = 1) {
  return {sample_normal(rows.inserted(rows.rank(), width), "x", scale),
          sample_normal({classes, width}, "weight"),
          sample_indices(rows, "targets", std::max<std::int64_t>(classes, 1))};
}

Tensors with_bias(Tensors inputs) {
  inputs.push_back(sample_normal({inputs[1].dim(0)}, "bias"));
  return inputs;
}

std::vector<OpSample> linear_samples() {
  const Tensors odd = linear_sample({5}, 3, 7);
  const Tensor some = Tensor::from(std::vector<std::int64_t>{3, -1, 0, 6, -1}, {5});
  const Tensor none = Tensor::full({5}, -1, Dtype::i64);
  return {{"size_0", with_bias(linear_sample({0}, 3, 4))},
          {"width_0", with_bias(linear_sample({3}, 0, 4))},
          {"size_1", linear_sample({1}, 1, 1)},
          {"odd_tail", linear_sample({5}, 17, 37)},
          {"many_classes", linear_sample({3}, 4, 1031), false},
          {"bias", with_bias(odd)},
          {"rank_3", with_bias(linear_sample({2, 3}, 5, 9))},
          {"i32_targets", {odd[0], odd[1], raw::cast(odd[2], Dtype::i32)}},
          {"ignored", with_bias({odd[0], odd[1], some})},
          {"all_ignored", with_bias({odd[0], odd[1], none})},
          {"strided", strided_copies(odd)},
          {"large", linear_sample({3}, 5, 33, 1e4), false}};
}

}  // namespace

std::vector<OpSpec> linear_cross_entropy_specs() {
  constexpr std::int64_t kChunk = 2;  // so that samples have several, and a last one of another size
  OpSpec mean{"linear_cross_entropy",
              "mean over rows of log(sum exp(z)) - z[target], z = x W^T + b, in chunks of rows"};
  mean.run = [](const Tensors& x) {
    return linear_cross_entropy(x[0], x[1], optional_input(x, 3), x[2], -1, kChunk);
  };
  mean.reference = [](const Tensors& x) { return cross_entropy(logits_of(x), x[2]); };
  mean.samples = linear_samples();
  mean.roundings = 64;
  mean.bench = [] { return linear_sample({1024}, 256, 32768); };

  OpSpec rows = mean;
  rows.name = "linear_cross_entropy_rows";
  rows.formula = "log(sum exp(z)) - z[target] of each row, z = x W^T + b, in chunks of rows";
  rows.run = [](const Tensors& x) {
    return linear_cross_entropy_rows(x[0], x[1], optional_input(x, 3), x[2], -1, kChunk);
  };
  rows.reference = [](const Tensors& x) { return cross_entropy_rows(logits_of(x), x[2]); };
  return {mean, rows};
}

}  // namespace eddy
