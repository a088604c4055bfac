// Checks and kernel calls of the block recurrence with forget.
#include "ops/recurrence/block_forget.h"

#include "ops/recurrence/recurrence_layer.h"

namespace eddy {

using namespace recurrence;

bool block_forget_fits(const Tensor& x, std::int64_t mlp, const BlockForgetOptions& options) {
  if (x.device() == kCpu) return false;
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

}  // namespace eddy
