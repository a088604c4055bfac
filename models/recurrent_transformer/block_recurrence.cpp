// What the two block recurrences share in their fast form: the layout in blocks and the loop over layers.
#include "models/recurrent_transformer/block_recurrence.h"

#include <algorithm>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "autograd/tape.h"
#include "ops/ops.h"
#include "tensor/base/format.h"

namespace eddy {

std::vector<Tensor> BlockRows::blocks() const {
  std::vector<Tensor> parts;
  if (full.defined()) {
    const Shape& s = full.shape();
    parts = split(reshape(full, {s[0] * s[1], s[2], s[3]}), 0,
                  std::vector<std::int64_t>(static_cast<std::size_t>(s[0]), s[1]));
  }
  if (rest.defined()) parts.push_back(rest);
  return parts;
}

std::vector<Tensor> BlockRows::parts() const {
  std::vector<Tensor> found;
  for (const Tensor& part : {full, rest})
    if (part.defined()) found.push_back(part);
  return found;
}

BlockRows BlockRows::of_parts(const std::vector<Tensor>& parts, bool has_full) {
  const std::size_t before_rest = has_full ? 1 : 0;
  return {has_full ? parts[0] : Tensor(), parts.size() > before_rest ? parts[before_rest] : Tensor()};
}

std::int64_t BlockPlan::skipped(std::int64_t i) const {
  return std::clamp<std::int64_t>(first_read - i * block, 0, length(i));
}

std::optional<BlockRows> BlockRecurrence::as_one(decltype(block_accumulate)& recurrence,
                                                 const WindowLayer& layer, const BlockRows& x,
                                                 const BlockPlan& plan, const CarriedRows& carried,
                                                 const std::vector<std::uint64_t>& calls,
                                                 bool spreads_output) {
  if (carried.keeps || captures_values()) return {};  // one kernel would hide them
  const DropoutSite& drop = layer.drop();
  const TransformerLayer& t = layer.layer;
  BlockRecurrenceOptions options;
  options.sequences = plan.batch;
  options.block = plan.block;
  options.first_read = plan.first_read;
  options.spreads_output = spreads_output;
  options.chain.heads = t.heads;
  options.chain.gelu = t.feed_forward.gelu;
  options.chain.eps = t.attn_norm.eps;
  if (drop.active()) {
    options.chain.dropout = drop.rate;
    for (const std::uint64_t call : calls)
      for (const char* site : {".attn.probabilities", ".attn.drop", ".mlp.drop"})
        options.keys.push_back(drop.key(t.path + site, call));
  }
  const std::optional<Tensor> y = fused_blocks(recurrence, x.parts(), t.weights(), options);
  if (!y) return {};
  std::int64_t done = 0;
  return x.map([&](const Tensor& part, int) {
    const std::int64_t rows = part.elements() / part.dim(-1);
    const Tensor of_part = reshape(narrow(*y, 0, done, rows), part.shape());
    done += rows;
    return of_part;
  });
}

std::int64_t BlockRecurrence::block_of(const ForwardInput& input) const {
  if (input.block < 0)
    fail<ValueError>("{}: a block of {} positions (at least 1, or 0 for model.block)", config().model,
                     input.block);
  return input.block > 0 ? input.block : config().block;
}

BlockRows BlockRecurrence::embed_blocks(const Tensor& tokens, const BlockPlan& plan,
                                        const DropoutSite& drop) const {
  const ScopeGuard scope("embed");
  const std::int64_t blocks = plan.full(), covered = blocks * plan.block, left = plan.time - covered;
  BlockRows ids;
  if (blocks > 0)
    ids.full = raw::copy(raw::transpose(
        raw::reshape(raw::copy(raw::narrow(tokens, 1, 0, covered)), {plan.batch, blocks, plan.block}), 0, 1));
  if (left > 0) ids.rest = raw::copy(raw::narrow(tokens, 1, covered, left));
  return ids.map([&](const Tensor& part, std::uint64_t which) {
    Tensor rows;
    if (positions_.defined())
      rows = which == 0 ? reshape(narrow(positions_, 0, 0, covered), {blocks, 1, plan.block, config().dim})
                        : narrow(positions_, 0, covered, left);
    return drop(embed_(part, params().activations(), rows), "embed.drop", which);
  });
}

ForwardOutput BlockRecurrence::forward(const ForwardInput& input) const {
  const std::int64_t block = block_of(input);
  if (keeps_rows() && block != config().block && !input.state.empty())
    fail<ValueError>("{}: a call in blocks of {} and a state of blocks of {} (blocks of one length)",
                     config().model, block, config().block);
  if (input.literal) return RecurrentTransformer::forward(input);
  check_input(input);
  const DropoutSite drop{input.dropout, config().dropout};
  const std::int64_t time = input.tokens.dim(1);
  BlockPlan plan{input.tokens.dim(0), time, block, 0};
  CarriedRows carried = carried_rows(input);
  BlockRows x = embed_blocks(input.tokens, plan, drop);
  const std::size_t last = layers_.size() - 1;
  plan.recomputes = input.recompute == Recompute::block;
  const bool has_full = plan.full() > 0;
  for (std::size_t i = 0; i < last; ++i)
    x = BlockRows::of_parts(run_layer_again(input, x.parts(), carried,
                                            [this, &layer = layers_[i], drop, plan, has_full](
                                                const std::vector<Tensor>& in, CarriedRows& own) {
                                              const ScopeGuard scope(layer.path);
                                              return run_layer(WindowLayer(layer, drop),
                                                               BlockRows::of_parts(in, has_full), plan, own)
                                                  .parts();
                                            }),
                            has_full);
  plan.first_read = time - rows_read(input);
  const Tensor y = run_layer_again(
      input, x.parts(), carried,
      [this, &layer = layers_[last], drop, plan, has_full](const std::vector<Tensor>& in, CarriedRows& own) {
        const ScopeGuard scope(layer.path);
        return std::vector<Tensor>{
            run_last_layer(WindowLayer(layer, drop), BlockRows::of_parts(in, has_full), plan, own)};
      })[0];
  return {input, head(y, false), std::move(carried.after)};
}

}  // namespace eddy
