// Checks of the weights, their rearrangement for kernels, and the gradients of the layer that recurrences share.
#include "ops/recurrence/recurrence_layer.h"

#include <algorithm>
#include <cstdint>

#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/records.h"
#include "ops/norm/layer_norm.h"
#include "ops/product/gemm.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"

namespace eddy::recurrence {

using namespace detail;

namespace {

Tensor rows_of(const Tensor& x) {
  return raw::reshape(x, {x.elements() / x.dim(-1), x.dim(-1)});
}

template <class Change>
UnitRecurrenceWeights each(const UnitRecurrenceWeights& w, Change change) {
  return {change(w.norm1), change(w.norm1_bias), change(w.wqkv),  change(w.wqkv_bias),
          change(w.wo),    change(w.wo_bias),    change(w.norm2), change(w.norm2_bias),
          change(w.up),    change(w.up_bias),    change(w.down),  change(w.down_bias)};
}

}  // namespace

void check_kind(const char* op, const char* name, const Tensor& x, const Shape& shape, const Tensor& like) {
  if (!x.defined()) return;
  if (x.shape() != shape)
    fail<ShapeError>("{}: {} has shape {} ({})", op, name, to_string(x.shape()), to_string(shape));
  if (x.dtype() != like.dtype())
    fail<DtypeError>("{}: {} is {} ({})", op, name, dtype_name(x.dtype()), dtype_name(like.dtype()));
  if (x.device() != like.device())
    fail<DeviceError>("{}: {} is on {} and x on {} (one device for all)", op, name, to_string(x.device()),
                      to_string(like.device()));
}

void check_weights(const char* op, const UnitRecurrenceWeights& w, const Tensor& like,
                   const UnitRecurrenceOptions& options) {
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
  if (options.heads < 1 || dim % options.heads != 0)
    fail<ShapeError>("{}: heads must divide dim: heads {}, dim {}", op, options.heads, dim);
}

Tensor readable_rows(const Tensor& x) {
  if (!x.defined()) return x;
  const Tensor rows = raw::contiguous(x);
  const bool reads_wide = x.device().type == DeviceType::cuda;
  return reads_wide && reinterpret_cast<std::uintptr_t>(rows.raw_data()) % 16 != 0 ? raw::copy(rows) : rows;
}

UnitRecurrenceWeights contiguous_weights(const UnitRecurrenceWeights& w) {
  return each(w, readable_rows);
}

UnitRecurrenceWeights upcast_weights(const UnitRecurrenceWeights& w) {
  return each(w, upcast);
}

void bind(RecurrenceArgs& args, const UnitRecurrenceWeights& w, const UnitRecurrenceOptions& options,
          bool stores_bf16) {
  args.products = options.products;
  args.kept = stores_bf16 && options.products == Dtype::bf16 ? Dtype::bf16 : args.dtype;
  args.precision = coarsest(MatmulPrecision::f32, w.wqkv, w.wo, w.up, w.down);
  args.dim = w.up.dim(1);
  args.mlp = w.up.dim(0);
  args.heads = options.heads;
  args.gelu = options.gelu;
  args.eps = options.eps;
  args.dropout = options.dropout;
  args.gate_key = options.gate_key;
  args.attn_key = options.attn_key;
  args.mlp_key = options.mlp_key;
  args.norm1 = data_or_null(w.norm1);
  args.norm1_bias = data_or_null(w.norm1_bias);
  args.wo = data_or_null(w.wo);
  args.wo_bias = data_or_null(w.wo_bias);
  args.norm2 = data_or_null(w.norm2);
  args.norm2_bias = data_or_null(w.norm2_bias);
  args.up = data_or_null(w.up);
  args.up_bias = data_or_null(w.up_bias);
  args.down = data_or_null(w.down);
  args.down_bias = data_or_null(w.down_bias);
}

SavedRows::SavedRows(RecurrenceArgs& args, const Tensor& rows, const Tensor& read) {
  const auto make_like = [](const Tensor& like, Tensor& made, void*& address, std::int64_t width,
                            Dtype dtype) {
    made = Tensor::empty(like.shape().with(like.rank() - 1, width), dtype, like.device());
    address = made.raw_data();
  };
  const auto make = [&](Tensor& made, void*& address, std::int64_t width, Dtype dtype) {
    make_like(rows, made, address, width, dtype);
  };
  make(o, args.o, args.dim, args.kept);
  make(r, args.r, args.dim, args.dtype);
  make_like(read, a1, args.a1, args.dim, args.kept);
  make(a2, args.a2, args.dim, args.kept);
  make(u, args.u, args.mlp, args.kept);
  make(gate, args.gate, args.heads, args.dtype);
  make_like(read, mean1, args.mean1, 1, args.dtype);
  make_like(read, rstd1, args.rstd1, 1, args.dtype);
  make(mean2, args.mean2, 1, args.dtype);
  make(rstd2, args.rstd2, 1, args.dtype);
}

SavedRows::SavedRows(const VjpContext& context) {
  int i = 0;
  for (Tensor* rows : {&o, &r, &a1, &a2, &u, &gate, &mean1, &rstd1, &mean2, &rstd2})
    *rows = context.saved(i++);
}

std::vector<Tensor> SavedRows::with(const std::vector<Tensor>& more) const {
  std::vector<Tensor> all{o, r, a1, a2, u, gate, mean1, rstd1, mean2, rstd2};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

BackwardRows::BackwardRows(RecurrenceArgs& args, const Tensor& rows, const Tensor& kept_u,
                           const Tensor& read) {
  const auto make = [&](Tensor& made, void*& address, const Tensor& like, Dtype dtype) {
    made = Tensor::empty(like.shape(), dtype, like.device());
    address = made.raw_data();
  };
  make(act, args.act, kept_u, args.kept);
  make(du, args.du, kept_u, args.kept);
  make(dattn, args.do_out, rows, args.kept);
  make(dmlp, args.dmlp_out, rows, args.kept);
  make(da1, args.da1, read, args.dtype);
  make(da2, args.da2, rows, args.dtype);
}

Tensor writable_gradient(const VjpContext& context, int output) {
  const Tensor& given = context.dy(output);
  if (!given.defined()) return context.dy_or_zeros(output);
  return given.exclusive() && given.contiguous() ? raw::alias(readable_rows(given)) : raw::copy(given);
}

std::vector<Tensor> in_order(const UnitRecurrenceWeights& w) {
  return {w.norm1, w.norm1_bias, w.wqkv, w.wqkv_bias, w.wo,   w.wo_bias,
          w.norm2, w.norm2_bias, w.up,   w.up_bias,   w.down, w.down_bias};
}

void weight_product(const Tensor& dst, std::int64_t row, const Tensor& dy, const Tensor& x, double beta,
                    MatmulPrecision precision) {
  const std::int64_t out = dy.dim(-1), in = x.dim(-1), rows = dy.elements() / out;
  GemmArgs g{dy.dtype(),
             true,
             false,
             out,
             in,
             rows,
             dy.raw_data(),
             out,
             x.raw_data(),
             in,
             raw::narrow(dst, 0, row, out).raw_data(),
             in};
  g.precision = precision;
  g.c_f32 = g.dtype == Dtype::bf16;
  g.beta = beta;
  gemm_slot(dst.device(), g);
}

void add_rows(const Tensor& dst, const Tensor& dy) {
  sum_into(dst, rows_of(dy), 1);
}

void accumulate_weight_gradients(VjpContext& context, int first, const Tensor& x, const SavedRows& saved,
                                 const BackwardRows& rows, MatmulPrecision precision) {
  GradSink& sink = context.sink;
  const auto product = [&](Weight which, const Tensor& dy, const Tensor& in) {
    if (sink.needs(first + which))
      sink.into(first + which,
                [&](const Tensor& dst, float beta) { weight_product(dst, 0, dy, in, beta, precision); });
  };
  const auto bias = [&](Weight which, const Tensor& dy) {
    if (sink.needs(first + which))
      sink.into(first + which, [&](const Tensor& dst, float beta) { sum_into(dst, rows_of(dy), beta); });
  };
  product(kWo, rows.dattn, saved.o);
  product(kUp, rows.du, saved.a2);
  product(kDown, rows.dmlp, rows.act);
  bias(kWoBias, rows.dattn);
  bias(kUpBias, rows.du);
  bias(kDownBias, rows.dmlp);
  // The gains' gradients, as one pass over all rows: partial sums by blocks of rows, then their sum.
  const auto norm = [&](Weight gain, Weight shift, const Tensor& dy, const Tensor& of, const Tensor& mean,
                        const Tensor& rstd) {
    bias(shift, dy);
    if (!sink.needs(first + gain)) return;
    const std::int64_t dim = of.dim(-1), count = of.elements() / dim;
    const Tensor partials = Tensor::empty({norm_blocks(dy.device(), count), dim}, dy.dtype(), dy.device());
    layer_norm_backward_slot(
        dy.device(), {dy.dtype(), count, dim, dy.raw_data(), dim, of.raw_data(), dim, nullptr,
                      mean.raw_data(), rstd.raw_data(), nullptr, dim, 0, partials.raw_data(), nullptr, 0});
    sink.into(first + gain, [&](const Tensor& dst, float beta) { sum_into(dst, partials, beta); });
  };
  norm(kNorm1, kNorm1Bias, rows.da1, x, saved.mean1, saved.rstd1);
  norm(kNorm2, kNorm2Bias, rows.da2, saved.r, saved.mean2, saved.rstd2);
}

void bind(RecurrenceArgs& args, const Steps& steps) {
  args.time = steps.time;
  args.batch = steps.batch;
  args.sequences = steps.sequences;
  args.block = steps.block;
  args.last = steps.last;
  args.keys = static_cast<const RandomKey*>(data_or_null(steps.keys));
}

Steps steps_of_blocks(const char* op, const Tensor& x, std::int64_t sequences, std::int64_t block,
                      double dropout, const std::vector<RandomKey>& keys, std::int64_t keys_of_block) {
  checks::floating(op, x);
  if (x.rank() != 2 || x.elements() == 0 || sequences < 1 || block < 1 || x.dim(0) % sequences != 0)
    fail<ShapeError>("{}: x has shape {} ([{} sequences x positions, dim], in blocks of {})", op,
                     to_string(x.shape()), sequences, block);
  const std::int64_t positions = x.dim(0) / sequences, time = (positions + block - 1) / block;
  if (dropout > 0 && std::ssize(keys) != keys_of_block * time)
    fail<ValueError>("{}: {} keys for dropout in {} blocks ({} for each)", op, keys.size(), time,
                     keys_of_block);
  return {time,
          sequences * block,
          sequences,
          block,
          positions - (time - 1) * block,
          dropout > 0 ? upload_records(x.device(), keys) : Tensor()};
}

Tensor rows_of_blocks(const std::vector<Tensor>& blocks) {
  std::vector<Tensor> rows;
  for (const Tensor& part : blocks)
    rows.push_back(reshape(part, {part.elements() / part.dim(-1), part.dim(-1)}));
  return rows.size() == 1 ? rows[0] : concat(rows, 0);
}

}  // namespace eddy::recurrence
