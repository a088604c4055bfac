// The record of the unit recurrence: its reference walks through the equations step by step.
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/norm/layer_norm.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "ops/recurrence/unit_recurrence.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/softmax.h"
#include "ops/views/views.h"

namespace eddy {
namespace {

// Order of a sample's inputs: x, qkv, norm1, wqkv, wo, norm2, up, down, then with biases those of norm1,
// wqkv, wo, norm2, up and down, then with a carried state key and value.
struct Inputs {
  UnitRecurrenceWeights weights;
  Tensor key, value;
};

Inputs inputs_of(const Tensors& t) {
  Inputs in;
  in.weights = {t[2], {}, t[3], {}, t[4], {}, t[5], {}, t[6], {}, t[7], {}};
  std::size_t next = 8;
  if (t.size() >= 14) {
    in.weights.norm1_bias = t[8];
    in.weights.wqkv_bias = t[9];
    in.weights.wo_bias = t[10];
    in.weights.norm2_bias = t[11];
    in.weights.up_bias = t[12];
    in.weights.down_bias = t[13];
    next = 14;
  }
  if (t.size() == next + 2) {
    in.key = t[next];
    in.value = t[next + 1];
  }
  return in;
}

Tensors reference(const Tensors& t, const UnitRecurrenceOptions& options) {
  const Inputs in = inputs_of(t);
  const UnitRecurrenceWeights& w = in.weights;
  const std::int64_t time = t[0].dim(0), batch = t[0].dim(1), dim = t[0].dim(2), heads = options.heads,
                     size = dim / heads;
  const auto by_head = [&](const Tensor& x) { return reshape(x, {batch, heads, size}); };
  Tensor key = in.key, value = in.value;
  Tensors all_h, all_keys, all_values;
  for (std::int64_t step = 0; step < time; ++step) {
    const auto dropped = [&](const Tensor& x, const RandomKey& mask) {
      return dropout(x, options.dropout, mask, static_cast<std::uint64_t>(step * x.elements()));
    };
    const Tensor x = select(t[0], 0, step);
    const Tensors qkv = split(select(t[1], 0, step), 1, {dim, dim, dim});
    const auto scores = [&](const Tensor& k) {
      return sum(by_head(qkv[0] * k), 2, true) / std::sqrt(static_cast<double>(size));
    };
    // Without a state, its probability is 0.
    const Tensor of_state =
        key.defined() ? scores(key) : Tensor::full({batch, heads, 1}, -INFINITY, Dtype::f64);
    const Tensors weights =
        split(dropped(softmax(concat({of_state, scores(qkv[1])}, 2)), options.gate_key), 2, {1, 1});
    Tensor o = weights[1] * by_head(qkv[2]);
    if (value.defined()) o += weights[0] * by_head(value);
    const Tensor r = x + dropped(linear(reshape(o, {batch, dim}), w.wo, w.wo_bias), options.attn_key);
    const Tensor u = linear(layer_norm(r, w.norm2, w.norm2_bias, options.eps), w.up, w.up_bias);
    const Tensor h =
        r + dropped(linear(options.gelu ? gelu(u) : relu(u), w.down, w.down_bias), options.mlp_key);
    const Tensors next = split(linear(layer_norm(h, w.norm1, w.norm1_bias, options.eps), w.wqkv, w.wqkv_bias),
                               1, {dim, dim, dim});
    key = next[1];
    value = next[2];
    all_h.push_back(h);
    all_keys.push_back(key);
    all_values.push_back(value);
  }
  const auto stacked = [&](const Tensors& steps) { return reshape(concat(steps, 0), t[0].shape()); };
  return {stacked(all_h), stacked(all_keys), stacked(all_values)};
}

Tensors sample(std::int64_t time, std::int64_t batch, std::int64_t dim, std::int64_t mlp, bool biases,
               bool carried) {
  const auto& normal = sample_normal;
  Tensors t{normal({time, batch, dim}, "x", 1),
            normal({time, batch, 3 * dim}, "qkv", 1),
            sample_uniform({dim}, "norm1", 0.8, 1.2),
            normal({3 * dim, dim}, "wqkv", 0.4),
            normal({dim, dim}, "wo", 0.4),
            sample_uniform({dim}, "norm2", 0.8, 1.2),
            normal({mlp, dim}, "up", 0.4),
            normal({dim, mlp}, "down", 0.4)};
  if (biases)
    for (const auto& [name, size] : std::initializer_list<std::pair<const char*, std::int64_t>>{
             {"b1", dim}, {"b2", 3 * dim}, {"b3", dim}, {"b4", dim}, {"b5", mlp}, {"b6", dim}})
      t.push_back(normal({size}, name, 0.3));
  if (carried) {
    t.push_back(normal({batch, dim}, "key", 1));
    t.push_back(normal({batch, dim}, "value", 1));
  }
  return t;
}

OpSpec spec_of(const char* name, std::int64_t heads, bool gelu, double rate) {
  UnitRecurrenceOptions options;
  options.heads = heads;
  options.gelu = gelu;
  options.dropout = rate;
  options.gate_key = random_key(7, "gate", 3);
  options.attn_key = random_key(7, "attn", 3);
  options.mlp_key = random_key(7, "mlp", 3);
  OpSpec spec{name, "h_t = T(h_{t-1}, x_t), key and value of LN1(h_t)"};
  spec.run = [options](const Tensors& t) {
    const Inputs in = inputs_of(t);
    // The carried state is a constant: it has no gradient.
    const UnitRecurrenceResult result = unit_recurrence(t[0], t[1], in.weights, options, in.key, in.value);
    return Tensors{result.h, result.key, result.value};
  };
  spec.reference = [options](const Tensors& t) { return reference(t, options); };
  spec.roundings = 512;  // four steps of products, norms and activations
  return spec;
}

}  // namespace

std::vector<OpSpec> unit_recurrence_specs() {
  OpSpec plain = spec_of("unit_recurrence", 2, true, 0);
  plain.samples = {{"size_1", sample(1, 1, 2, 1, false, false)},
                   {"odd_tail", sample(4, 3, 6, 7, false, false)},
                   {"biases", sample(3, 2, 4, 5, true, false)},
                   {"carried", sample(3, 2, 4, 5, false, true), false},  // no gradient for the carried state
                   {"many_rows", sample(2, 130, 4, 3, false, false), false}};
  Tensors strided = sample(3, 2, 4, 5, false, false);
  strided[0] = strided_copy(strided[0]);
  strided[1] = strided_copy(strided[1]);
  plain.samples.push_back({"strided", strided});
  OpSpec relu = spec_of("unit_recurrence_relu", 3, false, 0);
  relu.samples = {{"odd_tail", sample(3, 2, 6, 8, true, false)}};
  OpSpec dropped = spec_of("unit_recurrence_dropout", 2, true, 0.3);
  dropped.samples = {{"odd_tail", sample(3, 3, 4, 5, false, false)},
                     {"biases", sample(3, 2, 4, 5, true, false)}};
  plain.bench = [] { return sample(32, 16, 384, 1536, false, false); };
  return {plain, relu, dropped};
}

}  // namespace eddy
