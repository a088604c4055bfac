// Parameters, costs, initial values and rules of the Block-Recurrent family, and the switches that have a
// simple consequence.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/block_recurrent/block_recurrent.h"
#include "tensor/base/error.h"
#include "tests/models/block_recurrent/block_recurrent_case.h"
#include "train/config/run_config.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

const NamedConfig& named(const std::string& name) {
  static const std::vector<NamedConfig> all = paper_configs();
  for (const NamedConfig& config : all)
    if (config.name == name) return config;
  FAIL("no configuration " << name);
  return all[0];
}

ModelConfig changed(ModelConfig config, void (*change)(ModelConfig&)) {
  change(config);
  return config;
}

std::string refusal(const ModelConfig& config) {
  return error_of<ConfigError>([&] { static_cast<void>(count_parameters(config)); });
}

double deviation(const Model& model, const std::string& name) {
  const std::vector<double> values = numbers(model.params().get(name).value);
  double mean = 0, square = 0;
  for (const double value : values) {
    mean += value / static_cast<double>(values.size());
    square += value * value / static_cast<double>(values.size());
  }
  return std::sqrt(square - mean * mean);
}

}  // namespace

TEST_CASE("block_recurrent: the cost of the paper's models is what their equations cost") {
  // Forward MFLOP per token of streaming, which sees what training may see, with the output layer.
  const auto mflop = [](const std::string& name) {
    const ModelConfig config = resolved(named(name).config);
    return 1e-6 * forward_cost(config, config.segment).flops / static_cast<double>(config.segment);
  };
  CHECK(std::abs(mflop("br_150m_slide_12l") - 393.0) <= 0.05);
  CHECK(std::abs(mflop("br_150m_slide_13l") - 420.2) <= 0.05);
  CHECK(std::abs(mflop("br_150m_rec_fixed_skip") - 418.1) <= 0.05);
  // The bursts of 18.3 and 31.1 GFLOP per block of 512 instead of 9.66.
  CHECK(std::abs(mflop("br_150m_rec_fixed_dual") - 418.1 - (18.3 - 9.66) * 1e3 / 512) <= 0.2);
  CHECK(std::abs(mflop("br_150m_rec_lstm_dual") - 418.1 - (31.1 - 9.66) * 1e3 / 512) <= 0.2);
  // Scores over 65536 entries of 1024 numbers, and 128 of them mixed.
  CHECK(std::abs(mflop("br_150m_memorizing") - 393.0 - 2e-6 * (65536.0 + 2 * 128) * 1024) <= 0.05);
}

TEST_CASE("block_recurrent: the first distances of the logarithmic buckets are those of T5") {
  const std::vector<std::int64_t> first{16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
  for (std::int64_t distance = 0; distance < 3000; ++distance) {
    std::int64_t expected = distance;
    if (distance >= 16) {
      expected = 15;
      for (const std::int64_t border : first) expected += distance >= border ? 1 : 0;
    }
    CAPTURE(distance);
    CHECK(relative_bucket(distance, 32, 128) == expected);
  }
  // Borders that are whole numbers belong to the bucket that begins there: 16 * 2^(k/4) of 16 * 2^4.
  CHECK(relative_bucket(31, 32, 256) == 19);
  CHECK(relative_bucket(32, 32, 256) == 20);
  CHECK(relative_bucket(64, 32, 256) == 24);
  CHECK(relative_bucket(128, 32, 256) == 28);
  CHECK(relative_bucket(1, 2, 2) == 1);
  CHECK(relative_bucket(100, 5, 3) == 4);
}

TEST_CASE("block_recurrent: parameters begin with the paper's deviations") {
  ModelConfig config = recurrent_config("lstm", "dual");
  config.dim = 96;
  config.mlp_dim = 80;
  config.states = 40;
  config.z_bias = true;
  const auto model = make_model(config, Dtype::f64);
  model->params().initialize(1);
  const auto is = [&](const std::string& name, double expected) {
    CAPTURE(name);
    // Of n numbers the deviation is known to 1 / sqrt(2 n), 1 % for the smallest of these.
    CHECK(std::abs(deviation(*model, name) / expected - 1) <= 0.05);
  };
  is("embed.weight", 1);
  is("layers.0.attn.wq.weight", std::sqrt(1.0 / 96));
  is("layers.0.attn.wo.weight", std::sqrt(1.0 / 12));
  is("layers.1.attn.wo.weight", std::sqrt(1.0 / 24));
  is("layers.1.cross.wq.weight", std::sqrt(1.0 / 96));
  is("layers.0.mlp.up.weight", std::sqrt(1.0 / 96));
  is("layers.0.mlp.down.weight", std::sqrt(1.0 / 80));
  is("layers.1.recurrent.init_state", 0.1);
  is("layers.1.recurrent.state_ids", 1);
  is("layers.1.recurrent.gate_attn.wz.weight", std::sqrt(1.0 / 24));
  is("layers.1.recurrent.gate_attn.wi.weight", std::sqrt(0.1 / 24));
  is("layers.1.recurrent.gate_mlp.wf.weight", std::sqrt(0.1 / 80));
  // 96 and 64 numbers only: 7 % and 9 %, five of them.
  CHECK(std::abs(deviation(*model, "layers.1.recurrent.gate_mlp.bi") / 0.1 - 1) <= 0.36);
  CHECK(std::abs(deviation(*model, "layers.1.recurrent.gate_mlp.bz") / 0.1 - 1) <= 0.36);
  CHECK(std::abs(deviation(*model, "layers.0.attn.rel_bias") / std::sqrt(1.0 / 32) - 1) <= 0.45);
  CHECK(numbers(model->params().get("layers.1.recurrent.scale_cross").value) == std::vector<double>{1, 1});
}

TEST_CASE("block_recurrent: keys that do not concern a model change nothing") {
  const ModelConfig slide = block_recurrent_config("slide");
  const ModelConfig odd = changed(slide, [](ModelConfig& c) {
    c.recurrent_layers = {1};
    c.feedback = true;
    c.memory_layers = {1};
    c.tied = false;
    c.n_out = 5;
    c.positions = true;
    c.readout = "last";
    c.cache_after = 9;
  });
  CHECK(count_parameters(odd).count() == count_parameters(slide).count());
}

TEST_CASE("block_recurrent: configurations that contradict themselves are refused by name") {
  const ModelConfig slide = block_recurrent_config("slide"), rec = recurrent_config("fixed", "skip"),
                    memory = block_recurrent_config("memorizing");
  CHECK(contains(refusal(changed(slide, [](ModelConfig& c) { c.window = 5; })), "window 5, segment 16"));
  CHECK(contains(refusal(changed(slide, [](ModelConfig& c) { c.kv_heads = 1; })), "kv_heads 1"));
  CHECK(contains(refusal(changed(slide, [](ModelConfig& c) { c.n_out = 14; })), "each of its 13 tokens"));
  CHECK(contains(refusal(changed(slide, [](ModelConfig& c) { c.rel_max_distance = 16; })),
                 "rel_max_distance 16"));
  CHECK(contains(refusal(changed(slide, [](ModelConfig& c) { c.rel_buckets = 1; })), "rel_buckets is 1"));
  CHECK(contains(refusal(changed(slide, [](ModelConfig& c) { c.attn_dropout = 1; })), "attn_dropout"));
  CHECK(contains(refusal(changed(slide, [](ModelConfig& c) { c.qk_eps = std::nan(""); })), "qk_eps"));
  CHECK(contains(refusal(changed(slide, [](ModelConfig& c) { c.logit_divisor = "two"; })), "\"two\""));
  CHECK(contains(refusal(changed(slide, [](ModelConfig& c) { c.model = "xl"; })), "window 4, segment 16"));
  CHECK(contains(refusal(changed(rec, [](ModelConfig& c) { c.recurrent_layers = {}; })), "is empty"));
  CHECK(contains(refusal(changed(rec, [](ModelConfig& c) { c.recurrent_layers = {3}; })), "names layer 3"));
  CHECK(contains(refusal(changed(rec, [](ModelConfig& c) { c.recurrent_layers = {1, 1}; })), "twice"));
  CHECK(contains(refusal(changed(rec, [](ModelConfig& c) { c.gate = "gru"; })), "\"gru\""));
  CHECK(contains(refusal(changed(rec, [](ModelConfig& c) { c.states = 0; })), "states is 0"));
  CHECK(contains(refusal(changed(memory, [](ModelConfig& c) { c.memory_layers = {}; })), "is empty"));
  CHECK(contains(refusal(changed(memory, [](ModelConfig& c) { c.memory_layers = {-1}; })),
                 "memory_layers is [-1]"));
  CHECK(contains(refusal(changed(memory, [](ModelConfig& c) { c.memory_size = 6; })), "memory_size 6"));
  CHECK(contains(refusal(changed(memory, [](ModelConfig& c) { c.memory_topk = 9; })), "memory_topk is 9"));
}

TEST_CASE("block_recurrent: tokens that do not fill their windows are refused") {
  const auto model = randomised(recurrent_config("fixed", "skip"));
  CHECK(contains(error_of<ShapeError>([&] { static_cast<void>(evaluate(*model, random_ids(2, 6, 13, 1))); }),
                 "6 tokens and a window of 4"));
}

TEST_CASE("block_recurrent: logits are divided by what the config names") {
  const Tensor tokens = random_ids(2, 16, 13, 1);
  const auto logits = [&](const std::string& divisor) {
    ModelConfig config = recurrent_config("lstm", "skip");
    config.logit_divisor = divisor;
    return evaluate(*randomised(config), tokens).logits;
  };
  const std::vector<double> whole = numbers(logits("none")), by_dim = numbers(logits("sqrt_d")),
                            by_vocab = numbers(logits("sqrt_vocab"));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(std::abs(by_dim[i] * std::sqrt(10.0) - whole[i]) <= 1e-12);
    CHECK(std::abs(by_vocab[i] * std::sqrt(13.0) - whole[i]) <= 1e-12);
  }
}

TEST_CASE("block_recurrent: the sign of a scale matters only without the absolute value") {
  const Tensor tokens = random_ids(2, 16, 13, 1);
  for (const bool absolute : {true, false}) {
    ModelConfig config = recurrent_config("fixed", "dual");
    config.scale_abs = absolute;
    const auto model = randomised(config);
    const Tensor before = evaluate(*model, tokens).logits;
    for (const char* name : {"layers.0.attn.scale", "layers.1.cross.scale", "layers.1.recurrent.scale_self",
                             "layers.1.recurrent.scale_cross"}) {
      CAPTURE(name);
      const Parameter& scale = model->params().get(name);
      const std::vector<double> values = numbers(scale.value);
      set_values(scale, {-values[0], values[1]});
      const double moved = distance(evaluate(*model, tokens).logits, before).error;
      if (absolute)
        CHECK(moved == 0);
      else
        CHECK(moved > 1e-4);
      set_values(scale, values);
    }
  }
}

TEST_CASE("block_recurrent: the candidate goes through tanh as the rule says") {
  const Tensor tokens = random_ids(2, 16, 13, 1);
  for (const char* gate : {"fixed", "lstm"})
    for (const char* cell : {"dual", "single", "skip"}) {
      CAPTURE(gate);
      CAPTURE(cell);
      ModelConfig config = recurrent_config(gate, cell);
      const Tensor code = evaluate(*randomised(config), tokens).logits;
      config.tanh_rule = "paper";
      const bool in_code = std::string(cell) == "single", in_paper = std::string(gate) == "lstm";
      CHECK((distance(evaluate(*randomised(config), tokens).logits, code).error > 1e-3) ==
            (in_code != in_paper));
    }
}

TEST_CASE("block_recurrent: gates begin with the deviations and means that are asked for") {
  ModelConfig config = recurrent_config("lstm", "dual");
  config.dim = 96;
  config.mlp_dim = 80;
  config.gate_bias = 1;
  config.gate_bias_std = 0;
  config.gate_gain = 0.4;
  const auto values = [](const ModelConfig& of, const std::string& name) {
    const auto model = make_model(of, Dtype::f64);
    model->params().initialize(1);
    return numbers(model->params().get("layers.1.recurrent." + name).value);
  };
  CHECK(values(config, "gate_attn.bf") == std::vector<double>(96, 1.0));
  CHECK(values(config, "gate_mlp.bi") == std::vector<double>(96, -1.0));
  const auto model = make_model(config, Dtype::f64);
  model->params().initialize(1);
  // 96 * 80 numbers: 1 %.
  CHECK(std::abs(deviation(*model, "layers.1.recurrent.gate_mlp.wi.weight") / std::sqrt(0.4 / 80) - 1) <=
        0.05);
  config.gate = "fixed";
  CHECK(values(config, "gate_attn.bg") == std::vector<double>(96, 1.0));
  // The mean is added to the numbers that there are without it.
  config.gate_bias_std = 0.1;
  std::vector<double> shifted = values(config, "gate_attn.bg");
  config.gate_bias = 0;
  const std::vector<double> plain = values(config, "gate_attn.bg");
  for (std::size_t i = 0; i < shifted.size(); ++i) CHECK(std::abs(shifted[i] - plain[i] - 1) < 1e-15);
}

TEST_CASE("block_recurrent: a constant of the gates is as much in their biases") {
  const Tensor tokens = random_ids(2, 16, 13, 1);
  for (const char* cell : {"dual", "single", "skip"}) {
    CAPTURE(cell);
    ModelConfig config = recurrent_config("lstm", cell);
    const auto one = randomised(config);
    config.gate_constant = -0.75;
    const auto other = randomised(config);
    CHECK(distance(evaluate(*other, tokens).logits, evaluate(*one, tokens).logits).error > 1e-3);
    for (const Parameter& parameter : other->params().parameters()) {
      const bool input = parameter.name.ends_with(".bi"), forget = parameter.name.ends_with(".bf");
      if (!input && !forget) continue;
      std::vector<double> values = numbers(parameter.value);
      for (double& value : values) value += input ? -1.75 : 1.75;
      set_values(parameter, values);
    }
    check_close("logits", evaluate(*other, tokens).logits, evaluate(*one, tokens).logits, 1e-13);
    const auto gate_of = [](const Model& model) { return model.diagnostics({}).front(); };
    CHECK(std::abs(gate_of(*other).second - gate_of(*one).second) < 1e-13);
  }
}

TEST_CASE("block_recurrent: a bias on z of zero changes nothing and another one does") {
  const Tensor tokens = random_ids(2, 16, 13, 1);
  ModelConfig config = recurrent_config("lstm", "skip");
  const Tensor without = evaluate(*randomised(config), tokens).logits;
  config.z_bias = true;
  const auto model = randomised(config);
  CHECK(distance(evaluate(*model, tokens).logits, without).error > 1e-3);
  set_values(model->params().get("layers.1.recurrent.gate_attn.bz"), std::vector<double>(10, 0.0));
  check_close("logits", evaluate(*model, tokens).logits, without, 1e-13);
}

TEST_CASE("block_recurrent: activation masks repeat after their tile and are one for all sequences") {
  BlockCall call;
  call.drop = {{true, 3, 4}, 0.4};
  call.tile = 5;
  const Tensor mask = call.dropped(Tensor::full({3, 12, 7}, 1, Dtype::f64), "place");
  const Tensor first = raw::narrow(raw::narrow(mask, 0, 0, 1), 1, 0, 5);
  for (std::int64_t b = 0; b < 3; ++b) {
    CHECK(same_bits(raw::narrow(raw::narrow(mask, 0, b, 1), 1, 5, 5), first));
    CHECK(same_bits(raw::narrow(raw::narrow(mask, 0, b, 1), 1, 10, 2), raw::narrow(first, 1, 0, 2)));
  }
  call.first = 8;
  CHECK(same_bits(call.dropped(Tensor::full({1, 4, 7}, 1, Dtype::f64), "place"),
                  raw::narrow(raw::narrow(mask, 0, 0, 1), 1, 8, 4)));
  double sum = 0;
  for (const double value : numbers(first)) {
    CHECK((value == 0 || std::abs(value - 1 / 0.6) < 1e-7));
    sum += value;
  }
  CHECK(sum > 0);
}
