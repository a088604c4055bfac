// Checks, bands, masks and gradients of softmax and log-softmax.
#include "ops/reduce/softmax.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

std::int64_t checked_width(const char* op, const Tensor& x) {
  checks::floating(op, x);
  if (x.rank() == 0) fail<ShapeError>("{}: a scalar has no last axis (give it at least one axis)", op);
  return x.dim(-1);
}

// A mask or a bias.
void check_repeats(const Tensor& x, const Tensor& extra, const char* name) {
  const int before = x.rank() - extra.rank();
  bool fits = before >= 0;
  for (int i = 0; fits && i < extra.rank(); ++i)
    fits = extra.shape()[i] == x.shape()[i + before] || extra.shape()[i] == 1;
  if (!fits)
    fail<ShapeError>("softmax: a {} {} for x {} (its sizes, aligned at the end, must be equal or 1)", name,
                     to_string(extra.shape()), to_string(x.shape()));
}

void check_mask(const Tensor& x, const Tensor& mask) {
  if (mask.dtype() != Dtype::u8)
    fail<DtypeError>("softmax: the mask is {} (u8, 1 = allowed; cast it first)", dtype_name(mask.dtype()));
  if (mask.device() != x.device())
    fail<DeviceError>("softmax: the mask is on {} and x on {} (one device for all)", to_string(mask.device()),
                      to_string(x.device()));
  check_repeats(x, mask, "mask");
}

void check_bias(const Tensor& x, const Tensor& bias) {
  checks::floating("softmax", bias, "bias");
  checks::same_kind("softmax", x, bias);
  check_repeats(x, bias, "bias");
}

// Returns the band of the options for x, rank >= 1.
SoftmaxBand checked_band(const Tensor& x, const SoftmaxOptions& options) {
  constexpr std::int64_t kFar = AttentionBand::kFar;
  const AttentionBand band = apply_causal(options.band, options.causal);
  const std::int64_t width = x.dim(-1);
  if (band.least <= -kFar && band.most >= kFar) return {1, 0, width};
  if (x.rank() < 2)
    fail<ShapeError>("softmax: causal scores, or a band of them, need the axes [queries, keys]: {}",
                     to_string(x.shape()));
  if (band.least > band.most)
    fail<ValueError>("softmax: no distance lies in the band {} .. {}{} (least <= most)", band.least,
                     band.most, options.causal ? ", causal" : "");
  // Distances are 1 - queries .. width - 1; clamp the band to one beyond them, so that nothing overflows.
  const std::int64_t queries = x.dim(-2);
  const std::int64_t least = std::clamp(band.least, -queries, width);
  const std::int64_t most = std::clamp(band.most, -queries, width);
  return {queries, width - queries - most, width - queries - least + 1};
}

// Returns a mask or a bias expanded to x's shape, with adjacent entries in each row; leading axes may repeat
// with stride 0.
Tensor rows_over(const Tensor& extra, const Shape& shape) {
  Tensor rows = extra.rank() == 0 ? raw::reshape(extra, {1}) : extra;
  rows = raw::contiguous(raw::expand(rows, rows.shape().with(rows.rank() - 1, shape[shape.rank() - 1])));
  return raw::expand(rows, shape);
}

}  // namespace

Tensor softmax(const Tensor& x, const SoftmaxOptions& options) {
  if (is_bf16(x)) {
    SoftmaxOptions wider = options;
    wider.bias = upcast(options.bias);
    return downcast(softmax(upcast(x), wider));
  }
  const std::int64_t width = checked_width("softmax", x);
  const SoftmaxBand band = checked_band(x, options);
  const Tensor &mask = options.mask, &bias = options.bias;
  if (mask.defined()) check_mask(x, mask);
  if (bias.defined()) check_bias(x, bias);

  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.elements() == 0)
    return record("softmax", {x, bias}, y, {}, [](VjpContext& v) {
      for (int k = 0; k < 2; ++k)
        if (v.sink.needs(k)) v.sink.open_zeroed(k);
    });
  const std::int64_t rows = x.elements() / width;
  SoftmaxArgs args{};
  args.dtype = x.dtype();
  args.rows = rows;
  args.width = width;
  args.band = band;
  args.x = packed.raw_data();
  args.leading = x.rank() - 1;
  for (int i = 0; i < args.leading; ++i) args.shape[i] = x.shape()[i];
  const Tensor allowed = mask.defined() ? rows_over(mask, x.shape()) : Tensor();
  if (allowed.defined()) {
    args.mask = allowed.data<std::uint8_t>();
    std::copy_n(allowed.strides(), args.leading, args.mask_strides);
  }
  const Tensor added = bias.defined() ? rows_over(bias, x.shape()) : Tensor();
  if (added.defined()) {
    args.bias = added.raw_data();
    std::copy_n(added.strides(), args.leading, args.bias_strides);
  }
  args.y = y.raw_data();
  softmax_forward_slot(x.device(), args);
  // With s = x + bias:
  //   dy_i/ds_j = y_i ([i = j] - y_j)
  //   dx_j      = sum_i dy_i y_i ([i = j] - y_j) = y_j (dy_j - sum_i dy_i y_i)
  //   dbias     = dx summed over the broadcast axes
  // A hidden entry has y = 0: it enters no sum and its gradient is 0.
  const Shape bias_shape = bias.defined() ? bias.shape() : Shape{};
  return record("softmax", {x, bias}, y, {y}, [=](VjpContext& v) {
    const Tensor dy = raw::contiguous(v.dy());
    const auto write = [&](const Tensor& dx, float beta) {
      softmax_backward_slot(dy.device(), {dy.dtype(), rows, width, band, dy.raw_data(), v.saved(0).raw_data(),
                                          dx.raw_data(), beta});
    };
    if (!v.sink.needs(1)) return v.sink.into(0, write);
    const Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
    write(dx, 0);
    if (v.sink.needs(0)) v.sink.accumulate(0, dx);
    v.sink.accumulate(1, dx.shape() == bias_shape ? dx : sum_to(dx, bias_shape));
  });
}

Tensor log_softmax(const Tensor& x) {
  if (is_bf16(x)) return downcast(log_softmax(upcast(x)));
  const std::int64_t width = checked_width("log_softmax", x);
  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.elements() == 0)
    return record("log_softmax", {x}, y, {}, [](VjpContext& v) { v.sink.open_zeroed(0); });
  const std::int64_t rows = x.elements() / width;
  log_softmax_forward_slot(x.device(), {x.dtype(), rows, width, packed.raw_data(), y.raw_data()});
  // With softmax(x) = exp(y):
  //   dy_i/dx_j = [i = j] - exp(y_j)
  //   dx_j      = dy_j - exp(y_j) sum_i dy_i
  return record("log_softmax", {x}, y, {y}, [=](VjpContext& v) {
    const Tensor dy = raw::contiguous(v.dy());
    v.sink.into(0, [&](const Tensor& dx, float beta) {
      log_softmax_backward_slot(
          dy.device(), {dy.dtype(), rows, width, dy.raw_data(), v.saved(0).raw_data(), dx.raw_data(), beta});
    });
  });
}

}  // namespace eddy
