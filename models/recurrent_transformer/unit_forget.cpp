// Unit recurrence with forget: the literal loop, the hoisted order, and streaming.
#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/recurrent_transformer/recurrent_transformer.h"
#include "ops/cast/widen.h"
#include "ops/pointwise/pointwise.h"
#include "ops/recurrence/unit_recurrence.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"

namespace eddy {

Tensor UnitForget::run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop,
                              const ForwardInput& input) const {
  Tensor y = x;
  for (const TransformerLayer& layer : layers_) {
    const bool is_last = &layer == &layers_.back();
    y = input.literal ? run_literal(layer, y, drop)
                      : run_hoisted(layer, y, is_last ? rows : x.dim(0), drop, nullptr, nullptr);
  }
  return y;
}

Tensor UnitForget::run_literal(const TransformerLayer& layer, const Tensor& x,
                               const DropoutSite& drop) const {
  const std::int64_t time = x.dim(1);
  Tensor h = layer(narrow(x, 1, 0, 1), drop, 0);
  std::vector<Tensor> outputs;
  for (std::int64_t t = 1; t < time; ++t) {
    const Tensor window = layer(concat({h, narrow(x, 1, t, 1)}, 1), drop, static_cast<std::uint64_t>(t));
    outputs.push_back(narrow(window, 1, 0, 1));
    h = narrow(window, 1, 1, 1);
  }
  outputs.push_back(layer(h, drop, static_cast<std::uint64_t>(time)));
  return concat(outputs, 1);
}

Tensor UnitForget::run_hoisted(const TransformerLayer& layer, const Tensor& x, std::int64_t rows,
                               const DropoutSite& drop, Tensor* key, Tensor* value) const {
  const ScopeGuard scope(layer.path);
  const Tensor qkv = layer.wqkv(layer.attn_norm(x));

  UnitRecurrenceWeights weights{layer.attn_norm.weight, layer.attn_norm.bias, layer.wqkv.weight,
                                layer.wqkv.bias,        layer.wo.weight,      layer.wo.bias,
                                layer.mlp_norm.weight,  layer.mlp_norm.bias,  layer.up.weight,
                                layer.up.bias,          layer.down.weight,    layer.down.bias};
  UnitRecurrenceOptions options;
  options.heads = layer.heads;
  options.gelu = layer.gelu_activation;
  options.eps = layer.attn_norm.eps;
  if (drop.active()) {
    options.dropout = drop.rate;
    options.gate_key = drop.key(layer.path + ".recurrence.gate");
    options.attn_key = drop.key(layer.path + ".recurrence.attn");
    options.mlp_key = drop.key(layer.path + ".recurrence.mlp");
  }
  // The chain carries its state from step to step: beside bf16 activations it is f32, and its products may
  // read bf16.
  if (x.dtype() == Dtype::bf16) options.products = Dtype::bf16;
  const UnitRecurrenceResult chain =
      unit_recurrence(wide(x), wide(qkv), weights, options, key != nullptr ? *key : Tensor(),
                      value != nullptr ? *value : Tensor());
  if (key != nullptr) {
    const std::int64_t last = x.dim(0) - 1;
    *key = raw::copy(raw::select(chain.key, 0, last));
    *value = raw::copy(raw::select(chain.value, 0, last));
  }

  // y_t = T(h_t) where it is read: one key, so the attention is the value itself; dropout of its single
  // probability drops whole heads.
  const auto read = [&](const Tensor& of_all) {
    return rows == x.dim(0) ? of_all : narrow(of_all, 0, x.dim(0) - rows, rows);
  };
  const Tensor h = read(chain.h);
  Tensor attended = read(chain.value);
  if (drop.active()) {
    const Shape by_head{rows, x.dim(1), layer.heads, x.dim(2) / layer.heads};
    const Tensor kept = drop(Tensor::full(by_head.with(3, 1), 1.0, attended.dtype(), x.device()),
                             layer.path + ".attn.probabilities");
    attended = reshape(reshape(attended, by_head) * kept, h.shape());
  }
  return layer.mlp(activation(h), drop(layer.wo(activation(attended)), layer.path + ".attn.drop"), drop, 0);
}

RecurrentTransformer::NamedShapes UnitForget::stream_shapes(std::int64_t batch, std::int64_t) const {
  NamedShapes shapes;
  for (const TransformerLayer& layer : layers_)
    for (const char* part : {".k", ".v"}) shapes.emplace_back(layer.path + part, Shape{batch, config().dim});
  return shapes;
}

std::int64_t UnitForget::stream_room(const State& state) const {
  if (!config().positions) return -1;
  return config().context - (state.size() == 0 ? 0 : state.get("position").item_int());
}

Tensor UnitForget::stream(const Tensor& tokens, State& state) const {
  const NoGrad no_grad;
  const std::int64_t first = check_stream(tokens, state);
  Tensor y = embed(raw::copy(raw::transpose(tokens, 0, 1)), first, true);
  const DropoutSite off;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::string name = "layers." + std::to_string(i);
    Tensor key = first == 0 ? Tensor() : state.get(name + ".k");
    Tensor value = first == 0 ? Tensor() : state.get(name + ".v");
    y = run_hoisted(layers_[i], y, y.dim(0), off, &key, &value);
    state.set(name + ".k", key);
    state.set(name + ".v", value);
  }
  state.set("position", Tensor::from(std::vector<std::int64_t>{first + tokens.dim(1)}, {1}));
  return head(y, true).logits();
}

}  // namespace eddy
