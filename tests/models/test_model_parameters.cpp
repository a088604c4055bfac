// What models own: names, shapes and numbers of their parameters, how these are initialised and stored, and
// which configurations there are.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/models/compare.h"
#include "train/config/run_config.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

TEST_CASE("model parameters: the published configurations have exactly the published counts") {
  // The recurrent transformers: V D + [positions] N D + L (12 D^2 + 2 D) + D + [untied] n_out D. The paper of the
  // block-recurrent transformers counts without the token table.
  const std::map<std::string, std::int64_t> published{{"shakespeare_unit", 1'795'584},
                                                      {"shakespeare_unit_pos", 1'893'888},
                                                      {"shakespeare_regular_1", 1'893'888},
                                                      {"shakespeare_regular_6", 10'745'088},
                                                      {"cifar_regular", 90'720},
                                                      {"cifar_block", 53'664},
                                                      {"copy", 508'704},
                                                      {"br_150m_slide_12l", 151'023'712},
                                                      {"br_150m_xl_512", 151'023'712},
                                                      {"br_150m_xl_1024", 151'023'712},
                                                      {"br_150m_xl_2048", 151'023'712},
                                                      {"br_150m_slide_13l", 163'608'936},
                                                      {"br_150m_rec_fixed_skip", 160'462'968},
                                                      {"br_150m_rec_fixed_dual", 168'853'624},
                                                      {"br_150m_rec_fixed_single", 170'948'728},
                                                      {"br_150m_rec_lstm_skip", 164'658'296},
                                                      {"br_150m_rec_lstm_dual", 181'438'584},
                                                      {"br_150m_rec_lstm_single", 179'338'360},
                                                      {"br_150m_feedback_fixed_skip", 183'531'728},
                                                      {"br_150m_feedback_lstm_single", 202'407'120},
                                                      {"br_150m_memorizing", 151'023'720},
                                                      {"br_scaling_40m_rec_fixed_skip", 40'387'192},
                                                      {"br_scaling_40m_xl", 40'911'720},
                                                      {"br_scaling_80m_rec_fixed_skip", 80'233'080},
                                                      {"br_scaling_80m_xl", 81'806'184},
                                                      {"br_scaling_160m_rec_fixed_skip", 160'462'968},
                                                      {"br_scaling_160m_xl", 163'608'936},
                                                      {"br_scaling_320m_rec_fixed_skip", 319'849'712},
                                                      {"br_scaling_320m_xl", 327'190'224},
                                                      {"br_scaling_650m_rec_fixed_skip", 639'698'400},
                                                      {"br_scaling_650m_xl", 654'379'424},
                                                      {"br_scaling_1.3b_rec_fixed_skip", 1'279'384'032},
                                                      {"br_scaling_1.3b_xl", 1'308'745'120},
                                                      {"blockwise_llama", 7'155'360},
                                                      {"blockwise_llama_window", 7'155'360},
                                                      {"blockwise_memory_shared_zero", 11'140'128},
                                                      {"blockwise_memory_shared_learned", 11'195'424},
                                                      {"blockwise_memory_separate", 12'190'752},
                                                      {"blockwise_memory_separate_query", 12'688'416},
                                                      {"algorithm_staircase", 3'176'986},
                                                      {"algorithm_cached", 3'176'986},
                                                      {"algorithm_xl", 3'175'194},
                                                      {"algorithm_xl_8", 6'330'138},
                                                      {"algorithm_feedback", 3'175'199},
                                                      {"algorithm_feedback_shared", 2'780'447},
                                                      {"algorithm_lstm", 3'178'522},
                                                      {"random_walk_staircase", 3'199'045},
                                                      {"enwik8_staircase", 25'482'496}};
  const std::vector<NamedConfig>& all = paper_configs();
  CHECK(all.size() == published.size());
  for (const NamedConfig& named : all) {
    CAPTURE(named.name);
    CHECK(count_parameters(named.config).count() == named.parameters);
    const std::int64_t table =
        named.config.family == "block_recurrent" ? named.config.vocab * named.config.dim : 0;
    REQUIRE(published.contains(named.name));
    CHECK(named.parameters - table == published.at(named.name));
  }
}

TEST_CASE("model parameters: counting allocates nothing") {
  const std::int64_t before = allocator(kCpu).stats().allocations;
  for (const NamedConfig& named : paper_configs()) static_cast<void>(count_parameters(named.config));
  CHECK(allocator(kCpu).stats().allocations == before);
}

TEST_CASE("model parameters: a tied model without biases has these names and shapes") {
  const std::vector<std::string> expected{"embed.weight [11, 12]",
                                          "layers.0.attn_norm.weight [12]",
                                          "layers.0.attn.wqkv.weight [36, 12]",
                                          "layers.0.attn.wo.weight [12, 12]",
                                          "layers.0.mlp_norm.weight [12]",
                                          "layers.0.mlp.up.weight [48, 12]",
                                          "layers.0.mlp.down.weight [12, 48]",
                                          "final_norm.weight [12]"};
  CHECK(listed(small_config("unit_forget")) == expected);
  CHECK(listed(small_config("regular")) == expected);
}

TEST_CASE("model parameters: an untied model with positions and biases has these names and shapes") {
  ModelConfig config = small_config("regular");
  config.layers = 2;
  config.positions = config.bias = true;
  config.tied = false;
  config.n_out = 7;
  config.mlp_dim = 20;
  std::vector<std::string> expected{"embed.weight [11, 12]", "pos_embed.weight [40, 12]"};
  for (const char* layer : {"layers.0.", "layers.1."})
    for (const char* rest :
         {"attn_norm.weight [12]", "attn_norm.bias [12]", "attn.wqkv.weight [36, 12]", "attn.wqkv.bias [36]",
          "attn.wo.weight [12, 12]", "attn.wo.bias [12]", "mlp_norm.weight [12]", "mlp_norm.bias [12]",
          "mlp.up.weight [20, 12]", "mlp.up.bias [20]", "mlp.down.weight [12, 20]", "mlp.down.bias [12]"})
      expected.push_back(std::string(layer) + rest);
  for (const char* rest : {"final_norm.weight [12]", "final_norm.bias [12]", "head.weight [7, 12]"})
    expected.emplace_back(rest);
  CHECK(listed(config) == expected);
}

TEST_CASE("model parameters: initial values have the deviations of the specification") {
  ModelConfig config;
  config.model = "regular";
  config.vocab = 65;
  config.dim = 96;
  config.layers = 4;
  config.positions = config.bias = true;
  config.tied = false;
  const auto model = make_model(config);
  model->params().initialize(1337);
  for (const Parameter& parameter : model->params().parameters()) {
    CAPTURE(parameter.name);
    const std::vector<double> values = numbers(parameter.value);
    const bool is_bias = parameter.name.ends_with(".bias");
    if (parameter.shape.rank() == 1) {
      for (const double value : values) CHECK(value == (is_bias ? 0.0 : 1.0));
      continue;
    }
    const bool residual =
        parameter.name.ends_with("attn.wo.weight") || parameter.name.ends_with("mlp.down.weight");
    const double deviation = residual ? 0.02 / std::sqrt(8.0) : 0.02;
    const auto n = static_cast<double>(values.size());
    double mean = 0, square = 0, largest = 0;
    for (const double value : values) {
      mean += value / n;
      square += value * value / n;
      largest = std::max(largest, std::abs(value));
    }
    // Five standard errors of a normal sample's mean and deviation.
    CHECK(std::abs(mean) <= 5 * deviation / std::sqrt(n));
    CHECK(std::abs(std::sqrt(square) / deviation - 1) <= 5 / std::sqrt(2 * n));
    CHECK(largest > 3 * deviation);  // not cut
  }
}

TEST_CASE("model parameters: an initial value depends on the seed and the name alone") {
  ModelConfig config = small_config("unit_forget");
  const auto one = make_model(config), again = make_model(config), other = make_model(config);
  one->params().initialize(1);
  again->params().initialize(1);
  other->params().initialize(2);
  config.positions = true;
  config.layers = 2;
  config.init_std = small_config("unit_forget").init_std;
  const auto larger = make_model(config);
  larger->params().initialize(1);
  const auto value = [](const std::unique_ptr<Model>& model, const char* name) {
    return model->params().get(name).value;
  };
  CHECK(same_bits(one->params().values(), again->params().values()));
  CHECK(!same_bits(value(one, "embed.weight"), value(other, "embed.weight")));
  CHECK(same_bits(value(one, "embed.weight"), value(larger, "embed.weight")));
  CHECK(same_bits(value(one, "layers.0.mlp.up.weight"), value(larger, "layers.0.mlp.up.weight")));
  CHECK(!same_bits(value(larger, "layers.0.mlp.up.weight"), value(larger, "layers.1.mlp.up.weight")));
}

TEST_CASE("model parameters: values and gradients lie in arenas at equal offsets with zeros between") {
  ModelConfig config = small_config("unit_forget");
  config.dim = 9;
  config.heads = 3;
  const auto model = random_model(config, Dtype::f32);
  ParamStore& params = model->params();
  std::vector<bool> owned(static_cast<std::size_t>(params.values().elements()), false);
  for (const Parameter& parameter : params.parameters()) {
    CHECK(parameter.value.offset() == parameter.offset);
    CHECK(parameter.value.buffer().get() == params.values().buffer().get());
    CHECK(parameter.offset % 16 == 0);
    for (std::int64_t i = 0; i < parameter.shape.elements(); ++i) {
      CHECK(!owned[static_cast<std::size_t>(parameter.offset + i)]);
      owned[static_cast<std::size_t>(parameter.offset + i)] = true;
    }
  }
  ForwardInput input;
  input.tokens = random_ids(2, 5, 11, 1);
  const Outcome outcome = run(*model, input, random_ids(2, 5, 11, 2));
  params.zero_missing_gradients();
  const std::vector<double> values = numbers(params.values()), gradients = numbers(params.gradients());
  for (std::size_t i = 0; i < owned.size(); ++i) {
    if (owned[i]) continue;
    CHECK(values[i] == 0);
    CHECK(gradients[i] == 0);
  }
  for (const Parameter& parameter : params.parameters())
    for (std::int64_t i = 0; i < parameter.shape.elements(); ++i)
      CHECK(gradients[static_cast<std::size_t>(parameter.offset + i)] ==
            numbers(outcome.gradients.at(parameter.name))[static_cast<std::size_t>(i)]);
}

TEST_CASE("model parameters: an unknown name is an error") {
  const auto model = make_model(small_config("regular"));
  CHECK(model->params().find("layers.0.attn.wq.weight") == nullptr);
  CHECK(contains(
      error_of<ValueError>([&] { static_cast<void>(model->params().get("layers.0.attn.wq.weight")); }),
      "layers.0.attn.wq.weight"));
}

TEST_CASE("make_model: names and sizes that do not fit are refused") {
  ModelConfig config = small_config("no_such_model");
  CHECK(contains(error_of<ConfigError>([&] { static_cast<void>(make_model(config)); }), "no_such_model"));
  config = small_config("unit_forget");
  config.family = "no_such_family";
  CHECK(contains(error_of<ConfigError>([&] { static_cast<void>(make_model(config)); }), "no_such_family"));
  config = small_config("unit_forget");
  config.heads = 5;
  CHECK(contains(error_of<ConfigError>([&] { static_cast<void>(make_model(config)); }), "dim 12, heads 5"));
  config = small_config("unit_forget");
  config.vocab = 0;
  CHECK(contains(error_of<ConfigError>([&] { static_cast<void>(make_model(config)); }), "vocab"));
  config = small_config("unit_forget");
  config.n_out = 5;
  CHECK(contains(error_of<ConfigError>([&] { static_cast<void>(make_model(config)); }), "tied"));
}

TEST_CASE("make_model: head sizes that the recurrent transformers cannot have are refused") {
  for (const std::string& name : models_of("recurrent_transformer")) {
    CAPTURE(name);
    ModelConfig config = small_config(name);
    config.head_dim = 5;  // 3 heads of 5 are not 12
    CHECK_THROWS_AS(static_cast<void>(make_model(config)), ConfigError);
    config = small_config(name);
    config.kv_heads = 1;
    CHECK_THROWS_AS(static_cast<void>(make_model(config)), ConfigError);
    config = small_config(name);
    config.head_dim = 4;
    config.kv_heads = 3;
    CHECK_NOTHROW(static_cast<void>(make_model(config)));
  }
}
