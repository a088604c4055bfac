#include "ops/recurrence/recurrence_layer.h"

#include "ops/cast/widen.h"
#include "ops/core/checks.h"
#include "ops/core/records.h"
#include "ops/norm/layer_norm.h"
#include "ops/product/gemm.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"

namespace eddy::recurrence {
namespace {

Tensor rows_of(const Tensor& x) {
  return raw::reshape(x, {x.elements() / x.dim(-1), x.dim(-1)});
}

}  // namespace

void check_kind(const char* op, const char* name, const Tensor& x, const Shape& shape, const Tensor& like) {
  if (!x.defined()) return;
  if (x.shape() != shape)
    fail<ShapeError>("{}: {} has shape {} ({})", op, name, to_string(x.shape()), to_string(shape));
  if (x.dtype() != like.dtype())
    fail<DtypeError>("{}: {} is {} ({})", op, name, dtype_name(x.dtype()), dtype_name(like.dtype()));
  if (!(x.device() == like.device()))
    fail<DeviceError>("{}: {} is on {} and x on {} (one device for all)", op, name, to_string(x.device()),
                      to_string(like.device()));
}

void check_weights(const char* op, const UnitRecurrenceWeights& w, const Tensor& like) {
  checks::defined(op, w.wqkv, "wqkv");
  checks::defined(op, w.up, "up");
  const std::int64_t dim = like.dim(-1), mlp = w.up.dim(0);
  const auto expect = [&](const char* name, const Tensor& t, const Shape& wanted) {
    check_kind(op, name, t, wanted, like);
  };
  expect("wqkv", w.wqkv, {3 * dim, dim});
  expect("wqkv bias", w.wqkv_bias, {3 * dim});
  expect("wo", w.wo, {dim, dim});
  expect("wo bias", w.wo_bias, {dim});
  expect("up", w.up, {mlp, dim});
  expect("up bias", w.up_bias, {mlp});
  expect("down", w.down, {dim, mlp});
  expect("down bias", w.down_bias, {dim});
  for (const Tensor& gain : {w.norm1, w.norm1_bias, w.norm2, w.norm2_bias}) expect("norm", gain, {dim});
}

Tensor row_major(const Tensor& x) {
  return x.defined() ? raw::contiguous(x) : x;
}

UnitRecurrenceWeights row_major(const UnitRecurrenceWeights& w) {
  return {row_major(w.norm1), row_major(w.norm1_bias), row_major(w.wqkv),  row_major(w.wqkv_bias),
          row_major(w.wo),    row_major(w.wo_bias),    row_major(w.norm2), row_major(w.norm2_bias),
          row_major(w.up),    row_major(w.up_bias),    row_major(w.down),  row_major(w.down_bias)};
}

UnitRecurrenceWeights wide_weights(const UnitRecurrenceWeights& w) {
  return {wide(w.norm1), wide(w.norm1_bias), wide(w.wqkv),  wide(w.wqkv_bias),
          wide(w.wo),    wide(w.wo_bias),    wide(w.norm2), wide(w.norm2_bias),
          wide(w.up),    wide(w.up_bias),    wide(w.down),  wide(w.down_bias)};
}

Tensor keys_on(const Tensor& x, const std::vector<RandomKey>& keys) {
  return keys.empty() ? Tensor() : upload_records(x.device(), keys);
}

void bind(UnitRecurrenceArgs& args, const UnitRecurrenceWeights& w, const UnitRecurrenceOptions& options,
          bool stores_bf16) {
  args.products = options.products;
  args.kept = stores_bf16 && options.products == Dtype::bf16 ? Dtype::bf16 : args.dtype;
  args.dim = w.up.dim(1);
  args.mlp = w.up.dim(0);
  args.heads = options.heads;
  args.gelu = options.gelu;
  args.eps = options.eps;
  args.dropout = options.dropout;
  args.gate_key = options.gate_key;
  args.attn_key = options.attn_key;
  args.mlp_key = options.mlp_key;
  args.norm1 = data_of(w.norm1);
  args.norm1_bias = data_of(w.norm1_bias);
  args.wo = data_of(w.wo);
  args.wo_bias = data_of(w.wo_bias);
  args.norm2 = data_of(w.norm2);
  args.norm2_bias = data_of(w.norm2_bias);
  args.up = data_of(w.up);
  args.up_bias = data_of(w.up_bias);
  args.down = data_of(w.down);
  args.down_bias = data_of(w.down_bias);
}

SavedRows saved_rows(UnitRecurrenceArgs& args, const Tensor& rows) {
  const auto rows_of = [&](std::int64_t width, Dtype dtype) {
    return Tensor::empty(rows.shape().with(rows.rank() - 1, width), dtype, rows.device());
  };
  const auto statistic = [&] {
    return Tensor::empty({rows.elements() / args.dim}, rows.dtype(), rows.device());
  };
  const SavedRows kept{rows_of(args.dim, args.kept),
                       rows_of(args.dim, args.dtype),
                       rows_of(args.dim, args.kept),
                       rows_of(args.dim, args.kept),
                       rows_of(args.mlp, args.kept),
                       rows_of(args.heads, args.dtype),
                       statistic(),
                       statistic(),
                       statistic(),
                       statistic()};
  args.o = kept.o.raw_data();
  args.r = kept.r.raw_data();
  args.a1 = kept.a1.raw_data();
  args.a2 = kept.a2.raw_data();
  args.u = kept.u.raw_data();
  args.gate = kept.gate.raw_data();
  args.mean1 = kept.mean1.raw_data();
  args.rstd1 = kept.rstd1.raw_data();
  args.mean2 = kept.mean2.raw_data();
  args.rstd2 = kept.rstd2.raw_data();
  return kept;
}

BackwardRows backward_rows(UnitRecurrenceArgs& args, const Tensor& rows, const Tensor& u) {
  const auto like = [](const Tensor& t, Dtype dtype) { return Tensor::empty(t.shape(), dtype, t.device()); };
  const BackwardRows made{like(u, args.kept),    like(u, args.kept),     like(rows, args.kept),
                          like(rows, args.kept), like(rows, args.dtype), like(rows, args.dtype)};
  args.act = made.act.raw_data();
  args.du = made.du.raw_data();
  args.do_out = made.dattn.raw_data();
  args.dmlp_out = made.dmlp.raw_data();
  args.da1 = made.da1.raw_data();
  args.da2 = made.da2.raw_data();
  return made;
}

Tensor writable_gradient(const VjpContext& context, int output) {
  const Tensor& given = context.dy(output);
  if (!given.defined()) return context.dy_or_zeros(output);
  return given.exclusive() && given.contiguous() ? raw::alias(given) : raw::copy(given);
}

std::vector<Tensor> in_order(const UnitRecurrenceWeights& w) {
  return {w.norm1, w.norm1_bias, w.wqkv, w.wqkv_bias, w.wo,   w.wo_bias,
          w.norm2, w.norm2_bias, w.up,   w.up_bias,   w.down, w.down_bias};
}

void weight_product(const Tensor& dst, std::int64_t row, const Tensor& dy, const Tensor& x, double beta) {
  const std::int64_t out = dy.dim(-1), in = x.dim(-1), rows = dy.elements() / out;
  GemmArgs g{};
  g.dtype = dy.dtype();
  g.c_f32 = g.dtype == Dtype::bf16;
  g.transpose_a = true;
  g.m = out;
  g.n = in;
  g.k = rows;
  g.a = dy.raw_data();
  g.lda = out;
  g.b = x.raw_data();
  g.ldb = in;
  g.c = raw::narrow(dst, 0, row, out).raw_data();
  g.ldc = in;
  g.beta = beta;
  gemm_slot(dst.device(), g);
}

void add_rows(const Tensor& dst, const Tensor& dy) {
  sum_into(dst, rows_of(dy), 1);
}

void give_weight_gradients(VjpContext& context, int first, const LayerRows& rows) {
  GradSink& sink = context.sink;
  const auto product = [&](Weight which, const Tensor& dy, const Tensor& in) {
    if (sink.needs(first + which))
      sink.into(first + which, [&](const Tensor& dst, float beta) { weight_product(dst, 0, dy, in, beta); });
  };
  const auto bias = [&](Weight which, const Tensor& dy) {
    if (sink.needs(first + which))
      sink.into(first + which, [&](const Tensor& dst, float beta) { sum_into(dst, rows_of(dy), beta); });
  };
  product(kWo, rows.dattn, rows.o);
  product(kUp, rows.du, rows.a2);
  product(kDown, rows.dmlp, rows.act);
  bias(kWoBias, rows.dattn);
  bias(kUpBias, rows.du);
  bias(kDownBias, rows.dmlp);
  // The gains' gradients, as one pass over all rows: partial sums by blocks of rows, then their sum.
  const auto norm = [&](Weight gain, Weight shift, const NormRows& norm_rows) {
    bias(shift, norm_rows.dy);
    if (!sink.needs(first + gain)) return;
    const std::int64_t dim = norm_rows.x.dim(-1), count = norm_rows.x.elements() / dim;
    const Tensor partials =
        Tensor::empty({norm_blocks(count), dim}, norm_rows.dy.dtype(), norm_rows.dy.device());
    layer_norm_backward_slot(norm_rows.dy.device(),
                             {norm_rows.dy.dtype(), count, dim, norm_rows.dy.raw_data(), dim,
                              norm_rows.x.raw_data(), dim, nullptr, norm_rows.mean.raw_data(),
                              norm_rows.rstd.raw_data(), nullptr, dim, 0, partials.raw_data(), nullptr, 0});
    sink.into(first + gain, [&](const Tensor& dst, float beta) { sum_into(dst, partials, beta); });
  };
  norm(kNorm1, kNorm1Bias, rows.norm1);
  norm(kNorm2, kNorm2Bias, rows.norm2);
}

}  // namespace eddy::recurrence
