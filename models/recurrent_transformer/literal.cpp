// READ THIS FIRST: the recurrent transformers as the paper writes them, window after window. T is one
// pre-norm causal transformer layer (TransformerLayer::operator() in transformer_layer.cpp), || joins along
// positions, and x_1 .. x_n are the blocks of the embedded sequence, w positions each; unit_forget has w = 1.
//
//   regular            y              = T(x)                            one window, no recurrence
//
//   unit_forget,       h_1            = T(x_1)
//   block_forget       (y_{i-1}, h_i) = T(h_{i-1} || x_i)               i = 2 .. n
//                      y_n            = T(h_n)
//
//   block_accumulate   h_1            = T(x_1),  p_0 = x_1
//                      (y_{i-1}, h_i) = T(p/2 + h_{i-1} || p/2 + x_i)  p = p_{i-2}
//                      p_{i-1}        = y_{i-1}                        accumulate = "output": the code
//                                     = h_{i-1}                        accumulate = "hidden": equation 5
//                      y_n            = T(h_n)                         without p
//
//   keep_state         h_1            = T(h || x_1), its last rows     h: the last one of the call before, a constant
//
//   rotary             of regular: T turns the queries and keys of row t by t
//
//   every model        x              = dropout(embed[token] + pos_embed[position])
//                      logits         = LN_f(y_1 || .. || y_n) Whead^T
//
// Several layers: layer l+1 runs its own recurrence over the outputs y of layer l. The last block may be
// shorter than w; it then takes the first rows of p. For p the authors' code differs from the paper.
//
// ForwardInput::literal runs this file. The fast forms (unit_forget.cpp, block_forget.cpp,
// block_accumulate.cpp) compute the same numbers in another order, and tests compare the two. Dropout draws
// new masks at every call of T; the fast forms draw others.
// Source: Kausik, "Recurrent Transformers" (2025), and the authors' code.
#include <algorithm>

#include "autograd/tape.h"
#include "models/recurrent_transformer/block_recurrence.h"
#include "ops/ops.h"

namespace eddy {

namespace {

Tensor forget(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop, std::int64_t block,
              CarriedRows& carried) {
  const std::int64_t time = x.dim(1), first = std::min(block, time);
  const Tensor before = carried.rows(layer.path + ".state", x.dtype()), x_1 = narrow(x, 1, 0, first);
  Tensor h = before.defined() ? narrow(layer(concat({before, x_1}, 1), drop, 0), 1, before.dim(1), first)
                              : layer(x_1, drop, 0);
  h = carried.chosen(h, [&] { return layer(x_1, drop, 0); });
  layer.name_state(h);
  std::vector<Tensor> outputs;
  std::uint64_t call = 1;
  for (std::int64_t at = block; at < time; at += block) {
    const std::int64_t length = std::min(block, time - at);
    const Tensor window = layer(concat({h, narrow(x, 1, at, length)}, 1), drop, call++);
    outputs.push_back(narrow(window, 1, 0, block));
    h = narrow(window, 1, block, length);
    layer.name_state(h);
  }
  carried.keep(layer.path + ".state", h);
  outputs.push_back(layer(h, drop, call));
  return concat(outputs, 1);
}

}  // namespace

Tensor UnitForget::run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                               CarriedRows& carried) const {
  return forget(layer, x, drop, 1, carried);
}

Tensor BlockForget::run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                                std::int64_t block, CarriedRows& carried) const {
  return forget(layer, x, drop, block, carried);
}

Tensor BlockAccumulate::run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                                    std::int64_t block, CarriedRows& carried) const {
  struct PH {
    Tensor p, h;
  };
  std::uint64_t call = 0;
  // Window i: from p and h of the block before and x_i the output y_{i-1}, and p and h of block i.
  const auto window = [&](const PH& before, const Tensor& x_i, bool first) -> std::pair<Tensor, PH> {
    if (!before.h.defined()) return {Tensor(), {x_i, layer(x_i, drop, call++)}};
    const std::int64_t length = x_i.dim(1);
    const Tensor half = before.p * config().accumulate_factor;
    const Tensor both = layer(concat({half + before.h, narrow(half, 1, 0, length) + x_i}, 1), drop, call++);
    const Tensor y = narrow(both, 1, 0, block);
    PH after{spreads_output() ? y : before.h, narrow(both, 1, block, length)};
    if (first && length == block) after.p = carried.chosen(after.p, [&] { return x_i; });
    if (first) after.h = carried.chosen(after.h, [&] { return layer(x_i, drop, call); });
    return {y, after};
  };
  const std::int64_t time = x.dim(1);
  std::vector<Tensor> outputs;
  PH before,
      now{carried.rows(layer.path + ".spread", x.dtype()), carried.rows(layer.path + ".state", x.dtype())};
  for (std::int64_t at = 0; at < time; at += block) {
    before = now;
    const auto [y, after] = window(before, narrow(x, 1, at, std::min(block, time - at)), at == 0);
    if (at > 0) outputs.push_back(y);
    now = after;
    layer.name_state(now.h);
  }
  outputs.push_back(layer(now.h, drop, call++));
  if (leaves_state(carried, time, block)) {  // as if another block followed
    const NoGrad no_grad;
    if (carried.below.defined()) now = window(before, carried.below, time == block).second;
    carried.keep(layer.path + ".spread", now.p);
    carried.keep(layer.path + ".state", now.h);
    carried.below = layer(now.p * config().accumulate_factor + now.h, drop, call);
  }
  return concat(outputs, 1);
}

Tensor BlockRecurrence::run_layers(const Tensor& x, std::int64_t, const DropoutSite& drop,
                                   const ForwardInput& input, CarriedRows& carried) const {
  Tensor y = x;
  for (const TransformerLayer& layer : layers_) y = run_literal(layer, y, drop, block_of(input), carried);
  return y;
}

}  // namespace eddy
