// Checks and kernel calls of the block recurrence with forget.
#include "ops/recurrence/block_forget.h"

#include "ops/cast/upcast.h"
#include "ops/core/cpu_ways.h"
#include "ops/norm/layer_norm.h"
#include "ops/product/linear.h"
#include "ops/recurrence/recurrence_layer.h"

namespace eddy {

using namespace detail;
using namespace recurrence;

bool block_forget_fits(const Tensor& x, std::int64_t mlp, const BlockForgetOptions& options) {
  if (chooses_as_cpu(x.device())) return false;
  bool fits = false;
  block_forget_supports_slot(x.device(), {x.dim(-1), mlp, options.chain.heads, options.sequences,
                                          options.block, options.chain.products, &fits});
  return fits;
}

UnitRecurrenceResult block_forget(const Tensor& x, const Tensor& qkv, const UnitRecurrenceWeights& weights,
                                  const BlockForgetOptions& options) {
  const Steps steps = steps_of_blocks("block_forget", x, options.sequences, options.block,
                                      options.chain.dropout, options.keys, 3);
  const auto run = [](const Device& device, const StateRecurrenceArgs& state) {
    (state.dh == nullptr ? block_forget_forward_slot : block_forget_backward_slot)(device, {state});
  };
  return run_chain("block_forget", run, steps, x, qkv, weights, options.chain, true, {{}, {}});
}

std::optional<UnitRecurrenceResult> fused_block_forget(const std::vector<Tensor>& blocks,
                                                       const UnitRecurrenceWeights& w,
                                                       BlockForgetOptions options) {
  const bool in_bf16 = is_bf16(blocks.at(0));
  if (in_bf16) options.chain.products = Dtype::bf16;
  if (!block_forget_fits(blocks[0], w.up.dim(0), options)) return {};
  const Tensor rows = rows_of_blocks(blocks);
  const Tensor qkv = linear(layer_norm(rows, w.norm1, w.norm1_bias, options.chain.eps), w.wqkv, w.wqkv_bias);
  // As in the unit recurrence, the chain is f32 also with bf16 activations.
  UnitRecurrenceResult result = block_forget(upcast(rows), upcast(qkv), w, options);
  if (in_bf16) result = {downcast(result.h), downcast(result.key), downcast(result.value)};
  return result;
}

}  // namespace eddy
