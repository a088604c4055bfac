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

Tensor BlockRecurrent::run_blocks(const Tensor& x, std::vector<Carry>& carry, BlockCall call) const {
  const std::int64_t window = config().window, blocks = x.dim(1) / window;
  const std::size_t layers = layers_.size();
  std::vector<Tensor> outputs, previous_k(layers), previous_v(layers);
  std::vector<std::vector<Tensor>> block_k(layers), block_v(layers);
  std::vector<CellScales> scales(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    previous_k[i] = carry[i].k;
    previous_v[i] = carry[i].v;
    if (layers_[i].cell) scales[i] = layers_[i].cell->scales();
  }
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::vector<Tensor> with_ids(layers);
    std::vector<KeysValues> tokens(layers);
    std::vector<StateHeads> states(layers);
    const bool last = block + 1 == blocks;
    for (std::size_t i = 0; i < layers; ++i) {
      if (!layers_[i].cell) continue;
      const ScopeGuard scope(layers_[i].path);
      with_ids[i] = activation(layers_[i].cell->add_ids(carry[i].state));
      if (last)
        states[i].read = layers_[i].cell->read(with_ids[i]);
      else
        states[i] = layers_[i].cell->heads(with_ids[i]);
    }
    Tensor y = narrow(x, 1, block * window, window);
    for (std::size_t i = 0; i < layers; ++i) {
      const ScopeGuard scope(layers_[i].path);
      const TokenHeads heads = layers_[i].project(y, call);
      tokens[i] = KeysValues{heads.k, heads.v}.with_past(previous_k[i], previous_v[i]);
      const std::int64_t source = source_of(static_cast<std::int64_t>(i));
      y = layers_[i].finish(y, heads, tokens[i],
                            source < 0 ? StateRead{} : states[static_cast<std::size_t>(source)].read,
                            carry[i].memory ? &*carry[i].memory : nullptr, call);
      previous_k[i] = heads.k;
      previous_v[i] = heads.v;
      if (!carry[i].memory) continue;
      block_k[i].push_back(raw::alias(heads.k));
      block_v[i].push_back(raw::alias(heads.v));
    }
    outputs.push_back(call.dropped(rms_norm(y, final_norm_, config().norm_eps), "final"));
    std::unique_ptr<NoGrad> constant;
    if (last) constant = std::make_unique<NoGrad>();
    for (std::size_t i = 0; i < layers; ++i) {
      if (!layers_[i].cell) continue;
      const ScopeGuard scope(layers_[i].path);
      const RecurrentCell& cell = *layers_[i].cell;
      if (last) states[i].queries = cell.queries(with_ids[i]);
      carry[i].state = cell.update(carry[i].state, states[i], scales[i], tokens[i], call.literal);
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
    if (!carry[i].k.defined()) continue;
    carry[i].k = last_rows(previous_k[i], window);
    carry[i].v = last_rows(previous_v[i], window);
  }
  const Tensor rows = blocks == 1 ? outputs[0] : concat(outputs, 1);
  return logit_factor() == 1 ? rows : rows * logit_factor();
}

}  // namespace eddy
