// Checks and gradient of cross-entropy.
#include "ops/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/op_spec.h"
#include "ops/widen.h"
#include "tensor/format.h"

namespace eddy {

constinit Slot<CrossEntropyArgs> cross_entropy_forward_slot{"cross_entropy_forward"};
constinit Slot<CrossEntropyBackwardArgs> cross_entropy_backward_slot{"cross_entropy_backward"};

namespace {

// Row-major i64 targets that fit the logits. Throws before anything is computed.
Tensor checked_targets(const char* op, const Tensor& logits, const Tensor& targets, std::int64_t ignore) {
  checks::floating(op, logits, "logits");
  checks::defined(op, targets, "targets");
  if (targets.dtype() != Dtype::i64 && targets.dtype() != Dtype::i32)
    fail<DtypeError>("{}: targets are {} (i64 or i32)", op, dtype_name(targets.dtype()));
  if (!(targets.device() == logits.device()))
    fail<DeviceError>("{}: logits on {} and targets on {} (one device for all)", op,
                      to_string(logits.device()), to_string(targets.device()));
  if (logits.rank() == 0) fail<ShapeError>("{}: logits are a scalar (their last axis is the classes)", op);
  if (logits.shape().without(logits.rank() - 1) != targets.shape())
    fail<ShapeError>("{}: logits {} and targets {} (targets have the logits' shape without its last axis)",
                     op, to_string(logits.shape()), to_string(targets.shape()));
  const Tensor numbers =
      targets.dtype() == Dtype::i64 ? raw::contiguous(targets) : raw::cast(targets, Dtype::i64);
  if (numbers.device().type != DeviceType::cpu) return numbers;
  const std::int64_t classes = logits.dim(-1);
  const std::int64_t* const values = numbers.data<std::int64_t>();
  for (std::int64_t row = 0; row < numbers.elements(); ++row)
    if (values[row] != ignore && (values[row] < 0 || values[row] >= classes))
      fail<ValueError>(
          "{}: the target of row {} is {} with {} classes (from 0 to classes - 1, or {} to ignore the row)",
          op, row, values[row], classes, ignore);
  return numbers;
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, std::int64_t ignore) {
  if (widens(logits)) return cross_entropy(wide(logits), targets, ignore);
  const Tensor numbers = checked_targets("cross_entropy", logits, targets, ignore);
  const Dtype dtype = logits.dtype(), inside = computed_in(logits);
  const Device device = logits.device();
  const std::int64_t rows = numbers.elements(), classes = logits.dim(-1);
  const Tensor packed = raw::contiguous(logits);
  const Tensor loss = Tensor::empty({}, inside, device);
  const Tensor inverse_scored = Tensor::empty({}, inside, device);
  const Tensor row_loss = Tensor::empty({rows}, inside, device);
  const Tensor row_max = Tensor::empty({rows}, inside, device);
  const Tensor row_inverse = Tensor::empty({rows}, inside, device);
  cross_entropy_forward_slot(device, {dtype, rows, classes, ignore, packed.raw_data(),
                                      numbers.data<std::int64_t>(), row_loss.raw_data(), row_max.raw_data(),
                                      row_inverse.raw_data(), loss.raw_data(), inverse_scored.raw_data()});
  // A row's loss is log(sum_c e^{x_c}) - x_target, so its derivative by x_c is softmax_c - [c = target]; the
  // mean divides by the number of scored rows. softmax_c = e^{x_c - max} / sum is computed here again: a
  // second exp costs less than writing and reading [rows, classes] numbers.
  return record("cross_entropy", {logits}, loss, {packed, numbers, row_max, row_inverse, inverse_scored},
                [=](VjpContext& v) {
                  const Tensor dy = raw::contiguous(v.dy());
                  v.sink.into(0, [&](const Tensor& dlogits, float beta) {
                    if (dlogits.elements() == 0) return;
                    cross_entropy_backward_slot(
                        device, {dtype, rows, classes, ignore, dy.raw_data(), v.saved(0).raw_data(),
                                 v.saved(1).data<std::int64_t>(), v.saved(2).raw_data(),
                                 v.saved(3).raw_data(), v.saved(4).raw_data(), dlogits.raw_data(), beta});
                  });
                });
}

Tensor cross_entropy_rows(const Tensor& logits, const Tensor& targets, std::int64_t ignore) {
  if (widens(logits)) return cross_entropy_rows(wide(logits), targets, ignore);
  const Tensor numbers = checked_targets("cross_entropy_rows", logits, targets, ignore);
  const Tensor packed = raw::contiguous(logits);
  const Tensor losses = Tensor::empty(targets.shape(), computed_in(logits), logits.device());
  if (losses.elements() > 0)
    cross_entropy_forward_slot(logits.device(), {logits.dtype(), numbers.elements(), logits.dim(-1), ignore,
                                                 packed.raw_data(), numbers.data<std::int64_t>(),
                                                 losses.raw_data(), nullptr, nullptr, nullptr, nullptr});
  return losses;
}

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
  return {{"size_0", sample({0}, 4)},
          {"size_1", sample({1}, 1)},
          {"odd_tail", sample({3}, 37)},
          {"many_classes", sample({2}, 1031), false},
          {"rank_3", sample({2, 3}, 9)},
          {"i32_targets", {odd[0], raw::cast(odd[1], Dtype::i32)}},
          {"ignored", {odd[0], some}},
          {"all_ignored", {odd[0], none}},
          {"strided", {strided_copy(odd[0]), strided_copy(odd[1])}},
          {"large", sample({3}, 33, 1e4), false}};
}

OpCost read_once(const Tensors& x) {
  return {20.0 * static_cast<double>(x[0].elements()), static_cast<double>(x[0].bytes())};
}

}  // namespace

std::vector<OpSpec> cross_entropy_specs() {
  OpSpec mean;
  mean.name = "cross_entropy";
  mean.formula = "mean over rows of log(sum exp(x)) - x[target]";
  mean.run = [](const Tensors& x) { return Tensors{cross_entropy(x[0], x[1])}; };
  mean.reference = [](const Tensors& x) {
    double total = 0, scored = 0;
    for (const double loss : reference_losses(x)) total += loss;
    for (const std::int64_t target : raw::cast(x[1], Dtype::i64).to_vector<std::int64_t>())
      scored += target >= 0;
    return Tensors{Tensor::full({}, scored > 0 ? total / scored : 0, Dtype::f64)};
  };
  mean.samples = samples();
  mean.roundings = 32;
  mean.bench = [] {
    Tensors inputs = sample({4096}, 512);
    inputs[0] = raw::cast(inputs[0], Dtype::f32);
    return inputs;
  };
  mean.cost = read_once;

  OpSpec rows = mean;
  rows.name = "cross_entropy_rows";
  rows.formula = "log(sum exp(x)) - x[target] of each row";
  rows.run = [](const Tensors& x) { return Tensors{cross_entropy_rows(x[0], x[1])}; };
  rows.reference = [](const Tensors& x) { return Tensors{Tensor::from(reference_losses(x), x[1].shape())}; };
  for (OpSample& sample_of_rows : rows.samples) sample_of_rows.gradcheck = false;
  return {mean, rows};
}

}  // namespace eddy
