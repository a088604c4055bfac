// What the block-wise recurrent models own and how they begin: names and shapes, initial
// deviations, costs, and the configs they refuse.
#include <doctest/doctest.h>

#include "tensor/base/error.h"
#include "tests/models/blockwise_recurrent/blockwise_recurrent_case.h"
#include "train/config/run_config.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

ModelConfig published(const std::string& name) {
  for (const NamedConfig& named : paper_configs())
    if (named.name == name) return named.config;
  FAIL("no configuration " << name);
  return {};
}

double deviation(const Tensor& x) {
  double sum = 0, squares = 0;
  for (const double value : numbers(x)) {
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(x.elements());
  return std::sqrt(squares / count - sum / count * (sum / count));
}

}  // namespace

TEST_CASE("memory_llama: a model with all parts has these names and shapes") {
  ModelConfig config = blockwise_config("memory_llama");
  config.memory_proj = config.memory_query = true;
  config.tied = false;
  config.n_out = 7;
  std::vector<std::string> expected{"embed.weight [11, 12]"};
  for (const char* layer : {"layers.0.", "layers.1."})
    for (const char* rest :
         {"attn_norm.weight [12]", "attn.wq.weight [12, 12]", "attn.wk.weight [4, 12]",
          "attn.wv.weight [4, 12]", "attn.wo.weight [12, 12]", "memory.init [4, 12]",
          "memory.wm.weight [12, 12]", "memory.mlp_norm.weight [12]", "memory.mlp.gate.weight [20, 12]",
          "memory.mlp.up.weight [20, 12]", "memory.mlp.down.weight [12, 20]", "memory.norm.weight [12]",
          "memory.wk.weight [4, 12]", "memory.wv.weight [4, 12]", "memory.wq.weight [12, 12]",
          "mlp_norm.weight [12]", "mlp.gate.weight [20, 12]", "mlp.up.weight [20, 12]",
          "mlp.down.weight [12, 20]"})
      expected.push_back(std::string(layer) + rest);
  expected.push_back("final_norm.weight [12]");
  expected.push_back("head.weight [7, 12]");
  CHECK(listed(config) == expected);
}

TEST_CASE("memory_llama: what is switched off has no parameters") {
  ModelConfig config = blockwise_config("memory_llama");
  config.layers = 1;
  config.memory_ffn = config.memory_norm = false;
  config.memory_init = "zero";
  config.memory_qkv = "shared";
  ModelConfig llama = config;
  llama.model = "llama";
  CHECK(listed(config) == listed(llama));
  CHECK(listed(llama) ==
        std::vector<std::string>{"embed.weight [11, 12]", "layers.0.attn_norm.weight [12]",
                                 "layers.0.attn.wq.weight [12, 12]", "layers.0.attn.wk.weight [4, 12]",
                                 "layers.0.attn.wv.weight [4, 12]", "layers.0.attn.wo.weight [12, 12]",
                                 "layers.0.mlp_norm.weight [12]", "layers.0.mlp.gate.weight [20, 12]",
                                 "layers.0.mlp.up.weight [20, 12]", "layers.0.mlp.down.weight [12, 20]",
                                 "final_norm.weight [12]"});
}

TEST_CASE("memory_llama: initial deviations are those of the published code") {
  ModelConfig config = blockwise_config("memory_llama");
  config.vocab = 300;
  config.dim = 96;
  config.heads = config.kv_heads = 2;
  config.mlp_dim = 128;
  config.layers = 6;
  config.init_std = 0.02;
  config.memory_proj = true;
  config.tied = false;
  const auto model = make_model(config, Dtype::f64);
  model->params().initialize(1);
  for (const Parameter& parameter : model->params().parameters()) {
    CAPTURE(parameter.name);
    const std::string& name = parameter.name;
    if (name.ends_with("memory.init")) {
      CHECK(largest_magnitude(parameter.value) == 0);
    } else if (name.ends_with("norm.weight")) {
      CHECK(numbers(parameter.value) == std::vector<double>(96, 1.0));
    } else {
      // The deviation of n draws is off by 1 / sqrt(2 n) on average; n is 9216 at least, and 5 of those are
      // 0.037.
      const bool small =
          name.ends_with("up.weight") || name.ends_with("wo.weight") || name.ends_with("wm.weight");
      const double expected = small ? 0.02 / std::sqrt(12.0) : 0.02;
      CHECK(std::abs(deviation(parameter.value) - expected) <= 0.037 * expected);
    }
  }
}

TEST_CASE("memory_llama: a new model of the published shape loses what guessing loses") {
  ModelConfig config = published("blockwise_memory_separate");
  config.layers = 2;
  const auto model = make_model(config);
  model->params().initialize(1);
  const Tensor tokens = random_ids(2, 64, 4096, 1);
  const double loss = cross_entropy(call(*model, tokens).logits, random_ids(2, 64, 4096, 2)).item();
  CHECK(loss > 8.25);
  CHECK(loss < 8.45);
}

TEST_CASE("blockwise_recurrent: costs per token are those of the paper") {
  const auto cost = [](const ModelConfig& config, std::int64_t time) {
    return forward_cost(config, time).flops / 2 / static_cast<double>(time);
  };
  const ModelConfig llama = published("blockwise_llama"), memory = published("blockwise_memory_separate");
  const double head = 288.0 * 4096;
  CHECK(cost(llama, 256) == doctest::Approx(6 * (331'776 + 663'552 + 288 * 257.0) + head));
  // Section 4: the layers of the memory model cost 1.73 times those of the baseline at 256 tokens.
  CHECK((cost(memory, 256) - head) / (cost(llama, 256) - head) == doctest::Approx(1.73).epsilon(0.003));
}

TEST_CASE("blockwise_recurrent: sizes and switches that contradict each other are refused") {
  const auto refused = [](auto change, const char* part) {
    ModelConfig config = blockwise_config("memory_llama");
    change(config);
    const std::string text = error_of<ConfigError>([&] { validate(config); });
    CAPTURE(text);
    CHECK(contains(text, part));
  };
  refused([](ModelConfig& c) { c.heads = 5; }, "heads must divide model.dim");
  refused([](ModelConfig& c) { c.heads = c.kv_heads = 4; }, "width of a head must be even");
  refused([](ModelConfig& c) { c.kv_heads = 2; }, "kv_heads must divide");
  refused([](ModelConfig& c) { c.head_dim = 8; }, "head_dim must be dim / heads");
  refused([](ModelConfig& c) { c.rope_theta = 0; }, "rope_theta is 0");
  refused([](ModelConfig& c) { c.n_out = 7; }, "tied head");
  refused([](ModelConfig& c) { c.chunk = 0; }, "chunk is 0");
  refused([](ModelConfig& c) { c.window = -1; }, "window is -1");
  refused([](ModelConfig& c) { c.memory_qkv = "both"; }, "memory_qkv is \"both\" (one of separate, shared)");
  refused([](ModelConfig& c) { c.memory_init = "one"; }, "memory_init");
  refused([](ModelConfig& c) { c.detach = "never"; }, "detach");
  ModelConfig with_foreign_keys = blockwise_config("memory_llama");
  with_foreign_keys.positions = with_foreign_keys.bias = true;
  with_foreign_keys.readout = "last";
  CHECK(count_parameters(with_foreign_keys).count() ==
        count_parameters(blockwise_config("memory_llama")).count());
}

TEST_CASE("blockwise_recurrent: sizes left out are those of the papers") {
  const ModelConfig llama = resolved(published("blockwise_llama"));
  CHECK(llama.mlp_dim == 768);
  CHECK(llama.kv_heads == 6);
  CHECK(llama.head_dim == 48);
  CHECK(llama.norm_eps == 1e-5);
  CHECK(resolved(published("blockwise_llama_window")).window == 256);
  CHECK(resolved(published("blockwise_memory_separate")).chunk == 32);
}
