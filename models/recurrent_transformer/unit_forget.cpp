// Unit recurrence with forget in its fast form. The first half of a window (h_{t-1} || x_t) does not see the
// second, so y_t = T(h_t) for every t. Per layer:
//
//   before the loop   queries, keys and values of all x                     one product
//   in the loop       h_t from q, k, v of x_t and k, v of h_{t-1}           ops/recurrence/unit_recurrence.h
//   after the loop    y_t = T(h_t) where it is read                         one batch
//
// The literal form is in literal.cpp, streaming in stream.cpp.
#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "models/recurrent_transformer/recurrent_transformer.h"
#include "ops/cast/upcast.h"
#include "ops/ops.h"

namespace eddy {

Tensor UnitForget::run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop,
                              const ForwardInput& input, CarriedRows& carried) const {
  Tensor y = x;
  for (const TransformerLayer& layer : layers_) {
    const bool is_last = &layer == &layers_.back();
    const std::int64_t read = is_last ? rows : x.dim(0);
    if (input.literal)
      y = run_literal(layer, y, drop, carried);
    else
      y = run_layer_again(
          input, {y}, carried, [this, &layer, read, drop](const std::vector<Tensor>& in, CarriedRows& own) {
            return std::vector<Tensor>{run_fast(layer, in[0], read, drop, &own, nullptr, nullptr)};
          })[0];
  }
  return y;
}

Tensor UnitForget::enter(const TransformerLayer& layer, const Tensor& qkv, const DropoutSite& drop,
                         const CarriedRows& carried) const {
  const ScopeGuard scope("attn");
  const WindowLayer window(layer, drop);
  const std::int64_t time = qkv.dim(0), batch = qkv.dim(1), dim = qkv.dim(2) / 3;
  const Tensor first = reshape(narrow(qkv, 0, 0, 1), {batch, 1, 3 * dim});
  AttentionOptions options;
  options.causal = true;
  options.precision = matmul_precision(layer.wo.weight);
  const Tensor mixed = attention_packed_keys(narrow(first, 2, 0, dim), carried.past(window, qkv.dtype()),
                                             narrow(first, 2, dim, 2 * dim), layer.heads, options);
  const Tensor value = carried.chosen(mixed, [&] { return narrow(first, 2, 2 * dim, dim); });
  const Tensor entered = reshape(concat({narrow(first, 2, 0, 2 * dim), value}, 2), {1, batch, 3 * dim});
  return time == 1 ? entered : concat({entered, narrow(qkv, 0, 1, time - 1)}, 0);
}

Tensor UnitForget::run_fast(const TransformerLayer& layer, const Tensor& x, std::int64_t rows,
                            const DropoutSite& drop, CarriedRows* carried, Tensor* key, Tensor* value) const {
  const ScopeGuard scope(layer.path);
  const bool enters = carried != nullptr && !carried->before.empty();
  Tensor qkv = layer.wqkv(layer.attn_norm(x), {.upcast = !enters});  // the chain reads f32
  if (enters) qkv = enter(layer, qkv, drop, *carried);

  UnitRecurrenceOptions options;
  options.heads = layer.heads;
  options.gelu = layer.feed_forward.gelu;
  options.eps = layer.attn_norm.eps;
  if (drop.active()) {
    options.dropout = drop.rate;
    options.gate_key = drop.key(layer.path + ".recurrence.gate");
    options.attn_key = drop.key(layer.path + ".recurrence.attn");
    options.mlp_key = drop.key(layer.path + ".recurrence.mlp");
  }
  // The state of the chain is f32 also with bf16 activations; only its products read bf16.
  if (x.dtype() == Dtype::bf16) options.products = Dtype::bf16;
  const UnitRecurrenceResult chain =
      unit_recurrence(upcast(x), upcast(qkv), layer.weights(), options, key != nullptr ? *key : Tensor(),
                      value != nullptr ? *value : Tensor());
  name_value("state", [&] { return transpose(chain.h, 0, 1); });
  const std::int64_t last = x.dim(0) - 1;
  if (carried != nullptr && carried->keeps)
    carried->keep(layer.path + ".state",
                  raw::reshape(raw::narrow(chain.h, 0, last, 1), {x.dim(1), 1, x.dim(2)}));
  if (key != nullptr) {
    *key = raw::copy(raw::select(chain.key, 0, last));
    *value = raw::copy(raw::select(chain.value, 0, last));
  }

  // y_t = T(h_t) where it is read. There is one key, so attention returns its value; dropout of the single
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

}  // namespace eddy
