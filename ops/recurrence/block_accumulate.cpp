// Checks, buffers and tape node of the block recurrence with accumulate.
#include "ops/recurrence/block_accumulate.h"

#include <algorithm>

#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/recurrence/recurrence_layer.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;
using namespace recurrence;

bool block_accumulate_fits(const Tensor& x, std::int64_t mlp, const BlockAccumulateOptions& options) {
  if (uses_cpu_path(x.device())) return false;
  bool fits = false;
  const Dtype products = is_bf16(x) ? Dtype::bf16 : options.chain.products;
  block_accumulate_supports_slot(x.device(), {x.dim(-1), mlp, options.chain.heads, options.sequences,
                                              options.block, products, &fits, options.spreads_output});
  return fits;
}

Tensor block_accumulate(const Tensor& x, const UnitRecurrenceWeights& given,
                        const BlockAccumulateOptions& options) {
  constexpr const char* kOp = "block_accumulate";
  if (is_bf16(x)) {
    BlockAccumulateOptions in_bf16 = options;
    in_bf16.chain.products = Dtype::bf16;
    return downcast(block_accumulate(upcast(x), upcast_weights(given), in_bf16));
  }
  const Steps steps =
      steps_of_blocks(kOp, x, options.sequences, options.block, options.chain.dropout, options.keys);
  const UnitRecurrenceWeights w = contiguous_weights(given);
  check_weights(kOp, w, x, options.chain);
  const std::int64_t rows = x.dim(0), dim = x.dim(1), time = steps.time, block = steps.block;

  const Tensor x_rows = readable_rows(x);
  const auto buffer = [&](std::int64_t width) {
    return Tensor::empty({2 * rows, width}, x.dtype(), x.device());
  };
  const Tensor z = buffer(dim), qkv = buffer(3 * dim), out = buffer(dim);
  BlockAccumulateArgs args{};
  args.dtype = x.dtype();
  bind(args, steps);
  // Unread rows of the older half at the place of block i; that of the last window but one is at block n - 2.
  const auto unread = [&](std::int64_t i, std::int64_t length) {
    return std::clamp<std::int64_t>(options.first_read - i * block, 0, length);
  };
  args.unread[0] = unread(time - 2, block);
  args.unread[1] = unread(time - 1, steps.last);
  bind(args, w, options.chain, true);
  const SavedRows kept(args, out);
  args.wqkv = data_or_null(w.wqkv);
  args.wqkv_bias = data_or_null(w.wqkv_bias);
  args.x = x_rows.raw_data();
  args.z = z.raw_data();
  args.qkv = args.qkv_output = qkv.raw_data();
  args.h = out.raw_data();
  block_accumulate_forward_slot(x.device(), args);

  const Tensor y = raw::narrow(out, 0, rows, rows);
  constexpr int kX = 0, kWeights = 1;
  std::vector<Tensor> inputs{x};
  for (const Tensor& weight : in_order(given)) inputs.push_back(weight);
  const std::vector<Tensor> saved =
      kept.with({z, qkv, w.norm1, w.wqkv, w.wo, w.norm2, w.up, w.down, steps.keys});
  record_many(kOp, inputs, {y}, saved, [args, count = static_cast<int>(saved.size())](VjpContext& context) {
    for (int i = 0; i < count; ++i) static_cast<void>(context.saved(i));  // checks versions
    const SavedRows kept_rows(context);
    const Tensor &sz = context.saved(10), &sqkv = context.saved(11);
    const Tensor dy = readable_rows(context.dy());
    const auto like = [](const Tensor& t) { return Tensor::empty(t.shape(), t.dtype(), t.device()); };
    const Tensor dz = like(sz), dqkv = Tensor::empty(sqkv.shape(), args.kept, sqkv.device());
    const Tensor of_window = Tensor::empty({2 * args.batch, 3 * args.dim}, sz.dtype(), sz.device());
    const Tensor scratch = Tensor::empty({2 * args.batch, args.dim}, sz.dtype(), sz.device());
    BlockAccumulateArgs a = args;
    const BackwardRows back(a, sz, kept_rows.u);
    a.dh = dy.raw_data();
    a.dx = dz.raw_data();
    a.window_dqkv = of_window.raw_data();
    a.dqkv = dqkv.raw_data();
    a.scratch = scratch.raw_data();
    block_accumulate_backward_slot(sz.device(), a);

    GradSink& sink = context.sink;
    if (sink.needs(kX)) sink.accumulate(kX, raw::narrow(dz, 0, 0, sz.dim(0) / 2));
    if (sink.needs(kWeights + kWqkv))
      sink.into(kWeights + kWqkv, [&](const Tensor& dst, float beta) {
        weight_product(dst, 0, dqkv, kept_rows.a1, beta, args.precision);
      });
    if (sink.needs(kWeights + kWqkvBias))
      sink.slice(kWeights + kWqkvBias, 0, 0, 3 * args.dim, [&](const Tensor& dst) { add_rows(dst, dqkv); });
    accumulate_weight_gradients(context, kWeights, sz, kept_rows, back, args.precision);
  });
  return y;
}

std::optional<Tensor> fused_block_accumulate(const std::vector<Tensor>& blocks,
                                             const UnitRecurrenceWeights& w,
                                             const BlockAccumulateOptions& options) {
  if (!block_accumulate_fits(blocks.at(0), w.up.dim(0), options)) return {};
  return block_accumulate(rows_of_blocks(blocks), w, options);
}

}  // namespace eddy
