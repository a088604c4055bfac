// Checks, masks and gradients of softmax and log-softmax.
#include "ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/op_spec.h"
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

namespace {

// The reference in plain loops: visible(row, column) tells which entries count.
template <class Visible>
Tensor reference_softmax(const Tensor& x, bool logarithm, Visible visible) {
  const std::int64_t width = x.dim(-1), rows = width == 0 ? 0 : x.elements() / width;
  std::vector<double> values = x.to_vector<double>();
  for (std::int64_t r = 0; r < rows; ++r) {
    double* const row = values.data() + r * width;
    double top = -INFINITY, sum = 0;
    for (std::int64_t k = 0; k < width; ++k)
      if (visible(r, k)) top = std::max(top, row[k]);
    for (std::int64_t k = 0; k < width; ++k)
      if (visible(r, k)) sum += std::exp(row[k] - top);
    for (std::int64_t k = 0; k < width; ++k) {
      const double score = row[k] - top;
      row[k] = !visible(r, k) ? 0 : logarithm ? score - std::log(sum) : std::exp(score) / sum;
    }
  }
  return Tensor::from(values, x.shape());
}

bool all_visible(std::int64_t, std::int64_t) {
  return true;
}

Tensor values(const Shape& shape) {
  return sample_normal(shape, "softmax");
}

Tensor sample_mask(const Shape& shape) {
  const std::vector<std::int64_t> draws = sample_indices(shape, "softmax_mask", 3).to_vector<std::int64_t>();
  std::vector<std::uint8_t> allowed;
  for (const std::int64_t draw : draws) allowed.push_back(draw > 0);
  return Tensor::from(allowed, shape);
}

OpSpec softmax_spec(const char* name, const char* formula, OpFunction run, OpFunction reference) {
  OpSpec spec;
  spec.name = name;
  spec.formula = formula;
  spec.run = std::move(run);
  spec.reference = std::move(reference);
  spec.samples = {{"size_0", {values({3, 0})}},
                  {"no_rows", {values({0, 5})}},
                  {"size_1", {values({1, 1})}},
                  {"odd_tail", {values({3, 37})}},
                  {"long_row", {values({2, 1029})}, false},
                  {"strided", {strided_copy(values({5, 7}))}},
                  {"large", {sample_normal({3, 33}, "softmax", 1e4)}, false}};
  spec.roundings = 32;
  spec.bench = [] { return Tensors{raw::cast(values({16384, 256}), Dtype::f32)}; };
  spec.cost = [](const Tensors& x) {
    return OpCost{20.0 * static_cast<double>(x[0].elements()), 2.0 * static_cast<double>(x[0].bytes())};
  };
  return spec;
}

bool causal_visible(const Tensor& x, std::int64_t row, std::int64_t key) {
  const std::int64_t queries = x.dim(-2), keys = x.dim(-1);
  return key <= row % queries + (keys - queries);
}

OpSpec causal_spec() {
  OpSpec spec = softmax_spec(
      "softmax_causal", "softmax over the keys k <= j + (keys - queries)",
      [](const Tensors& x) { return Tensors{softmax(x[0], SoftmaxMode::causal)}; },
      [](const Tensors& x) {
        return Tensors{reference_softmax(
            x[0], false, [&](std::int64_t row, std::int64_t key) { return causal_visible(x[0], row, key); })};
      });
  spec.samples = {{"size_0", {values({2, 0, 3})}},       {"size_1", {values({1, 1})}},
                  {"square", {values({2, 9, 9})}},       {"more_keys", {values({2, 3, 21})}},
                  {"more_queries", {values({2, 5, 3})}}, {"strided", {strided_copy(values({2, 5, 5}))}}};
  spec.bench = [] { return Tensors{raw::cast(values({64, 256, 256}), Dtype::f32)}; };
  return spec;
}

OpSpec masked_spec() {
  OpSpec spec = softmax_spec(
      "softmax_masked", "softmax over the entries that the mask allows",
      [](const Tensors& x) { return Tensors{softmax(x[0], SoftmaxMode::plain, x[1])}; },
      [](const Tensors& x) {
        const std::vector<std::uint8_t> mask = raw::expand(x[1], x[0].shape()).to_vector<std::uint8_t>();
        const std::int64_t width = x[0].dim(-1);
        return Tensors{reference_softmax(x[0], false, [&](std::int64_t row, std::int64_t key) {
          return mask[static_cast<std::size_t>(row * width + key)] != 0;
        })};
      });
  spec.samples = {{"size_0", {values({0, 3}), sample_mask({3})}},
                  {"size_1", {values({1, 1}), sample_mask({1, 1})}},
                  {"full_mask", {values({2, 3, 37}), sample_mask({2, 3, 37})}},
                  {"broadcast_rows", {values({2, 3, 9}), sample_mask({9})}},
                  {"broadcast_heads", {values({2, 3, 4, 9}), sample_mask({2, 1, 4, 9})}},
                  {"whole_rows", {values({2, 5, 9}), sample_mask({5, 1})}},
                  {"strided", {strided_copy(values({5, 7})), strided_copy(sample_mask({5, 7}))}}};
  spec.bench = [] { return Tensors{raw::cast(values({64, 256, 256}), Dtype::f32), sample_mask({256, 256})}; };
  return spec;
}

}  // namespace

std::vector<OpSpec> softmax_specs() {
  return {
      softmax_spec(
          "softmax", "exp(x) / sum exp(x), last axis",
          [](const Tensors& x) { return Tensors{softmax(x[0])}; },
          [](const Tensors& x) { return Tensors{reference_softmax(x[0], false, all_visible)}; }),
      causal_spec(),
      masked_spec(),
      softmax_spec(
          "log_softmax", "x - log(sum exp(x)), last axis",
          [](const Tensors& x) { return Tensors{log_softmax(x[0])}; },
          [](const Tensors& x) { return Tensors{reference_softmax(x[0], true, all_visible)}; }),
  };
}

}  // namespace eddy
