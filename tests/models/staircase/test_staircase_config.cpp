// The staircase family's parameters, sizes and errors.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/models/staircase/staircase_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

std::string config_error(const ModelConfig& config) {
  return error_of<ConfigError>([&] { make_model(config, Dtype::f64); });
}

std::string tokens_error(const Model& model, std::int64_t time) {
  return error_of<ShapeError>([&] { forward_of(model, random_ids(2, time, model.config().vocab, 1)); });
}

}  // namespace

TEST_CASE("staircase config: names and shapes of a pre-norm and a post-norm model") {
  const auto sorted = [](const ModelConfig& config) {
    std::vector<std::string> lines = listed(config);
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  ModelConfig config = staircase_config("feedback");
  config.layers = 1;
  std::vector<std::string> expected{"embed.weight [13, 10]",
                                    "feedback.layer_logits [2]",
                                    "final_norm.bias [10]",
                                    "final_norm.weight [10]",
                                    "head.bias [11]",
                                    "head.weight [11, 10]",
                                    "layers.0.attn.wk.weight [15, 10]",
                                    "layers.0.attn.wo.weight [10, 15]",
                                    "layers.0.attn.wq.weight [15, 10]",
                                    "layers.0.attn.wv.weight [15, 10]",
                                    "layers.0.attn_norm.bias [10]",
                                    "layers.0.attn_norm.weight [10]",
                                    "layers.0.mlp.down.bias [10]",
                                    "layers.0.mlp.down.weight [10, 17]",
                                    "layers.0.mlp.up.bias [17]",
                                    "layers.0.mlp.up.weight [17, 10]",
                                    "layers.0.mlp_norm.bias [10]",
                                    "layers.0.mlp_norm.weight [10]",
                                    "pos.key_pe [5, 5]"};
  CHECK(sorted(config) == expected);
  config.prenorm = false;
  config.model = "transformer_xl";
  std::erase_if(expected, [](const std::string& line) {
    return line.starts_with("final_norm") || line.starts_with("feedback");
  });
  CHECK(sorted(config) == expected);

  ModelConfig lstm = staircase_config("lstm");
  CHECK(sorted(lstm) ==
        std::vector<std::string>{"embed.weight [13, 7]", "head.bias [11]", "head.weight [11, 10]",
                                 "lstm.0.b_hh [40]", "lstm.0.b_ih [40]", "lstm.0.w_hh [40, 10]",
                                 "lstm.0.w_ih [40, 7]", "lstm.1.b_hh [40]", "lstm.1.b_ih [40]",
                                 "lstm.1.w_hh [40, 10]", "lstm.1.w_ih [40, 10]"});
}

TEST_CASE("staircase config: shared keys and values leave out what later layers do not own") {
  ModelConfig config = staircase_config("feedback");
  config.layers = 3;
  const std::int64_t own = count_parameters(config).count();
  const std::int64_t projections = 2 * (config.layers - 1) * 15 * config.dim;
  const std::int64_t norms = 2 * (config.layers - 1) * config.dim;
  config.shared_kv = true;
  CHECK(count_parameters(config).count() == own - projections - norms);
  config.prenorm = false;  // there the norm is the residual stream's
  CHECK(count_parameters(config).count() == own - projections - 2 * config.dim);
}

TEST_CASE("staircase config: initial values have the published ranges") {
  for (const bool prenorm : {true, false}) {
    ModelConfig config = staircase_config("staircase");
    config.prenorm = prenorm;
    config.dim = 48;
    config.mlp_dim = 80;
    const auto model = make_model(config, Dtype::f64);
    model->params().initialize(3);
    const auto largest = [&](const std::string& name) {
      const Tensor& value = model->params().get(name).value;
      return distance(value, value).scale;
    };
    const double gain = prenorm ? 0.5 : 1;  // 1 / sqrt(2 L) with two layers
    const std::map<std::string, double> limits{{"layers.1.attn.wq.weight", 1 / std::sqrt(48)},
                                               {"layers.1.attn.wo.weight", gain / std::sqrt(15)},
                                               {"layers.0.mlp.up.weight", 1 / std::sqrt(48)},
                                               {"layers.0.mlp.up.bias", 1 / std::sqrt(48)},
                                               {"layers.0.mlp.down.weight", gain / std::sqrt(80)},
                                               {"layers.0.mlp.down.bias", gain / std::sqrt(80)},
                                               {"head.weight", 1 / std::sqrt(48)}};
    for (const auto& [name, limit] : limits) {
      CAPTURE(name);
      CHECK(largest(name) <= limit);
      CHECK(largest(name) > 0.85 * limit);
    }
    CHECK(largest("embed.weight") > 2);  // normal, deviation 1
    CHECK(largest("pos.key_pe") > 1.5);
    CHECK(largest("layers.0.attn_norm.bias") == 0);
  }
}

TEST_CASE("staircase config: sizes that do not fit are refused with their names and values") {
  ModelConfig config = staircase_config("staircase");
  config.span = 8;
  CHECK(contains(config_error(config), "model.span"));
  CHECK(contains(config_error(config), "span 8, steps 3, chunk 3"));
  config = staircase_config("staircase");
  config.segment = 10;
  CHECK(contains(config_error(config), "chunk 3, segment 10"));
  config = staircase_config("staircase");
  config.carry = "official";
  config.segment = 3;
  CHECK(contains(config_error(config), "at least 2 chunks"));
  config = staircase_config("cached_staircase");
  config.cache_after = 4;
  CHECK(contains(config_error(config), "cache_after 4, steps 3"));
  config = staircase_config("staircase");
  config.cache_after = 1;
  CHECK(config_error(config).empty());  // a key of cached_staircase, which means nothing here
  CHECK(resolved(config).cache_after == config.steps);
  config = staircase_config("universal");
  config.layers = 2;
  CHECK(contains(config_error(config), "model.layers"));
  config = staircase_config("transformer_xl");
  config.repeats = 2;
  CHECK(resolved(config).repeats == 1);
  config = staircase_config("feedback");
  config.kv_heads = 1;
  CHECK(contains(config_error(config), "model.kv_heads"));
  for (std::string ModelConfig::*key : {&ModelConfig::carry, &ModelConfig::cold_start,
                                        &ModelConfig::feedback_memory, &ModelConfig::feedback_carry}) {
    config = staircase_config("staircase");
    config.*key = "other";
    CHECK(contains(config_error(config), "\"other\""));
  }
}

TEST_CASE("staircase config: tokens that cannot be cut are refused with the sizes") {
  const auto model = random_model(staircase_config("staircase"));
  CHECK(contains(tokens_error(*model, 13), "13 tokens in chunks of 3"));
  CHECK(contains(tokens_error(*random_model(staircase_config("cached_staircase")), 4), "4 tokens in chunks"));
  ModelConfig official = staircase_config("staircase");
  official.carry = "official";
  const auto other = random_model(official);
  CHECK(contains(tokens_error(*other, 15), "a segment of 1 chunks (at least 2"));
  CHECK(tokens_error(*other, 18).empty());
}

TEST_CASE("staircase config: a token passes the layers in each step, until it is frozen, or in each repeat") {
  const auto steps = [](ModelConfig config, std::int64_t cache_after = 0, std::int64_t repeats = 1) {
    config.cache_after = cache_after;
    config.repeats = repeats;
    return make_unallocated_model(config)->recurrent_steps();
  };
  CHECK(steps(staircase_config("staircase")) == 3);
  CHECK(steps(staircase_config("cached_staircase")) == 1);
  CHECK(steps(staircase_config("cached_staircase"), 2) == 2);
  CHECK(steps(staircase_config("universal"), 0, 5) == 5);
  CHECK(steps(staircase_config("ladder"), 0, 4) == 4);
  CHECK(steps(staircase_config("transformer_xl"), 0, 4) == 1);
  CHECK(steps(staircase_config("lstm"), 0, 4) == 1);
}
