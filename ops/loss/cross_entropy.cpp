// Checks and gradient of cross-entropy.
#include "ops/loss/cross_entropy.h"

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

Tensor detail::class_indices(const char* op, const Tensor& targets, const Shape& rows, std::int64_t classes,
                             Device device, std::int64_t ignore) {
  checks::defined(op, targets, "targets");
  if (targets.dtype() != Dtype::i64 && targets.dtype() != Dtype::i32)
    fail<DtypeError>("{}: targets are {} (i64 or i32)", op, dtype_name(targets.dtype()));
  if (targets.device() != device)
    fail<DeviceError>("{}: logits on {} and targets on {} (one device for all)", op, to_string(device),
                      to_string(targets.device()));
  if (rows != targets.shape())
    fail<ShapeError>("{}: logits {} and targets {} (targets have the logits' shape without its last axis)",
                     op, to_string(rows.inserted(rows.rank(), classes)), to_string(targets.shape()));
  const Tensor numbers =
      targets.dtype() == Dtype::i64 ? raw::contiguous(targets) : raw::cast(targets, Dtype::i64);
  if (numbers.device().type != DeviceType::cpu) return numbers;
  const std::int64_t* const values = numbers.data<std::int64_t>();
  for (std::int64_t row = 0; row < numbers.elements(); ++row)
    if (values[row] != ignore && (values[row] < 0 || values[row] >= classes))
      fail<ValueError>(
          "{}: the target of row {} is {} with {} classes (from 0 to classes - 1, or {} to ignore the row)",
          op, row, values[row], classes, ignore);
  return numbers;
}

namespace {

Tensor checked_targets(const char* op, const Tensor& logits, const Tensor& targets, std::int64_t ignore) {
  checks::floating(op, logits, "logits");
  if (logits.rank() == 0) fail<ShapeError>("{}: logits are a scalar (their last axis is the classes)", op);
  return class_indices(op, targets, logits.shape().without(logits.rank() - 1), logits.dim(-1),
                       logits.device(), ignore);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, std::int64_t ignore) {
  if (must_upcast(logits)) return cross_entropy(upcast(logits), targets, ignore);
  const Tensor numbers = checked_targets("cross_entropy", logits, targets, ignore);
  const Dtype dtype = logits.dtype(), inside = compute_dtype(logits);
  const Device device = logits.device();
  const std::int64_t rows = numbers.elements(), classes = logits.dim(-1);
  const Tensor packed = raw::contiguous(logits);
  const Tensor loss = Tensor::empty({}, inside, device);
  const Tensor inverse_scored = Tensor::empty({}, inside, device);
  const Tensor row_loss = Tensor::empty({rows}, inside, device);
  const Tensor row_max = Tensor::empty({rows}, inside, device);
  const Tensor row_inverse = Tensor::empty({rows}, inside, device);
  cross_entropy_forward_slot(
      device, {dtype, rows, classes, classes, ignore, packed.raw_data(), numbers.data<std::int64_t>(),
               row_loss.raw_data(), row_max.raw_data(), row_inverse.raw_data()});
  cross_entropy_mean_slot(device, {inside, rows, ignore, numbers.data<std::int64_t>(), row_loss.raw_data(),
                                   loss.raw_data(), inverse_scored.raw_data()});
  // A row's loss is log(sum_c e^{x_c}) - x_target, so its derivative by x_c is softmax_c - [c = target]; the
  // mean divides by the number of scored rows. softmax_c = e^{x_c - max} / sum is computed here again: a
  // second exp costs less than writing and reading [rows, classes] numbers.
  return record("cross_entropy", {logits}, loss, {packed, numbers, row_max, row_inverse, inverse_scored},
                [=](VjpContext& v) {
                  const Tensor dy = raw::contiguous(v.dy());
                  v.sink.into(0, [&](const Tensor& dlogits, float beta) {
                    if (dlogits.elements() == 0) return;
                    cross_entropy_backward_slot(
                        device, {dtype, rows, classes, classes, ignore, dy.raw_data(), v.saved(0).raw_data(),
                                 v.saved(1).data<std::int64_t>(), v.saved(2).raw_data(),
                                 v.saved(3).raw_data(), v.saved(4).raw_data(), dlogits.raw_data(), beta});
                  });
                });
}

Tensor cross_entropy_rows(const Tensor& logits, const Tensor& targets, std::int64_t ignore) {
  const bool tracked = grad_enabled() && requires_grad(logits);
  if (must_upcast(logits) || (tracked && compute_dtype(logits) != logits.dtype()))
    return cross_entropy_rows(upcast(logits), targets, ignore);
  const Tensor numbers = checked_targets("cross_entropy_rows", logits, targets, ignore);
  const Dtype dtype = logits.dtype();
  const Device device = logits.device();
  const std::int64_t rows = numbers.elements(), classes = logits.dim(-1);
  const Tensor packed = raw::contiguous(logits);
  const Tensor losses = Tensor::empty(targets.shape(), compute_dtype(logits), device);
  const Tensor row_max = tracked ? Tensor::empty({rows}, dtype, device) : Tensor();
  const Tensor row_inverse = tracked ? Tensor::empty({rows}, dtype, device) : Tensor();
  if (rows > 0)
    cross_entropy_forward_slot(
        device, {dtype, rows, classes, classes, ignore, packed.raw_data(), numbers.data<std::int64_t>(),
                 losses.raw_data(), tracked ? row_max.raw_data() : nullptr,
                 tracked ? row_inverse.raw_data() : nullptr});
  if (!tracked) return losses;
  return record(
      "cross_entropy_rows", {logits}, losses, {packed, numbers, row_max, row_inverse}, [=](VjpContext& v) {
        const Tensor dlogits = Tensor::empty(v.saved(0).shape(), dtype, device);
        if (dlogits.elements() > 0) {
          const Tensor one = Tensor::full({1}, 1, dtype, device);
          cross_entropy_backward_slot(
              device, {dtype, rows, classes, classes, ignore, one.raw_data(), v.saved(0).raw_data(),
                       v.saved(1).data<std::int64_t>(), v.saved(2).raw_data(), v.saved(3).raw_data(),
                       one.raw_data(), dlogits.raw_data(), 0});
        }
        const Shape& of_rows = v.dy().shape();
        v.sink.accumulate(
            0, dlogits * raw::reshape(raw::contiguous(v.dy()), of_rows.inserted(of_rows.rank(), 1)));
      });
}

}  // namespace eddy
