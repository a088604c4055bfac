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

#include "models/recurrent_transformer/block_variant.h"
#include "ops/ops.h"

namespace eddy {

namespace {

Tensor forget(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop, std::int64_t block) {
  const std::int64_t time = x.dim(1);
  Tensor h = layer(narrow(x, 1, 0, std::min(block, time)), drop, 0);
  std::vector<Tensor> outputs;
  std::uint64_t call = 1;
  for (std::int64_t at = block; at < time; at += block) {
    const std::int64_t length = std::min(block, time - at);
    const Tensor window = layer(concat({h, narrow(x, 1, at, length)}, 1), drop, call++);
    outputs.push_back(narrow(window, 1, 0, block));
    h = narrow(window, 1, block, length);
  }
  outputs.push_back(layer(h, drop, call));
  return concat(outputs, 1);
}

}  // namespace

Tensor UnitForget::run_literal(const TransformerLayer& layer, const Tensor& x,
                               const DropoutSite& drop) const {
  return forget(layer, x, drop, 1);
}

Tensor BlockForget::run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                                std::int64_t block) const {
  return forget(layer, x, drop, block);
}

Tensor BlockAccumulate::run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                                    std::int64_t block) const {
  const std::int64_t time = x.dim(1);
  Tensor p = narrow(x, 1, 0, std::min(block, time));
  Tensor h = layer(p, drop, 0);
  std::vector<Tensor> outputs;
  std::uint64_t call = 1;
  for (std::int64_t at = block; at < time; at += block) {
    const std::int64_t length = std::min(block, time - at);
    const Tensor half = p * config().accumulate_factor;
    const Tensor window =
        layer(concat({half + h, narrow(half, 1, 0, length) + narrow(x, 1, at, length)}, 1), drop, call++);
    outputs.push_back(narrow(window, 1, 0, block));
    p = spreads_output() ? outputs.back() : h;
    h = narrow(window, 1, block, length);
  }
  outputs.push_back(layer(h, drop, call));
  return concat(outputs, 1);
}

Tensor BlockVariant::run_layers(const Tensor& x, std::int64_t, const DropoutSite& drop,
                                const ForwardInput& input) const {
  Tensor y = x;
  for (const TransformerLayer& layer : layers_) y = run_literal(layer, y, drop, block_of(input));
  return y;
}

}  // namespace eddy
