// Dropout inside models: where the masks come from, that the mean stays, and the fused recurrence against
// plain loops that draw every mask by the numbers its header documents.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "autograd/checkpoint.h"
#include "autograd/tape.h"
#include "models/dropout_site.h"
#include "ops/attention/attention.h"
#include "ops/pointwise/pointwise.h"
#include "ops/recurrence/unit_recurrence.h"
#include "ops/reduce/reduce.h"
#include "tensor/random/random_tensors.h"
#include "tests/models/every_model.h"
#include "tests/models/plain_rows.h"

namespace {

using namespace eddy;
using namespace eddy::test;

Row random_weights(std::int64_t n, const std::string& name) {
  return random_row(n, name, 1.4);
}

// y = W x + bias for W [rows of y, x].
Row product(const Row& w, const Row& x, const Row& bias) {
  Row y = bias;
  for (std::size_t i = 0; i < y.size(); ++i)
    for (std::size_t j = 0; j < x.size(); ++j) y[i] += w[i * x.size() + j] * x[j];
  return y;
}

double kept(const RandomKey& key, std::size_t element, double rate) {
  return static_cast<double>(uniform01(key.word(element))) >= rate ? 1 / (1 - rate) : 0.0;
}

}  // namespace

TEST_CASE("model dropout: it acts in training alone, by masks that depend on the seed and the step") {
  for (const auto& [name, given] : every_case()) {
    CAPTURE(given.model);
    CAPTURE(name);
    ModelConfig config = given, none = given;
    none.dropout = none.attn_dropout = none.emb_dropout = none.out_dropout = 0;
    // One rate alone; and all of those that the model knows.
    const bool attention_alone = config.attn_dropout > 0;
    config.dropout = attention_alone ? 0 : 0.3;
    if (name == "dropout" && reads_key(config, "emb_dropout")) config.emb_dropout = config.out_dropout = 0.2;
    const auto model = model_of(config), still = model_of(none);
    const Tensor tokens = random_ids(2, uneven_time(config), config.vocab, 1);
    const auto logits = [&](const Model& of, const DropoutContext& dropout, bool literal = false) {
      const NoGrad no_grad;
      ForwardInput input = input_for(config, tokens);
      input.dropout = dropout;
      input.literal = literal;
      return of.forward(input).logits;
    };
    const Tensor evaluated = logits(*still, {}), trained = logits(*model, {true, 7, 1});
    CHECK(same_bits(logits(*still, {true, 7, 1}), evaluated));
    CHECK(same_bits(logits(*model, {}), evaluated));
    CHECK(same_bits(logits(*model, {false, 7, 1}), evaluated));
    CHECK(same_bits(logits(*model, {true, 7, 1}), trained));
    CHECK(distance(trained, evaluated).error > 1e-2);
    CHECK(distance(logits(*model, {true, 7, 2}), trained).error > 1e-2);
    CHECK(distance(logits(*model, {true, 8, 1}), trained).error > 1e-2);
    const Tensor literal = logits(*model, {true, 7, 1}, true);
    CHECK(same_bits(logits(*model, {true, 7, 1}, true), literal));
    CHECK(distance(literal, evaluated).error > 1e-2);
    CHECK(distance(logits(*model, {true, 7, 2}, true), literal).error > 1e-2);
    if (forms_share_masks(config)) check_close("literal", literal, trained, kOrder);
    if (config.model == "unit_forget") CHECK(distance(literal, trained).error > 1e-2);
  }
}

TEST_CASE("model dropout: a site keeps the mean and names its masks by path and call and step") {
  const DropoutSite site{{true, 7, 3}, 0.2};
  const Tensor ones = Tensor::full({100'000}, 1.0, Dtype::f64);
  const auto mean = [](const Tensor& x) {
    double sum = 0;
    for (const double value : numbers(x)) sum += value;
    return sum / static_cast<double>(x.elements());
  };
  const Tensor first = site(ones, "layers.0.mlp.drop");
  // Kept values are 1.25, so the mean has the deviation sqrt(0.2 / 0.8 / n) = 1.6e-3; five of them.
  CHECK(std::abs(mean(first) - 1) <= 8e-3);
  CHECK(same_bits(site(ones, "layers.0.mlp.drop"), first));
  CHECK(!same_bits(site(ones, "layers.1.mlp.drop"), first));
  CHECK(!same_bits(site(ones, "layers.0.mlp.drop", 1), first));
  CHECK(!same_bits(DropoutSite{{true, 7, 4}, 0.2}(ones, "layers.0.mlp.drop"), first));
  CHECK(DropoutSite{{false, 7, 3}, 0.2}(ones, "layers.0.mlp.drop").same(ones));
}

TEST_CASE("model dropout: the fused recurrence equals plain loops with the documented masks") {
  constexpr std::int64_t kTime = 4, kBatch = 3, kDim = 6, kMlp = 10, kHeads = 2;
  for (const double rate : {0.0, 0.3}) {
    CAPTURE(rate);
    const Row norm1 = random_weights(kDim, "norm1"), norm1_bias = random_weights(kDim, "norm1_bias"),
              wqkv = random_weights(3 * kDim * kDim, "wqkv"),
              wqkv_bias = random_weights(3 * kDim, "wqkv_bias"), wo = random_weights(kDim * kDim, "wo"),
              wo_bias = random_weights(kDim, "wo_bias"), norm2 = random_weights(kDim, "norm2"),
              norm2_bias = random_weights(kDim, "norm2_bias"), up = random_weights(kMlp * kDim, "up"),
              up_bias = random_weights(kMlp, "up_bias"), down = random_weights(kDim * kMlp, "down"),
              down_bias = random_weights(kDim, "down_bias"), x = random_weights(kTime * kBatch * kDim, "x"),
              key0 = random_weights(kBatch * kDim, "key0"), value0 = random_weights(kBatch * kDim, "value0");
    UnitRecurrenceOptions options;
    options.heads = kHeads;
    options.dropout = rate;
    options.gate_key = random_key(1, "gate", 5);
    options.attn_key = random_key(1, "attn", 5);
    options.mlp_key = random_key(1, "mlp", 5);
    const auto part = [](const Row& all, std::size_t from, std::size_t n) {
      return Row(all.begin() + static_cast<std::ptrdiff_t>(from),
                 all.begin() + static_cast<std::ptrdiff_t>(from + n));
    };

    for (const bool carried : {false, true}) {
      CAPTURE(carried);
      Row qkv_all, h_all, key_all, value_all;
      std::vector<Row> key(kBatch), value(kBatch);  // of the state before the step; empty: none
      for (std::size_t b = 0; carried && b < kBatch; ++b) {
        key[b] = part(key0, b * kDim, kDim);
        value[b] = part(value0, b * kDim, kDim);
      }
      for (std::size_t t = 0; t < kTime; ++t)
        for (std::size_t b = 0; b < kBatch; ++b) {
          const std::size_t row = t * kBatch + b, width = kDim / kHeads;
          const Row input = part(x, row * kDim, kDim);
          const Row qkv = product(wqkv, layer_norm_row(input, norm1, norm1_bias, options.eps), wqkv_bias);
          qkv_all.insert(qkv_all.end(), qkv.begin(), qkv.end());
          Row mixed(kDim);
          for (std::size_t j = 0; j < kHeads; ++j) {
            double with_h = 0, with_x = 0;
            for (std::size_t i = j * width; i < (j + 1) * width; ++i) {
              if (!key[b].empty()) with_h += qkv[i] * key[b][i];
              with_x += qkv[i] * qkv[kDim + i];
            }
            const double root = std::sqrt(static_cast<double>(width));
            const double eh = key[b].empty() ? 0.0 : std::exp(with_h / root), ex = std::exp(with_x / root);
            const std::size_t element = 2 * (row * kHeads + j);
            const double ph = eh / (eh + ex) * kept(options.gate_key, element, rate);
            const double px = ex / (eh + ex) * kept(options.gate_key, element + 1, rate);
            for (std::size_t i = j * width; i < (j + 1) * width; ++i)
              mixed[i] = px * qkv[2 * kDim + i] + (key[b].empty() ? 0.0 : ph * value[b][i]);
          }
          Row r = product(wo, mixed, wo_bias);
          for (std::size_t i = 0; i < kDim; ++i)
            r[i] = input[i] + r[i] * kept(options.attn_key, row * kDim + i, rate);
          Row u = product(up, layer_norm_row(r, norm2, norm2_bias, options.eps), up_bias);
          for (double& v : u) v = 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
          Row h = product(down, u, down_bias);
          for (std::size_t i = 0; i < kDim; ++i)
            h[i] = r[i] + h[i] * kept(options.mlp_key, row * kDim + i, rate);
          const Row next = product(wqkv, layer_norm_row(h, norm1, norm1_bias, options.eps), wqkv_bias);
          key[b] = part(next, kDim, kDim);
          value[b] = part(next, 2 * kDim, kDim);
          h_all.insert(h_all.end(), h.begin(), h.end());
          key_all.insert(key_all.end(), key[b].begin(), key[b].end());
          value_all.insert(value_all.end(), value[b].begin(), value[b].end());
        }

      const auto vec = [](const Row& values) {
        return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
      };
      const UnitRecurrenceWeights weights{vec(norm1),
                                          vec(norm1_bias),
                                          Tensor::from(wqkv, {3 * kDim, kDim}),
                                          vec(wqkv_bias),
                                          Tensor::from(wo, {kDim, kDim}),
                                          vec(wo_bias),
                                          vec(norm2),
                                          vec(norm2_bias),
                                          Tensor::from(up, {kMlp, kDim}),
                                          vec(up_bias),
                                          Tensor::from(down, {kDim, kMlp}),
                                          vec(down_bias)};
      const Shape shape{kTime, kBatch, kDim};
      const UnitRecurrenceResult result =
          unit_recurrence(Tensor::from(x, shape), Tensor::from(qkv_all, shape.with(2, 3 * kDim)), weights,
                          options, carried ? Tensor::from(key0, {kBatch, kDim}) : Tensor(),
                          carried ? Tensor::from(value0, {kBatch, kDim}) : Tensor());
      check_close("h", result.h, Tensor::from(h_all, shape), 1e-12);
      check_close("key", result.key, Tensor::from(key_all, shape), 1e-12);
      check_close("value", result.value, Tensor::from(value_all, shape), 1e-12);
    }
  }
}

TEST_CASE("model dropout: the first state of the recurrence keeps its mean") {
  // Without an MLP, h_1 = x_1 + drop(Wo drop(vx)) is linear in the masks, so its mean over rows is what no
  // dropout gives.
  constexpr std::int64_t kRows = 4000, kDim = 8;
  const Tensor x = Tensor::zeros({1, kRows, kDim}, Dtype::f64),
               qkv = Tensor::full({1, kRows, 3 * kDim}, 1.0, Dtype::f64);
  UnitRecurrenceWeights weights;
  weights.norm1 = weights.norm2 = Tensor::full({kDim}, 1.0, Dtype::f64);
  weights.wqkv = Tensor::zeros({3 * kDim, kDim}, Dtype::f64);
  weights.wo = Tensor::from(random_weights(kDim * kDim, "wo"), {kDim, kDim});
  weights.up = Tensor::zeros({kDim, kDim}, Dtype::f64);
  weights.down = Tensor::zeros({kDim, kDim}, Dtype::f64);
  UnitRecurrenceOptions options;
  options.heads = 2;
  const std::vector<double> expected = numbers(unit_recurrence(x, qkv, weights, options).h);
  options.dropout = 0.2;
  options.gate_key = random_key(1, "gate", 0);
  options.attn_key = random_key(1, "attn", 0);
  options.mlp_key = random_key(1, "mlp", 0);
  const std::vector<double> h = numbers(unit_recurrence(x, qkv, weights, options).h);
  for (std::size_t i = 0; i < kDim; ++i) {
    CAPTURE(i);
    double mean = 0, square = 0;
    for (std::size_t row = 0; row < kRows; ++row) {
      mean += h[row * kDim + i] / kRows;
      square += h[row * kDim + i] * h[row * kDim + i] / kRows;
    }
    const double standard_error = std::sqrt((square - mean * mean) / kRows);
    CHECK(standard_error > 0);
    CHECK(std::abs(mean - expected[i]) <= 5 * standard_error);
  }
}

TEST_CASE("dropout without a key draws by the scope's seed and step and the number of the call") {
  const Tensor x = Tensor::full({1000}, 1, Dtype::f32);
  const auto two_calls = [&](std::uint64_t seed, std::int64_t step) {
    const DropoutScope dropping({.training = true, .seed = seed, .step = step});
    const Tensor first = dropout(x, 0.5), second = dropout(x, 0.5);
    return std::vector<std::vector<float>>{first.to_vector<float>(), second.to_vector<float>()};
  };
  const auto masks = two_calls(1, 0);
  CHECK(masks == two_calls(1, 0));
  CHECK(masks[0] != masks[1]);
  CHECK(masks != two_calls(1, 1));
  CHECK(masks != two_calls(2, 0));
  double sum = 0;
  for (const float value : masks[0]) {
    CHECK((value == 0 || value == 2));
    sum += static_cast<double>(value);
  }
  CHECK(std::abs(sum - 1000) < 150);  // 5 deviations
}

TEST_CASE("dropout without a key gives x itself in evaluation, and refuses to train without a scope") {
  const Tensor x = Tensor::full({3}, 2, Dtype::f32);
  {
    const DropoutScope evaluating(DropoutContext{});
    CHECK(dropout(x, 0.5).to_vector<float>() == x.to_vector<float>());
    CHECK_THROWS_WITH_AS(dropout(x, 1.5), doctest::Contains("p out of range: 1.5"), ValueError);
  }
  {
    const NoGrad evaluating;
    CHECK(dropout(x, 0.5).to_vector<float>() == x.to_vector<float>());
  }
  CHECK_THROWS_WITH_AS(dropout(x, 0.5), doctest::Contains("no DropoutScope on this thread"), ValueError);
  CHECK(dropout(x, 0).raw_data() == x.raw_data());
}

TEST_CASE("attention without a key of its own drops by the scope, as dropout does") {
  const Tensor q = randn({1, 2, 5, 4}, random_key(1, "q", 0));
  const Tensor mask = Tensor::full({5, 5}, 1, Dtype::u8);
  for (const Tensor& allowed : {Tensor(), mask}) {
    const auto attention = [&](double rate) {
      return numbers(scaled_dot_product_attention(q, q, q, {.attn_mask = allowed, .dropout_p = rate}));
    };
    const auto at = [&](std::int64_t step) {
      const DropoutScope dropping({.training = true, .seed = 1, .step = step});
      const std::vector<double> first = attention(0.5);
      CHECK(first != attention(0.5));  // another call
      return first;
    };
    const std::vector<double> whole = attention(0);
    CHECK(at(0) == at(0));
    CHECK(at(0) != at(1));
    CHECK(at(0) != whole);
    const DropoutScope evaluating(DropoutContext{});
    CHECK(attention(0.5) == whole);
  }
}

TEST_CASE("a checkpoint draws the masks of dropout without a key again, also after its scope") {
  const auto gradient = [](bool checkpointed) {
    const Tensor x = Tensor::full({257}, 1, Dtype::f64);
    require_grad(x);
    Tensor y;
    {
      const DropoutScope dropping({.training = true, .seed = 3});
      const auto layer = [](const Tensor& given) { return dropout(tanh(dropout(given, 0.3)), 0.5); };
      const std::function<Tensor(const std::vector<Tensor>&)> layers =
          [layer](const std::vector<Tensor>& given) { return layer(layer(given[0])); };
      y = checkpointed ? checkpoint(layers, {x}) : layers({x});
      y = dropout(y, 0.5);
    }
    backward(sum(y));
    return grad(x).to_vector<double>();
  };
  CHECK(gradient(true) == gradient(false));
}
