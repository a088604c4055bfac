// Checks, buffers and tape node of the block recurrences.
#include "ops/recurrence/block_recurrence.h"

#include <algorithm>

#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/recurrence/recurrence_layer.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;
using namespace recurrence;

bool block_recurrence_fits(const Tensor& x, std::int64_t mlp, const BlockRecurrenceOptions& options) {
  if (uses_cpu_path(x.device())) return false;
  bool fits = false;
  const Dtype products = is_bf16(x) ? Dtype::bf16 : options.chain.products;
  block_recurrence_supports_slot(x.device(), {x.dim(-1), mlp, options.chain.heads, options.sequences,
                                              options.block, products, &fits, options.spreads_output});
  return fits;
}

namespace {

// The recurrence of f32 rows: what it returns, and the node.
Tensor run_blocks(const char* op, bool accumulates, const Tensor& x, const UnitRecurrenceWeights& given,
                  const BlockRecurrenceOptions& options) {
  const Steps steps = steps_of_blocks(op, x, options.sequences, options.block, options.chain.dropout,
                                      options.keys, accumulates ? 6 : 3);
  const UnitRecurrenceWeights w = contiguous_weights(given);
  check_weights(op, w, x, options.chain);
  if (!block_recurrence_fits(x, w.up.dim(0), options))
    fail<DeviceError>(
        "{}: {} has no kernel for these sizes, or is not to use it (ask block_recurrence_fits first)", op,
        to_string(x.device()));
  const std::int64_t rows = x.dim(0), dim = x.dim(1), time = steps.time, block = steps.block;
  const std::int64_t of_windows = accumulates ? 2 * rows : rows + (time - 1) * steps.batch;

  const Tensor x_rows = readable_rows(x);
  BlockRecurrenceArgs args{};
  args.dtype = x.dtype();
  args.accumulates = accumulates;
  bind(args, steps);
  // Unread rows of the older half at the place of block i; that of the last window but one is at block n - 2.
  const auto unread = [&](std::int64_t i, std::int64_t length) {
    return std::clamp<std::int64_t>(options.first_read - i * block, 0, length);
  };
  args.unread[0] = unread(time - 2, block);
  args.unread[1] = unread(time - 1, steps.last);
  bind(args, w, options.chain, true);
  const auto buffer = [&](std::int64_t count, std::int64_t width, Dtype dtype) {
    return Tensor::empty({count, width}, dtype, x.device());
  };
  const Tensor z = buffer(of_windows, dim, x.dtype()), qkv = buffer(of_windows, 3 * dim, args.kept),
               out = buffer(accumulates ? of_windows : rows, dim, x.dtype());
  const SavedRows kept(args, out, z);
  args.wqkv = data_or_null(w.wqkv);
  args.wqkv_bias = data_or_null(w.wqkv_bias);
  args.x = x_rows.raw_data();
  args.z = z.raw_data();
  args.qkv = args.qkv_output = qkv.raw_data();
  args.h = out.raw_data();
  block_recurrence_forward_slot(x.device(), args);

  const Tensor y = accumulates ? raw::narrow(out, 0, rows, rows) : out;
  constexpr int kX = 0, kWeights = 1;
  std::vector<Tensor> inputs{x};
  for (const Tensor& weight : in_order(given)) inputs.push_back(weight);
  const std::vector<Tensor> saved =
      kept.with({z, qkv, w.norm1, w.wqkv, w.wo, w.norm2, w.up, w.down, steps.keys});
  record_many(
      op, inputs, {y}, saved, [args, rows, count = static_cast<int>(saved.size())](VjpContext& context) {
        for (int i = 0; i < count; ++i) static_cast<void>(context.saved(i));  // checks versions
        const SavedRows kept_rows(context);
        const Tensor &sz = context.saved(10), &sqkv = context.saved(11);
        const Tensor dy = readable_rows(context.dy());
        const auto like = [](const Tensor& t) { return Tensor::empty(t.shape(), t.dtype(), t.device()); };
        const Tensor dz = like(sz), dqkv = like(sqkv);
        BlockRecurrenceArgs a = args;
        const BackwardRows back(a, kept_rows.r, kept_rows.u, sz);
        a.dh = dy.raw_data();
        a.dx = dz.raw_data();
        a.dqkv = dqkv.raw_data();
        block_recurrence_backward_slot(sz.device(), a);

        GradSink& sink = context.sink;
        if (sink.needs(kX)) sink.accumulate(kX, raw::narrow(dz, 0, 0, rows));
        if (sink.needs(kWeights + kWqkv))
          sink.into(kWeights + kWqkv, [&](const Tensor& dst, float beta) {
            weight_product(dst, 0, dqkv, kept_rows.a1, beta, args.precision);
          });
        if (sink.needs(kWeights + kWqkvBias))
          sink.slice(kWeights + kWqkvBias, 0, 0, 3 * args.dim,
                     [&](const Tensor& dst) { add_rows(dst, dqkv); });
        accumulate_weight_gradients(context, kWeights, sz, kept_rows, back, args.precision);
      });
  return y;
}

Tensor run_in_f32(const char* op, bool accumulates, const Tensor& x, const UnitRecurrenceWeights& given,
                  const BlockRecurrenceOptions& options) {
  if (!is_bf16(x)) return run_blocks(op, accumulates, x, given, options);
  BlockRecurrenceOptions in_bf16 = options;
  in_bf16.chain.products = Dtype::bf16;
  return downcast(run_blocks(op, accumulates, upcast(x), upcast_weights(given), in_bf16));
}

}  // namespace

Tensor block_accumulate(const Tensor& x, const UnitRecurrenceWeights& weights,
                        const BlockRecurrenceOptions& options) {
  return run_in_f32(__func__, true, x, weights, options);
}

Tensor block_forget(const Tensor& x, const UnitRecurrenceWeights& weights,
                    const BlockRecurrenceOptions& options) {
  return run_in_f32(__func__, false, x, weights, options);
}

std::optional<Tensor> fused_blocks(decltype(block_accumulate)& recurrence, const std::vector<Tensor>& blocks,
                                   const UnitRecurrenceWeights& w, const BlockRecurrenceOptions& options) {
  if (!block_recurrence_fits(blocks.at(0), w.up.dim(0), options)) return {};
  return recurrence(rows_of_blocks(blocks), w, options);
}

}  // namespace eddy
