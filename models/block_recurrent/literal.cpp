// READ THIS FIRST: the Block-Recurrent Transformer as the paper draws it. Every block of `window` tokens
// passes through the whole stack, then the cells update the states.
//
//   model        x = E[tokens];  every layer;  logits = RMSNorm(x) E^T / sqrt(dim)
//
//   attention    logit           = (unit(q) . unit(k) + bias[head, distance]) |s[head]|     attention.cpp
//                unit(z)         = z / sqrt(sum(z^2) + eps), per head
//                attend(Q, K, V) = softmax(logit) V                          the bias between tokens only
//
//   vertical     u  = RMSNorm(x)                                                            layer.cpp
//                a1 = attend(u Wq, K, V)             the `window` tokens before each token, never itself
//                a2 = attend(u Wcross, K_s, V_s)     where a layer reads a state: c_t, from before the block
//                x  = x + [a1, a2] Wo
//                x  = x + relu(RMSNorm(x) Wup) Wdown
//
//   horizontal   r  = RMSNorm(c_t) + IDs;  K_s, V_s, Q_self, Q_cross = r W                  cell.cpp
//                b1 = attend(Q_self, K_s, V_s)
//                b2 = attend(Q_cross, K, V)          all tokens of blocks t-1 and t, no mask
//                c_{t+1} = cell(c_t, [b1, b2])
//
//   cell(c, h)   dual    m  = gate(c, h);  c' = gate(m, relu(RMSNorm(m) W_in))
//                single  c' = gate(c, relu(h W_in))
//                skip    c' = gate(c, h)
//
//   gate(c, y)   z = y W_z; tanh of that in single cells (tanh_rule "code") or in lstm gates ("paper")
//                fixed   c' = c g + z (1 - g),   g = sigmoid(b_g)
//                lstm    c' = c f + z i,         f = sigmoid(y W_f + b_f + 1),  i = sigmoid(y W_i + b_i - 1)
//
//   memorizing   a1 = (1 - g) a1 + g a_memory,   g = sigmoid(gate_bias[head])               memory.cpp
//
// With feedback every layer reads a state: its own where it has a cell, else that of the highest recurrent
// layer. Such models have no other form than this one. slide, xl and vanilla have the vertical direction
// only.
//
// ForwardInput::literal runs this file, with attention from products and softmaxes (`call.literal`). The fast
// form is run_layers in block_recurrent.cpp; tests compare the two.
// Source: D. Hutchins et al., "Block-Recurrent Transformers", 2022, sections 3.1 to 3.4, figures 2 and 3;
// gates: section 3.2, equations 2 to 6; norms, mask and place of the bias as in the authors' code.
#include <memory>

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/block_recurrent/block_recurrent.h"
#include "ops/ops.h"

namespace eddy {

Tensor BlockRecurrent::run_block(const Tensor& x, std::vector<Carry>& carry,
                                 const std::vector<CellScales>& scales, const BlockCall& call,
                                 bool last) const {
  const std::size_t layers = layers_.size();
  std::vector<Tensor> with_ids(layers);
  std::vector<KeysValues> tokens(layers);
  std::vector<StateHeads> states(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    if (!layers_[i].cell) continue;
    const ScopeGuard scope(layers_[i].path);
    with_ids[i] = activation(layers_[i].cell->add_ids(carry[i].state));
    if (last)
      states[i].read = layers_[i].cell->read(with_ids[i]);
    else
      states[i] = layers_[i].cell->heads(with_ids[i]);
  }
  Tensor y = x;
  for (std::size_t i = 0; i < layers; ++i) {
    const std::int64_t source = source_of(static_cast<std::int64_t>(i));
    // The layer's output, keys and values, and those with the past where they are joined.
    const std::vector<Tensor> done =
        recomputed(call.recompute != Recompute::none,
                   [&layer = layers_[i], own = carry[i], call,
                    read = source < 0 ? StateRead{} : states[static_cast<std::size_t>(source)].read](
                       const std::vector<Tensor>& in) {
                     const ScopeGuard scope(layer.path);
                     const TokenHeads heads = layer.project(in[0], call);
                     const KeysValues all = KeysValues{heads.k, heads.v}.with_past(own.k, own.v);
                     std::vector<Tensor> results{
                         layer.finish(in[0], heads, all, read, own.memory ? &*own.memory : nullptr, call),
                         heads.k, heads.v};
                     if (own.k.defined() && !all.past_k.defined())
                       results.insert(results.end(), {all.k, all.v});
                     return results;
                   },
                   {y});
    y = done[0];
    tokens[i] =
        done.size() > 3 ? KeysValues{done[3], done[4]} : KeysValues{done[1], done[2], carry[i].k, carry[i].v};
    carry[i].k = done[1];
    carry[i].v = done[2];
  }
  const Tensor rows = call.dropped(rms_norm(y, final_norm_, config().norm_eps), "final");
  std::unique_ptr<NoGrad> constant;
  if (last) constant = std::make_unique<NoGrad>();
  for (std::size_t i = 0; i < layers; ++i) {
    if (!layers_[i].cell) continue;
    const ScopeGuard scope(layers_[i].path);
    const RecurrentCell& cell = *layers_[i].cell;
    if (last) states[i].queries = cell.queries(with_ids[i]);
    carry[i].state = cell.update(carry[i].state, states[i], scales[i], tokens[i], call.literal);
  }
  return rows;
}

Tensor BlockRecurrent::run_blocks(const Tensor& x, std::vector<Carry>& carry, BlockCall call) const {
  const std::int64_t window = config().window, blocks = x.dim(1) / window;
  const std::size_t layers = layers_.size();
  std::vector<Tensor> outputs;
  std::vector<bool> keeps_rows(layers);
  std::vector<std::vector<Tensor>> block_k(layers), block_v(layers);
  std::vector<CellScales> scales(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    keeps_rows[i] = carry[i].k.defined();
    if (layers_[i].cell) scales[i] = layers_[i].cell->scales();
  }
  for (std::int64_t block = 0; block < blocks; ++block) {
    // The output, and what each layer hands on: keys, values, and the state of a cell.
    const std::vector<Tensor> done = recomputed(
        call.recompute == Recompute::block,
        [this, before = carry, scales, call, last = block + 1 == blocks](const std::vector<Tensor>& in) {
          std::vector<Carry> own = before;
          std::vector<Tensor> results{run_block(in[0], own, scales, call, last)};
          for (const Carry& after : own) {
            results.insert(results.end(), {after.k, after.v});
            if (after.state.defined()) results.push_back(after.state);
          }
          return results;
        },
        {narrow(x, 1, block * window, window)});
    outputs.push_back(done[0]);
    std::size_t at = 1;
    for (std::size_t i = 0; i < layers; ++i) {
      carry[i].k = done[at++];
      carry[i].v = done[at++];
      if (carry[i].state.defined()) carry[i].state = done[at++];
      if (!carry[i].memory) continue;
      block_k[i].push_back(raw::alias(carry[i].k));
      block_v[i].push_back(raw::alias(carry[i].v));
    }
    if (config().feedback)
      ++call.draw;
    else
      call.first += window;
  }
  for (std::size_t i = 0; i < layers; ++i) {
    if (carry[i].state.defined()) carry[i].state = detach(carry[i].state);
    if (carry[i].memory)
      carry[i].memory = memory_write(*carry[i].memory, concat(block_k[i], 1), concat(block_v[i], 1));
    carry[i].k = keeps_rows[i] ? last_rows(carry[i].k, window) : Tensor();
    carry[i].v = keeps_rows[i] ? last_rows(carry[i].v, window) : Tensor();
  }
  const Tensor rows = blocks == 1 ? outputs[0] : concat(outputs, 1);
  return logit_factor() == 1 ? rows : rows * logit_factor();
}

}  // namespace eddy
