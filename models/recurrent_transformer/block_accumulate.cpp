// Block recurrence with accumulate in its fast form. A window (p/2 + h_{i-1} || p/2 + x_i) is computed as its
// two halves. Both halves share the keys and values of the older one. The rest of the older half is computed
// only where its output is read or becomes the next p. A GPU can run all windows as one kernel
// (ops/recurrence/block_accumulate.h). The literal form is in literal.cpp, streaming in stream.cpp.
#include <optional>

#include "autograd/scope.h"
#include "models/recurrent_transformer/block_variant.h"
#include "ops/ops.h"
#include "ops/recurrence/block_accumulate.h"

namespace eddy {

std::optional<BlockRows> BlockAccumulate::run_fused(const WindowLayer& layer, const BlockRows& x,
                                                    const BlockPlan& plan) const {
  if (config().accumulate_factor != 0.5) return {};  // the kernels' own
  const DropoutSite& drop = layer.drop();
  const TransformerLayer& t = layer.layer;
  BlockAccumulateOptions options;
  options.sequences = plan.batch;
  options.block = plan.block;
  options.first_read = plan.first_read;
  options.spreads_output = spreads_output();
  options.chain.heads = t.heads;
  options.chain.gelu = t.feed_forward.gelu;
  options.chain.eps = t.attn_norm.eps;
  if (drop.active()) {
    options.chain.dropout = drop.rate;
    // The calls of run_chain: those of even number give h, the others y.
    const auto count = static_cast<std::uint64_t>(plan.count());
    for (std::uint64_t older = 0; older < 2; ++older)
      for (std::uint64_t i = 0; i < count; ++i)
        for (const char* site : {".attn.probabilities", ".attn.drop", ".mlp.drop"})
          options.keys.push_back(drop.key(t.path + site, 2 * i + older));
  }
  const std::optional<Tensor> y = fused_block_accumulate(x.parts(), t.weights(), options);
  if (!y) return {};
  std::int64_t done = 0;
  return x.map([&](const Tensor& part, int) {
    const std::int64_t rows = part.elements() / part.dim(-1);
    const Tensor of_part = reshape(narrow(*y, 0, done, rows), part.shape());
    done += rows;
    return of_part;
  });
}

std::vector<Tensor> BlockAccumulate::run_chain(const WindowLayer& layer, const BlockRows& rows,
                                               const BlockPlan& plan) const {
  const std::vector<Tensor> x = rows.blocks();
  const std::size_t count = x.size();
  std::vector<Tensor> outputs(count);
  std::uint64_t call = 0;
  Tensor p = x[0], h;
  {
    const auto [query, own] = layer.query_key_value(x[0]);
    h = layer.finish(x[0], query, {}, own, call++);
  }
  for (std::size_t i = 1; i < count; ++i) {
    const std::int64_t length = x[i].dim(1), block = plan.block;
    const auto before = static_cast<std::int64_t>(i) - 1;
    const Tensor half = p * config().accumulate_factor;
    const Tensor older = half + h, newer = (length == block ? half : narrow(half, 1, 0, length)) + x[i];
    const Tensor past = layer.key_value(older);
    const bool spread = spreads_output() && i + 1 < count;
    p = h;
    if (spread || plan.is_read(before)) {
      const std::int64_t skipped = spread ? 0 : plan.skipped(before);
      const Tensor y = layer.output(older, past, skipped, call);
      if (spread) p = y;
      if (plan.is_read(before)) {
        const std::int64_t unread = plan.skipped(before) - skipped;
        outputs[i - 1] = unread == 0 ? y : narrow(y, 1, unread, block - unread);
      }
    }
    const auto [query, own] = layer.query_key_value(newer);
    h = layer.finish(newer, query, past, own, call + 1);
    call += 2;
  }
  const auto last = static_cast<std::int64_t>(count) - 1;
  outputs[count - 1] = layer.output(h, layer.key_value(h), plan.skipped(last), call);
  return outputs;
}

BlockRows BlockAccumulate::run_layer(const WindowLayer& layer, const BlockRows& x,
                                     const BlockPlan& plan) const {
  if (const std::optional<BlockRows> fused = run_fused(layer, x, plan)) return *fused;
  std::vector<Tensor> outputs = run_chain(layer, x, plan);
  BlockRows y;
  if (x.rest.defined()) {
    y.rest = outputs.back();
    outputs.pop_back();
  }
  if (x.full.defined()) y.full = reshape(concat(outputs, 0), x.full.shape());
  return y;
}

Tensor BlockAccumulate::run_last_layer(const WindowLayer& layer, const BlockRows& x,
                                       const BlockPlan& plan) const {
  std::vector<Tensor> read;
  if (const std::optional<BlockRows> fused = run_fused(layer, x, plan)) {
    const std::int64_t from = plan.first_read / plan.block, blocks = plan.full() - from;
    if (blocks > 0) {  // [blocks, batch, w, dim], and back into the order of positions
      const Tensor y = transpose(narrow(fused->full, 0, from, blocks), 0, 1);
      const std::int64_t rows = blocks * plan.block, unread = plan.skipped(from);
      read.push_back(narrow(reshape(y, {plan.batch, rows, config().dim}), 1, unread, rows - unread));
    }
    if (fused->rest.defined()) {
      const std::int64_t unread = plan.skipped(plan.full());
      read.push_back(narrow(fused->rest, 1, unread, fused->rest.dim(1) - unread));
    }
    return read.size() == 1 ? read[0] : concat(read, 1);
  }
  for (const Tensor& y : run_chain(layer, x, plan))
    if (y.defined()) read.push_back(y);
  return read.size() == 1 ? read[0] : concat(read, 1);
}

}  // namespace eddy
