// The record of the unit recurrence: its reference walks through the equations row by row with plain loops.
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/recurrence/unit_recurrence.h"

namespace eddy {
namespace {

using Row = std::vector<double>;

// y = W x + b for W [rows, columns] from row `first`.
Row product(const Row& w, const Row& bias, std::int64_t first, std::int64_t rows, const Row& x) {
  Row y(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t row = i + static_cast<std::size_t>(first);
    y[i] = bias.empty() ? 0 : bias[row];
    for (std::size_t k = 0; k < x.size(); ++k) y[i] += w[row * x.size() + k] * x[k];
  }
  return y;
}

Row normalised(const Row& x, const Row& gain, const Row& bias, double eps) {
  double mean = 0, variance = 0;
  for (const double value : x) mean += value / static_cast<double>(x.size());
  for (const double value : x) variance += (value - mean) * (value - mean) / static_cast<double>(x.size());
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = (x[i] - mean) / std::sqrt(variance + eps) * gain[i] + (bias.empty() ? 0 : bias[i]);
  return y;
}

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

Row values_of(const Tensor& t) {
  return t.defined() ? t.to_vector<double>() : Row();
}

Tensors reference(const Tensors& t, std::int64_t heads, bool gelu, double rate, const RandomKey& gate_key,
                  const RandomKey& attn_key, const RandomKey& mlp_key) {
  const Inputs in = inputs_of(t);
  const UnitRecurrenceWeights& w = in.weights;
  const std::int64_t time = t[0].dim(0), batch = t[0].dim(1), dim = t[0].dim(2), mlp = w.up.dim(0),
                     d = dim / heads;
  const Row x = values_of(t[0]), qkv = values_of(t[1]), wqkv = values_of(w.wqkv),
            bqkv = values_of(w.wqkv_bias);
  const Row wo = values_of(w.wo), up = values_of(w.up), down = values_of(w.down);
  const Row g1 = values_of(w.norm1), b1 = values_of(w.norm1_bias), g2 = values_of(w.norm2),
            b2 = values_of(w.norm2_bias);
  const Row key0 = values_of(in.key), value0 = values_of(in.value);
  const auto keep = [rate](const RandomKey& key, std::int64_t element) {
    if (rate == 0) return 1.0;
    return static_cast<double>(uniform01(key.word(static_cast<std::uint64_t>(element)))) >= rate
               ? 1 / (1 - rate)
               : 0.0;
  };
  const auto size = static_cast<std::size_t>(time * batch * dim);
  Row all_h(size), all_k(size), all_v(size);
  for (std::int64_t b = 0; b < batch; ++b) {
    Row kh, vh;
    if (!key0.empty()) {
      kh.assign(key0.begin() + b * dim, key0.begin() + (b + 1) * dim);
      vh.assign(value0.begin() + b * dim, value0.begin() + (b + 1) * dim);
    }
    for (std::int64_t step = 0; step < time; ++step) {
      const std::int64_t row = step * batch + b;
      const double *q = &qkv[static_cast<std::size_t>(row * 3 * dim)], *kx = q + dim, *vx = kx + dim;
      Row o(static_cast<std::size_t>(dim));
      for (std::int64_t j = 0; j < heads; ++j) {
        double score_h = -INFINITY, score_x = 0;
        for (std::int64_t i = j * d; i < (j + 1) * d; ++i)
          score_x += q[i] * kx[i] / std::sqrt(static_cast<double>(d));
        if (!kh.empty()) {
          score_h = 0;
          for (std::int64_t i = j * d; i < (j + 1) * d; ++i)
            score_h += q[i] * kh[static_cast<std::size_t>(i)] / std::sqrt(static_cast<double>(d));
        }
        const double top = std::max(score_h, score_x), eh = std::exp(score_h - top),
                     ex = std::exp(score_x - top);
        const double ph = eh / (eh + ex) * keep(gate_key, (row * heads + j) * 2);
        const double px = ex / (eh + ex) * keep(gate_key, (row * heads + j) * 2 + 1);
        for (std::int64_t i = j * d; i < (j + 1) * d; ++i)
          o[static_cast<std::size_t>(i)] =
              px * vx[i] + (vh.empty() ? 0 : ph * vh[static_cast<std::size_t>(i)]);
      }
      Row r = product(wo, values_of(w.wo_bias), 0, dim, o);
      for (std::int64_t i = 0; i < dim; ++i)
        r[static_cast<std::size_t>(i)] = x[static_cast<std::size_t>(row * dim + i)] +
                                         r[static_cast<std::size_t>(i)] * keep(attn_key, row * dim + i);
      Row u = product(up, values_of(w.up_bias), 0, mlp, normalised(r, g2, b2, 1e-5));
      for (double& value : u)
        value = gelu ? 0.5 * value * std::erfc(-value / std::sqrt(2.0)) : std::max(value, 0.0);
      Row h = product(down, values_of(w.down_bias), 0, dim, u);
      for (std::int64_t i = 0; i < dim; ++i)
        h[static_cast<std::size_t>(i)] =
            r[static_cast<std::size_t>(i)] + h[static_cast<std::size_t>(i)] * keep(mlp_key, row * dim + i);
      const Row a = normalised(h, g1, b1, 1e-5);
      kh = product(wqkv, bqkv, dim, dim, a);
      vh = product(wqkv, bqkv, 2 * dim, dim, a);
      std::copy(h.begin(), h.end(), all_h.begin() + row * dim);
      std::copy(kh.begin(), kh.end(), all_k.begin() + row * dim);
      std::copy(vh.begin(), vh.end(), all_v.begin() + row * dim);
    }
  }
  return {Tensor::from(all_h, t[0].shape()), Tensor::from(all_k, t[0].shape()),
          Tensor::from(all_v, t[0].shape())};
}

Tensors sample(std::int64_t time, std::int64_t batch, std::int64_t dim, std::int64_t mlp, bool biases,
               bool carried) {
  const auto normal = [](const Shape& shape, const char* name, double scale) {
    return sample_normal(shape, name, scale);
  };
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
  const RandomKey gate_key = random_key(7, "gate", 3), attn_key = random_key(7, "attn", 3),
                  mlp_key = random_key(7, "mlp", 3);
  OpSpec spec{name, "h_t = T(h_{t-1}, x_t), key and value of LN1(h_t)"};
  spec.run = [=](const Tensors& t) {
    const Inputs in = inputs_of(t);
    UnitRecurrenceOptions options;
    options.heads = heads;
    options.gelu = gelu;
    options.dropout = rate;
    options.gate_key = gate_key;
    options.attn_key = attn_key;
    options.mlp_key = mlp_key;
    // The carried state is a constant: it has no gradient.
    const UnitRecurrenceResult result = unit_recurrence(t[0], t[1], in.weights, options, in.key, in.value);
    return Tensors{result.h, result.key, result.value};
  };
  spec.reference = [=](const Tensors& t) {
    return reference(t, heads, gelu, rate, gate_key, attn_key, mlp_key);
  };
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
