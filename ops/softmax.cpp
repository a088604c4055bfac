// Checks, masks and gradients of softmax and log-softmax.
#include "ops/softmax.h"

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/widen.h"
#include "tensor/format.h"

namespace eddy {

constinit Slot<SoftmaxArgs> softmax_forward_slot{"softmax_forward"};
constinit Slot<SoftmaxBackwardArgs> softmax_backward_slot{"softmax_backward"};
constinit Slot<LogSoftmaxArgs> log_softmax_forward_slot{"log_softmax_forward"};
constinit Slot<LogSoftmaxBackwardArgs> log_softmax_backward_slot{"log_softmax_backward"};

namespace {

std::int64_t checked_width(const char* op, const Tensor& x) {
  checks::floating(op, x);
  if (x.rank() == 0) fail<ShapeError>("{}: a scalar has no last axis (give it at least one axis)", op);
  return x.dim(-1);
}

void check_mask(const Tensor& x, const Tensor& mask) {
  if (mask.dtype() != Dtype::u8)
    fail<DtypeError>("softmax: the mask is {} (u8, 1 = allowed; cast it first)", dtype_name(mask.dtype()));
  if (!(mask.device() == x.device()))
    fail<DeviceError>("softmax: the mask is on {} and x on {} (one device for all)", to_string(mask.device()),
                      to_string(x.device()));
  const int extra = x.rank() - mask.rank();
  bool fits = extra >= 0;
  for (int i = 0; fits && i < mask.rank(); ++i)
    fits = mask.shape()[i] == x.shape()[i + extra] || mask.shape()[i] == 1;
  if (!fits)
    fail<ShapeError>("softmax: a mask {} for x {} (its sizes, aligned at the end, must be equal or 1)",
                     to_string(mask.shape()), to_string(x.shape()));
}

// The mask seen over x's shape with each row's entries side by side; leading axes may repeat with stride 0.
Tensor mask_over(const Tensor& mask, const Shape& shape) {
  Tensor rows = mask.rank() == 0 ? raw::reshape(mask, {1}) : mask;
  rows = raw::contiguous(raw::expand(rows, rows.shape().with(rows.rank() - 1, shape[shape.rank() - 1])));
  return raw::expand(rows, shape);
}

}  // namespace

Tensor softmax(const Tensor& x, SoftmaxMode mode, const Tensor& mask) {
  if (widens_anywhere(x)) return narrowed(softmax(wide(x), mode, mask));
  const std::int64_t width = checked_width("softmax", x);
  const bool causal = mode == SoftmaxMode::causal;
  if (causal && x.rank() < 2)
    fail<ShapeError>("softmax: causal scores need the axes [queries, keys]: {}", to_string(x.shape()));
  if (mask.defined()) check_mask(x, mask);

  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.elements() == 0) return record("softmax", {x}, y, {}, [](VjpContext& v) { v.sink.open_zeroed(0); });
  const std::int64_t rows = x.elements() / width, queries = causal ? x.dim(-2) : 1;
  SoftmaxArgs args{x.dtype(), causal, rows, width, queries,     packed.raw_data(),
                   nullptr,   0,      {},   {},    y.raw_data()};
  const Tensor seen = mask.defined() ? mask_over(mask, x.shape()) : Tensor();
  if (seen.defined()) {
    args.mask = seen.data<std::uint8_t>();
    args.mask_rank = x.rank() - 1;
    for (int i = 0; i < args.mask_rank; ++i) {
      args.mask_shape[i] = x.shape()[i];
      args.mask_strides[i] = seen.strides()[i];
    }
  }
  softmax_forward_slot(x.device(), args);
  // dy_i/dx_j = y_i ([i = j] - y_j), so dx_j = sum_i dy_i y_i ([i = j] - y_j) = y_j (dy_j - sum_i dy_i y_i).
  // A hidden entry has y = 0: it takes no part in the sum and gets 0.
  return record("softmax", {x}, y, {y}, [=](VjpContext& v) {
    const Tensor dy = raw::contiguous(v.dy());
    v.sink.into(0, [&](const Tensor& dx, float beta) {
      softmax_backward_slot(dy.device(), {dy.dtype(), causal, rows, width, queries, dy.raw_data(),
                                          v.saved(0).raw_data(), dx.raw_data(), beta});
    });
  });
}

Tensor log_softmax(const Tensor& x) {
  if (widens_anywhere(x)) return narrowed(log_softmax(wide(x)));
  const std::int64_t width = checked_width("log_softmax", x);
  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.elements() == 0)
    return record("log_softmax", {x}, y, {}, [](VjpContext& v) { v.sink.open_zeroed(0); });
  const std::int64_t rows = x.elements() / width;
  log_softmax_forward_slot(x.device(), {x.dtype(), rows, width, packed.raw_data(), y.raw_data()});
  // dy_i/dx_j = [i = j] - softmax_j and softmax = exp(y), so dx_j = dy_j - exp(y_j) sum_i dy_i.
  return record("log_softmax", {x}, y, {y}, [=](VjpContext& v) {
    const Tensor dy = raw::contiguous(v.dy());
    v.sink.into(0, [&](const Tensor& dx, float beta) {
      log_softmax_backward_slot(
          dy.device(), {dy.dtype(), rows, width, dy.raw_data(), v.saved(0).raw_data(), dx.raw_data(), beta});
    });
  });
}

}  // namespace eddy
